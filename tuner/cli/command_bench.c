/* command_bench.c: `fatune bench`: how fast the kernel of a request runs here.
 * in -> out: requests + GPU -> median, spread, TFLOP/s and clocks of each. Nothing is kept. */
#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/cli/cli_plan.h"
#include "tuner/cli/cli_table.h"
#include "tuner/cli/command.h"
#include "tuner/search/measure_cold.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_options.h"

#include <stdlib.h>

struct bench {
  struct cli *cli;
  fatune_session *session;
  struct cli_target target;
  struct ft_nvml *nvml;
  struct cli_table table;
  json_t *results;
  uint64_t seed;
};

struct run_payload {
  fatune_plan *plan;
  const fatune_arguments *arguments;
};

static int launch(void *payload, cu_stream stream) {
  const struct run_payload *const run = payload;
  return fatune_plan_run(run->plan, run->arguments, stream);
}

static void show(struct bench *bench, const struct ft_request *request, const fatune_plan *plan,
                 const struct ft_timing *timing) {
  const double tflops = ft_request_flops(request) / timing->median_us * 1e-6;
  const int memory_clock = ft_nvml_memory_clock(bench->nvml), watts = ft_nvml_power(bench->nvml);
  char *const text = cli_request_text(request);
  cli_table_add(&bench->table, "%.2f", timing->median_us);
  cli_table_add(&bench->table, "%.2f", timing->spread_us);
  cli_table_add(&bench->table, "%.1f", tflops);
  cli_table_add(&bench->table, "%d", timing->sm_clock_mhz);
  cli_table_add(&bench->table, "%s", text);
  cli_table_add(&bench->table, "%s", fatune_plan_config(plan));
  cli_detail(bench->cli, "%s: %s", text, fatune_plan_origin(plan));

  json_t *const result = json_object(), *samples = json_array();
  for (int i = 0; i < timing->sample_count; ++i) {
    cli_json_append(samples, cli_json_real(timing->samples_us[i]));
  }
  cli_json_set(result, "request", cli_json_text(text));
  cli_json_set(result, "config", cli_json_text(fatune_plan_config(plan)));
  cli_json_set(result, "knobs", cli_knobs_json(fatune_plan_config(plan)));
  cli_json_set(result, "origin", cli_json_text(fatune_plan_origin(plan)));
  cli_json_set(result, "median_us", cli_json_real(timing->median_us));
  cli_json_set(result, "spread_us", cli_json_real(timing->spread_us));
  cli_json_set(result, "best_us", cli_json_real(timing->best_us));
  cli_json_set(result, "tflops", cli_json_real(tflops));
  cli_json_set(result, "samples_us", samples);
  cli_json_set(result, "sm_clock_mhz", json_integer(timing->sm_clock_mhz));
  cli_json_set(result, "memory_clock_mhz", json_integer(memory_clock));
  cli_json_set(result, "power_w", json_integer(watts));
  cli_json_append(bench->results, result);
  free(text);
}

static int measure(struct bench *bench, struct ft_request request) {
  static const struct ft_measure_policy policy = {
      .warmup_us = 100e3, .sample_us = 10e3, .samples = 25};
  const struct ft_problem_options options = {.request = request,
                                             .alike = true,
                                             .seed = bench->seed,
                                             .dropout = bench->cli->options.dropout,
                                             .want_lse = request.pass == FT_BACKWARD ||
                                                         !bench->cli->options.no_lse};
  struct ft_problem *problem = NULL;
  struct run_payload payload = {0};
  struct ft_timing timing;
  int status;
  FT_CHECK(cli_plan_make(bench->session, &request, bench->cli->options.config, &payload.plan));
  FT_CHECK(ft_problem_make(&problem, bench->session, &options));
  FT_CHECK(ft_problem_fit(problem, payload.plan));
  payload.arguments = ft_problem_arguments(problem);
  const struct ft_runnable runnable = {launch, &payload};
  FT_CHECK(bench->cli->options.cold
               ? ft_measure_cold(&timing, bench->session, bench->nvml, &runnable, NULL)
               : ft_measure(&timing, bench->session, bench->nvml, &runnable, &policy, NULL));
  /* FLOPs are counted for the blocks that were really kept, where that is known. */
  const double density = ft_problem_mask_density(problem);
  if (request.mask_rows > 0 && density >= 0) request.mask_density = density;
  show(bench, &request, payload.plan, &timing);
done:
  ft_problem_free(problem);
  fatune_plan_free(payload.plan);
  return status;
}

/* A request that fails does not keep the others from being measured. */
static int measure_all(struct bench *bench) {
  struct cli *const cli = bench->cli;
  int code = CLI_EXIT_OK;
  for (int i = 0; i < cli->options.request_count; ++i) {
    const int status = measure(bench, cli->options.requests[i]);
    if (status == FT_OK) continue;
    char *const text = cli_request_text(&cli->options.requests[i]);
    ft_fail_within(status, "%s", text);
    free(text);
    const int failed = cli_fail(cli, status);
    if (code == CLI_EXIT_OK) code = failed;
    if (status == FT_E_DEVICE) break; /* after a fault the context answers nothing but the fault */
  }
  return code;
}

static int run(struct cli *cli) {
  struct bench bench = {.cli = cli};
  int status, code = CLI_EXIT_OK;
  FT_CHECK(cli_session_open(cli, &bench.session));
  FT_CHECK(cli_target_time(cli, bench.session, &bench.target));
  FT_CHECK(ft_session_enter(bench.session));
  ft_nvml_open(&bench.nvml, &bench.session->driver, bench.session->device.handle);
  bench.results = json_array();
  bench.seed = cli_seed(cli);
  cli_table_begin(&bench.table, ">median us|>spread us|>TFLOP/s|>SM MHz|request|config");
  code = measure_all(&bench);
  cli_json_target(cli, &bench.target);
  cli_json(cli, "policy", cli_json_text(cli->options.cold ? FT_POLICY_COLD : FT_POLICY));
  cli_json(cli, "results", bench.results);
  cli_table_end(cli, &bench.table);
  ft_nvml_close(bench.nvml);
  ft_session_leave(bench.session);
done:
  if (status != FT_OK) code = cli_fail(cli, status);
  fatune_session_close(bench.session);
  return code;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "Measure the kernel of each request on the GPU in this machine",
    .arguments = "REQUEST...",
    .details =
        "Times are of one launch, by CUDA events, medians of 25 samples; TFLOP/s count visible "
        "pairs, as FlashAttention does. The spread is half the distance between the 20th and "
        "the 80th percentile. Repeats find in L2 what the run before left there; with --cold each "
        "finds "
        "it overwritten. An emulated GPU has no clock and is refused.",
    .takes = CLI_REQUESTS | CLI_GPU | CLI_DEVICE | CLI_CONFIG | CLI_SEED | CLI_LSE | CLI_COLD,
    .run = run};
