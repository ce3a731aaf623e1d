/* recipe.c: all that a text depends on, as one digest, without the text.
 * in -> out: request, arch, config, templates, score, this library -> a source without text; its
 * recipe. The sections are what ft_emit and ft_render read; their own code is in the digest of the
 * library's sources, and what templates read besides (gpus.lua, built-in scores) in theirs. */
#include "generator/recipe.h"

#include <lua.h>
#include <string.h>

#include "generator/arguments.h"
#include "generator/family.h"
#include "generator/made_digests.h"
#include "generator/status.h"

static void add_digest(struct ft_hasher *hasher, const char *tag, const struct ft_digest *digest) {
  ft_hasher_section(hasher, tag, digest->bytes, sizeof digest->bytes);
}

/* The library: its sources, the Lua it was built for, the layout its compiler gave the structs. */
static void add_library(struct ft_hasher *hasher) {
  ft_hasher_section(hasher, "schema", "fatune recipe 1", 15);
  add_digest(hasher, "generator", &ft_made_generator);
  ft_hasher_section(hasher, "lua", LUA_RELEASE, strlen(LUA_RELEASE));
  for (const struct ft_argument_struct *a = ft_argument_structs; a->name != NULL; ++a)
    ft_hasher_section(hasher, a->name, &a->bytes, sizeof a->bytes);
}

static void add_values(struct ft_text *text, const struct ft_source *source,
                       const struct ft_arch *arch) {
  const struct ft_family *const family = source->config.family;
  char gpu[16];
  int value;
  ft_arch_target(arch, gpu);
  ft_text_add(text, "sm=%d gpu=%s target=%s", arch->sm, gpu, source->target);
  for (int i = 0; ft_budget_common(&source->budget, i, &value) != NULL; ++i)
    ft_text_add(text, " %d", value);
  for (int i = 0; i < family->budget_field_count; ++i)
    ft_text_add(text, " %d", source->budget.own[i]);
}

static int add_source(struct ft_hasher *hasher, const struct ft_source *source,
                      const struct ft_request *class, const struct ft_arch *arch) {
  struct ft_text text = FT_TEXT_INIT;
  char buffer[64];
  const char *options[8];
  ft_request_print(class, &text);
  ft_text_add(&text, "\n");
  ft_config_print(&source->config, &text);
  ft_text_add(&text, "\n");
  add_values(&text, source, arch);
  for (const char **option = ft_source_options(source, buffer, options); *option != NULL; ++option)
    ft_text_add(&text, "\n%s", *option);
  const int status = ft_text_status(&text);
  if (status == FT_OK) ft_hasher_section(hasher, "source", text.data, text.length);
  ft_text_free(&text);
  return status;
}

int ft_recipe(struct ft_source *source, struct ft_lua *lua, const struct ft_request *request,
              const struct ft_arch *arch, const struct ft_config *config,
              struct ft_digest *recipe) {
  struct ft_request class;
  struct ft_hasher hasher;
  const struct ft_known_score *score = NULL;
  const struct ft_digest templates = ft_lua_templates_digest(lua);
  FT_TRY(ft_emit_outline(source, lua, request, arch, config, &class, &score));
  ft_hasher_init(&hasher);
  add_library(&hasher);
  add_digest(&hasher, "templates", &templates);
  if (score != NULL) add_digest(&hasher, "score", &score->score.digest);
  FT_TRY(add_source(&hasher, source, &class, arch));
  *recipe = ft_hasher_final(&hasher);
  return FT_OK;
}
