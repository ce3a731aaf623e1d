/* command_explain.c: `fatune explain`: which config a request gets here, and why.
 * in -> out: request + GPU -> how the look-up hit, runner-ups, the model's view, the rules' toll.
 */
#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/cli/cli_explain_request.h"
#include "tuner/cli/cli_explain_score.h"
#include "tuner/cli/cli_score.h"
#include "tuner/cli/command.h"

#include <stdlib.h>
#include <string.h>

static int explain_score(struct cli *cli, const fatune_session *session) {
  struct ft_score score;
  FT_TRY(cli_score_read(cli->options.score, session, &score));
  const int status = cli_explain_score(cli, &score, cli->options.score_number);
  ft_score_free(&score);
  return status;
}

static int run(struct cli *cli) {
  fatune_session *session = NULL;
  int status;
  FT_CHECK(cli_session_open(cli, &session));
  if (cli->options.request_count > 0)
    FT_CHECK(cli_explain_request(cli, session, &cli->options.requests[0]));
  if (cli->options.score != NULL) FT_CHECK(explain_score(cli, session));
done:;
  const int code = status == FT_OK ? CLI_EXIT_OK : cli_fail(cli, status);
  fatune_session_close(session);
  return code;
}

const struct command command_explain = {
    .name = "explain",
    .summary = "Tell which config a request gets, where from and why",
    .arguments = "REQUEST",
    .details =
        "hit is `exact' (measured for this bucket here), `near' (another bucket, GPU of the "
        "target, or other templates), `shipped' (measured by the project, for this bucket or one "
        "near it), `model' (predicted) or `default'. With --score, and "
        "also without a request: the expression, what it captures, its derivatives; --verbose: "
        "as CUDA C, too.",
    .takes = CLI_REQUESTS | CLI_ONE_REQUEST | CLI_GPU | CLI_DEVICE | CLI_SCORE_ALONE,
    .run = run};
