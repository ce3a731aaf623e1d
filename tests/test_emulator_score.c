/* test_emulator_score.c: kernels with score functions on an emulated GPU, row by row.
 * in -> out: score functions, requests, configs -> verdicts against the interpreter in float64. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/family.h"
#include "generator/request_fields.h"
#include "generator/score/builtin.h"
#include "generator/score/derive.h"
#include "runtime/scores.h"
#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/score_lab.h"
#include "tests/slow_tests.h"
#include "tests/suites.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_parts.h"

/* All that the score has a gradient by. */
static int64_t all_gradients(fatune_session *session, int64_t number) {
  const struct ft_known_score *known;
  int64_t wanted = 0;
  ck_assert_int_eq(ft_session_score(session, number, &known), FT_OK);
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit)
    if (known->gradients[bit].exists) wanted |= (int64_t)1 << bit;
  return wanted;
}

/* A run of a request with the score, all of whose rows must be right. text NULL: a built-in one;
 * wants_gradients: of a backward those of all that is captured, too. */
static void run_right(const char *gpu, const char *name, const char *text, const char *request,
                      enum ft_layout layout, const char *config, bool wants_gradients) {
  fatune_session *const session = emulator_open(gpu, NULL);
  int64_t number;
  ck_assert_msg(fatune_score_add(&number, session, name, text) == FT_OK, "%s", ft_detail());
  struct ft_problem_options options = emulator_options(request, layout, emulator_seed());
  options.request.score = number;
  if (options.request.pass == FT_BACKWARD && wants_gradients)
    options.request.score_gradients = all_gradients(session, number);
  options.want_lse = true;
  struct emulator_run run;
  emulator_run(&run, session, &options, config);
  emulator_expect_right(name, &run);
  emulator_run_free(&run);
  fatune_session_close(session);
}

/* Runs of each kind: few, chosen anew every time, or with FATUNE_TEST_SLOW=1 many. */
enum { FEW = 1, BUILTIN = 14, RANDOM_SCORES = 16 };

static int of_runs(int many) {
  return tests_are_slow() ? many : FEW;
}

/* ---- built-in ones ---- */

static const char *const requests[] = {
    "forward bf16 d64 hq4 hkv2 b2 nq70 nk70", "forward fp16 d32 hq2 hkv1 b1 nq33 nk100 causal",
    "forward bf16 d64 hq2 hkv2 b1 nq100 nk40 causal=top-left dropout"};

START_TEST(builtin_scores_are_right) {
  fatune_session *const session = emulator_open("a100", NULL); /* for its templates */
  char name[FT_SCORE_NAME];
  int count = 0;
  while (ft_score_builtin_name(ft_lua_files(session->lua), count, name)) ++count;
  const size_t number = emulator_choose(_i, (size_t)of_runs(BUILTIN), (size_t)count);
  ck_assert(ft_score_builtin_name(ft_lua_files(session->lua), (int)number, name));
  run_right(_i % 2 ? "a100" : "h200", name, NULL, requests[_i / 2 % 3],
            _i % 4 < 2 ? FT_LAYOUT_PADDED : FT_LAYOUT_BSHD, NULL, false);
  fatune_session_close(session);
}
END_TEST

/* ---- random ones ---- */

START_TEST(random_scores_are_right) {
  static const char *const configs[] = {
      NULL,
      "mma_forward block_m=64 block_n=32 warps=4 stages=2 overlap_qk=0 q_in_regs=0 ctas_per_sm=1",
      "mma_forward block_m=64 block_n=64 warps=4 stages=1 overlap_qk=0 q_in_regs=0 ctas_per_sm=1",
      NULL};
  static const char *const gpus[] = {"h200", "a100", "a100", "h200"};
  struct ft_text text = FT_TEXT_INIT;
  const uint64_t seed = emulator_seed() + (uint64_t)_i;
  lab_random_score(seed, &text);
  char name[FT_SCORE_NAME];
  (void)snprintf(name, sizeof name, "random-%llu", (unsigned long long)seed);
  run_right(gpus[_i % 4], name, text.data, requests[_i % 3], FT_LAYOUT_BSHD, configs[_i % 4],
            false);
  ft_text_free(&text);
}
END_TEST

