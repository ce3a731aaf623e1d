/* test_emulator_fp32.c: fp32 by three products of TF32, tf32 by one, forward and backward.
 * in -> out: requests -> every row against float64; a NaN in an input -> NaN in O; bugs planted
 * into what fp32 alone has -> each caught. */
#include <math.h>
#include <stdlib.h>

#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/matrix_cases.h"
#include "tests/suites.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_parts.h"

#define FORWARD(m, n, w, s)                                                                        \
  "mma_forward block_m=" #m " block_n=" #n " warps=" #w " stages=" #s " ctas_per_sm=1"
#define BACKWARD(m, n, w, s, c, p)                                                                 \
  "mma_backward block_m=" #m " block_n=" #n " warps=" #w " stages=" #s " column_warps=" #c         \
  " query_parts=" #p " ctas_per_sm=1"

/* ---- numbers ---- */

START_TEST(tf32_is_the_nearest_number) {
  random_seed = emulator_seed();
  ck_assert_float_eq(ft_round_to_dtype(FT_TF32, 1 + 0x1p-11f),
                     1 + 0x1p-10f); /* of two the larger */
  ck_assert_float_eq(ft_round_to_dtype(FT_TF32, -1 - 0x1p-11f), -1 - 0x1p-10f);
  ck_assert(isnan(ft_round_to_dtype(FT_TF32, NAN)));
  for (int n = 0; n < 20000; n++) {
    const float x = ldexpf(1 + (float)below(1 << 23) * 0x1p-23f, below(200) - 100);
    const double rounded = (double)ft_round_to_dtype(FT_TF32, x);
    const double scaled = ldexp(rounded, 10 - ilogbf(x));
    ck_assert_double_eq(scaled, rint(scaled));
    ck_assert_double_le(fabs(rounded - (double)x), ldexp(1, ilogbf(x) - 11));
  }
}
END_TEST

/* ---- runs ---- */

static const struct {
  const char *request, *config;
} runs[] = {
    {"fp32 d64 hq4 hkv2 b2 nq100 nk130", FORWARD(64, 64, 4, 2)},
    {"fp32 d128 nq130 nk100 causal dropout", FORWARD(128, 32, 8, 2)},
    {"fp32 d40 dv72 nq70 nk200 causal=top-left", FORWARD(64, 32, 4, 2) " q_in_regs=1 overlap_qk=1"},
    {"fp32 d256 nq40 nk70", FORWARD(64, 32, 4, 1)},
    {"fp32 d24 dv16 hq2 nq100 nk100 window@20,9 sinks", FORWARD(128, 32, 4, 3)},
    {"fp32 d72 hq2 nq3 nk900 dropout", FORWARD(64, 16, 4, 2) " split_keys=1"},
    {"fp32 d64 hq2 nq200 nk200 mask=64x64@0.5 dropout", FORWARD(64, 64, 2, 2)},
    {"fp32 d64 hq2 b3 nq200 ragged causal", FORWARD(64, 32, 4, 2) " draw_early=0"},
    {"fp32 d64 hq2 b4 nq100 nk200 pages=16 causal", FORWARD(64, 32, 4, 2)},
    {"fp32 d16 nq1 nk1", NULL},
    {"tf32 d64 hq2 nq100 nk130 causal dropout", FORWARD(128, 64, 4, 2)},
    {"tf32 d104 nq100 nk100", NULL},
    {"backward fp32 d64 hq4 hkv2 nq100 nk130 causal",
     BACKWARD(64, 64, 8, 2, 1, 1) " deferred_dq=1"},
    {"backward fp32 d32 nq130 nk100 dropout", BACKWARD(64, 128, 8, 2, 1, 2) " kv_in_regs=1"},
    {"backward fp32 d72 dv40 nq70 nk90 dropout deterministic",
     BACKWARD(32, 64, 8, 1, 2, 1) " dq_mode=1"},
    {"backward fp32 d64 hq2 nq128 nk128 mask=64x64@0.5 deterministic causal dropout",
     BACKWARD(64, 64, 8, 1, 1, 1) " dq_mode=2"},
    {"backward fp32 d24 b3 nq150 ragged sinks causal", NULL},
    {"backward fp32 d136 nq40 nk50 window@9,3", NULL},
    {"backward fp32 d16 nq1 nk1", NULL},
    {"backward tf32 d64 hq2 hkv1 nq100 nk70 causal dropout", NULL},
};

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  emulator_row_by_row(runs[number].request, (enum ft_layout)(number % 3), 0, runs[number].config);
}
END_TEST

