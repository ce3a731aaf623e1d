/* test_emulator_cached.c: K and V in e4m3 beside Q and O of 16 bits, as a cache has them.
 * in -> out: all bytes -> their numbers in 16 bits; requests -> every row against float64; a NaN in
 * an input -> NaN in O; bugs planted into what this alone has -> each caught. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_parts.h"

#define TILE(m, n, w, s, more)                                                                     \
  "mma_forward block_m=" #m " block_n=" #n " warps=" #w " stages=" #s " ctas_per_sm=1 " more
#define FEW(n, w, s, more) TILE(16, n, w, s, "key_warps=" #w " " more)

static const struct {
  const char *gpu, *request, *config;
} runs[] = {
    {"h200", "bf16 d128 hq8 hkv2 b2 nq1 nk300 kv=e4m3", FEW(128, 8, 3, "pack_gqa=1 split_keys=2")},
    {"h200", "fp16 d64 hq4 hkv1 b2 nq4 nk500 causal kv=e4m3",
     FEW(64, 4, 3, "pack_gqa=1 split_keys=8")},
    {"h200", "bf16 d256 hq4 hkv2 nq2 nk300 kv=e4m3", FEW(64, 4, 2, "pack_gqa=1 split_keys=1")},
    {"a100", "bf16 d64 hq4 hkv2 b2 nq3 nk400 causal kv=e4m3", FEW(128, 4, 2, "split_keys=1")},
    {"a100", "fp16 d128 hq2 hkv1 nq130 nk200 causal kv=e4m3", TILE(128, 64, 4, 2, "")},
    {"a100", "bf16 d112 dv80 hq2 nq70 nk200 kv=e4m3", TILE(64, 32, 4, 3, "q_in_regs=1")},
    {"rtx4090", "fp16 d16 dv16 hq2 nq70 nk200 window@50,10 kv=e4m3",
     TILE(64, 64, 4, 2, "overlap_qk=1")},
    {"rtx4090", "bf16 d80 dv208 hq2 nq100 nk90 causal=top-left kv=e4m3", TILE(64, 48, 2, 1, "")},
    {"h200", "bf16 d64 hq2 b2 nq130 nk140 causal sinks kv=e4m3", NULL},
    {"h200", "fp16 d64 hq4 hkv2 b3 nq1 nk200 pages=16 kv=e4m3", NULL},
    {"h200", "bf16 d128 hq4 hkv2 b3 nq5 nk200 pages=4 causal kv=e4m3", NULL},
    {"a100", "bf16 d64 hq4 hkv2 b3 nq60 nk200 ragged causal kv=e4m3", NULL},
    {"h200", "fp16 d96 hq2 hkv2 b3 nq40 nk200 ragged pages=16 kv=e4m3", NULL},
    {"a100", "bf16 d64 hq2 nq128 nk256 mask=64x64@0.5 kv=e4m3", NULL},
    {"a100", "fp16 d64 hq2 nq64 nk128 dropout kv=e4m3", NULL},
    {"rtx5090", "bf16 d128 hq8 hkv2 nq1 nk400 kv=e4m3", NULL},
};

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  struct emulator_run run;
  fatune_session *const session = emulator_open(runs[number].gpu, NULL);
  struct ft_problem_options options =
      emulator_options(runs[number].request, (enum ft_layout)(number % 3), emulator_seed());
  options.want_lse = true;
  emulator_run(&run, session, &options, runs[number].config);
  emulator_expect_right(runs[number].request, &run);
  emulator_run_free(&run);
  fatune_session_close(session);
}
END_TEST

/* A score function is given scores with the factor of K. */
static void run_scored(struct emulator_run *run, const char *templates, const char *request,
                       const char *score) {
  emulator_run_scored(run, templates, score, NULL,
                      emulator_options(request, FT_LAYOUT_PADDED, emulator_seed()), NULL);
}

static const char *const scored[][2] = {{"bf16 d64 hq4 hkv2 b2 nq2 nk300 kv=e4m3", "softcap"},
                                        {"fp16 d64 hq4 hkv2 nq100 nk200 kv=e4m3", "alibi"},
                                        {"bf16 d64 hq2 b2 nq70 nk70 kv=e4m3", "documents"}};

START_TEST(scores_are_right) {
  struct emulator_run run;
  run_scored(&run, NULL, scored[_i][0], scored[_i][1]);
  emulator_expect_right(scored[_i][1], &run);
  emulator_run_free(&run);
}
END_TEST

/* ---- all bytes ---- */

enum { BYTES = 256, DIM = 16 };

