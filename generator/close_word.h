/* close_word.h: what a mistyped word was meant to be.
 * in -> out: two words -> edits that turn one into the other. */
#ifndef GENERATOR_CLOSE_WORD_H
#define GENERATOR_CLOSE_WORD_H

#include <stdbool.h>

/* Edits (insert, delete, replace, swap of neighbours; case ignored) that turn a into b. */
int ft_edit_distance(const char *a, const char *b);

/* Whether a suggestion of `name` for the mistyped `word` is worth printing. */
bool ft_is_close(const char *word, const char *name);

#endif
