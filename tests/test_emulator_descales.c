/* test_emulator_descales.c: the forward in e4m3 with descales of blocks of rows.
 * in -> out: requests -> every row against float64; descales that are wrong -> named; values far
 * apart -> O and LSE; bugs planted into what such descales alone have -> each caught. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/problem_verify.h"

#define CONFIG(m, n, s, q, more)                                                                   \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=" #s " q_stages=" #q                         \
  " direct_store=1 integer_max=1 " more
#define TURNS   CONFIG(128, 128, 2, 1, "pingpong=1 lazy_rescale=1")
#define OVERLAP CONFIG(128, 64, 3, 2, "overlap_tiles=1 pingpong=1 lazy_rescale=1")
#define WIDE    CONFIG(128, 192, 2, 1, "pingpong=1 lazy_rescale=1")
#define SPLIT   CONFIG(64, 64, 2, 1, "split_keys=1")
#define MMA     "mma_forward block_m=64 block_n=64 warps=4 stages=2 ctas_per_sm=1"

/* Options of a problem whose V has descales, which some have not. */
static struct ft_problem_options with_descales(const char *request) {
  fatune_session *const session = emulator_open("h200", NULL);
  struct ft_problem_options options = emulator_options(request, FT_LAYOUT_PADDED, emulator_seed());
  bool found = false;
  for (; !found; options.seed += !found) {
    struct ft_problem *problem;
    ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
    found = ft_problem_arguments(problem)->descale_v.data != NULL;
    ft_problem_free(problem);
  }
  fatune_session_close(session);
  return options;
}

/* ---- runs ---- */

static const struct {
  const char *request, *config;
} runs[] = {
    {"e4m3 d128 hq2 hkv1 b2 nq200 nk300 descales=128", TURNS},
    {"e4m3 d64 hq2 hkv1 nq200 nk333 causal descales=64", TURNS},
    {"e4m3 d128 nq300 nk500 causal descales=64", WIDE},
    {"e4m3 d64 hq2 nq200 nk400 causal=top-left descales=128", OVERLAP},
    {"e4m3 d64 dv128 nq300 nk300 window@100,30 descales=64", CONFIG(192, 128, 2, 1, "pingpong=2")},
    {"e4m3 d16 dv16 nq100 nk500 descales=128", CONFIG(64, 256, 2, 1, "ascending_keys=1")},
    {"e4m3 d32 nq70 nk300 descales=64", CONFIG(64, 32, 2, 1, "ascending_keys=1 lazy_rescale=1")},
    {"e4m3 d64 hq2 nq300 nk300 causal mask=128x64@0.5 descales=64", OVERLAP},
    {"e4m3 d64 hq2 nq2 nk900 descales=128", SPLIT},
    {"e4m3 d64 hq2 nq60 nk700 causal window@300,0 sinks descales=64", SPLIT},
    {"e4m3 d64 hq2 nq2 nk900 descales=64", CONFIG(64, 64, 2, 1, "split_keys=2")},
    {"e4m3 d64 nq200 nk700 descales=64",
     CONFIG(128, 64, 2, 2, "overlap_tiles=1 two_level=3 lazy_rescale=1")},
    {"e4m3 o=fp16 d48 hq2 nq1 nk1 descales=64", TURNS},
    {"e4m3 d128 hq3 b2 nq70 nk190 descales=64", NULL},
    {"e4m3 d256 nq200 nk300 causal descales=128", NULL},
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
    {"e4m3 d64 hq2 hkv1 b2 nq150 nk300 descales=128", "softcap", TURNS},
    {"e4m3 o=fp16 d128 hq4 nq150 nk200 causal descales=64", "alibi", OVERLAP},
    {"e4m3 d64 hq2 b2 nq200 nk200 descales=64", "documents", NULL},
    {"e4m3 d64 hq2 b2 nq200 nk200 descales=64", "softcap", NULL},
    {"e4m3 d64 hq2 nq2 nk500 descales=64", "relative", SPLIT},
};

