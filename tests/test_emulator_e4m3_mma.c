/* test_emulator_e4m3_mma.c: the forward with Q, K and V in e4m3 by mma.sync.
 * in -> out: requests on several GPUs -> every row against float64; a NaN in an input -> NaN in O;
 * bugs planted into what this alone has -> each caught. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/matrix_cases.h"
#include "tests/suites.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_parts.h"

#define TILE(m, n, w, s, more)                                                                     \
  "mma_forward block_m=" #m " block_n=" #n " warps=" #w " stages=" #s " ctas_per_sm=1 " more
#define FEW(n, w, s, more) TILE(16, n, w, s, "key_warps=" #w " " more)

/* Some with descales of blocks of rows, which the last ones are about. */
static const struct {
  const char *gpu, *request, *config;
} runs[] = {
    {"rtx4090", "e4m3 d128 hq4 hkv2 b2 nq200 nk300 causal", TILE(128, 32, 4, 2, "")},
    {"rtx4090", "e4m3 o=fp16 d64 hq2 nq130 nk333", TILE(128, 64, 4, 2, "q_in_regs=1")},
    {"rtx5090", "e4m3 d64 hq2 nq200 nk200 causal=top-left", TILE(64, 96, 4, 3, "overlap_qk=1")},
    {"rtx5090", "e4m3 d128 nq100 nk300 window@100,30 sinks", TILE(64, 64, 2, 1, "q_in_regs=1")},
    {"h200", "e4m3 d128 hq4 hkv2 nq200 nk300 causal", TILE(128, 32, 4, 2, "")},
    {"h200", "e4m3 d256 nq70 nk200", TILE(64, 64, 4, 1, "")},
    {"b200", "e4m3 d256 dv16 hq2 nq90 nk200 causal", NULL},
    {"rtx4090", "e4m3 d16 dv256 hq3 hkv1 nq70 nk200", TILE(64, 128, 4, 2, "overlap_qk=1")},
    {"rtx4090", "e4m3 d80 dv48 hq2 nq130 nk190 causal", TILE(192, 32, 4, 2, "")},
    {"rtx5090", "e4m3 d112 dv144 hq2 nq100 nk90 sinks", NULL},
    {"rtx4090", "e4m3 d48 b3 hq2 nq70 nk70 causal", NULL},
    {"rtx4090", "e4m3 d128 nq1 nk1", NULL},
    {"rtx4090", "e4m3 d64 hq4 hkv2 nq3 nk500 causal", FEW(128, 4, 3, "split_keys=1")},
    {"rtx5090", "e4m3 d240 hq2 nq16 nk300", FEW(64, 2, 2, "")},
    {"h200", "e4m3 d64 hq2 nq5 nk900 causal sinks", FEW(128, 4, 2, "split_keys=4")},
    {"l4", "e4m3 o=fp16 d128 hq8 hkv2 b2 nq1 nk600", NULL},
    {"rtx4090", "e4m3 d128 hq2 nq60 nk700 causal window@300,0", TILE(64, 64, 4, 2, "split_keys=1")},
    {"rtx4090", "e4m3 d64 hq2 nq256 nk288 causal mask=128x96@0.5", TILE(128, 96, 4, 1, "")},
    {"h200", "e4m3 d64 hq2 nq96 nk160 mask=16x32@0.6", NULL},
    {"rtx4090", "e4m3 d64 hq4 hkv2 b5 nq300 nk300 causal ragged", NULL},
    {"rtx5090", "e4m3 d80 b4 nq200 nk200 window@60,30 ragged sinks", TILE(64, 32, 4, 2, "")},
    {"rtx4090", "e4m3 d64 hq4 hkv2 b3 nq50 nk200 causal pages=16", NULL},
    {"h200", "e4m3 d128 hq2 b3 nq3 nk200 pages=2", NULL},
    {"rtx5090", "e4m3 o=fp16 d48 hq2 b4 nq150 nk300 causal ragged pages=128", NULL},
    {"rtx4090", "e4m3 d128 hq4 hkv2 b2 nq200 nk300 causal descales=128", TILE(128, 32, 4, 2, "")},
    {"h200", "e4m3 d64 hq2 nq130 nk333 descales=64", TILE(64, 64, 4, 2, "overlap_qk=1")},
    {"rtx4090", "e4m3 d96 hq2 nq150 nk300 window@100,30 sinks descales=128",
     TILE(64, 128, 4, 1, "")},
    {"rtx5090", "e4m3 d256 hq2 b2 nq70 nk200 causal=top-left descales=64", NULL},
    {"rtx4090", "e4m3 d64 hq2 nq3 nk700 descales=64", FEW(128, 4, 3, "split_keys=1")},
    {"b200", "e4m3 d64 hq2 nq192 nk256 causal mask=64x64@0.5 descales=64", NULL},
    {"rtx4090", "e4m3 d64 nq100 nk700 descales=128", TILE(64, 64, 4, 2, "two_level=1")},
    {"rtx5090", "e4m3 d128 hq2 nq70 nk500", TILE(64, 32, 4, 3, "two_level=1")},
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

/* Of any config that is legal, by either family on an H200. */
START_TEST(random_configs_are_right) {
  static const char *const cases[][2] = {{"rtx4090", "e4m3 d128 nq150 nk200 causal"},
                                         {"rtx5090", "e4m3 d96 hq4 hkv2 nq100 nk200"},
                                         {"h200", "e4m3 d64 nq100 nk300"},
                                         {"rtx4090", "e4m3 d64 hq4 nq8 nk400"},
                                         {"rtx4090", "e4m3 d64 nq150 nk300 descales=64"}};
  const struct ft_problem_options options =
      emulator_options(cases[_i][1], FT_LAYOUT_PADDED, emulator_seed());
  emulator_random_config_is_right(cases[_i][0], &options);
}
END_TEST

/* Requests of the matrix in e4m3, others in each run: by the default config, or any that is legal.
 * Of few rows the plain computation, which gives the bound, may be nearly exact by chance. */
START_TEST(random_requests_are_right) {
  enum { MANY = 100000, FEW_ROWS = 64 };
  static const char *const gpus[] = {"rtx4090", "rtx5090", "b200", "h200"};
  static const struct matrix_size size = {
      .longest = 300, .rows = 512, .rows_seldom = 768, .tile = 1};
  const uint64_t seed = emulator_seed();
  const int index = (int)((seed * 8 + (uint64_t)_i) % MANY);
  struct ft_problem_options options = {.keep_host = true, .seed = seed};
  matrix_choose(&options, index, &size);
  matrix_make_e4m3(&options, index);
  struct ft_request *const request = &options.request;
  if (request->batch * request->heads_q * request->seqlen_q < FEW_ROWS)
    request->seqlen_q = FEW_ROWS;
  ck_assert_msg(ft_request_validate(request) == FT_OK, "%s", ft_detail());
  fatune_session *const session = emulator_open(gpus[_i % 4], NULL);
  char *const config = _i < 4 ? NULL : emulator_random_config(session, request, seed);
  char *const text = emulator_request_text(request);
  struct emulator_run run;
  emulator_run(&run, session, &options, config);
  emulator_expect_right(text, &run);
  emulator_run_free(&run);
  free(text);
  free(config);
  fatune_session_close(session);
}
END_TEST

/* A score function is given scores with the factors of Q and K. */
static const struct {
  const char *request, *score, *config;
} scored[] = {
    {"e4m3 d64 hq2 hkv1 b2 nq150 nk300", "softcap", TILE(64, 64, 4, 2, "")},
    {"e4m3 o=fp16 d128 hq4 nq150 nk200 causal", "alibi", TILE(128, 32, 4, 2, "overlap_qk=1")},
    {"e4m3 d64 hq2 b2 nq100 nk100", "documents", TILE(64, 32, 4, 1, "")},
    {"e4m3 d64 hq2 nq2 nk500", "relative", FEW(128, 4, 2, "split_keys=1")},
    {"e4m3 d64 hq2 hkv1 b2 nq150 nk300 descales=64", "softcap", TILE(64, 64, 4, 2, "")},
    {"e4m3 d64 hq2 b2 nq100 nk200 descales=128", "documents", TILE(64, 32, 4, 1, "")},
};

static void run_scored(struct emulator_run *run, const char *templates, size_t number) {
  emulator_run_scored(run, templates, scored[number].score, NULL,
                      emulator_options(scored[number].request, FT_LAYOUT_PADDED, emulator_seed()),
                      scored[number].config);
}

START_TEST(scores_are_right) {
  const size_t number = EMULATOR_CHOOSE(_i, scored);
  struct emulator_run run;
  run_scored(&run, NULL, number);
  emulator_expect_right(scored[number].score, &run);
  emulator_run_free(&run);
}
END_TEST

START_TEST(scores_without_descales_are_seen) {
  const struct planted planted =
      emulator_plant("parts/kv_scale.cu.in", "  own.softmax.scale *= factor;\n", "");
  struct emulator_run run;
  run_scored(&run, planted.folder, 0);
  emulator_expect_wrong("scores without descales", &run);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

/* An element of an input becomes NaN: rows of O that it belongs to are NaN, others are not. */
static const struct {
  const char *gpu, *request, *config;
  int tensor;
} with_nan[] = {
    {"rtx4090", "e4m3 d64 nq70 nk100 causal=top-left", TILE(64, 32, 4, 2, ""), FT_Q},
    {"rtx4090", "e4m3 d64 nq70 nk100 causal=top-left", TILE(64, 32, 4, 2, ""), FT_K},
    {"rtx4090", "e4m3 d64 nq70 nk100 causal=top-left", TILE(64, 32, 4, 2, ""), FT_V},
    {"rtx4090", "bf16 kv=e4m3 d64 nq70 nk100 causal=top-left", NULL, FT_K},
    {"rtx4090", "bf16 kv=e4m3 d64 nq70 nk100 causal=top-left", NULL, FT_V},
    {"h200", "bf16 kv=e4m3 d64 nq70 nk100 causal=top-left", NULL, FT_K},
    {"h200", "bf16 kv=e4m3 d64 nq70 nk100 causal=top-left", NULL, FT_V},
    {"a100", "bf16 kv=e4m3 d64 nq70 nk100 causal=top-left", NULL, FT_K},
    {"a100", "bf16 kv=e4m3 d64 nq70 nk100 causal=top-left", NULL, FT_V},
};

START_TEST(nan_is_seen_in_o) {
  enum { NAN_BYTE = 0x7F, ROWS = 70, ROW = 3, DIM = 64, COLUMN = 5 };
  const char *const request = with_nan[_i].request;
  fatune_session *const session = emulator_open(with_nan[_i].gpu, NULL);
  const struct ft_problem_options options =
      emulator_options(request, FT_LAYOUT_BHSD, emulator_seed());
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  fatune_plan *const plan = emulator_plan(session, request, with_nan[_i].config);
  const struct ft_driver *const driver = &session->driver;
  const uint8_t byte = NAN_BYTE;
  const int tensor = with_nan[_i].tensor;
  const cu_address at = problem->data[tensor] + (cu_address)(ROW * DIM + COLUMN);
  uint16_t o[ROWS * DIM];
  ck_assert_int_eq(driver->copy_to_device(at, &byte, 1, NULL), 0);
  ck_assert_msg(fatune_plan_run(plan, ft_problem_arguments(problem), NULL) == FT_OK, "%s",
                ft_detail());
  ck_assert_int_eq(driver->copy_to_host(o, problem->data[FT_O], sizeof o, NULL), 0);
  for (int row = 0; row < ROWS; row++)
    for (int column = 0; column < DIM; column++) {
      const bool reached = tensor == FT_Q   ? row == ROW
                           : tensor == FT_K ? row >= ROW
                                            : column == COLUMN; /* 0 times NaN is NaN, too */
      ck_assert_msg(isnan(ft_from_dtype(FT_BF16, o[row * DIM + column])) == reached,
                    "row %d, column %d", row, column);
    }
  fatune_plan_free(plan);
  ft_problem_free(problem);
  fatune_session_close(session);
}
END_TEST

/* ---- bugs ---- */

#define FRAGMENTS "parts/fragments_e4m3.cu.in"
#define SCALE     "parts/kv_scale.cu.in"
#define RANGE     "parts/p_range_e4m3.cu.in"

static const struct emulator_bug bugs[] = {
    {.name = "even and odd columns exchanged",
     .file = FRAGMENTS,
     .piece = "r[0] = prmt(eights[0], eights[1], 0x6420);",
     .other = "r[0] = prmt(eights[0], eights[1], 0x7531);"},
    {.name = "keys in another order than P's",
     .file = FRAGMENTS,
     .piece = "r[1] = prmt(eights[2], eights[3], 0x6420);",
     .other = "r[1] = prmt(eights[2], eights[3], 0x6240);"},
    {.name = "keys of another half",
     .file = FRAGMENTS,
     .piece = "r[3] = prmt(eights[2], eights[3], 0x7531);",
     .other = "r[3] = r[2];"},
    {.name = "rows of V of the first half",
     .file = FRAGMENTS,
     .piece = "chunk_offset<STRIDE>(lane, 0)",
     .other = "chunk_offset<STRIDE>(lane % 16, 0)"},
    {.name = "depths of K of another tile",
     .file = FRAGMENTS,
     .piece = "lane % 8 + lane / 16 * 8, lane / 8 % 2",
     .other = "lane % 16, lane / 16",
     .words = "multiplies by a B that is no tile"},
    {.name = "chunks of the first half of a row",
     .file = "parts/chunk_alone.cu.in",
     .piece = "(address ^ (chunk % 8 * 16))",
     .other = "(address ^ (chunk % 4 * 16))"},
    {.name = "fragments of P exchanged",
     .file = "parts/p_fragments_e4m3.cu.in",
     .piece = "pack_e4m3(p[0], p[1], p[2], p[3])",
     .other = "pack_e4m3(p[0], p[2], p[1], p[3])"},
    {.name = "P beyond the largest number",
     .file = RANGE,
     .piece = "constexpr float P_OFFSET = 6.f,",
     .other = "constexpr float P_OFFSET = 10.f,"},
    {.name = "P of which most is too small",
     .file = RANGE,
     .piece = "constexpr float P_OFFSET = 6.f,",
     .other = "constexpr float P_OFFSET = -7.f,"},
    {.name = "scores without the factor of Q",
     .file = SCALE,
     .piece = "descale_at(all.descales.q, batch, head) * ",
     .other = ""},
    {.name = "the factor of Q of the kv head",
     .file = SCALE,
     .piece = "descale_at(all.descales.q, batch, head)",
     .other = "descale_at(all.descales.q, batch, kv_head)"},
    {.name = "O twice as large",
     .file = SCALE,
     .piece = "{ return scale.factor; }",
     .other = "{ return 2.f * scale.factor; }"},
    {.name = "LSE with the offset of P",
     .file = "parts/softmax.cu.in",
     .piece = "scale_log2 - P_OFFSET + lg2(sum)",
     .other = "scale_log2 + lg2(sum)"},
    {.name = "Q of the first half of a row",
     .file = "parts/copy_queries.cu.in",
     .piece = "D_PAD / $(chunk), HEAD_DIM / $(chunk)",
     .other = "D_PAD / $(chunk), HEAD_DIM / $(chunk) / 2"},
    {.name = "columns of O in the order of the products",
     .file = "parts/staging_e4m3.cu.in",
     .piece = "pack(c0[2 * h] * factor, c1[2 * h] * factor)",
     .other = "pack(c0[2 * h] * factor, c0[2 * h + 1] * factor)"},
};

START_TEST(bugs_are_seen) {
  const struct ft_problem_options options =
      emulator_options("e4m3 d128 hq4 hkv2 nq80 nk300", FT_LAYOUT_PADDED, emulator_seed());
  emulator_catch(&bugs[EMULATOR_CHOOSE(_i, bugs)], &options, TILE(64, 64, 4, 2, ""));
}
END_TEST

/* Of descales of blocks of rows. */
#define BLOCKS "parts/kv_scale_blocks.cu.in"

static const struct emulator_bug bugs_of_blocks[] = {
    {.name = "Q's descale of the first block",
     .file = BLOCKS,
     .piece = "min(first_row, params.sequence.nq - 1) / DESCALE_ROWS",
     .other = "0"},
    {.name = "Q's descale behind the last block",
     .file = BLOCKS,
     .piece = "min(first_row, params.sequence.nq - 1) / DESCALE_ROWS",
     .other = "first_row / DESCALE_ROWS",
     .words = "the descales of Q"},
    {.name = "descales of the first keys",
     .file = BLOCKS,
     .piece = "min(key, params.sequence.nk - 1) / DESCALE_ROWS",
     .other = "0"},
    {.name = "O in units of no block",
     .file = BLOCKS,
     .piece = "{ return scale.first_v; }",
     .other = "{ return 1.f; }"},
    {.name = "scores without K's descale",
     .file = BLOCKS,
     .piece = "scale.of_k = above_0(descale_of(scale.k, block));",
     .other = "scale.of_k = 1.f;"},
    {.name = "P without V's descale",
     .file = BLOCKS,
     .piece = "scale.bias = log2_of_d(of_v, scale.first_v);",
     .other = "scale.bias = 0.f;"},
    {.name = "a normaliser with V's descale",
     .file = BLOCKS,
     .piece = "{ return scale.weight; }",
     .other = "{ return 1.f; }"},
    {.name = "descales of the step before",
     .file = "parts/mma_loop_staged.cu.in",
     .piece = "      begin_step(rows.values, params, key);\n",
     .other = ""},
};

/* The last tile has more rows than queries are left, and the last step of a walk ends in the middle
 * of a block of descales. */
START_TEST(bugs_of_blocks_are_seen) {
  struct ft_problem_options options = emulator_options("e4m3 d64 hq2 hkv2 nq190 nk400 descales=64",
                                                       FT_LAYOUT_PADDED, emulator_seed());
  fatune_session *const session = emulator_open("h200", NULL);
  for (bool found = false; !found; options.seed += !found) { /* some problems have none */
    struct ft_problem *problem;
    ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
    const fatune_arguments *const arguments = ft_problem_arguments(problem);
    found = arguments->descale_q.data && arguments->descale_k.data && arguments->descale_v.data;
    ft_problem_free(problem);
  }
  fatune_session_close(session);
  emulator_catch(&bugs_of_blocks[EMULATOR_CHOOSE(_i, bugs_of_blocks)], &options,
                 TILE(128, 64, 8, 2, ""));
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
  EMULATOR_EXPECT_PIECES(bugs_of_blocks);
}
END_TEST

Suite *make_emulator_e4m3_mma_suite(void) {
  Suite *const suite = suite_create("emulator_e4m3_mma");
  TCase *const tests = tcase_create("e4m3_mma");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_loop_test(tests, random_configs_are_right, 0, 5);
  tcase_add_loop_test(tests, random_requests_are_right, 0, 8);
  tcase_add_loop_test(tests, scores_are_right, 0, EMULATOR_RUNS(scored));
  tcase_add_test(tests, scores_without_descales_are_seen);
  tcase_add_loop_test(tests, nan_is_seen_in_o, 0, EMULATOR_COUNT(with_nan));
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  tcase_add_loop_test(tests, bugs_of_blocks_are_seen, 0, EMULATOR_RUNS(bugs_of_blocks));
  suite_add_tcase(suite, tests);
  return suite;
}
