/* command_verify.c: `fatune verify`: whether the kernel of a request computes the right thing.
 * in -> out: request + GPU, real or emulated -> verdicts of its plan's runs. */
#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/cli/cli_check.h"
#include "tuner/cli/cli_emulator.h"
#include "tuner/cli/command.h"

#include <stdlib.h>
#include <string.h>

static void tell_asked(struct cli_check *check, const struct ft_request *asked,
                       const struct cli_target *target) {
  struct cli *const cli = check->cli;
  char *const text = cli_request_text(asked), *checked = cli_request_text(&check->request);
  const bool cut = strcmp(text, checked) != 0;
  cli_json_target(cli, target);
  cli_json(cli, "request", cli_json_text(text));
  cli_json(cli, "checked", cli_json_text(checked));
  cli_json(cli, "config", cli_json_text(fatune_plan_config(check->plan)));
  cli_json(cli, "knobs", cli_knobs_json(fatune_plan_config(check->plan)));
  cli_json(cli, "origin", cli_json_text(fatune_plan_origin(check->plan)));
  cli_field(cli, "request", "%s", text);
  cli_field(cli, "config", "%s (%s)", fatune_plan_config(check->plan),
            fatune_plan_origin(check->plan));
  cli_emulator_tell(cli, target);
  if (cut) cli_field(cli, "cut to", "%s (as asked it is too much for a CPU)", checked);
  free(text);
  free(checked);
}

static int check_request(struct cli *cli, fatune_session *session, const struct cli_target *target,
                         fatune_plan *plan) {
  struct cli_check check = {.cli = cli,
                            .session = session,
                            .plan = plan,
                            .request = cli->options.requests[0],
                            .seed = cli_seed(cli)};
  if (target->emulated) cli_emulator_cut(&cli->options.requests[0], &check.request);
  cli_check_begin(&check);
  tell_asked(&check, &cli->options.requests[0], target);
  const int status = cli_check_run(&check);
  cli_check_json(&check, cli->json);
  cli_check_print(&check);
  cli_check_end(&check);
  return status;
}

static int run(struct cli *cli) {
  fatune_session *session = NULL;
  fatune_plan *plan = NULL;
  struct cli_target target;
  bool entered = false;
  int status;
  FT_CHECK(cli_session_open(cli, &session));
  FT_CHECK(cli_target_run(cli, session, &target));
  FT_CHECK(cli_emulator_ready(&target));
  FT_CHECK(ft_session_enter(session));
  entered = true;
  FT_CHECK(cli_plan_make(session, &cli->options.requests[0], cli->options.config, &plan));
  FT_CHECK(check_request(cli, session, &target, plan));
done:;
  const int code = status == FT_OK ? CLI_EXIT_OK : cli_fail(cli, status);
  fatune_plan_free(plan);
  if (entered) ft_session_leave(session);
  fatune_session_close(session);
  return code;
}

const struct command command_verify = {
    .name = "verify",
    .summary = "Check the kernel of a request against float64, on a GPU or emulated",
    .arguments = "REQUEST",
    .details =
        "Every layout, the lengths asked for and awkward ones. An error may be at most twice "
        "that of a plain computation in the same type; 1.000 is the limit.\n"
        "With --gpu emulator the emitted text, all but its PTX, is compiled by the C++ compiler "
        "and "
        "run on the CPU, which also finds what a GPU hides: accesses outside the tensors, races, "
        "missing "
        "waits. What is too much for a CPU is cut, and the output says to what.",
    .takes = CLI_REQUESTS | CLI_ONE_REQUEST | CLI_GPU | CLI_DEVICE | CLI_CONFIG | CLI_SEED |
             CLI_ROWS | CLI_LSE,
    .run = run};
