/* emit.c: request + config -> CUDA C text, by the template engine.
 * in -> out: request, arch, config -> checks, header strings, rendering, digest -> struct
 * ft_source. */
#include "generator/emit.h"

#include <stdlib.h>
#include <string.h>

#include "generator/family.h"
#include "generator/render.h"
#include "generator/status.h"

static void free_text(struct ft_source *source) {
  free(source->text);
  free(source->origins);
  free(source->names);
  source->text = NULL;
  source->origins = NULL;
  source->names = NULL;
}

/* The smallest request of the class: valid wherever the class is, so it can be checked and parsed.
 */
static struct ft_request smallest_of(const struct ft_request *class) {
  struct ft_request smallest = *class;
  smallest.heads_q = smallest.heads_kv = 1;
  smallest.batch = smallest.seqlen_q = smallest.seqlen_k = 1;
  return smallest;
}

static int check(const struct ft_request *class, const struct ft_arch *arch,
                 const struct ft_config *config) {
  const struct ft_request smallest = smallest_of(class);
  FT_TRY(ft_request_validate(&smallest));
  FT_TRY(ft_rules_serves(class, arch));
  const struct ft_rule *const broken = ft_rules_broken(class, arch, config, FT_CANNOT_RUN);
  if (broken == NULL) return FT_OK;
  const struct ft_knob *const knob = ft_config_out_of_range(config);
  struct ft_text text = FT_TEXT_INIT;
  ft_config_print(config, &text);
  ft_fail(FT_E_ARGUMENT, "config '%s' breaks rule %s on %s: %s", text.data ? text.data : "",
          broken->name, arch->name, broken->reason);
  if (knob != NULL)
    ft_fail(FT_E_ARGUMENT, "config '%s' breaks rule %s: allowed for %s: %d to %d",
            text.data ? text.data : "", broken->name, knob->name, knob->least, knob->most);
  ft_text_free(&text);
  return FT_E_ARGUMENT;
}

static void digest_source(struct ft_source *source) {
  char buffer[64];
  const char *options[8];
  struct ft_hasher hasher;
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "schema", "fatune source 1", 15);
  ft_hasher_section(&hasher, "target", source->target, strlen(source->target));
  for (const char **option = ft_source_options(source, buffer, options); *option != NULL; ++option)
    ft_hasher_section(&hasher, "option", *option, strlen(*option));
  ft_hasher_section(&hasher, "text", source->text, source->length);
  source->digest = ft_hasher_final(&hasher);
}

/* The lines that the text opens with. */
struct heading {
  struct ft_text request, config, again;
};

static int write_heading(struct heading *heading, const struct ft_request *class,
                         const struct ft_arch *arch, const struct ft_source *source) {
  const struct ft_request smallest = smallest_of(class);
  char gpu[16];
  ft_arch_target(arch, gpu);
  ft_request_print(class, &heading->request);
  ft_config_print(&source->config, &heading->config);
  FT_TRY(ft_text_status(&heading->request));
  FT_TRY(ft_text_status(&heading->config));
  ft_text_add(&heading->again, "fatune emit '");
  ft_request_print(&smallest, &heading->again);
  ft_text_add(&heading->again, "' --gpu %s --config '%s'", gpu, heading->config.data);
  return ft_text_status(&heading->again);
}

static void free_heading(struct heading *heading) {
  ft_text_free(&heading->request);
  ft_text_free(&heading->config);
  ft_text_free(&heading->again);
}

/* NULL: the request has none. */
static int find_score(struct ft_lua *lua, const struct ft_request *request,
                      const struct ft_known_score **score) {
  *score = NULL;
  if (request->score == 0) return FT_OK;
  FT_TRY(ft_registry_find(ft_lua_scores(lua), ft_lua_files(lua), request->score, score));
  if (request->pass == FT_FORWARD && request->score_gradients != 0)
    return ft_fail(FT_E_ARGUMENT, "a forward makes no gradients of what a score captures");
  if (request->pass == FT_FORWARD) return FT_OK;
  if (!(*score)->has_slope)
    return ft_fail(FT_E_ARGUMENT, "a backward differentiates its score: %s",
                   (*score)->why_no_slope);
  return ft_known_gradients_check(*score, request->score_gradients);
}

int ft_emit_outline(struct ft_source *source, struct ft_lua *lua, const struct ft_request *request,
                    const struct ft_arch *arch, const struct ft_config *config,
                    struct ft_request *class, const struct ft_known_score **score) {
  *source = (struct ft_source){
      .pass = request->pass, .dtype = ft_operand_dtype(request), .config = *config};
  *class = ft_request_kernel_class(request);
  FT_TRY(check(class, arch, config));
  source->budget = ft_budget_of(class, config, arch);
  ft_config_target(config, arch, source->target);
  return find_score(lua, class, score);
}

int ft_emit(struct ft_source *source, struct ft_lua *lua, const struct ft_request *request,
            const struct ft_arch *arch, const struct ft_config *config) {
  struct ft_request class;
  struct heading heading = {0};
  struct ft_render job = {
      .lua = lua, .request = &class, .arch = arch, .config = config, .source = source};
  int status = ft_emit_outline(source, lua, request, arch, config, &class, &job.score);
  if (status != FT_OK) goto done;
  job.template_name = config->family->template_name;
  FT_CHECK(write_heading(&heading, &class, arch, source));
  job.request_text = heading.request.data;
  job.config_text = heading.config.data;
  job.again = heading.again.data;
  FT_CHECK(ft_render(&job));
  digest_source(source);

done:
  free_heading(&heading);
  if (status != FT_OK) ft_source_free(source);
  return status;
}

void ft_source_free(struct ft_source *source) {
  free_text(source);
  *source = (struct ft_source){0};
}
