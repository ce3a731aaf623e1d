/* command_verify.c: `fatune verify`: whether the kernel of a request computes the right thing.
 * in -> out: request + GPU -> a run for every layout and for awkward lengths, each against float64.
 * One plan serves all of them, as it serves every length of its users. */
#include "tuner/command.h"

#include <stdlib.h>
#include <unistd.h>

#include "generator/status.h"
#include "tuner/cli_plan.h"
#include "tuner/cli_progress.h"
#include "tuner/measure.h"

enum { ROWS_DEFAULT = 256, LENGTHS = 5, LAYOUTS = 3 };

static const char *const layout_names[LAYOUTS] = {"bshd", "bhsd", "padded"}; /* of enum ft_layout */

struct checking {
  struct cli *cli;
  fatune_session *session;
  fatune_plan *plan;
  struct cli_table table;
  json_t *cases;
  uint64_t seed;
  int wrong;
};

/* As asked; ends inside a tile; one query (decoding); less than a tile; fewer keys than queries,
 * where a causal row may see no key. */
static struct ft_request with_lengths(const struct ft_request *request, int index) {
  struct ft_request changed = *request;
  const int64_t nq = request->seqlen_q, nk = request->seqlen_k;
  switch (index) {
  case 1:
    changed.seqlen_q = nq > 1 ? nq - 1 : nq + 1;
    changed.seqlen_k = nk > 3 ? nk - 3 : nk + 3;
    break;
  case 2: changed.seqlen_q = 1; break;
  case 3:
    changed.seqlen_q = 17;
    changed.seqlen_k = 63;
    break;
  case 4: changed.seqlen_k = nq / 2 + 1; break;
  default: break;
  }
  return changed;
}

static void show(struct checking *checking, const struct ft_problem_options *problem,
                 const struct ft_comparison *comparison) {
  const bool right = comparison->error_ratio <= 1; /* false for a NaN */
  struct cli_table *const table = &checking->table;
  if (!right) ++checking->wrong;
  cli_table_add(table, "%s", right ? "right" : "WRONG");
  cli_table_add(table, "%s", layout_names[problem->layout]);
  cli_table_add(table, "%lld", (long long)problem->request.seqlen_q);
  cli_table_add(table, "%lld", (long long)problem->request.seqlen_k);
  cli_table_add(table, "%.3f", comparison->error_ratio);
  cli_table_add(table, "%.2e", comparison->o_error);
  cli_table_add(table, "%.2e", comparison->o_allowed);
  cli_table_add(table, "%.2e", comparison->lse_error);
  cli_table_add(table, "%.2e", comparison->lse_allowed);
  cli_table_add(table, "%s", right ? "" : comparison->worst);

  json_t *const one = json_object();
  cli_json_set(one, "layout", cli_json_text(layout_names[problem->layout]));
  cli_json_set(one, "seqlen_q", json_integer(problem->request.seqlen_q));
  cli_json_set(one, "seqlen_k", json_integer(problem->request.seqlen_k));
  cli_json_set(one, "broadcast_mask", json_boolean(problem->broadcast_mask));
  cli_json_set(one, "right", json_boolean(right));
  cli_json_set(one, "error_ratio", cli_json_real(comparison->error_ratio));
  cli_json_set(one, "o_error", cli_json_real(comparison->o_error));
  cli_json_set(one, "o_allowed", cli_json_real(comparison->o_allowed));
  cli_json_set(one, "lse_error", cli_json_real(comparison->lse_error));
  cli_json_set(one, "lse_allowed", cli_json_real(comparison->lse_allowed));
  cli_json_set(one, "worst", cli_json_text(comparison->worst));
  json_array_append_new(checking->cases, one);
}

static int check_case(struct checking *checking, const struct ft_problem_options *options) {
  const int rows = checking->cli->options.rows > 0 ? checking->cli->options.rows : ROWS_DEFAULT;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  struct ft_problem *problem = NULL;
  struct ft_comparison comparison;
  int status;
  FT_CHECK(ft_problem_make(&problem, checking->session, options));
  FT_CHECK(ft_problem_poison(problem, NULL));
  FT_CHECK(fatune_plan_run(checking->plan, ft_problem_arguments(problem), NULL));
  FT_CHECK(ft_measure_wait(checking->session, NULL));
  FT_CHECK(ft_problem_verify(problem, rows, cores > 0 ? (int)cores : 1, &comparison));
  show(checking, options, &comparison);
done:
  ft_problem_free(problem);
  if (status != FT_OK) {
    ft_fail_within(status, "layout %s, %lld queries, %lld keys", layout_names[options->layout],
                   (long long)options->request.seqlen_q, (long long)options->request.seqlen_k);
  }
  return status;
}

