/* matrix_run.c: a matrix of requests on emulated GPUs, against float64.
 * in -> out: struct matrix_plan -> each request with the default or a random legal config, on four
 * GPUs in turn -> every row checked by ft_problem_verify; what is wrong is explained. */
#include "tests/matrix_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/emulator_lab.h"
#include "tests/slow_tests.h"

enum { GPUS = 4 };

/* sm_80, sm_90, sm_89, and sm_75, which knows neither bf16 nor cp.async. */
static const char *const gpus[GPUS] = {"a100", "h200", "rtx4090", "t4"};

struct one_case {
  int index;
  struct ft_problem_options options;
  int gpu;
  bool default_config;
};

static uint64_t seed_of_run;

static uint64_t seed_of(int index) {
  return (seed_of_run ^ (uint64_t)index * 0xD1B54A32D192ED03u) * 0x9E3779B97F4A7C15u;
}

/* Combinations repeat after 24 cases; GPUs and configs are dealt so that each meets each. */
static struct one_case make_case(const struct matrix_plan *plan, int index) {
  const int turn = index / MATRIX_COMBINATIONS;
  struct one_case one = {
      .index = index, .gpu = (turn + index) % GPUS, .default_config = turn / GPUS % 2 == 1};
  plan->choose(&one.options, index, &plan->size);
  one.options.seed = seed_of(index);
  if (one.options.request.dtype == FT_BF16) one.gpu %= GPUS - 1;
  ck_assert_msg(ft_request_validate(&one.options.request) == FT_OK, "%s", ft_detail());
  return one;
}

/* ---- runs ---- */

struct findings {
  int runs, wrong;
  double worst;
};

static void tell_wrong(const struct one_case *one, const char *config,
                       const struct emulator_run *run) {
  char *const request = emulator_request_text(&one->options.request);
  printf("WRONG: FATUNE_TEST_SEED=%llu FATUNE_TEST_CASE=%d\n  %s on %s\n  config %s\n"
         "  layout %d, mask %s, dropout %g, scale %g\n  %s\n%s",
         (unsigned long long)seed_of_run, one->index, request, gpus[one->gpu],
         config ? config : "default", (int)one->options.layout,
         one->options.broadcast_mask ? "broadcast" : "full", one->options.dropout,
         one->options.scale, run->status == FT_OK ? run->comparison.worst : run->fault,
         run->explanation.data ? run->explanation.data : "");
  fflush(stdout);
  free(request);
}

static void run_case(struct findings *findings, fatune_session *session,
                     const struct one_case *one) {
  struct emulator_run run;
  char *const config = one->default_config ? NULL
                                           : emulator_random_config(session, &one->options.request,
                                                                    ~one->options.seed);
  emulator_run(&run, session, &one->options, config);
  findings->runs++;
  /* Written so that NaN is wrong. */
  const bool right = run.status == FT_OK && run.comparison.error_ratio <= 1;
  if (!right) {
    findings->wrong++;
    tell_wrong(one, config, &run);
  }
  findings->worst = fmax(findings->worst, run.comparison.error_ratio);
  emulator_run_free(&run);
  free(config);
}

/* One of so many cases is run. */
static int share_of(const struct matrix_plan *plan) {
  if (tests_are_slow() || getenv("FATUNE_TEST_CASE")) return 1;
#if defined(__SANITIZE_ADDRESS__)
  return plan->sanitized_share;
#else
  (void)plan;
  return 2;
#endif
}

/* The n-th case that is run. Combinations of features repeat, and their number is a multiple of the
 * share, so the place in a share changes from one repetition to the next. */
static int index_of(const struct matrix_plan *plan, int n) {
  const int share = share_of(plan), turn = n * share / MATRIX_COMBINATIONS;
  return n * share + (int)((emulator_seed() + (uint64_t)turn) % (uint64_t)share);
}

static bool belongs_here(int slice) {
  const char *const part = getenv("FATUNE_TEST_PART");
  if (!part || !*part) return true;
  char *end;
  const long number = strtol(part, &end, 10), count = *end == '/' ? strtol(end + 1, NULL, 10) : 0;
  ck_assert_msg(number >= 1 && number <= count, "FATUNE_TEST_PART is %s; allowed: 1/2, 2/2", part);
  return slice % count == number - 1;
}

static bool is_chosen(int index) {
  const char *const given = getenv("FATUNE_TEST_CASE");
  return !given || strtol(given, NULL, 10) == index;
}

void matrix_run_slice(const struct matrix_plan *plan, int slice) {
  struct findings findings = {0};
  fatune_session *sessions[GPUS] = {NULL};
  seed_of_run = emulator_seed();
  for (int n = slice; belongs_here(slice) && n < plan->cases / share_of(plan); n += MATRIX_SLICES) {
    const struct one_case one = make_case(plan, index_of(plan, n));
    if (!is_chosen(one.index)) continue;
    if (!sessions[one.gpu]) sessions[one.gpu] = emulator_open(gpus[one.gpu], NULL);
    run_case(&findings, sessions[one.gpu], &one);
  }
  for (int gpu = 0; gpu < GPUS; gpu++) fatune_session_close(sessions[gpu]);
  if (findings.runs > 0)
    printf("slice %d: %d runs, %d wrong; worst error %.3f of the allowed\n", slice, findings.runs,
           findings.wrong, findings.worst);
  fflush(stdout);
  ck_assert_int_eq(findings.wrong, 0);
}

/* ---- what the matrix covers ---- */

void matrix_check_cover(const struct matrix_plan *plan, const struct matrix_least *least,
                        int configs_least) {
  struct matrix_tally tally = {0};
  int on_gpu[GPUS][2] = {0};
  for (int index = 0; index < plan->cases; index++) {
    const struct one_case one = make_case(plan, index);
    matrix_count(&tally, &one.options);
    on_gpu[one.gpu][one.default_config]++;
  }
  matrix_assert_covers(&tally, least);
  for (int gpu = 0; gpu < GPUS; gpu++)
    for (int i = 0; i < 2; i++)
      ck_assert_msg(on_gpu[gpu][i] >= configs_least, "%s: only %d cases with %s config", gpus[gpu],
                    on_gpu[gpu][i], i ? "the default" : "a random");
}

void matrix_check_spread(const struct matrix_plan *plan) {
  bool *const seen = calloc((size_t)plan->cases, sizeof *seen);
  int combinations[MATRIX_COMBINATIONS] = {0};
  ck_assert_ptr_nonnull(seen);
  const int runs = plan->cases / share_of(plan);
  for (int n = 0; n < runs; n++) {
    const int index = index_of(plan, n);
    ck_assert(index < plan->cases && !seen[index]);
    seen[index] = true;
    combinations[index % MATRIX_COMBINATIONS]++;
  }
  for (int i = 0; i < MATRIX_COMBINATIONS; i++)
    ck_assert_int_ge(combinations[i], runs / MATRIX_COMBINATIONS);
  free(seen);
}
