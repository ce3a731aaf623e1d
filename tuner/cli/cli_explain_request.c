/* cli_explain_request.c: which config a request gets here, and why.
 * in -> out: request + GPU -> how the look-up hit, runner-ups, the model's view, the rules' toll.
 */
#include "tuner/cli/cli_explain_request.h"

#include <stdlib.h>
#include <string.h>

#include "cache/store.h"
#include "generator/emit.h"
#include "generator/space.h"
#include "generator/status.h"
#include "runtime/choice.h"
#include "runtime/compiler.h"
#include "runtime/kernel_source.h"
#include "runtime/scores.h"
#include "runtime/session.h"
#include "tuner/cli/cli_explain.h"

static void explain_asked(struct cli *cli, const struct ft_request *request,
                          const struct ft_request *bucket, const struct cli_target *target) {
  char *const text = cli_request_text(request), *bucket_text = cli_request_text(bucket);
  cli_json(cli, "request", cli_json_text(text));
  cli_json(cli, "bucket", cli_json_text(bucket_text));
  cli_json_target(cli, target);
  cli_field(cli, "request", "%s", text);
  cli_field(cli, "bucket", "%s", bucket_text);
  cli_field(cli, "GPU", "%s (%s)%s", target->arch.name, target->id,
            target->here       ? ""
            : target->emulated ? ", emulated"
                               : ", not in this machine");
  free(text);
  free(bucket_text);
}

static void explain_tools(struct cli *cli, fatune_session *session) {
  struct ft_compiler *compiler;
  char digest[FT_DIGEST_HEX];
  ft_digest_hex(&session->templates, digest);
  const bool compiles = ft_session_compiler(session, &compiler) == FT_OK;
  const char *const version = compiles ? ft_compiler_version(compiler) : NULL;
  cli_field(cli, "templates", "%.12s", digest);
  if (compiles)
    cli_field(cli, "toolchain", "NVRTC %s", version);
  else
    cli_field(cli, "toolchain",
              "NVRTC missing: only kernels that are in a cache can be run, of the "
              "nearest winner where that of this config is not (%s)",
              fatune_detail());
  cli_json(cli, "templates", cli_json_text(digest));
  cli_json(cli, "nvrtc", cli_json_text(version));
  const bool has_driver = session->has_device && !session->driver.emulated;
  cli_json(cli, "driver", has_driver ? cli_json_text(session->device.driver) : json_null());
}

/* Template files the source is made of, in order of use. */
static void explain_source(struct cli *cli, const struct ft_source *source) {
  json_t *const files = json_array();
  struct ft_text list = FT_TEXT_INIT;
  for (int i = 0; i < source->line_count; ++i) {
    const char *const file = source->origins[i].file;
    size_t at = 0;
    while (at < json_array_size(files) &&
           strcmp(json_string_value(json_array_get(files, at)), file) != 0)
      ++at;
    if (at < json_array_size(files)) continue;
    cli_json_append(files, cli_json_text(file));
    ft_text_add(&list, "%s%s", list.length > 0 ? ", " : "", file);
  }
  cli_field(cli, "made of", "%s", cli_whole(&list));
  cli_json(cli, "files", files);
  ft_text_free(&list);
}

static void explain_budget(struct cli *cli, const struct ft_source *source) {
  const struct ft_budget *const budget = &source->budget;
  json_t *const object = json_object();
  cli_json_set(object, "threads", json_integer(budget->threads));
  cli_json_set(object, "smem_bytes", json_integer(budget->smem_bytes));
  cli_json_set(object, "regs_estimate", json_integer(budget->regs_estimate));
  cli_json_set(object, "regs_limit", json_integer(budget->regs_limit));
  cli_json(cli, "budget", object);
  cli_field(cli, "budget", "%d threads, %d bytes of shared memory, about %d registers of %d",
            budget->threads, budget->smem_bytes, budget->regs_estimate, budget->regs_limit);
}

static void explain_choice(struct cli *cli, const struct ft_choice *choice,
                           const struct ft_config *standard, const struct cli_trials *trials) {
  char *const config = cli_config_text(&choice->config), *default_text = cli_config_text(standard);
  struct ft_text why = FT_TEXT_INIT;
  cli_explain_why(trials, choice, &why);
  cli_field(cli, "hit", "%s%s%s", cli_hit_name(choice->hit), choice->note[0] != '\0' ? ": " : "",
            choice->note);
  cli_field(cli, "config", "%s", config);
  cli_explain_measured(cli, choice);
  cli_field(cli, "why", "%s", cli_whole(&why));
  cli_field(cli, "default", "%s", default_text);
  cli_json(cli, "hit", cli_json_text(cli_hit_name(choice->hit)));
  cli_json(cli, "note", cli_json_text(choice->note));
  cli_json(cli, "octaves", cli_json_real(choice->octaves));
  cli_json(cli, "config", cli_json_text(config));
  cli_json(cli, "knobs", cli_knobs_json(config));
  cli_json(cli, "why", cli_json_text(why.data));
  cli_json(cli, "default", cli_json_text(default_text));
  cli_json(cli, "known_us", choice->median_us > 0 ? cli_json_real(choice->median_us) : json_null());
  free(config);
  free(default_text);
  ft_text_free(&why);
}

int cli_explain_request(struct cli *cli, fatune_session *session,
                        const struct ft_request *request) {
  const struct ft_request bucket = ft_request_bucket(request);
  struct cli_target target;
  struct ft_choice choice;
  struct ft_config standard;
  struct ft_source source = {0};
  const struct ft_score_costs *score;
  struct cli_trials *const trials = calloc(1, sizeof *trials); /* too large for a stack */
  int status;
  if (trials == NULL) return ft_fail(FT_E_MEMORY, "no memory for trials");
  FT_CHECK(cli_target_find(cli, session, &target));
  FT_CHECK(ft_session_score_costs(session, request->score, &score));
  explain_asked(cli, request, &bucket, &target);
  FT_CHECK(ft_session_choose(session, request, &target.arch, target.id, &choice));
  FT_CHECK(ft_default_config(request, &target.arch, &standard));
  FT_CHECK(cli_trials_read(trials, session, &bucket, target.id, &choice.config));
  FT_CHECK(ft_session_emit(session, request, &target.arch, &choice.config, &source));
  explain_tools(cli, session);
  explain_choice(cli, &choice, &standard, trials);
  explain_source(cli, &source);
  explain_budget(cli, &source);
  cli_explain_model(cli, request, &target, score, &choice.config, &standard, trials);
  cli_explain_trials(cli, trials, &target, request);
  FT_CHECK(cli_explain_space(cli, request, &target));
done:
  ft_source_free(&source);
  free(trials);
  return status;
}
