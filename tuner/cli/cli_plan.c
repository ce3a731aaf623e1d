/* cli_plan.c: what `bench`, `verify` and `tune` share.
 * in -> out: struct ft_request + options -> fatune_plan. */
#include "tuner/cli/cli_plan.h"

#include <stdlib.h>

#include "generator/clock.h"
#include "generator/config.h"
#include "generator/status.h"

int cli_plan_make(fatune_session *session, const struct ft_request *request, const char *config,
                  fatune_plan **plan) {
  fatune_request public_request = FATUNE_REQUEST_INIT;
  char *const text = cli_request_text(request);
  int status = fatune_request_parse(&public_request, text);
  struct ft_config parsed;
  if (status == FT_OK && config != NULL && (status = ft_config_parse(&parsed, config)) != FT_OK)
    status = ft_fail_within(status, "--config");
  if (status == FT_OK && config != NULL) {
    status = fatune_plan_make_with(plan, session, &public_request, config);
  } else if (status == FT_OK) {
    status = fatune_plan_make(plan, session, &public_request);
  }
  free(text);
  return status;
}

uint64_t cli_seed(struct cli *cli) {
  const uint64_t seed = cli->options.seed != 0 ? cli->options.seed : ft_seed_now();
  cli_detail(cli, "seed %llu", (unsigned long long)seed);
  return seed;
}
