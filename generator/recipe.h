/* recipe.h: all that a text depends on, as one digest, without the text.
 * in -> out: request, arch, config, templates, score, this library -> a source without text; its
 * recipe. Equal recipes give equal texts. */
#ifndef GENERATOR_RECIPE_H
#define GENERATOR_RECIPE_H

#include "generator/emit.h"

/* The source as ft_emit makes it, but for text, origins and digest, which stay empty. Fails as
 * ft_emit does, except where a template is broken. */
int ft_recipe(struct ft_source *source, struct ft_lua *lua, const struct ft_request *request,
              const struct ft_arch *arch, const struct ft_config *config, struct ft_digest *recipe);

#endif
