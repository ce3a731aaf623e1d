/* test_emulator_e4m3.c: the forward with Q, K and V in e4m3.
 * in -> out: numbers -> bytes; rows with P at any place of an octave -> right; requests -> every
 * row against float64; a NaN in an input -> NaN in O; bugs planted into what e4m3 alone has -> each
 * caught. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"
#include "tuner/verify/answers.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/reference.h"

#define CONFIG(m, n, s, q, more)                                                                   \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=" #s " q_stages=" #q                         \
  " direct_store=1 integer_max=1 " more
#define TURNS   CONFIG(128, 128, 2, 1, "pingpong=1 lazy_rescale=1")
#define OVERLAP CONFIG(128, 96, 3, 2, "overlap_tiles=1 pingpong=1 lazy_rescale=1")
#define WIDE    CONFIG(128, 192, 2, 1, "pingpong=1 lazy_rescale=1")
#define SPLIT   CONFIG(64, 64, 2, 1, "split_keys=1")
#define COLUMNS CONFIG(128, 96, 3, 2, "overlap_tiles=1 lazy_rescale=1 v_by_columns=1")

/* ---- bytes ---- */

/* The byte whose number is nearest, of two the one that ends with a 0. */
static unsigned nearest(double magnitude) {
  unsigned best = 0;
  for (unsigned byte = 1; byte < 0x7F; byte++) {
    const double off = fabs((double)ft_from_e4m3((uint8_t)byte) - magnitude);
    const double of_best = fabs((double)ft_from_e4m3((uint8_t)best) - magnitude);
    if (off < of_best || (off == of_best && byte % 2 == 0)) best = byte;
  }
  return best;
}

START_TEST(bytes_are_the_nearest_numbers) {
  ck_assert_float_eq(ft_from_e4m3(0x7E), 448);
  ck_assert_float_eq(ft_from_e4m3(0x38), 1);
  ck_assert_float_eq(ft_from_e4m3(0x81), -0x1p-9f);
  ck_assert_int_eq(ft_to_e4m3(1e9f), 0x7E);
  ck_assert_int_eq(ft_to_e4m3(-INFINITY), 0xFE);
  ck_assert_int_eq(ft_to_e4m3(NAN) & 0x7F, 0x7F);
  random_seed = emulator_seed();
  for (int n = 0; n < 20000; n++) {
    const double between = (double)ft_from_e4m3((uint8_t)below(0x7F));
    const double x = n % 3 == 0 ? between + (double)ft_from_e4m3((uint8_t)below(0x20)) / 2
                                : ldexp(1 + (double)below(1 << 20) * 0x1p-20, below(24) - 14);
    const double bounded = fmin(x, 448);
    ck_assert_int_eq(ft_to_e4m3((float)bounded), (int)nearest((double)(float)bounded));
    ck_assert_int_eq(ft_to_e4m3((float)-bounded), 0x80 | (int)nearest((double)(float)bounded));
  }
}
END_TEST

/* ---- runs ---- */

