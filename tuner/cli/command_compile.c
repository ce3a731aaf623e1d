/* command_compile.c: `fatune compile`: the compiled kernel of a request and what it takes.
 * in -> out: request + GPU + config -> cubin in a file; registers, spills, shared memory, size. */
#include "cache/kernel.h"
#include "cache/store.h"
#include "generator/emit.h"
#include "generator/status.h"
#include "runtime/choice.h"
#include "runtime/kernel_source.h"
#include "tuner/cli/cli_file.h"
#include "tuner/cli/command.h"

#include <stdlib.h>
#include <string.h>

/* What the command worked with, all owned by run. */
struct compiled {
  struct cli_target target;
  struct ft_choice choice;
  struct ft_source source;
  struct ft_kernel kernel;
  bool given, fresh;
};

static void print_text(struct cli *cli, const struct compiled *compiled, const char *request,
                       const char *config, int occupancy) {
  const struct ft_kernel *const kernel = &compiled->kernel;
  cli_field(cli, "request", "%s", request);
  cli_field(cli, "config", "%s (%s)", config,
            compiled->given ? "given" : cli_hit_name(compiled->choice.hit));
  cli_field(cli, "target", "%s, NVRTC %s, %s", kernel->target, kernel->nvrtc,
            compiled->fresh ? "compiled now" : "from the cache");
  cli_field(cli, "registers", "%d per thread", kernel->registers);
  cli_field(cli, "spills", "%d bytes per thread", kernel->spill_bytes);
  cli_field(cli, "shared memory", "%d bytes", kernel->smem_bytes);
  cli_field(cli, "threads", "%d, %d block%s per multiprocessor of %s", kernel->threads, occupancy,
            occupancy == 1 ? "" : "s", compiled->target.arch.name);
  cli_field(cli, "size", "%zu bytes", kernel->image_size);
}

static void print(struct cli *cli, const struct ft_request *request,
                  const struct compiled *compiled) {
  const struct ft_kernel *const kernel = &compiled->kernel;
  const int occupancy =
      ft_budget_occupancy(&compiled->source.budget, &compiled->target.arch, kernel->registers);
  char *const text = cli_request_text(request), *config = cli_config_text(&compiled->source.config);
  char key[FT_DIGEST_HEX];
  ft_digest_hex(&kernel->key, key);
  cli_json_target(cli, &compiled->target);
  cli_json(cli, "request", cli_json_text(text));
  cli_json(cli, "config", cli_json_text(config));
  cli_json(cli, "knobs", cli_knobs_json(config));
  cli_json(cli, "origin",
           cli_json_text(compiled->given ? "given" : cli_hit_name(compiled->choice.hit)));
  cli_json(cli, "compiled", json_boolean(compiled->fresh));
  cli_json(cli, "nvrtc", cli_json_text(kernel->nvrtc));
  cli_json(cli, "key", cli_json_text(key));
  cli_json(cli, "registers", json_integer(kernel->registers));
  cli_json(cli, "spill_bytes", json_integer(kernel->spill_bytes));
  cli_json(cli, "smem_bytes", json_integer(kernel->smem_bytes));
  cli_json(cli, "threads", json_integer(kernel->threads));
  cli_json(cli, "occupancy", json_integer(occupancy));
  cli_json(cli, "size", json_integer((json_int_t)kernel->image_size));
  cli_json(cli, "log", cli_json_text(kernel->log));
  cli_json(cli, "output", cli_json_text(cli->options.output));
  if (kernel->log != NULL && kernel->log[0] != '\0') cli_detail(cli, "NVRTC: %s", kernel->log);
  /* With the image on stdout the description would be in its way. */
  const bool image_on_stdout = cli->options.output != NULL && strcmp(cli->options.output, "-") == 0;
  if (!image_on_stdout) print_text(cli, compiled, text, config, occupancy);
  free(text);
  free(config);
}

static int run(struct cli *cli) {
  fatune_session *session = NULL;
  const struct ft_request *const request = &cli->options.requests[0];
  struct compiled compiled = {0};
  const struct ft_kernel *const kernel = &compiled.kernel;
  struct ft_digest key;
  int status;
  if (cli->options.output != NULL) FT_CHECK(cli_file_check(cli, "--output", cli->options.output));
  FT_CHECK(cli_session_open(cli, &session));
  FT_CHECK(cli_target_find(cli, session, &compiled.target));
  FT_CHECK(cli_choose(cli, session, request, &compiled.target, &compiled.choice, &compiled.given));
  FT_CHECK(ft_session_emit(session, request, &compiled.target.arch, &compiled.choice.config,
                           &compiled.source));
  const bool named = ft_session_named_kernel(session, request, &compiled.target.arch,
                                             &compiled.choice.config, &key);
  FT_CHECK(ft_session_kernel(session, &compiled.source, named ? &key : NULL, &compiled.kernel,
                             &compiled.fresh));
  if (cli->options.output != NULL) {
    FT_CHECK(
        cli_file_write(cli, "--output", cli->options.output, kernel->image, kernel->image_size));
  }
  print(cli, request, &compiled);
done:;
  const int code = status == FT_OK ? CLI_EXIT_OK : cli_fail(cli, status);
  ft_kernel_free(&compiled.kernel);
  ft_source_free(&compiled.source);
  fatune_session_close(session);
  return code;
}

const struct command command_compile = {
    .name = "compile",
    .summary = "Compile a request's kernel; tell registers, spills, shared memory",
    .arguments = "REQUEST",
    .details = "Needs NVRTC, but no GPU. The cubin goes into the cache, and into a file with -o.",
    .takes = CLI_REQUESTS | CLI_ONE_REQUEST | CLI_GPU | CLI_DEVICE | CLI_CONFIG | CLI_OUTPUT,
    .run = run};