START_TEST(scores_are_right) {
  const size_t number = EMULATOR_CHOOSE(_i, scored);
  struct emulator_run run;
  emulator_run_scored(&run, NULL, scored[number].score, NULL,
                      emulator_options(scored[number].request, FT_LAYOUT_PADDED, emulator_seed()),
                      scored[number].config);
  emulator_expect_right(scored[number].score, &run);
  emulator_run_free(&run);
}
END_TEST

/* Of any config that is legal. */
static const char *const of_any_config[] = {"e4m3 d64 nq200 nk300 causal descales=128",
                                            "e4m3 d32 nq200 nk200 descales=64"};

START_TEST(random_configs_are_right) {
  const char *const request = of_any_config[EMULATOR_CHOOSE(_i, of_any_config)];
  const struct ft_problem_options options =
      emulator_options(request, FT_LAYOUT_PADDED, emulator_seed());
  emulator_random_config_is_right("h200", &options);
}
END_TEST

/* Multiplies V's descales of a block, here and on the device, whose memory is the host's. */
static void shrink_block(struct ft_problem *problem, int block) {
  const struct ft_request *const request = &problem->options.request;
  const fatune_descale *const given = &problem->arguments.descale_v;
  const int64_t blocks = ft_descale_blocks(request->descale_rows, request->seqlen_k);
  float *const of_host = problem->descales.host[FT_DESCALE_V], *const data = (float *)given->data;
  for (int64_t b = 0; b < request->batch; b++)
    for (int64_t head = 0; head < request->heads_kv; head++) {
      of_host[(b * request->heads_kv + head) * blocks + block] *= 0x1p-40f;
      data[b * given->stride_batch + head * given->stride_head + block] *= 0x1p-40f;
    }
}

static int run_plan(void *plan, const fatune_arguments *arguments) {
  return fatune_plan_run(plan, arguments, NULL);
}

/* One block's descale of V is 2^-40 of what it was, as that of a block of zeros is. It is the block
 * of the first keys, which are all that some rows see, or a later one. */
static const struct {
  const char *config;
  int block;
} far_apart[] = {{TURNS, 0}, {TURNS, 2}, {OVERLAP, 0}, {OVERLAP, 2},
                 {WIDE, 0},  {WIDE, 2},  {MMA, 0},     {MMA, 2}};

START_TEST(descales_far_apart_are_right) {
  enum { ALL_ROWS = 1 << 20 };
  const size_t number = EMULATOR_CHOOSE(_i, far_apart);
  struct ft_problem_options options =
      with_descales("e4m3 d64 hq4 hkv2 nq300 nk300 causal=top-left descales=64");
  fatune_session *const session = emulator_open("h200", NULL);
  struct ft_problem *problem;
  struct ft_comparison comparison;
  options.keep_host = true;
  char *const text = emulator_request_text(&options.request);
  fatune_plan *const plan = emulator_plan(session, text, far_apart[number].config);
  const struct ft_problem_run run = {run_plan, plan, NULL, false};
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  shrink_block(problem, far_apart[number].block);
  ck_assert_int_eq(ft_session_enter(session), FT_OK);
  ck_assert_msg(ft_problem_check(problem, &run, ALL_ROWS, 1, &comparison) == FT_OK, "%s",
                ft_detail());
  ck_assert_msg(comparison.error_ratio <= 1, "seed %llu: %s", (unsigned long long)options.seed,
                comparison.worst);
  ft_session_leave(session);
  free(text);
  fatune_plan_free(plan);
  ft_problem_free(problem);
  fatune_session_close(session);
}
END_TEST

/* ---- wrong descales ---- */