static const struct {
  const char *request, *config;
} runs[] = {
    {"e4m3 d128 hq2 hkv1 b2 nq200 nk300", TURNS},
    {"e4m3 d128 nq300 nk333 causal", WIDE},
    {"e4m3 d64 hq2 hkv1 nq200 nk400 causal=top-left", OVERLAP},
    {"e4m3 d64 dv128 nq300 nk300 window@100,30", CONFIG(192, 128, 2, 1, "pingpong=2")},
    {"e4m3 d16 dv16 nq100 nk500", CONFIG(64, 256, 2, 1, "ascending_keys=1")},
    {"e4m3 d80 dv48 hq2 nq300 nk200 causal",
     CONFIG(256, 64, 4, 2, "overlap_tiles=1 lazy_rescale=1")},
    {"e4m3 d112 dv144 hq2 nq200 nk200 sinks", CONFIG(128, 160, 2, 1, "exp2_poly=1")},
    {"e4m3 d256 nq200 nk300 causal", CONFIG(128, 96, 2, 1, "pingpong=1 lazy_rescale=1")},
    {"e4m3 d240 dv208 nq100 nk300", CONFIG(128, 64, 3, 1, "pingpong=1 lazy_rescale=1")},
    {"e4m3 d64 hq2 nq300 nk300 causal mask=128x96@0.5", OVERLAP},
    {"e4m3 d128 hq2 nq256 nk400 mask=128x128@0.4", TURNS},
    {"e4m3 d64 hq2 nq2 nk900", SPLIT},
    {"e4m3 d128 hq2 nq60 nk700 causal window@300,0 sinks", SPLIT},
    {"e4m3 d64 hq2 nq300 nk200 causal",
     CONFIG(128, 64, 2, 1, "lpt=1 ascending_keys=1 lazy_rescale=1")},
    {"e4m3 d64 nq200 nk700", CONFIG(128, 64, 2, 2, "overlap_tiles=1 two_level=3 lazy_rescale=1")},
    {"e4m3 d96 hq2 nq1 nk1", TURNS},
    {"e4m3 d32 hq3 b2 nq70 nk90", NULL},
    {"e4m3 d64 hq2 hkv1 b5 nq500 nk600 causal ragged", OVERLAP},
    {"e4m3 d80 b4 nq300 nk300 window@60,30 ragged sinks", TURNS},
    {"e4m3 d64 hq2 hkv1 b3 nq150 nk300 causal pages=16", TURNS},
    {"e4m3 d128 hq2 b3 nq3 nk700 pages=64", SPLIT},
    {"e4m3 o=fp16 d48 hq2 b4 nq300 nk500 causal ragged pages=128", TURNS},
    {"e4m3 o=fp16 d128 hq2 hkv1 b2 nq200 nk300 causal", TURNS},
    {"e4m3 o=fp16 d80 dv48 hq2 nq60 nk700 sinks", SPLIT},
    {"e4m3 d128 hq4 hkv2 b2 nq300 nk333 causal", COLUMNS},
    {"e4m3 d256 nq300 nk200 causal", CONFIG(128, 96, 2, 1, "pingpong=1 v_by_columns=1")},
    {"e4m3 d80 dv48 hq2 nq200 nk300 window@100,30 sinks", COLUMNS},
    {"e4m3 o=fp16 d64 dv144 nq200 nk500", CONFIG(64, 192, 2, 1, "v_by_columns=1")},
    {"e4m3 d64 hq2 nq300 nk300 causal mask=128x96@0.5", COLUMNS},
};

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  emulator_row_by_row(runs[number].request, (enum ft_layout)(number % 3), 0, runs[number].config);
}
END_TEST

