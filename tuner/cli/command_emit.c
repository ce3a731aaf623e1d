/* command_emit.c: `fatune emit`: the CUDA C of a request.
 * in -> out: request + GPU + config -> source text on stdout or in a file. Needs no GPU, no NVRTC.
 */
#include "cache/store.h"
#include "generator/emit.h"
#include "generator/status.h"
#include "runtime/kernel_source.h"
#include "tuner/cli/cli_file.h"
#include "tuner/cli/command.h"

#include <stdlib.h>

static void describe(struct cli *cli, const struct ft_request *request,
                     const struct ft_source *source, const struct ft_choice *choice, bool given) {
  char *const text = cli_request_text(request), *config = cli_config_text(&source->config);
  char digest[FT_DIGEST_HEX];
  ft_digest_hex(&source->digest, digest);
  cli_json(cli, "request", cli_json_text(text));
  cli_json(cli, "config", cli_json_text(config));
  cli_json(cli, "knobs", cli_knobs_json(config));
  cli_json(cli, "origin", cli_json_text(given ? "given" : cli_hit_name(choice->hit)));
  cli_json(cli, "digest", cli_json_text(digest));
  cli_json(cli, "source", cli_json_text(source->text));
  cli_detail(cli, "%s config: %s", given ? "given" : cli_hit_name(choice->hit), config);
  free(text);
  free(config);
}

static int run(struct cli *cli) {
  fatune_session *session = NULL;
  const struct ft_request *const request = &cli->options.requests[0];
  struct cli_target target;
  struct ft_choice choice;
  struct ft_source source = {0};
  const char *const output = cli->options.output;
  bool given;
  int status;
  FT_CHECK(cli_session_open(cli, &session));
  FT_CHECK(cli_target_find(cli, session, &target));
  FT_CHECK(cli_choose(cli, session, request, &target, &choice, &given));
  FT_CHECK(ft_session_emit(session, request, &target.arch, &choice.config, &source));
  cli_json_target(cli, &target);
  describe(cli, request, &source, &choice, given);
  if (output != NULL || !cli->options.json) {
    FT_CHECK(
        cli_file_write(cli, "--output", output == NULL ? "-" : output, source.text, source.length));
  }
done:;
  const int code = status == FT_OK ? CLI_EXIT_OK : cli_fail(cli, status);
  ft_source_free(&source);
  fatune_session_close(session);
  return code;
}

const struct command command_emit = {
    .name = "emit",
    .summary = "Print the CUDA C of a request",
    .arguments = "REQUEST",
    .details =
        "The text needs no header: NVRTC compiles it as it is. Without --config the best known "
        "config is used: measured, else predicted, else the default.",
    .takes = CLI_REQUESTS | CLI_ONE_REQUEST | CLI_GPU | CLI_DEVICE | CLI_CONFIG | CLI_OUTPUT,
    .run = run};
