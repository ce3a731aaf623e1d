/* test_gpu_matrix.c: the cross-product of features against float64 on the CPU.
 * in -> out: 341 requests, each with its default and a random legal config -> fences, poison and
 * every row checked by ft_problem_verify; the worst error over the allowed one is told.
 * The same runs on an emulated GPU, but for those of random scores -> outputs that differ by
 * roundings alone.
 * FATUNE_TEST_SEED repeats a run; FATUNE_TEST_CASE=N runs the N-th request alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tests/gpu/gpu_emulated.h"
#include "tests/gpu/gpu_runs.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/matrix_cases.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem.h"

enum { MESSAGES_MOST = 20 };

/* ---- what ran, kept for the emulator's word on it ---- */

struct kept {
  struct gpu_measure measure;
  struct gpu_output outputs[GPU_CONFIGS]; /* without o where nothing ran */
};

static struct kept kept[GPU_CASES];
static int emulator_status;
static char emulator_detail[1024]; /* why it was not started */

static void start_emulator(const struct gpu_case *cases, int count) {
  emulator_status = gpu_emulated_start(cases, count);
  if (emulator_status != FT_OK)
    snprintf(emulator_detail, sizeof emulator_detail, "%s", ft_detail());
}

static void keep(const struct gpu_case *one, int config, const struct ft_problem *problem) {
  struct kept *const of_case = &kept[one->index];
  if (!of_case->measure.largest_v) gpu_assert_ok(gpu_measure_make(&of_case->measure, problem));
  gpu_assert_ok(gpu_output_fetch(&of_case->outputs[config], problem));
}

static void forget(struct kept *of_case) {
  for (int config = 0; config < GPU_CONFIGS; config++) {
    gpu_output_free(&of_case->outputs[config]);
    of_case->outputs[config] = (struct gpu_output){0};
  }
  gpu_measure_free(&of_case->measure);
}

/* ---- runs ---- */

/* Runs that were right: their outputs are kept, and later compared with those of the emulator. */
static int kept_runs;

static void run_case(struct gpu_findings *findings, const struct gpu_case *one) {
  struct ft_problem *problem = NULL;
  gpu_assert_ok(ft_problem_make(&problem, gpu_lab()->session, &one->options));
  for (int config = 0; config < GPU_CONFIGS; config++)
    if (gpu_run_config(findings, one, config, problem) && !one->options.coarse) {
      keep(one, config, problem);
      kept_runs++;
    }
  ft_problem_free(problem);
}

START_TEST(every_request_is_right) {
  struct gpu_findings findings = {0};
  int first;
  const int count = gpu_chosen_cases(&first);
  struct gpu_case *const cases = calloc((size_t)count, sizeof *cases);
  ck_assert_ptr_nonnull(cases);
  for (int i = 0; i < count; i++) gpu_case_make(&cases[i], first + i);
  findings.worst_case = first;

  const double begin = gpu_seconds();
  start_emulator(cases, count);
  const int uncompiled = gpu_cases_compile(cases, count);
  const double compiled = gpu_seconds();
  int to_compare = 0; /* few cases may all have random scores */
  for (int i = 0; i < count; i++) {
    run_case(&findings, &cases[i]);
    if (!cases[i].options.coarse) to_compare += GPU_CONFIGS;
  }
  gpu_report("matrix", &findings, cases, count, compiled - begin, gpu_seconds() - compiled);
  free(cases);
  ck_assert_int_eq(uncompiled, 0);
  ck_assert_int_eq(findings.wrong, 0);
  ck_assert_int_eq(findings.runs, count * GPU_CONFIGS);
  ck_assert_int_eq(kept_runs, to_compare);
}
END_TEST

/* ---- the emulator agrees ---- */

struct agreement {
  int runs, wrong;
  long elements, differing;
  struct gpu_agreement worst;
  int worst_case, worst_config;
};

static void add(struct agreement *all, int index, int config, const struct gpu_agreement *one) {
  all->runs++;
  all->elements += one->elements;
  all->differing += one->differing;
  if (!(one->ratio <= 1) && ++all->wrong <= MESSAGES_MOST)
    printf("WRONG case %d, config %d: emulated and real outputs are apart by %.3g of the allowed\n"
           "  %s\n",
           index, config, one->ratio, one->worst);
  if (one->ratio <= all->worst.ratio) return;
  all->worst = *one;
  all->worst_case = index;
  all->worst_config = config;
}

static void compare_kept(struct agreement *all, int index, int config) {
  const struct gpu_output *const real = &kept[index].outputs[config];
  struct gpu_output emulated = {.o_count = real->o_count, .lse_count = real->lse_count};
  struct gpu_agreement one = {.ratio = INFINITY};
  if (!real->o) return;
  if (gpu_emulated_load(&emulated, index, config) == FT_OK)
    gpu_outputs_compare(&one, &kept[index].measure, real, &emulated);
  else
    snprintf(one.worst, sizeof one.worst, "%.150s", ft_detail());
  add(all, index, config, &one);
  gpu_output_free(&emulated);
}

/* a's ratio to b, which is a with one thing changed. */
static double ratio_to(const struct gpu_measure *measure, const struct gpu_output *a,
                       const struct gpu_output *b) {
  struct gpu_agreement agreement;
  gpu_outputs_compare(&agreement, measure, a, b);
  return agreement.ratio;
}

