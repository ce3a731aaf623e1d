/* test_emulator_lines.c: the forward in e4m3 whose P is made without ex2 (fast_exp).
 * in -> out: requests -> every row against float64, few keys and many deciding a row, by mma.sync,
 * too; an LSE -> refused; a NaN in an input -> NaN in O; bugs planted into those parts -> each
 * caught; pairs of fp16 -> sums as rounded from float64. */
#include <math.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/emulator_kernel.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_parts.h"

#define CONFIG(m, n, s, q, more)                                                                   \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=" #s " q_stages=" #q                         \
  " direct_store=1 integer_max=1 " more
#define ONE CONFIG(128, 64, 2, 1, "lazy_rescale=1")

static void is_right(const struct ft_problem_options *options, const char *config) {
  struct emulator_run run;
  emulator_run_alone(&run, NULL, options, config);
  emulator_expect_right(config, &run);
  emulator_run_free(&run);
}

/* ---- runs ---- */

static const struct {
  const char *request, *config;
} runs[] = {
    {"e4m3 fast_exp d128 hq2 hkv1 b2 nq200 nk600",
     CONFIG(192, 96, 3, 2, "overlap_tiles=1 lazy_rescale=1 v_by_columns=1")},
    {"e4m3 fast_exp d64 nq300 nk533 causal",
     CONFIG(192, 128, 3, 1, "pingpong=2 lazy_rescale=1 v_by_columns=1")},
    {"e4m3 fast_exp d64 hq2 hkv1 nq200 nk400 causal=top-left",
     CONFIG(128, 96, 3, 2, "overlap_tiles=1 pingpong=1 lazy_rescale=1")},
    {"e4m3 fast_exp d64 dv128 nq300 nk300 window@100,30", CONFIG(192, 128, 2, 1, "pingpong=2")},
    {"e4m3 fast_exp d16 dv16 nq100 nk500", CONFIG(64, 32, 2, 1, "ascending_keys=1")},
    {"e4m3 fast_exp d112 dv128 hq2 nq200 nk400 sinks", CONFIG(128, 160, 2, 1, "")},
    {"e4m3 fast_exp d256 nq200 nk400 causal", CONFIG(128, 96, 2, 1, "pingpong=1 lazy_rescale=1")},
    {"e4m3 fast_exp d64 hq2 nq300 nk500 causal mask=128x96@0.5",
     CONFIG(128, 96, 3, 2, "overlap_tiles=1 pingpong=1 lazy_rescale=1")},
    {"e4m3 fast_exp d64 nq200 nk700",
     CONFIG(128, 64, 2, 2, "overlap_tiles=1 two_level=3 lazy_rescale=1")},
    {"e4m3 fast_exp d64 hq2 hkv1 b3 nq150 nk400 causal pages=16", ONE},
    {"e4m3 fast_exp d64 hq2 hkv1 b3 nq350 nk700 causal ragged", ONE},
    {"e4m3 fast_exp d64 hq2 nq60 nk900", CONFIG(64, 64, 2, 1, "lazy_rescale=1 split_keys=1")},
    {"e4m3 fast_exp d64 hq2 nq60 nk900", CONFIG(64, 64, 2, 1, "lazy_rescale=1 split_keys=4")},
    {"e4m3 fast_exp o=fp16 d80 dv48 hq2 nq60 nk700", ONE},
    {"e4m3 fast_exp d64 nq100 nk300 causal",
     "mma_forward block_m=64 block_n=64 warps=4 stages=2 ctas_per_sm=1"},
};

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  const struct ft_problem_options options =
      emulator_options(runs[number].request, (enum ft_layout)(number % 3), emulator_seed());
  is_right(&options, runs[number].config);
}
END_TEST