START_TEST(wrong_descales_are_named) {
  static const struct {
    float factor;
    const char *words;
  } wrong[] = {{0, "has 0 for block 1 of head 1 of batch entry 1; allowed: above 0 and finite"},
               {-2, "has -2 for block 1 of head 1 of batch entry 1"},
               {NAN, "nan for block 1 of head 1 of batch entry 1"},
               {INFINITY, "has inf for block 1 of head 1 of batch entry 1"}};
  static const char text[] = "e4m3 d64 hq2 b2 nq70 nk100 descales=64";
  fatune_session *const session = emulator_open("h200", NULL);
  const struct ft_problem_options options = emulator_options(text, FT_LAYOUT_BHSD, emulator_seed());
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  fatune_plan *const plan = emulator_plan(session, text, TURNS);
  fatune_arguments arguments = *ft_problem_arguments(problem);
  float factors[2][5] = {{1, 1, 1, 1, NAN}, {1, 1, 1, 1, NAN}}; /* [batch][head, block] */
  fatune_descale *const sides[] = {&arguments.descale_q, &arguments.descale_k,
                                   &arguments.descale_v};
  for (size_t n = 0; n < 3 * EMULATOR_COUNT(wrong); n++) {
    const fatune_descale given = *sides[n % 3];
    *sides[n % 3] = (fatune_descale){factors[0], 5, 2};
    factors[1][3] = 0.25f;
    ck_assert_msg(fatune_plan_run(plan, &arguments, NULL) == FT_OK, "%s", ft_detail());
    factors[1][3] = wrong[n / 3].factor;
    ck_assert_int_eq(fatune_plan_run(plan, &arguments, NULL), FATUNE_E_ARGUMENT);
    ck_assert_msg(strstr(ft_detail(), wrong[n / 3].words) != NULL, "%s", ft_detail());
    *sides[n % 3] = given;
  }
  arguments.descale_v = (fatune_descale){factors[0], 5, 2};
  factors[1][3] = 0x1p-60f;
  ck_assert_msg(fatune_plan_run(plan, &arguments, NULL) == FT_OK, "%s", ft_detail());
  factors[1][3] = 0x1p-61f;
  ck_assert_int_eq(fatune_plan_run(plan, &arguments, NULL), FATUNE_E_ARGUMENT);
  ck_assert_msg(strstr(ft_detail(), "within a factor of 2^60 of that of the head's first block"),
                "%s", ft_detail());
  fatune_plan_free(plan);
  ft_problem_free(problem);
  fatune_session_close(session);
}
END_TEST

/* ---- bugs ---- */

#define SCALE     "parts/e4m3_scale_blocks.cu.in"
#define EXPONENTS "parts/wgmma_exponents_descaled.cu.in"

static const struct emulator_bug bugs[] = {
    {.name = "Q's descale of the first block",
     .file = SCALE,
     .piece = "const int block = min(q0, params.sequence.nq - 1) / DESCALE_ROWS;",
     .other = "const int block = 0;"},
    {.name = "Q's descale behind the last block",
     .file = SCALE,
     .piece = "const int block = min(q0, params.sequence.nq - 1) / DESCALE_ROWS;",
     .other = "const int block = q0 / DESCALE_ROWS;",
     .words = "the descales of Q"},
    {.name = "descales of a step's first block for all of it",
     .file = SCALE,
     .piece = "min(key / DESCALE_ROWS + i, last)",
     .other = "min(key / DESCALE_ROWS, last)"},
    {.name = "descales behind the last block",
     .file = SCALE,
     .piece = "min(key / DESCALE_ROWS + i, last)",
     .other = "key / DESCALE_ROWS + i",
     .words = "the descales of "},
    {.name = "O in units of no block",
     .file = SCALE,
     .piece = "scales.first_v = above_0(descale_of(scales.v, 0));",
     .other = "scales.first_v = 1.f;"},
    {.name = "P without V's descale",
     .file = SCALE,
     .piece = "scales.bias[i] = log2_of_d(of_v, scales.first_v);",
     .other = "scales.bias[i] = 0.f;"},
    {.name = "a normaliser with V's descale",
     .file = SCALE,
     .piece = "scales.weight[i] = one_over_d(of_v, scales.first_v);",
     .other = "scales.weight[i] = 1.f;"},
    {.name = "the normaliser of one row alone with V's descale",
     .file = EXPONENTS,
     .piece = "row_sum[1] += scales.weight[BLOCK] * sums[1];",
     .other = "row_sum[1] += sums[1];"},
    {.name = "maxima that forget V's descale",
     .file = EXPONENTS,
     .piece = "consumer.row_max[0] = before_that[0] + added;",
     .other = "consumer.row_max[0] = before_that[0];",
     .config = OVERLAP},
    {.name = "powers relative to maxima with V's descale",
     .file = EXPONENTS,
     .piece = "const float maxima[2] = {consumer.row_max[0] - added_of(scales),",
     .other = "const float maxima[2] = {consumer.row_max[0],",
     .config = OVERLAP},
    {.name = "descales of the step before",
     .file = "parts/consumer_steps.cu.in",
     .piece = "  begin_step(consumer.scales, params, step.key);\n  wgmma_wait<1>();\n",
     .other = "  wgmma_wait<1>();\n"},
};

