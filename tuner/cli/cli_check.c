/* cli_check.c: a kernel run on problems and held against float64.
 * in -> out: plan + request -> a run for every layout and for awkward lengths -> verdicts. */
#include "tuner/cli/cli_check.h"

#include <unistd.h>

#include "generator/status.h"
#include "tuner/cli/cli_progress.h"
#include "tuner/cli/cli_table.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_explain.h"
#include "tuner/verify/problem_verify.h"
#include "tuner/verify/stopwatch.h"

enum { ROWS_DEFAULT = 256, LENGTHS = 5, LAYOUTS = 3 };

static const char *const layout_names[LAYOUTS] = {"bshd", "bhsd", "padded"}; /* of enum ft_layout */

/* The lengths as asked; lengths that end inside a tile; one query (decoding); less than a tile;
 * fewer keys than queries, where a row may see no key. */
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

void cli_check_begin(struct cli_check *check) {
  check->cases = json_array();
  check->count = check->brief ? LENGTHS : LENGTHS * LAYOUTS;
  check->done = check->wrong = 0;
  check->faulted = false;
  check->explanation = (struct ft_text)FT_TEXT_INIT;
  cli_table_begin(&check->table,
                  check->request.pass == FT_BACKWARD
                      ? "verdict|layout|>queries|>keys|>error/allowed|>dQ error|>allowed|"
                        ">dK error|>allowed|>dV error|>allowed|worst"
                      : "verdict|layout|>queries|>keys|>error/allowed|>O error|>allowed|"
                        ">LSE error|>allowed|worst");
}

static json_t *case_json(const struct ft_problem_options *problem, bool right) {
  json_t *const one = json_object();
  cli_json_set(one, "layout", cli_json_text(layout_names[problem->layout]));
  cli_json_set(one, "seqlen_q", json_integer(problem->request.seqlen_q));
  cli_json_set(one, "seqlen_k", json_integer(problem->request.seqlen_k));
  cli_json_set(one, "broadcast_mask", json_boolean(problem->broadcast_mask));
  cli_json_set(one, "right", json_boolean(right));
  return one;
}

static void begin_row(struct cli_check *check, const struct ft_problem_options *problem,
                      const char *verdict) {
  ++check->done;
  cli_table_add(&check->table, "%s", verdict);
  cli_table_add(&check->table, "%s", layout_names[problem->layout]);
  cli_table_add(&check->table, "%lld", (long long)problem->request.seqlen_q);
  cli_table_add(&check->table, "%lld", (long long)problem->request.seqlen_k);
}

/* An error and what is allowed, by the names they have in the document. */
struct named_error {
  const char *name, *allowed_name;
  double error, allowed;
};
enum { OUTPUT_ERRORS = 2, GRADIENT_ERRORS = 3 };

static struct named_error output_error(const struct ft_comparison *comparison, int n) {
  return n == 0 ? (struct named_error){"o_error", "o_allowed", comparison->o_error,
                                       comparison->o_allowed}
                : (struct named_error){"lse_error", "lse_allowed", comparison->lse_error,
                                       comparison->lse_allowed};
}

static struct named_error gradient_error(const struct ft_comparison *comparison, int n) {
  static const char *const names[][2] = {
      {"dq_error", "dq_allowed"}, {"dk_error", "dk_allowed"}, {"dv_error", "dv_allowed"}};
  return (struct named_error){names[n][0], names[n][1], comparison->gradients[n].error,
                              comparison->gradients[n].allowed};
}

static void add(struct cli_check *check, const struct ft_problem_options *problem,
                const struct ft_comparison *comparison) {
  const bool right = comparison->error_ratio <= 1; /* false for a NaN */
  struct cli_table *const table = &check->table;
  json_t *const one = case_json(problem, right);
  if (!right) ++check->wrong;
  begin_row(check, problem, right ? "right" : "WRONG");
  cli_table_add(table, "%.3f", comparison->error_ratio);
  const bool backward = problem->request.pass == FT_BACKWARD;
  for (int n = 0; n < (backward ? GRADIENT_ERRORS : OUTPUT_ERRORS); n++) {
    const struct named_error error =
        backward ? gradient_error(comparison, n) : output_error(comparison, n);
    cli_table_add(table, "%.2e", error.error);
    cli_table_add(table, "%.2e", error.allowed);
    cli_json_set(one, error.name, cli_json_real(error.error));
    cli_json_set(one, error.allowed_name, cli_json_real(error.allowed));
  }
  cli_table_add(table, "%s", right ? "" : comparison->worst);

  cli_json_set(one, "error_ratio", cli_json_real(comparison->error_ratio));
  cli_json_set(one, "worst", cli_json_text(comparison->worst));
  cli_json_append(check->cases, one);
}