/* From scores that are nearly equal to those of which a few decide a row. */
START_TEST(any_spread_of_scores_is_right) {
  struct ft_problem_options options =
      emulator_options("e4m3 fast_exp d64 nq130 nk700", FT_LAYOUT_BHSD, emulator_seed());
  options.scale = ldexp(1, _i - 6);
  is_right(&options, ONE);
}
END_TEST

START_TEST(an_lse_is_refused) {
  static const char text[] = "e4m3 fast_exp d64 nq70 nk300";
  fatune_session *const session = emulator_open("h200", NULL);
  const struct ft_problem_options options = emulator_options(text, FT_LAYOUT_BHSD, 1);
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  fatune_plan *const plan = emulator_plan(session, text, ONE);
  float lse[70];
  fatune_arguments arguments = *ft_problem_arguments(problem);
  ck_assert_ptr_null(arguments.lse);
  ck_assert_int_eq(fatune_plan_run(plan, &arguments, NULL), FT_OK);
  arguments.lse = lse;
  ck_assert_int_eq(fatune_plan_run(plan, &arguments, NULL), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "; allowed: NULL (with fast_exp there is O alone)"));
  fatune_plan_free(plan);
  ft_problem_free(problem);
  fatune_session_close(session);
}
END_TEST

/* ---- numbers ---- */

enum { PAIRS = 1 << 14, RESULTS = 3 };

static const char wrappers[] =
    "//@ part('parts/ptx_common.cu.in', { dtype = request.dtype, sm = sm }) "
    "part('parts/ptx_e4m3_lines.cu.in', {})\n"
    "struct Words { unsigned *in, *out; };\n"
    "extern \"C\" __global__ void __launch_bounds__(32, 1)\n"
    "fatune_kernel(const __grid_constant__ Words words) {\n"
    "for (int i = threadIdx.x; i < 16384; i += 32) {\n"
    "const unsigned a = words.in[2 * i], b = words.in[2 * i + 1];\n"
    "unsigned *const out = words.out + 3 * i;\n"
    "out[0] = add_halves(a, b);\n"
    "out[1] = halves_from_0(__uint_as_float(a), __uint_as_float(b));\n"
    "out[2] = __float_as_uint(sum_of_halves(a));\n"
    "}\n}\n";

static double half(uint32_t pair, int n) {
  return ft_from_dtype(FT_FP16, (uint16_t)(pair >> 16 * n));
}

static float as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static bool is_half(uint32_t pair, int n, double expected) {
  const double is = half(pair, n);
  return isnan(expected) ? isnan(is)
                         : is == ft_from_dtype(FT_FP16, (uint16_t)ft_to_dtype(FT_FP16, expected));
}

START_TEST(pairs_are_rounded_once) {
  static uint32_t in[2 * PAIRS], out[RESULTS * PAIRS];
  random_seed = emulator_seed();
  for (int i = 0; i < PAIRS; i++) {
    for (int n = 0; n < 2; n++)
      in[2 * i + n] = (uint32_t)below(1 << 16) << 16 | (uint32_t)below(1 << 16);
    if (i % 8 != 0) continue;
    for (int n = 0; n < 2; n++) { /* as fp32: of a size of denormal fp16, and below 0 */
      const float steps = (float)below(1 << 20) * 0x1p-10f * (i % 16 == 0 ? 0x1p-24f : -1.f);
      memcpy(&in[2 * i + n], &steps, sizeof steps);
    }
  }
  const struct planted planted = emulator_plant_file("mma_forward.cu.in", wrappers);
  struct small_kernel kernel;
  small_kernel_load(&kernel, "h200", planted.folder, FT_BF16,
                    "mma_forward block_m=64 block_n=32 warps=4 stages=1 ctas_per_sm=1");
  emulator_unplant(&planted);
  ck_assert_int_eq(small_kernel_launch(&kernel, 1, 32, in, 2 * PAIRS, out, RESULTS * PAIRS), FT_OK);
  small_kernel_close(&kernel);
  for (int i = 0; i < PAIRS; i++) {
    const uint32_t *const of = in + 2 * i, *const is = out + RESULTS * i;
    for (int n = 0; n < 2; n++) {
      const double a = half(of[0], n), b = half(of[1], n), x = (double)as_float(of[n]);
      ck_assert_msg(is_half(is[0], n, a + b), "%a + %a", a, b);
      ck_assert_msg(is_half(is[1], n, x < 0 ? 0 : x), "%a from 0", x);
    }
    const double sum = half(of[0], 0) + half(of[0], 1);
    ck_assert(isnan(sum) ? isnan(as_float(is[2])) : as_float(is[2]) == (float)sum);
  }
}
END_TEST

