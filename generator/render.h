/* render.h: one run of the template engine, for emit.c.
 * in -> out: request, config, budget, header strings -> text and line origins of a source. */
#ifndef GENERATOR_RENDER_H
#define GENERATOR_RENDER_H

#include "generator/emit.h"

enum { FT_RENDER_PARTS = 80 };

struct ft_render {
  struct ft_lua *lua;
  const struct ft_request *request; /* a kernel class */
  const struct ft_arch *arch;
  const struct ft_config *config;
  const char *template_name;
  const struct ft_known_score *score;             /* NULL: the request has none */
  const char *request_text, *config_text, *again; /* for the header of the text */
  struct ft_source *source; /* budget and target are read; text, origins, names are set */
  const struct ft_template *parts[FT_RENDER_PARTS]; /* set: files used, in order of first use */
  int part_count;
};

/* On failure the source may hold some of its parts; the caller frees it either way. */
int ft_render(struct ft_render *job);

#endif