/* Any request of the matrices, by any legal config. */
START_TEST(random_requests_are_right) {
  static const struct matrix_size size = {
      .longest = 200, .rows = 256, .rows_seldom = 256, .tile = 64};
  struct ft_problem_options options = {.seed = emulator_seed()};
  const int index = (int)(emulator_seed() % 10000) + 7 * _i;
  if (_i % 2)
    matrix_choose_backward(&options, index, &size);
  else
    matrix_choose(&options, index, &size);
  options.request.dtype = _i % 4 < 3 ? FT_FP32 : FT_TF32;
  options.keep_host = true;
  emulator_random_config_is_right(_i % 2 ? "a100-80gb" : "h200", &options);
}
END_TEST

/* What the kernel rounds to TF32 is what a plain program rounds, P for the product with dO and not
 * for dS. So where a gradient is that of one query and key, both have the same error, which is half
 * of what is allowed. Of these problems the allowance is too small if the plain program rounds P
 * for dS: one rounding then undoes the other, and the ratio is 0.75 to 0.98. The seeds are fixed,
 * as about one problem in 100 has a dS so near the middle of two numbers of TF32 that the kernel
 * and the plain program round it apart. */
START_TEST(errors_are_those_of_a_plain_program) {
  static const uint64_t seeds[] = {11, 22, 39, 43, 44};
  const char *const request = "backward tf32 d40 hq2 nq40 nk2 causal";
  for (size_t n = 0; n < EMULATOR_COUNT(seeds); n++) {
    const struct ft_problem_options options = emulator_options(request, FT_LAYOUT_BHSD, seeds[n]);
    struct emulator_run run;
    emulator_run_alone(&run, NULL, &options, BACKWARD(16, 32, 4, 2, 1, 1));
    emulator_expect_right(request, &run);
    ck_assert_double_le(run.comparison.error_ratio, 0.53);
    emulator_run_free(&run);
  }
}
END_TEST

/* ---- NaN ---- */

/* An element of an input becomes NaN: rows of O that it belongs to are NaN, others are not. */
START_TEST(nan_is_seen_in_o) {
  enum { ROWS = 70, ROW = 3 };
  const char *const text =
      _i / 3 ? "tf32 d64 nq70 nk100 causal=top-left" : "fp32 d64 nq70 nk100 causal=top-left";
  fatune_session *const session = emulator_open("h200", NULL);
  const struct ft_problem_options options = emulator_options(text, FT_LAYOUT_BHSD, emulator_seed());
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  fatune_plan *const plan = emulator_plan(session, text, FORWARD(64, 64, 4, 2));
  const struct ft_driver *const driver = &session->driver;
  const uint32_t nan_of_gpus = 0x7FFFFFFF;
  const int tensor = _i % 3 == 0 ? FT_Q : _i % 3 == 1 ? FT_K : FT_V;
  const cu_address at = problem->data[tensor] + sizeof(float) * (ROW * 64 + 5);
  float o[ROWS * 64];
  ck_assert_int_eq(driver->copy_to_device(at, &nan_of_gpus, sizeof nan_of_gpus, NULL), 0);
  ck_assert_msg(fatune_plan_run(plan, ft_problem_arguments(problem), NULL) == FT_OK, "%s",
                ft_detail());
  ck_assert_int_eq(driver->copy_to_host(o, problem->data[FT_O], sizeof o, NULL), 0);
  for (int row = 0; row < ROWS; row++)
    for (int column = 0; column < 64; column++) {
      const bool reached = tensor == FT_Q   ? row == ROW
                           : tensor == FT_K ? row >= ROW
                                            : column == 5; /* 0 times NaN is NaN, too */
      ck_assert_msg(isnan(o[row * 64 + column]) == reached, "row %d, column %d", row, column);
    }
  fatune_plan_free(plan);
  ft_problem_free(problem);
  fatune_session_close(session);
}
END_TEST

/* ---- bugs ---- */

