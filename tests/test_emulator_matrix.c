/* test_emulator_matrix.c: the cross-product of features on emulated GPUs, against float64.
 * in -> out: 240 requests, each with the default or a random legal config, on four GPUs in turn ->
 * every row checked by ft_problem_verify; what is wrong is explained.
 * FATUNE_TEST_SEED repeats a run; FATUNE_TEST_CASE=N runs the N-th request alone;
 * FATUNE_TEST_PART=1/2 the first of two halves. Under the sanitizers every sixth request runs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/emulator_lab.h"
#include "tests/matrix_cases.h"
#include "tests/suites.h"

enum { CASES = 240, SLICES = 20, GPUS = 4 };

#if defined(__SANITIZE_ADDRESS__)
enum { RUN = CASES / 6 };
#else
enum { RUN = CASES };
#endif

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
static struct one_case make_case(int index) {
  static const struct matrix_size size = {
      .longest = 300, .rows = 512, .rows_seldom = 1024, .tile = 64};
  const int turn = index / MATRIX_COMBINATIONS;
  struct one_case one = {
      .index = index, .gpu = (turn + index) % GPUS, .default_config = turn / GPUS % 2 == 1};
  matrix_choose(&one.options, index, &size);
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

/* The n-th case that is run. */
static int index_of(int n) {
  const int stride = CASES / RUN; /* and every combination of features at any stride */
  return n * stride + n * stride / MATRIX_COMBINATIONS % stride;
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

START_TEST(requests_are_right) {
  struct findings findings = {0};
  fatune_session *sessions[GPUS] = {NULL};
  seed_of_run = emulator_seed();
  for (int n = _i; belongs_here(_i) && n < RUN; n += SLICES) {
    const struct one_case one = make_case(index_of(n));
    if (!is_chosen(one.index)) continue;
    if (!sessions[one.gpu]) sessions[one.gpu] = emulator_open(gpus[one.gpu], NULL);
    run_case(&findings, sessions[one.gpu], &one);
  }
  for (int gpu = 0; gpu < GPUS; gpu++) fatune_session_close(sessions[gpu]);
  if (findings.runs > 0)
    printf("slice %d: %d runs, %d wrong; worst error %.3f of the allowed\n", _i, findings.runs,
           findings.wrong, findings.worst);
  fflush(stdout);
  ck_assert_int_eq(findings.wrong, 0);
}
END_TEST

/* ---- what the matrix covers ---- */

START_TEST(the_matrix_covers_what_it_says) {
  static const struct matrix_least least = {
      .dim = 7, .combination = CASES / MATRIX_COMBINATIONS, .layout = 60, .feature = 8};
  struct matrix_tally tally = {0};
  int on_gpu[GPUS][2] = {0};
  for (int index = 0; index < CASES; index++) {
    const struct one_case one = make_case(index);
    matrix_count(&tally, &one.options);
    on_gpu[one.gpu][one.default_config]++;
  }
  matrix_assert_covers(&tally, &least);
  for (int gpu = 0; gpu < GPUS; gpu++)
    for (int i = 0; i < 2; i++)
      ck_assert_msg(on_gpu[gpu][i] >= 10, "%s: only %d cases with %s config", gpus[gpu],
                    on_gpu[gpu][i], i ? "the default" : "a random");
}
END_TEST

START_TEST(those_that_run_are_spread) {
  bool seen[CASES] = {false};
  int combinations[MATRIX_COMBINATIONS] = {0};
  for (int n = 0; n < RUN; n++) {
    const int index = index_of(n);
    ck_assert(index < CASES && !seen[index]);
    seen[index] = true;
    combinations[index % MATRIX_COMBINATIONS]++;
  }
  for (int i = 0; i < MATRIX_COMBINATIONS; i++)
    ck_assert_int_ge(combinations[i], RUN / MATRIX_COMBINATIONS);
}
END_TEST

Suite *make_emulator_matrix_suite(void) {
  Suite *const suite = suite_create("emulator_matrix");
  TCase *const tests = tcase_create("matrix");
  tcase_set_timeout(tests, 600);
  tcase_add_test(tests, the_matrix_covers_what_it_says);
  tcase_add_test(tests, those_that_run_are_spread);
  tcase_add_loop_test(tests, requests_are_right, 0, SLICES);
  suite_add_tcase(suite, tests);
  return suite;
}
