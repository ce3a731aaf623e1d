/* trials_texts.c: texts, each once. in -> out: see trials_texts.h. */
#include "tuner/cli/fit/trials_texts.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"

struct numbered {
  int number;
  char text[];
};

static int by_text(const void *a, const void *b) {
  const struct numbered *x = a, *y = b;
  return strcmp(x->text, y->text);
}

int ft_texts_number(struct ft_texts *texts, const char *text, int *number, bool *is_new,
                    const char **copy) {
  const size_t size = strlen(text) + 1;
  struct numbered *const made = malloc(sizeof *made + size);
  struct numbered **found = NULL;
  if (made) {
    made->number = texts->count;
    memcpy(made->text, text, size);
    found = tsearch(made, &texts->tree, by_text);
  }
  if (!found) {
    free(made);
    return ft_fail(FT_E_MEMORY, "no memory for '%.80s'", text);
  }
  *number = (*found)->number;
  *is_new = *found == made;
  if (copy) *copy = (*found)->text;
  if (*is_new)
    texts->count += 1;
  else
    free(made);
  return FT_OK;
}

void ft_texts_free(struct ft_texts *texts) {
  tdestroy(texts->tree, free);
  *texts = (struct ft_texts){0};
}
