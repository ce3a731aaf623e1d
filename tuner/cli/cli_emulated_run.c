/* cli_emulated_run.c: the end of `fatune tune` for an emulated GPU.
 * in -> out: winner of a search -> its run on the CPU, on small problems, checked; which of the
 * steps of the whole were emulated. */
#include "tuner/cli/cli_emulated_run.h"

#include <stdlib.h>

#include "generator/status.h"
#include "runtime/compiler.h"
#include "runtime/kernel_source.h"
#include "runtime/session.h"
#include "tuner/cli/cli_check.h"
#include "tuner/cli/cli_emulator.h"

static void set_verdict(const struct cli_check *check, int status, struct cli_tuned_run *result) {
  const int problems = check->done;
  if (status == FT_OK) {
    snprintf(result->verdict, sizeof result->verdict, "right (%d problems)", problems);
  } else if (check->faulted) {
    snprintf(result->verdict, sizeof result->verdict, "FAULT (problem %d)", problems);
  } else if (check->wrong > 0) {
    snprintf(result->verdict, sizeof result->verdict, "WRONG (%d of %d)", check->wrong, problems);
  } else {
    snprintf(result->verdict, sizeof result->verdict, "failed");
  }
}

/* The explanation goes to stderr: stdout has one table for all requests. */
static void report(struct cli_check *check, int status, struct cli_tuned_run *result) {
  char *const checked = cli_request_text(&check->request);
  set_verdict(check, status, result);
  result->json = json_object();
  cli_json_set(result->json, "checked", cli_json_text(checked));
  cli_json_set(result->json, "origin", cli_json_text(fatune_plan_origin(check->plan)));
  cli_check_json(check, result->json);
  cli_note(check->cli, "emulated run of %s: %s", checked, result->verdict);
  if (check->explanation.length > 0) cli_error(check->cli, "%s", check->explanation.data);
  free(checked);
}

int cli_emulated_run(struct cli *cli, fatune_session *session, const struct ft_request *request,
                     const struct ft_config *winner, struct cli_tuned_run *result) {
  struct cli_check check = {.cli = cli, .session = session, .seed = cli_seed(cli), .brief = true};
  char *const config = cli_config_text(winner);
  bool entered = false;
  int status;
  cli_emulator_cut(request, &check.request);
  FT_CHECK(ft_session_enter(session));
  entered = true;
  FT_CHECK(cli_plan_make(session, request, config, &check.plan));
  cli_check_begin(&check);
  status = cli_check_run(&check);
  report(&check, status, result);
  cli_check_end(&check);
done:
  fatune_plan_free(check.plan);
  if (entered) ft_session_leave(session);
  free(config);
  return status;
}

static void tell(struct cli *cli, json_t *steps, const char *step, const char *how,
                 const char *words) {
  cli_field(cli, step, "%-9s %s", how, words);
  cli_json_set(steps, step, cli_json_text(how));
}

void cli_emulated_steps(struct cli *cli, fatune_session *session, const struct cli_target *target) {
  struct ft_compiler *compiler;
  char words[192], by[256];
  const bool compiles = ft_session_compiler(session, &compiler) == FT_OK;
  json_t *const steps = json_object();
  cli_print(cli, "\n");
  cli_emulator_tell(cli, target);
  tell(cli, steps, "emit", "real", "the CUDA C that the GPU gets");
  snprintf(by, sizeof by, "NVRTC %s for %s", compiles ? ft_compiler_version(compiler) : "(cached)",
           target->name);
  tell(cli, steps, "compile", "real", by);
  tell(cli, steps, "rank", "predicted", "by the model, from what NVRTC made; no time was measured");
  cli_emulator_words(target, words);
  snprintf(by, sizeof by, "%s, on small problems", words);
  tell(cli, steps, "run", "emulated", by);
  tell(cli, steps, "check", "real", "its result against float64");
  cli_json(cli, "steps", steps);
}