/* ---- NaN ---- */

START_TEST(nan_is_seen_in_o) {
  enum { NAN_BYTE = 0x7F, ROWS = 70, ROW = 3, COLUMN = 5 };
  static const char text[] = "e4m3 fast_exp d64 nq70 nk300";
  fatune_session *const session = emulator_open("h200", NULL);
  const struct ft_problem_options options = emulator_options(text, FT_LAYOUT_BHSD, emulator_seed());
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  fatune_plan *const plan = emulator_plan(session, text, ONE);
  const struct ft_driver *const driver = &session->driver;
  const uint8_t byte = NAN_BYTE;
  const int tensor = _i == 0 ? FT_Q : _i == 1 ? FT_K : FT_V;
  uint16_t o[ROWS * 64];
  ck_assert_int_eq(driver->copy_to_device(problem->data[tensor] + (cu_address)(ROW * 64 + COLUMN),
                                          &byte, 1, NULL),
                   0);
  ck_assert_msg(fatune_plan_run(plan, ft_problem_arguments(problem), NULL) == FT_OK, "%s",
                ft_detail());
  ck_assert_int_eq(driver->copy_to_host(o, problem->data[FT_O], sizeof o, NULL), 0);
  for (int n = 0; n < ROWS * 64; n++) {
    const bool reached = tensor == FT_Q ? n / 64 == ROW : tensor == FT_K ? true : n % 64 == COLUMN;
    ck_assert_msg(isnan(ft_from_dtype(FT_BF16, o[n])) == reached, "row %d, column %d", n / 64,
                  n % 64);
  }
  fatune_plan_free(plan);
  ft_problem_free(problem);
  fatune_session_close(session);
}
END_TEST

/* ---- bugs ---- */

#define LINES "parts/exp2_lines.cu.in"

static const struct emulator_bug bugs[] = {
    {.name = "an octave of nine steps",
     .file = LINES,
     .piece = "STEPS_OF_OCTAVE = 8.f",
     .other = "STEPS_OF_OCTAVE = 9.f"},
    {.name = "P of these steps twice as large",
     .file = LINES,
     .piece = "STEP_OF_1 = 56.f",
     .other = "STEP_OF_1 = 64.f"},
    {.name = "sums half as large", .file = LINES, .piece = "* 256.f", .other = "* 128.f"},
    {.name = "bytes of P exchanged",
     .file = LINES,
     .piece = "prmt(first, second, 0x6420)",
     .other = "prmt(first, second, 0x6240)"},
};

START_TEST(bugs_are_seen) {
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  const struct ft_problem_options options =
      emulator_options("e4m3 fast_exp d64 hq2 hkv2 nq150 nk400", FT_LAYOUT_PADDED, emulator_seed());
  emulator_catch(&bugs[number], &options, ONE);
}
END_TEST

Suite *make_emulator_lines_suite(void) {
  Suite *const suite = suite_create("emulator_lines");
  TCase *const tests = tcase_create("lines");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_loop_test(tests, any_spread_of_scores_is_right, 0, 8);
  tcase_add_test(tests, an_lse_is_refused);
  tcase_add_test(tests, pairs_are_rounded_once);
  tcase_add_loop_test(tests, nan_is_seen_in_o, 0, 3);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
