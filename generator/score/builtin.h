/* builtin.h: the score functions that come with the templates.
 * in -> out: name -> text of templates/scores/NAME.lua. */
#ifndef GENERATOR_SCORE_BUILTIN_H
#define GENERATOR_SCORE_BUILTIN_H

#include "generator/score/score.h"
#include "generator/template_files.h"

/* NULL: there is none of that name. */
const struct ft_template *ft_score_builtin(const struct ft_template_files *files, const char *name);

/* FT_E_NOT_FOUND lists the names. */
int ft_score_read_builtin(struct ft_score *score, const struct ft_template_files *files,
                          const char *name);

/* The index-th name; false past the end. */
bool ft_score_builtin_name(const struct ft_template_files *files, int index,
                           char name[FT_SCORE_NAME]);

#endif