/* Scores and masks from functions; without a config the default one. */
static const struct {
  const char *request, *score, *config;
} scored[] = {
    {"e4m3 d64 hq2 hkv1 b2 nq150 nk300", "softcap", TURNS},
    {"e4m3 o=fp16 d128 hq4 nq150 nk200 causal", "alibi", OVERLAP},
    {"e4m3 d128 hq2 nq100 nk300", "bias_bf16", WIDE},
    {"e4m3 d64 hq2 b2 nq200 nk200", "documents", NULL},
    {"e4m3 d256 hq2 nq100 nk130 causal sinks", "softcap", NULL},
    {"e4m3 d64 hq2 nq2 nk500", "relative", SPLIT},
    {"e4m3 d96 hq2 nq128 nk256 causal mask=64x64@0.6", "prefix_lm",
     CONFIG(64, 64, 2, 2, "overlap_tiles=1 lazy_rescale=1")},
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
      emulator_plant("parts/consumer_steps.cu.in", "scale_of(consumer.scales, params));",
                     "params.softmax.scale);");
  struct emulator_run run;
  run_scored(&run, planted.folder, 0);
  emulator_expect_wrong("scores without descales", &run);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

/* Lazily rescaled, a kernel has each row's P at a place of its own. All are right, also where one
 * key is nearly all of a row and many rows are looked at. A row of which a quarter too much came is
 * wrong. */
START_TEST(any_place_of_p_is_right) {
  enum { ROWS = 100, DIM = 64 };
  struct ft_problem_options options =
      emulator_options("e4m3 d64 nq100 nk200 descales=64", FT_LAYOUT_BHSD, emulator_seed());
  options.keep_host = true;
  random_seed = options.seed;
  fatune_session *const session = emulator_open("h200", NULL);
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  struct ft_host_problem host = problem->host;
  host.scale = 0.25 * (1 + _i); /* the more, the fewer keys decide a row */
  struct ft_row rows[ROWS];
  uint16_t o[ROWS * DIM];
  float lses[ROWS];
  struct ft_row_scratch scratch;
  ck_assert_int_eq(ft_row_scratch_make(&scratch, &host), FT_OK);
  for (int i = 0; i < ROWS; i++) {
    rows[i] = (struct ft_row){0, 0, i};
    const int64_t count = ft_row_scores(&host, rows[i], &scratch);
    double values[DIM], lse;
    scratch.place = exp2f(-(float)below(1 << 20) * 0x1p-20f);
    ft_row_plain(&host, rows[i], &scratch, count, values, &lse);
    for (int d = 0; d < DIM; d++) o[i * DIM + d] = (uint16_t)ft_to_dtype(FT_BF16, values[d]);
    lses[i] = (float)lse;
  }
  ft_row_scratch_free(&scratch);
  struct ft_comparison comparison;
  ck_assert_int_eq(ft_reference_compare(&comparison, &host, rows, ROWS, o, lses, 2), FT_OK);
  ck_assert_msg(comparison.error_ratio <= 1, "%s", comparison.worst);
  uint16_t *const damaged = &o[below(ROWS) * DIM];
  for (int d = 0; d < DIM; d++)
    damaged[d] = (uint16_t)ft_to_dtype(FT_BF16, 1.25 * ft_from_dtype(FT_BF16, damaged[d]));
  ck_assert_int_eq(ft_reference_compare(&comparison, &host, rows, ROWS, o, lses, 2), FT_OK);
  ck_assert_double_gt(comparison.error_ratio, 1);
  ft_problem_free(problem);
  fatune_session_close(session);
}
END_TEST

/* Of any config that is legal. */
START_TEST(random_configs_are_right) {
  static const char *const requests[] = {"e4m3 d128 nq200 nk300 causal", "e4m3 d64 nq200 nk200",
                                         "e4m3 d144 nq200 nk130"};
  const struct ft_problem_options options =
      emulator_options(requests[_i], FT_LAYOUT_PADDED, emulator_seed());
  emulator_random_config_is_right("h200", &options);
}
END_TEST

/* ---- NaN ---- */

/* An element of an input becomes NaN: rows of O that it belongs to are NaN, others are not. */
START_TEST(nan_is_seen_in_o) {
  enum { NAN_BYTE = 0x7F, ROWS = 70, ROW = 3 };
  fatune_session *const session = emulator_open("h200", NULL);
  const struct ft_problem_options options =
      emulator_options("e4m3 d64 nq70 nk100 causal=top-left", FT_LAYOUT_BHSD, emulator_seed());
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  fatune_plan *const plan = emulator_plan(session, "e4m3 d64 nq70 nk100 causal=top-left", TURNS);
  const struct ft_driver *const driver = &session->driver;
  const uint8_t byte = NAN_BYTE;
  const int tensor = _i == 0 ? FT_Q : _i == 1 ? FT_K : FT_V;
  const cu_address at = problem->data[tensor] + (cu_address)(ROW * 64 + 5);
  uint16_t o[ROWS * 64];
  ck_assert_int_eq(driver->copy_to_device(at, &byte, 1, NULL), 0);
  ck_assert_msg(fatune_plan_run(plan, ft_problem_arguments(problem), NULL) == FT_OK, "%s",
                ft_detail());
  ck_assert_int_eq(driver->copy_to_host(o, problem->data[FT_O], sizeof o, NULL), 0);
  for (int row = 0; row < ROWS; row++)
    for (int column = 0; column < 64; column++) {
      const bool reached = tensor == FT_Q   ? row == ROW
                           : tensor == FT_K ? row >= ROW
                                            : column == 5; /* 0 times NaN is NaN, too */
      ck_assert_msg(isnan(ft_from_dtype(FT_BF16, o[row * 64 + column])) == reached,
                    "row %d, column %d", row, column);
    }
  fatune_plan_free(plan);
  ft_problem_free(problem);
  fatune_session_close(session);
}
END_TEST

/* ---- descales ---- */

START_TEST(wrong_descales_are_named) {
  static const struct {
    float factor;
    const char *words;
  } wrong[] = {{0, "has 0 for head 1 of batch entry 1; allowed: above 0 and finite"},
               {-2, "has -2 for head 1 of batch entry 1"},
               {NAN, "nan for head 1 of batch entry 1"},
               {INFINITY, "has inf for head 1 of batch entry 1"}};
  static const char text[] = "e4m3 d64 hq2 b2 nq70 nk100";
  fatune_session *const session = emulator_open("h200", NULL);
  const struct ft_problem_options options = emulator_options(text, FT_LAYOUT_BHSD, emulator_seed());
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  fatune_plan *const plan = emulator_plan(session, text, TURNS);
  fatune_arguments arguments = *ft_problem_arguments(problem);
  float factors[2][3] = {{1, 1, 1}, {1, 1, 1}};
  fatune_descale *const sides[] = {&arguments.descale_q, &arguments.descale_k,
                                   &arguments.descale_v};
  for (size_t n = 0; n < 3 * EMULATOR_COUNT(wrong); n++) {
    const fatune_descale given = *sides[n % 3];
    *sides[n % 3] = (fatune_descale){factors[0], 3, 1};
    factors[1][1] = 0.25f;
    ck_assert_msg(fatune_plan_run(plan, &arguments, NULL) == FT_OK, "%s", ft_detail());
    factors[1][1] = wrong[n / 3].factor;
    ck_assert_int_eq(fatune_plan_run(plan, &arguments, NULL), FATUNE_E_ARGUMENT);
    ck_assert_msg(strstr(ft_detail(), wrong[n / 3].words) != NULL, "%s", ft_detail());
    *sides[n % 3] = given;
  }
  fatune_plan_free(plan);
  ft_problem_free(problem);
  fatune_session_close(session);
}
END_TEST

/* ---- bugs ---- */

#define TRANSPOSE "parts/transpose_v.cu.in"
#define WARPS     "parts/transpose_values.cu.in"
#define SCALE     "parts/e4m3_scale.cu.in"
#define RANGE     "parts/p_range_e4m3.cu.in"
#define READ_AND_SAID                                                                              \
  "    mbarrier_wait(v_empty(ring.stage), ring.parity ^ 1);\n"                                     \
  "    transpose_tile<V_FILLERS>(shared_address(shared) + SMEM_V + ring.stage * V_TILE,\n"         \
  "                              shared_address(shared) + SMEM_V_ROWS + ring.stage * "             \
  "V_ROWS_TILE, "                                                                                  \
  "warp, lane);\n"                                                                                 \
  "    async_proxy_fence();\n"                                                                     \
  "    __syncwarp();\n"                                                                            \
  "    if (lane == 0) {\n"                                                                         \
  "      mbarrier_arrive(v_full(ring.stage));\n"
#define GIVEN_BACK_LAST READ_AND_SAID "      mbarrier_arrive(v_rows_empty(ring.stage));\n"

static const struct emulator_bug bugs[] = {
    {.name = "transposed V without proxy fence",
     .file = WARPS,
     .piece = "    async_proxy_fence();\n",
     .other = "",
     .words = "no fence.proxy.async is between the two"},
    {.name = "V said to be there before all lanes have stored it",
     .file = WARPS,
     .piece = "    __syncwarp();\n",
     .other = "",
     .words = "nothing orders the two (race)"},
    {.name = "V stored while products read the one before",
     .file = WARPS,
     .piece = "    mbarrier_wait(v_empty(ring.stage), ring.parity ^ 1);\n",
     .other = "",
     .words = "nothing orders the two (race)"},
    {.name = "V by rows given back before it was read",
     .file = WARPS,
     .piece = GIVEN_BACK_LAST,
     .other = "    if (lane == 0) mbarrier_arrive(v_rows_empty(ring.stage));\n" READ_AND_SAID,
     .words = "nothing orders the two (race)"},
    {.name = "even and odd columns exchanged",
     .file = TRANSPOSE,
     .piece = "prmt(r[i][0], r[i][1], 0x6420), prmt(r[i][0], r[i][1], 0x7531),",
     .other = "prmt(r[i][0], r[i][1], 0x7531), prmt(r[i][0], r[i][1], 0x6420),"},
    {.name = "keys in another order than P's",
     .file = TRANSPOSE,
     .piece = "prmt(r[i][2], r[i][3], 0x6420)",
     .other = "prmt(r[i][2], r[i][3], 0x6240)"},
    {.name = "fragments of P exchanged",
     .file = "parts/p_in_registers_e4m3.cu.in",
     .piece = "pack_e4m3(first[h], first[h + 1], second[h], second[h + 1])",
     .other = "pack_e4m3(first[h], second[h], first[h + 1], second[h + 1])"},
    {.name = "P beyond the largest number",
     .file = RANGE,
     .piece = "constexpr float P_OFFSET = 6.f,",
     .other = "constexpr float P_OFFSET = 10.f,"},
    {.name = "P of which most is too small",
     .file = RANGE,
     .piece = "constexpr float P_OFFSET = 6.f,",
     .other = "constexpr float P_OFFSET = -7.f,"},
    {.name = "scores twice as large",
     .file = SCALE,
     .piece = "descale_at(descales.k, batch, head / params.sequence.group)",
     .other = "2.f * descale_at(descales.k, batch, head / params.sequence.group)"},
    {.name = "O twice as large",
     .file = "parts/epilogue_wgmma.cu.in",
     .piece = "    normaliser *= descale;\n",
     .other = "    normaliser *= 2.f * descale;\n"},
    {.name = "columns of O in the order of the products",
     .file = "parts/store_o_e4m3.cu.in",
     .piece = "pack(even[2 * h], odd[2 * h])",
     .other = "pack(even[2 * h], even[2 * h + 1])"},
};

START_TEST(bugs_are_seen) {
  const struct ft_problem_options options =
      emulator_options("e4m3 d64 hq2 hkv2 nq150 nk400", FT_LAYOUT_PADDED, emulator_seed());
  emulator_catch(&bugs[EMULATOR_CHOOSE(_i, bugs)], &options, TURNS);
}
END_TEST

/* Of V by columns. */
static const struct emulator_bug bugs_of_columns[] = {
    {.name = "V of the first kv head",
     .file = "parts/load_values_columns.cu.in",
     .piece = "(batch * heads + head) * of_head",
     .other = "batch * heads * of_head"},
    {.name = "rows that lie as no TMA leaves them",
     .file = "parts/turn_values.cu.in",
     .piece = "(chunk ^ row % 8) * 16",
     .other = "chunk * 16"},
    {.name = "columns stored before they are there",
     .file = "parts/turn_values.cu.in",
     .piece = "  __syncthreads();\n  store_value_columns(",
     .other = "  store_value_columns(",
     .words = "never written"},
};

START_TEST(bugs_of_columns_are_seen) {
  const struct ft_problem_options options =
      emulator_options("e4m3 d64 hq2 hkv2 nq150 nk400", FT_LAYOUT_PADDED, emulator_seed());
  emulator_catch(&bugs_of_columns[EMULATOR_CHOOSE(_i, bugs_of_columns)], &options, COLUMNS);
}
END_TEST

/* Of sequences and pages. */
static const struct {
  struct emulator_bug bug;
  const char *request;
} bugs_of_sequences[] = {
    {{.name = "V of pages where the transposed one belongs",
      .file = "parts/produce_paged.cu.in",
      .piece = "constexpr int V_PLACE = TRANSPOSES_V ? SMEM_V_ROWS : SMEM_V;",
      .other = "constexpr int V_PLACE = SMEM_V;",
      .words = "was never written"},
     "e4m3 d64 b3 nq100 nk300 pages=16"},
    {{.name = "descales of the first sequence",
      .file = SCALE,
      .piece = "descale_at(descales.q, batch, head)",
      .other = "descale_at(descales.q, 0, head)"},
     "e4m3 d64 b4 nq300 nk300 ragged"},
};

START_TEST(bugs_of_sequences_are_seen) {
  const size_t number = EMULATOR_CHOOSE(_i, bugs_of_sequences);
  const struct ft_problem_options options =
      emulator_options(bugs_of_sequences[number].request, FT_LAYOUT_PADDED, emulator_seed());
  emulator_catch(&bugs_of_sequences[number].bug, &options, TURNS);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
  EMULATOR_EXPECT_PIECES(bugs_of_columns);
}
END_TEST

Suite *make_emulator_e4m3_suite(void) {
  Suite *const suite = suite_create("emulator_e4m3");
  TCase *const tests = tcase_create("e4m3");
  tcase_set_timeout(tests, 300);
  tcase_add_test(tests, bytes_are_the_nearest_numbers);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_loop_test(tests, scores_are_right, 0, EMULATOR_RUNS(scored));
  tcase_add_test(tests, scores_without_descales_are_seen);
  tcase_add_loop_test(tests, any_place_of_p_is_right, 0, 12);
  tcase_add_loop_test(tests, random_configs_are_right, 0, 3);
  tcase_add_loop_test(tests, nan_is_seen_in_o, 0, 3);
  tcase_add_test(tests, wrong_descales_are_named);
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_of_sequences_are_seen, 0, EMULATOR_RUNS(bugs_of_sequences));
  tcase_add_loop_test(tests, bugs_of_columns_are_seen, 0, EMULATOR_RUNS(bugs_of_columns));
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
