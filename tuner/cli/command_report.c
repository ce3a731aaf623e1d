/* command_report.c: `fatune report`: what is known of requests, as one page of pictures.
 * in -> out: requests + GPU -> an HTML file that loads nothing. */
#include "generator/status.h"
#include "tuner/cli/cli_file.h"
#include "tuner/cli/cli_report.h"
#include "tuner/cli/command.h"

static int report(struct cli *cli, fatune_session *session, struct ft_text *page) {
  json_t *const requests = json_array();
  for (int i = 0; i < cli->options.request_count; ++i) {
    json_t *one = NULL;
    const int status = cli_report_request(cli, session, &cli->options.requests[i], &one);
    if (status != FT_OK) {
      json_decref(requests);
      return status;
    }
    cli_json_append(requests, one);
  }
  return cli_report_page(requests, page);
}

static int run(struct cli *cli) {
  fatune_session *session = NULL;
  struct ft_text page = FT_TEXT_INIT;
  const char *const output = cli->options.output != NULL ? cli->options.output : "-";
  int status;
  FT_CHECK(cli_file_check(cli, "--output", output));
  FT_CHECK(cli_session_open(cli, &session));
  FT_CHECK(report(cli, session, &page));
  FT_CHECK(cli_file_write(cli, "--output", output, page.data, page.length));
  cli_json(cli, "file", cli_json_text(output));
  cli_json(cli, "bytes", json_integer((json_int_t)page.length));
done:;
  const int code = status == FT_OK ? CLI_EXIT_OK : cli_fail(cli, status);
  ft_text_free(&page);
  fatune_session_close(session);
  return code;
}

const struct command command_report = {
    .name = "report",
    .summary = "Show what is known of requests, as a page of pictures",
    .arguments = "REQUEST...",
    .details =
        "One HTML file, which loads nothing from elsewhere: what was found and where it comes "
        "from, the landscape over B_r and B_c, best so far, knobs against time, roofline, time "
        "against prediction, what the rules rejected.",
    .takes = CLI_REQUESTS | CLI_GPU | CLI_DEVICE | CLI_OUTPUT,
    .run = run};