/* Random outputs of a plausible size, in any layout. */
static void make_outputs(struct gpu_output *a, struct gpu_output *b, const struct ft_problem *p) {
  uint64_t seed = gpu_seed(77);
  gpu_assert_ok(gpu_output_fetch(a, p));
  gpu_assert_ok(gpu_output_fetch(b, p));
  for (size_t n = 0; n < a->o_count; n++)
    a->o[n] = ft_to_dtype(FT_BF16, (gpu_random_below(&seed, 2000) - 1000.5) * 1e-4);
  for (size_t n = 0; n < a->lse_count; n++)
    a->lse[n] = 6 + 0.001F * (float)gpu_random_below(&seed, 1000);
}

static void copy_outputs(struct gpu_output *to, const struct gpu_output *from) {
  memcpy(to->o, from->o, from->o_count * sizeof *from->o);
  memcpy(to->lse, from->lse, from->lse_count * sizeof *from->lse);
}

START_TEST(the_comparison_sees_what_is_wrong) {
  const struct ft_problem_options options = {
      .request = gpu_request("forward bf16 d32 dv64 hq4 hkv2 b2 nq9 nk100"),
      .layout = FT_LAYOUT_PADDED,
      .seed = gpu_seed(78),
      .keep_host = true,
      .want_lse = true};
  struct ft_problem *problem;
  struct gpu_measure measure;
  struct gpu_output a, b;
  gpu_assert_ok(ft_problem_make(&problem, gpu_lab()->session, &options));
  gpu_assert_ok(gpu_measure_make(&measure, problem));
  make_outputs(&a, &b, problem);
  const int64_t at = ft_shape_offset(&measure.shape, 1, 5, 3);
  const size_t lse_at = (1 * 4 + 3) * 9 + 5;

  copy_outputs(&b, &a);
  ck_assert(ratio_to(&measure, &a, &b) == 0);
  b.o[at + 7] ^= 1; /* one unit in the last place */
  const double ulp = ratio_to(&measure, &a, &b);
  ck_assert_msg(ulp > 0 && ulp < 0.5, "%g", ulp);
  b.o[at + 7] = ft_to_dtype(FT_BF16, ft_from_dtype(FT_BF16, a.o[at + 7]) + 0.1);
  ck_assert(ratio_to(&measure, &a, &b) > 1);
  copy_outputs(&b, &a);
  for (int c = 0; c < 64; c++) /* all of a row by 5 %: as if a tile were lost */
    b.o[at + c] = ft_to_dtype(FT_BF16, 1.05 * ft_from_dtype(FT_BF16, a.o[at + c]));
  ck_assert(ratio_to(&measure, &a, &b) > 1);
  copy_outputs(&b, &a);
  b.o[at] = 0x7FC0;
  ck_assert(ratio_to(&measure, &a, &b) == INFINITY);
  copy_outputs(&b, &a);
  b.lse[lse_at] += 1e-5F;
  ck_assert(ratio_to(&measure, &a, &b) < 1);
  b.lse[lse_at] += 1e-4F;
  ck_assert(ratio_to(&measure, &a, &b) > 1);
  b.lse[lse_at] = NAN;
  ck_assert(ratio_to(&measure, &a, &b) == INFINITY);
  b.lse_count = 0;
  ck_assert(ratio_to(&measure, &a, &b) == INFINITY);

  gpu_output_free(&a), gpu_output_free(&b);
  gpu_measure_free(&measure);
  ft_problem_free(problem);
}
END_TEST

START_TEST(emulated_outputs_are_those_of_the_gpu) {
  struct agreement all = {0};
  const double begin = gpu_seconds();
  const int failed = gpu_emulated_wait();
  const double waited = gpu_seconds() - begin;
  ck_assert_msg(emulator_status == FT_OK, "the kernels were not emulated: %s", emulator_detail);
  for (int index = 0; index < GPU_CASES; index++) {
    for (int config = 0; config < GPU_CONFIGS; config++) compare_kept(&all, index, config);
    forget(&kept[index]);
  }
  printf("emulator: %d runs compared, %d wrong; waited %.1f s for them\n"
         "emulator: %ld of %ld elements of O differ; worst difference is %.3f of the allowed: case "
         "%d, config %d, %s\n",
         all.runs, all.wrong, waited, all.differing, all.elements, all.worst.ratio, all.worst_case,
         all.worst_config, all.worst.worst);
  fflush(stdout);
  ck_assert_int_eq(failed, 0);
  ck_assert_int_eq(all.wrong, 0);
  ck_assert_int_eq(all.runs, kept_runs);
}
END_TEST

/* ---- what the matrix covers ---- */

START_TEST(the_matrix_covers_what_it_says) {
  static const struct matrix_least least = {
      .dim = 11, .combination = 14, .layout = 80, .feature = 10};
  struct matrix_tally tally = {0};
  for (int i = 0; i < GPU_CASES; i++) {
    struct ft_problem_options options;
    gpu_case_options(&options, i, gpu_seed((uint64_t)i));
    matrix_count(&tally, &options);
  }
  matrix_assert_covers(&tally, &least);
}
END_TEST

Suite *make_gpu_matrix_suite(void) {
  Suite *const suite = suite_create("gpu_matrix");
  TCase *const tests = tcase_create("matrix");
  tcase_add_test(tests, the_matrix_covers_what_it_says);
  tcase_add_test(tests, the_comparison_sees_what_is_wrong);
  tcase_add_test(tests, every_request_is_right);
  tcase_add_test(tests, emulated_outputs_are_those_of_the_gpu); /* of the test before */
  suite_add_tcase(suite, tests);
  return suite;
}