/* Rows of several heads in a tile, and scores that go by head. */
START_TEST(packed_scores_are_right) {
  static const char by_head[] =
      "local slope = tensor('slope', 'fp32', heads)\nlocal of_key = tensor('of_key', 'fp16', "
      "heads, nk)\n"
      "local bias = tensor('bias', 'bf16', heads, nq, nk)\n"
      "score = s * slope(h) + of_key(h, j) + bias(h, i, j) + 0.1 * (kv + h * j % heads)\n"
      "visible = (i + j + h) % 5 ~= 0 and i + nk >= j + nq";
  static const char *const requests_of_groups[] = {"forward bf16 d64 hq32 hkv2 b1 nq9 nk140",
                                                   "forward fp16 d32 hq6 hkv1 nq70 nk100 sinks"};
  static const char *const configs[] = {
      "wgmma_forward block_m=64 block_n=64 stages=2 q_stages=1 direct_store=1 pack_gqa=1",
      "mma_forward block_m=16 block_n=64 warps=4 stages=2 key_warps=4 pack_gqa=1 split_keys=4 "
      "ctas_per_sm=1"};
  run_right("h200", "by head", by_head, requests_of_groups[_i % 2], FT_LAYOUT_PADDED,
            configs[_i / 2], false);
}
END_TEST

/* A kernel that lets keys be seen which the function hides is told so. */
START_TEST(hidden_keys_that_are_seen_are_told) {
  static const char *const words[] = {"but the score function hides it"};
  const struct planted planted =
      emulator_plant("parts/score.cu.in", "!is_visible(score, scored.head, row, column)", "false");
  fatune_session *const session = emulator_open("h200", planted.folder);
  struct ft_problem_options options =
      emulator_options("forward bf16 d64 nq33 nk40", FT_LAYOUT_BSHD, emulator_seed());
  ck_assert_int_eq(
      fatune_score_add(&options.request.score, session, "some", "visible = (i + j) % 3 ~= 0"),
      FT_OK);
  struct emulator_run run;
  emulator_run(&run, session, &options, NULL);
  emulator_expect_wrong("keys that are hidden", &run);
  emulator_expect_words("keys that are hidden", run.explanation.data, words, 1);
  emulator_run_free(&run);
  fatune_session_close(session);
  emulator_unplant(&planted);
}
END_TEST

/* ---- NaN ---- */

enum { NAN_KEY = 100 };

/* The elements of a row of O that are NaN, and its LSE as such. */
static int nans_of_row(const uint16_t *o, float lse) {
  int nans = isnan(lse);
  for (int column = 0; column < 64; ++column) nans += isnan(ft_from_dtype(FT_BF16, o[column]));
  return nans;
}

/* A key of NaN reaches the rows that see it, whole, with their LSE, and no others. */
START_TEST(nan_reaches_those_that_see_it) {
  enum { ROWS = 70 };
  static const char text[] =
      "score = 30 * tanh(s / 30) - 0.125 * abs(i - j)\nvisible = i % 3 == 0 or j ~= 100";
  fatune_session *const session = emulator_open(_i % 2 == 0 ? "h200" : "a100", NULL);
  struct ft_problem_options options =
      emulator_options("forward bf16 d64 nq70 nk140", FT_LAYOUT_BHSD, emulator_seed());
  ck_assert_int_eq(fatune_score_add(&options.request.score, session, "some", text), FT_OK);
  options.want_lse = true;
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  char *const words = emulator_request_text(&options.request);
  fatune_plan *const plan = emulator_plan(session, words, NULL);
  const struct ft_driver *const driver = &session->driver;
  const uint16_t nan = 0x7FC0;
  const cu_address at = problem->data[FT_K] + (cu_address)((NAN_KEY * 64 + 5) * 2);
  uint16_t o[ROWS * 64];
  float lse[ROWS];
  ck_assert_int_eq(driver->copy_to_device(at, &nan, sizeof nan, NULL), 0);
  ck_assert_msg(fatune_plan_run(plan, ft_problem_arguments(problem), NULL) == FT_OK, "%s",
                ft_detail());
  ck_assert_int_eq(driver->copy_to_host(o, problem->data[FT_O], sizeof o, NULL), 0);
  ck_assert_int_eq(driver->copy_to_host(lse, problem->data[FT_LSE], sizeof lse, NULL), 0);
  for (int row = 0; row < ROWS; ++row) {
    const int nans = nans_of_row(o + row * 64, lse[row]);
    ck_assert_msg(nans == (row % 3 == 0 ? 65 : 0), "row %d: %d are NaN", row, nans);
  }
  free(words);
  fatune_plan_free(plan);
  ft_problem_free(problem);
  fatune_session_close(session);
}
END_TEST

/* ---- backward ---- */

#define HOPPER "wgmma_backward block_m=64 "
#define ROLES                                                                                      \
  "wgmma_backward_roles block_m=64 block_n=128 q_stages=2 do_stages=2 ds_stages=1 dq_stages=2"
