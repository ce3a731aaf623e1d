/* trials_texts.h: texts, each once.
 * in -> out: a text -> its number, from 0 on in the order in which they came. */
#ifndef TUNER_TRIALS_TEXTS_H
#define TUNER_TRIALS_TEXTS_H

#include <stdbool.h>

struct ft_texts {
  void *tree;
  int count;
};

/* *copy, if wanted: lives as long as the texts do. */
int ft_texts_number(struct ft_texts *texts, const char *text, int *number, bool *is_new,
                    const char **copy);
void ft_texts_free(struct ft_texts *texts);

#endif
