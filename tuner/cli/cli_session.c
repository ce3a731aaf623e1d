/* cli_session.c: from options to a session and a config; from a status to an exit code.
 * in -> out: struct cli -> fatune_session, struct ft_choice. */
#include "tuner/cli/cli_session.h"

#include <stdlib.h>
#include <string.h>

#include "cache/store.h"
#include "generator/family.h"
#include "generator/lua_host.h"
#include "generator/status.h"
#include "runtime/choice.h"
#include "runtime/session.h"
#include "tuner/cli/cli_score.h"

int cli_exit_of(int status) {
  switch (status) {
  case FT_OK: return CLI_EXIT_OK;
  case FT_E_ARGUMENT: return CLI_EXIT_USAGE;
  case FT_E_UNSUPPORTED:
  case FT_E_NO_DRIVER: return CLI_EXIT_NO_GPU;
  case FT_E_NO_NVRTC:
  case FT_E_NO_CXX:
  case FT_E_COMPILE: return CLI_EXIT_COMPILE;
  case FT_E_CACHE: return CLI_EXIT_CACHE;
  case FT_E_WRONG: return CLI_EXIT_WRONG;
  case FT_E_INTERRUPTED: return CLI_EXIT_SIGNAL + 2;
  default: return CLI_EXIT_FAILURE;
  }
}

int cli_fail(struct cli *cli, int status) {
  const char *const detail = ft_detail();
  const char *const message = detail[0] != '\0' ? detail : ft_status_text(status);
  cli_error(cli, "%s", message);
  json_t *const error = json_object();
  cli_json_set(error, "exit", json_integer(cli_exit_of(status)));
  cli_json_set(error, "status", cli_json_text(ft_status_text(status)));
  cli_json_set(error, "message", cli_json_text(message));
  cli_json(cli, "error", error);
  return cli_exit_of(status);
}

static void warn(void *payload, const char *message) {
  cli_warning(payload, "%s", message);
}

/* The name of the GPU to emulate may be the fault. A session without it has the table of names. */
static int explain_emulate(const struct cli *cli, int status) {
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  fatune_session *session;
  struct ft_arch arch;
  const char *const name = cli->options.emulate;
  char detail[1024];
  snprintf(detail, sizeof detail, "%s", ft_detail());
  options.memory_only = 1;
  FT_TRY(fatune_session_open(&session, &options));
  if (ft_lua_gpu(session->lua, name, &arch) == FT_E_NOT_FOUND) {
    status = cli_target_unknown(session, name, true);
  } else {
    ft_fail(status, "--gpu %s: %s", cli->options.gpu, detail);
  }
  fatune_session_close(session);
  return status;
}

/* The score function of --score becomes that of all requests. */
static int take_score(struct cli *cli, fatune_session *session) {
  if (cli->options.score == NULL) return FT_OK;
  FT_TRY(cli_score_add(cli->options.score, session, &cli->options.score_number));
  const int64_t number = cli->options.score_number;
  for (int i = 0; i < cli->options.request_count; ++i) {
    struct ft_request *const request = &cli->options.requests[i];
    if (request->score != 0 && request->score != number)
      return ft_fail(FT_E_ARGUMENT,
                     "--score '%s' beside a request with another score; allowed: one of them",
                     cli->options.score);
    request->score = number;
  }
  return FT_OK;
}

int cli_session_open(struct cli *cli, fatune_session **session) {
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  options.device = cli->options.device;
  options.cache_dir = cli->options.cache_dir;
  options.emulate = cli->options.emulate;
  options.log = warn;
  options.payload = cli;
  const int status = fatune_session_open(session, &options);
  if (status == FT_E_ARGUMENT && cli->options.device > 0) {
    return ft_fail_within(status, "--device %d", cli->options.device - 1);
  }
  const bool has_name = cli->options.emulate != NULL && status != FT_OK;
  if (has_name) return explain_emulate(cli, status);
  return status == FT_OK ? take_score(cli, *session) : status;
}

int cli_choose(struct cli *cli, fatune_session *session, const struct ft_request *request,
               const struct cli_target *target, struct ft_choice *choice, bool *given) {
  *given = cli->options.config != NULL;
  if (!*given) return ft_session_choose(session, request, &target->arch, target->id, choice);
  *choice = (struct ft_choice){0};
  const int status = ft_config_parse(&choice->config, cli->options.config);
  return status == FT_OK ? FT_OK : ft_fail_within(status, "--config");
}

const char *cli_hit_name(enum ft_hit hit) {
  switch (hit) { /* ORDER HIT */
  case FT_HIT_DEFAULT: break;
  case FT_HIT_MODEL: return "model";
  case FT_HIT_SHIPPED: return "shipped";
  case FT_HIT_NEAR: return "near";
  case FT_HIT_EXACT: return "exact";
  }
  return "default";
}

static char *take_text(const struct ft_text *text) {
  if (text->failed || text->data == NULL) cli_no_memory();
  return text->data;
}

char *cli_request_text(const struct ft_request *request) {
  struct ft_text text = FT_TEXT_INIT;
  ft_request_print(request, &text);
  return take_text(&text);
}

char *cli_config_text(const struct ft_config *config) {
  struct ft_text text = FT_TEXT_INIT;
  ft_config_print(config, &text);
  return take_text(&text);
}

json_t *cli_knobs_json(const char *text) {
  struct ft_config config;
  if (text == NULL) return json_null();
  if (ft_config_parse(&config, text) != FT_OK) cli_no_memory(); /* it was printed by us */
  json_t *const object = json_object();
  cli_json_set(object, "family", cli_json_text(config.family->name));
  for (int i = 0; i < config.family->knob_count; ++i) {
    cli_json_set(object, config.family->knobs[i].name, json_integer(config.knobs[i]));
  }
  return object;
}

json_t *cli_trial_json(const struct ft_trial *trial) {
  json_t *const object = json_object();
  char *const config = cli_config_text(&trial->config);
  cli_json_set(object, "config", cli_json_text(config));
  cli_json_set(object, "knobs", cli_knobs_json(config));
  cli_json_set(object, "outcome", cli_json_text(ft_outcome_name(trial->outcome)));
  cli_json_set(object, "median_us", cli_json_real(trial->median_us));
  cli_json_set(object, "spread_us",
               ft_outcome_ran(trial->outcome) ? cli_json_real(trial->spread_us) : json_null());
  cli_json_set(object, "reason", cli_json_text(trial->reason));
  free(config);
  return object;
}