static int check_all(struct checking *checking, const struct ft_request *request) {
  struct cli_progress progress;
  int status = FT_OK;
  cli_progress_begin(&progress, checking->cli, "problems verified");
  for (int i = 0; i < LENGTHS * LAYOUTS && status == FT_OK; ++i) {
    const struct ft_problem_options options = {.request = with_lengths(request, i / LAYOUTS),
                                               .layout = (enum ft_layout)(i % LAYOUTS),
                                               .seed = checking->seed + (uint64_t)i,
                                               .dropout = checking->cli->options.dropout,
                                               .keep_host = true,
                                               .want_lse = true,
                                               .broadcast_mask = request->mask_rows > 0 &&
                                                                 i % LAYOUTS == FT_LAYOUT_BHSD};
    status = check_case(checking, &options);
    cli_progress_update(&progress, i + 1, LENGTHS * LAYOUTS, -1, "");
  }
  cli_progress_end(&progress);
  return status;
}

static void report(struct checking *checking, const struct ft_request *request) {
  struct cli *const cli = checking->cli;
  char *const text = cli_request_text(request);
  cli_json(cli, "request", cli_json_text(text));
  cli_json(cli, "config", cli_json_text(fatune_plan_config(checking->plan)));
  cli_json(cli, "origin", cli_json_text(fatune_plan_origin(checking->plan)));
  cli_json(cli, "seed", json_integer((json_int_t)checking->seed));
  cli_json(cli, "wrong", json_integer(checking->wrong));
  cli_json(cli, "cases", checking->cases);
  cli_field(cli, "request", "%s", text);
  cli_field(cli, "config", "%s (%s)", fatune_plan_config(checking->plan),
            fatune_plan_origin(checking->plan));
  cli_table_end(cli, &checking->table);
  free(text);
}

static int run(struct cli *cli) {
  const struct ft_request *const request = &cli->options.requests[0];
  struct checking checking = {.cli = cli};
  struct cli_target target;
  bool entered = false;
  int status;
  FT_CHECK(cli_session_open(cli, &checking.session));
  FT_CHECK(cli_target_here(cli, checking.session, &target));
  FT_CHECK(ft_session_enter(checking.session));
  entered = true;
  FT_CHECK(cli_plan_make(cli, checking.session, request, &checking.plan));
  cli_json_target(cli, &target);
  checking.seed = cli_seed(cli);
  checking.cases = json_array();
  cli_table_begin(&checking.table, "verdict|layout|>queries|>keys|>error/allowed|>O error|>allowed|"
                                   ">LSE error|>allowed|worst");
  status = check_all(&checking, request);
  report(&checking, request);
  if (status == FT_OK && checking.wrong > 0) {
    status = ft_fail(FT_E_WRONG, "%d of %d problems are wrong (--seed %llu repeats them)",
                     checking.wrong, LENGTHS * LAYOUTS, (unsigned long long)checking.seed);
  }
done:;
  const int code = status == FT_OK ? CLI_EXIT_OK : cli_fail(cli, status);
  fatune_plan_free(checking.plan);
  if (entered) ft_session_leave(checking.session);
  fatune_session_close(checking.session);
  return code;
}

const struct command command_verify = {
    .name = "verify",
    .summary = "Check the kernel of a request against float64 on the GPU in this machine",
    .arguments = "REQUEST",
    .details =
        "Every layout, the lengths asked for and awkward ones. An error may be at most twice "
        "that of a plain computation in the same type; 1.000 is the limit.",
    .takes =
        CLI_REQUESTS | CLI_ONE_REQUEST | CLI_GPU | CLI_DEVICE | CLI_CONFIG | CLI_SEED | CLI_ROWS,
    .run = run};