/* Key 0 is seen alone, so O is V: each byte becomes its number, whatever turns it into 16 bits. */
static void check_bytes(const char *gpu, const char *request, enum ft_dtype dtype) {
  fatune_session *const session = emulator_open(gpu, NULL);
  struct ft_problem_options options = emulator_options(request, FT_LAYOUT_BSHD, emulator_seed());
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  fatune_arguments arguments = *ft_problem_arguments(problem);
  arguments.descale_v = (fatune_descale){.data = NULL};
  fatune_plan *const plan = emulator_plan(session, request, NULL);
  const struct ft_driver *const driver = &session->driver;
  uint8_t v[BYTES];
  uint16_t o[BYTES];
  for (int n = 0; n < BYTES; n++) v[n] = (uint8_t)n;
  ck_assert_int_eq(driver->copy_to_device(problem->data[FT_V], v, sizeof v, NULL), 0);
  ck_assert_msg(fatune_plan_run(plan, &arguments, NULL) == FT_OK, "%s", ft_detail());
  ck_assert_int_eq(driver->copy_to_host(o, problem->data[FT_O], sizeof o, NULL), 0);
  for (int n = 0; n < BYTES; n++) {
    const double is = ft_from_dtype(dtype, o[n]), should = (double)ft_from_e4m3((uint8_t)n);
    ck_assert_msg(is == should || (isnan(is) && isnan(should)), "%s: byte %d is %g, not %g", gpu, n,
                  is, should);
  }
  fatune_plan_free(plan);
  ft_problem_free(problem);
  fatune_session_close(session);
}

/* 16 batch entries of one key, 16 columns each: 256 elements. */
START_TEST(bytes_become_their_numbers) {
  static const char *const gpus[] = {"a100", "rtx4090"};
  check_bytes(gpus[_i], "bf16 d16 b16 nq1 nk1 kv=e4m3", FT_BF16);
  check_bytes(gpus[_i], "fp16 d16 b16 nq1 nk1 kv=e4m3", FT_FP16);
}
END_TEST

/* A NaN among the keys reaches the rows that see it. */
START_TEST(nan_in_k_is_seen) {
  enum { NAN_BYTE = 0xFF, KEY = 3, ROWS = 20 };
  static const char *const gpus[] = {"a100", "h200"};
  const char *const request = "fp16 d64 nq20 nk20 causal=top-left kv=e4m3";
  fatune_session *const session = emulator_open(gpus[_i], NULL);
  const struct ft_problem_options options =
      emulator_options(request, FT_LAYOUT_BSHD, emulator_seed());
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  fatune_plan *const plan = emulator_plan(session, request, NULL);
  const struct ft_driver *const driver = &session->driver;
  const uint8_t byte = NAN_BYTE;
  uint16_t o[ROWS * 64];
  ck_assert_int_eq(
      driver->copy_to_device(problem->data[FT_K] + (cu_address)(KEY * 64 + 9), &byte, 1, NULL), 0);
  ck_assert_msg(fatune_plan_run(plan, ft_problem_arguments(problem), NULL) == FT_OK, "%s",
                ft_detail());
  ck_assert_int_eq(driver->copy_to_host(o, problem->data[FT_O], sizeof o, NULL), 0);
  for (int n = 0; n < ROWS * 64; n++)
    ck_assert_msg(isnan(ft_from_dtype(FT_FP16, o[n])) == (n / 64 >= KEY), "row %d", n / 64);
  fatune_plan_free(plan);
  ft_problem_free(problem);
  fatune_session_close(session);
}
END_TEST

/* ---- arguments ---- */

START_TEST(bad_descales_are_named) {
  const char *const request = "bf16 d64 nq4 nk4 kv=e4m3";
  fatune_session *const session = emulator_open("h200", NULL);
  const struct ft_problem_options options =
      emulator_options(request, FT_LAYOUT_BSHD, emulator_seed());
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  fatune_plan *const plan = emulator_plan(session, request, NULL);
  fatune_arguments bad = *ft_problem_arguments(problem);
  bad.descale_q.data = bad.descale_k.data;
  ck_assert_int_eq(fatune_plan_run(plan, &bad, NULL), FATUNE_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(fatune_detail(), "arguments.descale_q.data is 0x"));
  ck_assert_ptr_nonnull(strstr(fatune_detail(), "allowed: NULL, only K and V are in e4m3"));
  bad = *ft_problem_arguments(problem);
  bad.k.stride_seq += 8; /* whole 16 bytes of 16-bit elements alone */
  ck_assert_int_eq(fatune_plan_run(plan, &bad, NULL), FATUNE_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(fatune_detail(), "a multiple of 16 elements"));
  fatune_plan_free(plan);
  ft_problem_free(problem);
  fatune_session_close(session);
}
END_TEST