/* A run that faulted has no result to compare: the fault stands in place of the error. */
static void add_fault(struct cli_check *check, const struct ft_problem_options *problem) {
  json_t *const one = case_json(problem, false);
  ++check->wrong;
  check->faulted = true;
  begin_row(check, problem, "FAULT");
  while (check->table.count % check->table.columns != 0) cli_table_add(&check->table, "-");
  cli_json_set(one, "fault", cli_json_text(ft_detail()));
  cli_json_append(check->cases, one);
}

/* A fault on the emulator is a finding about the kernel; on a GPU it may be one about the machine.
 */
static int run_kernel(void *payload, const fatune_arguments *arguments) {
  const struct cli_check *const check = payload;
  int status = fatune_plan_run(check->plan, arguments, NULL);
  if (status == FT_OK) status = ft_stream_wait(check->session, NULL);
  const bool finding = status == FT_E_DEVICE && check->session->driver.emulated;
  return finding ? ft_fail(FT_E_WRONG, "%s", ft_detail()) : status;
}

/* A result that cannot be explained is wrong all the same. */
static void explain(struct cli_check *check, struct ft_problem *problem,
                    const struct ft_problem_options *options) {
  struct ft_text *const text = &check->explanation;
  if (text->length > 0) return;
  ft_text_add(text, "layout %s, %lld queries, %lld keys:\n", layout_names[options->layout],
              (long long)options->request.seqlen_q, (long long)options->request.seqlen_k);
  if (ft_problem_explain(problem, run_kernel, check, text) != FT_OK) {
    ft_text_add(text, "no explanation: %s\n", ft_detail());
  }
}

static int check_case(struct cli_check *check, const struct ft_problem_options *options) {
  const int rows = check->cli->options.rows > 0 ? check->cli->options.rows : ROWS_DEFAULT;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  struct ft_problem *problem = NULL;
  struct ft_comparison comparison;
  int status;
  const struct ft_problem_run run = {run_kernel, check, NULL, false};
  FT_CHECK(ft_problem_make(&problem, check->session, options));
  FT_CHECK(ft_problem_fit(problem, check->plan));
  status = ft_problem_check(problem, &run, rows, cores > 0 ? (int)cores : 1, &comparison);
  if (status == FT_E_WRONG) add_fault(check, options);
  FT_CHECK(status);
  add(check, options, &comparison);
  if (!(comparison.error_ratio <= 1)) explain(check, problem, options);
done:
  ft_problem_free(problem);
  if (status != FT_OK) {
    ft_fail_within(status, "layout %s, %lld queries, %lld keys", layout_names[options->layout],
                   (long long)options->request.seqlen_q, (long long)options->request.seqlen_k);
  }
  return status;
}

int cli_check_run(struct cli_check *check) {
  const struct ft_request *const request = &check->request;
  struct cli_progress progress;
  int status = FT_OK;
  cli_progress_begin(&progress, check->cli, "problems verified");
  for (int i = 0; i < check->count && status == FT_OK; ++i) {
    const enum ft_layout layout = (enum ft_layout)(i % LAYOUTS);
    const struct ft_problem_options options = {
        .request = with_lengths(request, check->brief ? i : i / LAYOUTS),
        .layout = layout,
        .seed = check->seed + (uint64_t)i,
        .dropout = check->cli->options.dropout,
        .keep_host = true,
        .want_lse = request->pass == FT_BACKWARD || !check->cli->options.no_lse,
        .want_dlse = i % 2 == 1,
        .broadcast_mask = request->mask_rows > 0 && layout == FT_LAYOUT_BHSD};
    status = check_case(check, &options);
    cli_progress_update(&progress, i + 1, check->count, -1, "");
  }
  cli_progress_end(&progress);
  if (status != FT_OK || check->wrong == 0) return status;
  return ft_fail(FT_E_WRONG, "%d of %d problems are wrong (--seed %llu repeats them)", check->wrong,
                 check->count, (unsigned long long)check->seed);
}

void cli_check_json(struct cli_check *check, json_t *object) {
  const bool explained = check->explanation.length > 0;
  if (object == NULL) return; /* the output is text */
  cli_json_set(object, "seed", json_integer((json_int_t)check->seed));
  cli_json_set(object, "wrong", json_integer(check->wrong));
  cli_json_set(object, "cases", check->cases);
  cli_json_set(object, "explanation", cli_json_text(explained ? check->explanation.data : NULL));
  check->cases = NULL;
}

void cli_check_print(struct cli_check *check) {
  cli_table_end(check->cli, &check->table);
  if (check->explanation.length > 0) cli_print(check->cli, "\n%s", check->explanation.data);
}

void cli_check_end(struct cli_check *check) {
  ft_text_free(&check->table.cells);
  ft_text_free(&check->explanation);
  json_decref(check->cases);
  check->cases = NULL;
}
