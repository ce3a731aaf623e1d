/* builtin.c: the score functions that come with the templates.
 * in -> out: name -> text of templates/scores/NAME.lua. */
#include "generator/score/builtin.h"

#include <stdio.h>
#include <string.h>

#include "generator/status.h"

static const char folder[] = "scores/", ending[] = ".lua";

const struct ft_template *ft_score_builtin(const struct ft_template_files *files,
                                           const char *name) {
  char file[FT_SCORE_NAME + sizeof folder + sizeof ending];
  if (strlen(name) >= FT_SCORE_NAME) return NULL;
  (void)snprintf(file, sizeof file, "%s%s%s", folder, name, ending);
  return ft_template_files_find(files, file);
}

bool ft_score_builtin_name(const struct ft_template_files *files, int index,
                           char name[FT_SCORE_NAME]) {
  for (size_t i = 0; i < files->count; ++i) {
    const char *const file = files->rows[i].name;
    const size_t length = strlen(file);
    const size_t around = sizeof folder - 1 + sizeof ending - 1;
    if (strncmp(file, folder, sizeof folder - 1) != 0 || length >= around + FT_SCORE_NAME) continue;
    if (index-- > 0) continue;
    (void)snprintf(name, FT_SCORE_NAME, "%.*s", (int)(length - around), file + sizeof folder - 1);
    return true;
  }
  return false;
}

int ft_score_read_builtin(struct ft_score *score, const struct ft_template_files *files,
                          const char *name) {
  const struct ft_template *const file = ft_score_builtin(files, name);
  if (file != NULL)
    return ft_score_read(score, strrchr(file->name, '/') + 1, file->text, file->length);
  *score = (struct ft_score){0};
  struct ft_text known = FT_TEXT_INIT;
  char other[FT_SCORE_NAME];
  for (int i = 0; ft_score_builtin_name(files, i, other); ++i) ft_text_add(&known, " %s", other);
  ft_fail(FT_E_NOT_FOUND, "score '%s' is unknown; built in:%s", name, known.data ? known.data : "");
  ft_text_free(&known);
  return FT_E_NOT_FOUND;
}