#define FRAGMENTS "parts/fragments_fp32.cu.in"
#define PAIRS     "parts/pairs_fp32.cu.in"
#define STAGING   "parts/staging_fp32.cu.in"

static const struct {
  bool backward;
  struct emulator_bug bug;
} bugs[] = {
    {false,
     {.name = "small part of A left out",
      .file = FRAGMENTS,
      .piece = "    mma_m16n8k8(sum, a_small[h], b_big[h][0], b_big[h][1]);\n",
      .other = ""}},
    {false,
     {.name = "small part of B left out",
      .file = FRAGMENTS,
      .piece = "    mma_m16n8k8(sum, a_big[h], b_small[h][0], b_small[h][1]);\n",
      .other = ""}},
    {false,
     {.name = "big part cut off in the wrong place",
      .file = FRAGMENTS,
      .piece = "big = big_part(x);",
      .other = "big = x + 0x800u & 0xFFFFF000u;"}},
    {false,
     {.name = "rows of V in another order than columns of P",
      .file = FRAGMENTS,
      .piece = "r[4 * h + i] = half[i % 2 * 2 + i / 2];",
      .other = "r[4 * h + i] = half[i];"}},
    {false,
     {.name = "odd rows of V with the swizzle of even ones",
      .file = FRAGMENTS,
      .piece = "(STRIDE % 128 == 0 ? even ^ 16 : even) + STRIDE",
      .other = "even + STRIDE"}},
    {false,
     {.name = "columns of O in the order of the products",
      .file = STAGING,
      .piece = "{c0[2 * h] * factor, c1[2 * h] * factor, c0[2 * h + 1] * factor, c1[2 * h + 1] * "
               "factor}",
      .other = "{c0[2 * h] * factor, c0[2 * h + 1] * factor, c1[2 * h] * factor, c1[2 * h + 1] * "
               "factor}"}},
    {false,
     {.name = "the second of a pair dropped as the first",
      .file = PAIRS,
      .piece = "r[first_register(i) + 2] &= 0u - (kept >> 31);",
      .other = "r[first_register(i) + 2] &= 0u - (kept & 1);"}},
    {true,
     {.name = "rows of dS turned in another order",
      .file = STAGING,
      .piece = "return lane / 4 * 2 + h;",
      .other = "return lane / 4 + 8 * h;"}},
    {true,
     {.name = "marks of the second of a pair lost",
      .file = PAIRS,
      .piece = "r[first + 2] | (~kept & 0x80000000u);",
      .other = "r[first + 2];"}},
    {true,
     {.name = "P read with its pairs the other way round",
      .file = "parts/backward_tile.cu.in",
      .piece = "set_pair(r, i, pair[0], pair[1]);",
      .other = "set_pair(r, i, pair[1], pair[0]);"}},
};

START_TEST(bugs_are_seen) {
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  const bool backward = bugs[number].backward;
  const struct ft_problem_options options = emulator_options(
      backward ? "backward fp32 d64 nq100 nk150 dropout" : "fp32 d64 hq2 nq100 nk150 dropout",
      FT_LAYOUT_PADDED, emulator_seed());
  emulator_catch(&bugs[number].bug, &options,
                 backward ? BACKWARD(64, 64, 8, 2, 1, 1) : FORWARD(64, 64, 4, 2));
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  for (size_t n = 0; n < sizeof bugs / sizeof *bugs; n++)
    emulator_expect_piece(bugs[n].bug.file, bugs[n].bug.piece, true);
}
END_TEST

Suite *make_emulator_fp32_suite(void) {
  Suite *const suite = suite_create("emulator_fp32");
  TCase *const tests = tcase_create("fp32");
  tcase_set_timeout(tests, 300);
  tcase_add_test(tests, tf32_is_the_nearest_number);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_loop_test(tests, random_requests_are_right, 0, 8);
  tcase_add_test(tests, errors_are_those_of_a_plain_program);
  tcase_add_loop_test(tests, nan_is_seen_in_o, 0, 6);
  suite_add_tcase(suite, tests);
  TCase *const planted = tcase_create("bugs");
  tcase_set_timeout(planted, 300);
  tcase_add_test(planted, every_bug_can_be_planted);
  tcase_add_loop_test(planted, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, planted);
  return suite;
}