#define BACKWARD "mma_backward block_m=64 block_n=64 warps=8 stages=2 query_parts=1 ctas_per_sm=1 "

/* Each way in which dS is made: P by the same warp or by several, K and V in registers, dQ in a
 * pass of its own; P times the slope, which is for those who want no gradients and no dropout. */
static const struct {
  const char *gpu, *request, *config;
  bool weighs_p;
} backwards[] = {
    {"a100", "backward bf16 d32 hq2 hkv1 b2 nq70 nk40",
     BACKWARD "column_warps=1 kv_in_regs=1 deferred_dq=1 dq_mode=0", false},
    {"a100", "backward fp16 d16 hq2 hkv2 nq50 nk70 causal dropout",
     BACKWARD "column_warps=2 kv_in_regs=0 deferred_dq=0 dq_mode=0", false},
    {"a100", "backward bf16 d32 hq4 hkv2 b3 nq90 nk100 causal ragged",
     BACKWARD "column_warps=1 kv_in_regs=0 deferred_dq=1 dq_mode=0", false},
    {"h200", "backward bf16 d24 dv16 hq2 nq70 nk66 causal=top-left dropout deterministic",
     BACKWARD "column_warps=1 kv_in_regs=0 deferred_dq=0 dq_mode=2", false},
    {"h200", "backward bf16 d72 dv64 hq4 hkv2 nq70 nk140",
     HOPPER "block_n=128 q_stages=3 do_stages=3 ds_stages=2 kv_in_regs=1 early_scores=1 pacing=1",
     false},
    {"h200", "backward fp16 d32 hq2 nq130 nk66 causal dropout deterministic",
     HOPPER "block_n=64 q_stages=2 do_stages=2 ds_stages=2", false},
    {"h200", "backward bf16 d64 hq2 nq140 nk70 causal=top-left",
     HOPPER "block_n=128 q_stages=3 do_stages=3 ds_stages=2 loads_beside_dq=1 early_scores=1",
     true},
    {"h200", "backward fp16 d40 hq2 hkv1 nq70 nk130",
     HOPPER "block_n=64 q_stages=2 do_stages=2 ds_stages=2", true},
    {"h200", "backward bf16 d136 hq2 nq70 nk130 causal deterministic", ROLES, false},
    {"h200", "backward bf16 d72 dv136 hq4 hkv2 nq66 nk140 dropout", ROLES, false},
    {"h200", "backward fp16 d144 dv40 hq2 nq130 nk140 causal", ROLES, true}};

/* The first key takes nearly all of each row: P of the others is near the smallest normal number of
 * fp16, and the slope of their scores 2^-8. So P times the slope, which kernels for tensor cores
 * round to fp16 where the slope varies, is subnormal. One that is lost or off by a half must be
 * seen all the same. */