/* ---- bugs ---- */

#define FRAGMENTS "parts/kv_fragments_e4m3.cu.in"
#define SCALE     "parts/kv_scale.cu.in"

static const struct emulator_bug bugs[] = {
    {.name = "depths of Q in their own order",
     .file = "parts/copy_queries.cu.in",
     .piece = "pair / 8 * 2 + pair % 2) + pair % 8 / 2 * 4",
     .other = "pair / 4) + pair % 4 * 4"},
    {.name = "keys exchanged",
     .file = FRAGMENTS,
     .piece = "widen(r[0], r[1], bytes[0]);",
     .other = "widen(r[1], r[0], bytes[0]);"},
    {.name = "columns of V exchanged",
     .file = FRAGMENTS,
     .piece = "widen(r[0], r[2], prmt(bytes[0], 0, 0x3120));",
     .other = "widen(r[2], r[0], prmt(bytes[0], 0, 0x3120));"},
    {.name = "columns and keys of V exchanged",
     .file = FRAGMENTS,
     .piece = "prmt(bytes[1], 0, 0x3120)",
     .other = "bytes[1]"},
    {.name = "chunks of the first half of a row",
     .file = "parts/chunk_alone.cu.in",
     .piece = "(address ^ (chunk % 8 * 16))",
     .other = "(address ^ (chunk % 4 * 16))"},
    {.name = "scores without the factor of K",
     .file = SCALE,
     .piece = "  own.softmax.scale_log2 *= factor;\n",
     .other = ""},
    {.name = "the factor of another head",
     .file = SCALE,
     .piece = "batch * descale.batch + head * descale.head",
     .other = "batch * descale.batch"},
    {.name = "O twice as large",
     .file = SCALE,
     .piece = "{ return scale.factor; }",
     .other = "{ return 2.f * scale.factor; }"},
    {.name = "columns of O in the order of the products",
     .file = "parts/staging_e4m3.cu.in",
     .piece = "pack(c0[2 * h] * factor, c1[2 * h] * factor)",
     .other = "pack(c0[2 * h] * factor, c0[2 * h + 1] * factor)"},
};

START_TEST(bugs_are_seen) {
  struct ft_problem_options options = emulator_options("bf16 d128 hq2 hkv2 b2 nq40 nk150 kv=e4m3",
                                                       FT_LAYOUT_PADDED, emulator_seed());
  emulator_catch(&bugs[EMULATOR_CHOOSE(_i, bugs)], &options, TILE(64, 32, 4, 2, ""));
}
END_TEST

/* What sm_80 does in place of conversions, seen in the bytes. */
static const struct emulator_bug steps[] = {{.name = "a power of two too small",
                                             .file = "parts/e4m3_pairs.cu.in",
                                             .piece = "\"0x7B807B80u\"",
                                             .other = "\"0x7B007B00u\""},
                                            {.name = "the first bit of the fraction lost",
                                             .file = "parts/e4m3_pairs.cu.in",
                                             .piece = "\"0x07F007F0u\"",
                                             .other = "\"0x07E007E0u\""}};

START_TEST(steps_are_seen) {
  struct ft_problem_options options =
      emulator_options("bf16 d64 hq2 nq40 nk70 kv=e4m3", FT_LAYOUT_BSHD, emulator_seed());
  const struct planted planted = emulator_plant(steps[_i].file, steps[_i].piece, steps[_i].other);
  fatune_session *const session = emulator_open("a100", planted.folder);
  struct emulator_run run;
  emulator_run(&run, session, &options, NULL);
  emulator_expect_wrong(steps[_i].name, &run);
  emulator_run_free(&run);
  fatune_session_close(session);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
  EMULATOR_EXPECT_PIECES(steps);
}
END_TEST

Suite *make_emulator_cached_suite(void) {
  Suite *const suite = suite_create("emulator_cached");
  TCase *const tests = tcase_create("emulator_cached");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_loop_test(tests, scores_are_right, 0, (int)EMULATOR_COUNT(scored));
  tcase_add_loop_test(tests, bytes_become_their_numbers, 0, 2);
  tcase_add_loop_test(tests, nan_in_k_is_seen, 0, 2);
  tcase_add_test(tests, bad_descales_are_named);
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  tcase_add_loop_test(tests, steps_are_seen, 0, (int)EMULATOR_COUNT(steps));
  suite_add_tcase(suite, tests);
  return suite;
}