START_TEST(bugs_are_seen) {
  const struct ft_problem_options options =
      with_descales("e4m3 d64 hq2 hkv2 nq150 nk400 descales=64");
  emulator_catch(&bugs[EMULATOR_CHOOSE(_i, bugs)], &options, WIDE);
}
END_TEST

/* Of a score function, and of work tiles that overlap. */
static const struct emulator_bug bugs_of_scores[] = {
    {.file = SCALE, .piece = "rS[n][i] *= scales.of_k[0];", .other = ";"},
    {.file = SCALE, .piece = "{ return x + scales.bias[0]; }", .other = "{ return x; }"},
    {.file = SCALE, .piece = "return sum * scales.weight[0];", .other = "return sum;"}};

START_TEST(bugs_of_scores_are_seen) {
  const struct emulator_bug *const bug = &bugs_of_scores[EMULATOR_CHOOSE(_i, bugs_of_scores)];
  const struct planted planted = emulator_plant(bug->file, bug->piece, bug->other);
  struct emulator_run run;
  emulator_run_scored(&run, planted.folder, scored[0].score, NULL, with_descales(scored[0].request),
                      scored[0].config);
  emulator_expect_wrong(bug->piece, &run);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

static const char many_tiles[] = "e4m3 d16 hq48 b3 nq70 nk130 descales=64";
#define OVERLAPPING CONFIG(64, 64, 2, 2, "overlap_tiles=1")

START_TEST(tiles_that_overlap_are_right) {
  emulator_row_by_row(many_tiles, FT_LAYOUT_BHSD, 0, OVERLAPPING);
}
END_TEST

START_TEST(descales_of_the_tile_before_are_seen) {
  static const struct emulator_bug bug = {
      .name = "descales of the tile before",
      .file = "parts/consume_overlap.cu.in",
      .piece = "    begin_step(consumer.scales, at_place(params, work.place), step.key);\n",
      .other = ""};
  const struct ft_problem_options options =
      emulator_options(many_tiles, FT_LAYOUT_BHSD, emulator_seed());
  emulator_catch(&bug, &options, OVERLAPPING);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
  EMULATOR_EXPECT_PIECES(bugs_of_scores);
}
END_TEST

Suite *make_emulator_descales_suite(void) {
  Suite *const suite = suite_create("emulator_descales");
  TCase *const tests = tcase_create("descales");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_loop_test(tests, scores_are_right, 0, EMULATOR_RUNS(scored));
  tcase_add_loop_test(tests, random_configs_are_right, 0, EMULATOR_RUNS(of_any_config));
  tcase_add_loop_test(tests, descales_far_apart_are_right, 0, EMULATOR_RUNS(far_apart));
  tcase_add_test(tests, wrong_descales_are_named);
  tcase_add_test(tests, tiles_that_overlap_are_right);
  tcase_add_test(tests, descales_of_the_tile_before_are_seen);
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_of_scores_are_seen, 0, EMULATOR_RUNS(bugs_of_scores));
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