START_TEST(subnormal_weights) {
  static const char text[] = "score = where(j == 0, 9.5, (s + s * s / 128) / 256)";
  static const struct {
    const char *request, *config;
  } runs[] = {{"backward fp16 d64 hq2 hkv1 nq100 nk70",
               HOPPER "block_n=64 q_stages=2 do_stages=2 ds_stages=2"},
              {"backward fp16 d136 nq70 nk130", ROLES}};
  static const char piece[] = "const float low = first_of(rP[m], i), high = second_of(rP[m], i);";
  static const char *const bugs[] = {
      NULL, "const float low = first_of(rP[m], i) * 0.f, high = second_of(rP[m], i);",
      "const float low = first_of(rP[m], i), high = second_of(rP[m], i) * 0.5f;"};
  const char *const bug = bugs[_i % 3];
  const struct planted planted =
      emulator_plant("parts/score_transposed.cu.in", piece, bug ? bug : piece);
  struct emulator_run run;
  emulator_run_scored(&run, planted.folder, "flat", text,
                      emulator_options(runs[_i / 3].request, FT_LAYOUT_BSHD, emulator_seed()),
                      runs[_i / 3].config);
  if (bug)
    emulator_expect_wrong("P times the slope", &run);
  else
    emulator_expect_right("P times the slope", &run);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

/* Keys so far off that all their P are too small for fp32, and their gradients for bf16 nearly. */
START_TEST(tiny_gradients_are_right) {
  static const char far[] = "score = s + tensor('of_key', 'fp32', nk)(j) - 0.7 * abs(i - j)";
  run_right("a100", "far", far, "backward bf16 d32 hq1 nq1 nk150", FT_LAYOUT_BSHD, NULL, _i == 1);
}
END_TEST

/* Sinks so far below the scores that fp32 has no number for their gradients, and float64 none for
 * the squares of these. */
START_TEST(gradients_of_sinks_that_vanish_are_right) {
  run_right("a100", "high", "score = s + 400", "backward bf16 d32 hq2 b1 nq40 nk40 sinks",
            FT_LAYOUT_BSHD, NULL, false);
}
END_TEST

/* A random score that has a derivative by s. */
static void differentiable(struct ft_text *text, uint64_t seed) {
  for (bool has_slope = false; !has_slope; ++seed) {
    struct ft_score score;
    struct ft_derivatives derivatives;
    ft_text_clear(text);
    lab_random_score(seed, text);
    ck_assert_int_eq(ft_score_read(&score, "random", text->data, text->length), FT_OK);
    has_slope = ft_score_derive(&score, 0, &derivatives) == FT_OK;
    ft_score_free(&score);
  }
}

/* Of what it captures each is read by head, query, key, or all of them, and by more than one at a
 * time. */
static const char captures[] =
    "local cap, slope = scalar('cap'), tensor('slope', 'fp32', heads)\n"
    "local of_row = tensor('of_row', 'bf16', batch, nq)\n"
    "local of_key = tensor('of_key', 'fp16', heads, nk)\n"
    "local bias = tensor('bias', 'fp32', heads, nq, nk)\n"
    "local table = tensor('table', 'fp32', 9)\n"
    "score = cap * tanh((s + of_key(h, j)) / cap) - slope(h) * abs(i - j) * 0.01 +\n"
    "  of_row(b, i) * s + bias(h, i, j) * table(j - i + 4)\n"
    "visible = (i + j) % 5 ~= 0";

START_TEST(gradients_are_right) {
  const size_t number = (size_t)_i % FT_COUNT(backwards);
  if (_i < FT_COUNT(backwards)) {
    run_right(backwards[number].gpu, "captures", captures, backwards[number].request,
              FT_LAYOUT_PADDED, backwards[number].config, !backwards[number].weighs_p);
    return;
  }
  struct ft_text text = FT_TEXT_INIT;
  differentiable(&text, emulator_seed() + (uint64_t)_i * 1000);
  run_right(backwards[number].gpu, "random", text.data, backwards[number].request, FT_LAYOUT_BSHD,
            backwards[number].config, !backwards[number].weighs_p);
  ft_text_free(&text);
}
END_TEST

/* By this seed a row of dK is one query's nearly alone, and in it P, the slope, their product and
 * dS are all rounded in the same direction. That is right; P times the slope off by 2 % is not. */
START_TEST(four_roundings_in_a_row) {
  enum { WEIGHS_P = 6 };
  static const char piece[] = "low == 0.f ? 0.f : low * first_of(slopes, i)";
  static const struct planted none;
  const bool bug = _i == 1;
  const struct planted planted =
      bug ? emulator_plant("parts/score_transposed.cu.in", piece,
                           "low == 0.f ? 0.f : low * first_of(slopes, i) * 1.02f")
          : none;
  struct emulator_run run;
  ck_assert(backwards[WEIGHS_P].weighs_p);
  emulator_run_scored(
      &run, bug ? planted.folder : NULL, "captures", captures,
      emulator_options(backwards[WEIGHS_P].request, FT_LAYOUT_PADDED, 1795914080010467604u),
      backwards[WEIGHS_P].config);
  if (bug)
    emulator_expect_wrong("P times the slope", &run);
  else
    emulator_expect_right("P times the slope", &run);
  emulator_run_free(&run);
  if (bug) emulator_unplant(&planted);
}
END_TEST

Suite *make_emulator_score_suite(void) {
  Suite *const suite = suite_create("emulator_score");
  TCase *const tests = tcase_create("all");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, builtin_scores_are_right, 0, of_runs(BUILTIN));
  tcase_add_loop_test(tests, random_scores_are_right, 0, of_runs(RANDOM_SCORES));
  tcase_add_loop_test(tests, packed_scores_are_right, 0, 4);
  tcase_add_test(tests, hidden_keys_that_are_seen_are_told);
  tcase_add_loop_test(tests, nan_reaches_those_that_see_it, 0, 2);
  tcase_add_loop_test(tests, subnormal_weights, 0, 6);
  tcase_add_loop_test(tests, tiny_gradients_are_right, 0, 2);
  tcase_add_test(tests, gradients_of_sinks_that_vanish_are_right);
  tcase_add_loop_test(tests, gradients_are_right, 0, FT_COUNT(backwards) + of_runs(RANDOM_SCORES));
  tcase_add_loop_test(tests, four_roundings_in_a_row, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}
