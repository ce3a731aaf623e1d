/* test_emulator_score_keys.c: scores of which the products add what is of a key (keys_in_product),
 * or that leave keys out which are far from the query (skip_far).
 * in -> out: score functions, given ones and random sums, requests, configs -> every row against
 * float64; bugs planted into the terms -> all seen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_parts.h"

#define CONFIG(m, n, q, more)                                                                      \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=2 q_stages=" #q                              \
  " integer_max=1 lazy_rescale=1 keys_in_product=1 " more
#define TURNS CONFIG(128, 64, 2, "overlap_tiles=1 pingpong=1")
#define NEAR  CONFIG(128, 64, 2, "overlap_tiles=1 pingpong=1 skip_far=1")
#define NEAR_EACH(m, n, q, more)                                                                   \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=2 q_stages=" #q                              \
  " integer_max=1 lazy_rescale=1 skip_far=1 " more

static const char sides[] = "local slope = tensor('slope', 'fp32', heads)\n"
                            "score = s - (abs(slope(h)) + 0.1) * abs(i + nk - nq - j)";
static const char rising[] = "score = 2 * s - 0.3 * abs(j - i) + 0.4 * i";
static const char leaning[] = "score = s - 0.25 * abs(i - j) + 0.125 * (j - i)";
/* P of most steps is 0; but for some keys far from the query. */
static const char steep[] = "score = s - 0.8 * abs(i + nk - nq - j)";
static const char steeper[] = "local slope = tensor('slope', 'fp32', heads)\n"
                              "score = s - (abs(slope(h)) + 4) * abs(i + nk - nq - j)";
static const char one_sided[] = "score = s - 3 * abs(j - i - 0.5) + 2.95 * (j - i)";
static const char away[] = "score = s - 2.5 * abs(i - 40 - j) - 0.5 * i";
static const char islands[] =
    "local bias = tensor('bias', 'fp32', nk)\n"
    "score = s - 0.8 * abs(i + nk - nq - j) + bias(j) + where(j % 193 == 60, 100, 0)";
static const char of_keys[] =
    "local of_head, of_all = tensor('of_head', 'fp32', heads, nk), tensor('of_all', 'bf16', nk)\n"
    "score = s + 3 * of_head(h, j) - of_all(j)";
static const char far[] = "local bias = tensor('bias', 'fp32', nk)\n"
                          "score = s + where(j % 2 == 0, 900, 899.5) + bias(j)";
static const char leaning_keys[] = "local bias = tensor('bias', 'fp32', nk)\n"
                                   "score = s + bias(j) - 0.02 * j";
static const char both[] = "local bias = tensor('bias', 'fp32', batch, heads, nk)\n"
                           "score = s - 0.1 * abs(i - j) + bias(b, h, j)";
static const char hidden[] = "local bias = tensor('bias', 'fp16', nk)\n"
                             "score = s - 0.1 * abs(i - j) + bias(j)\n"
                             "visible = (i + j) % 7 ~= 0";
static const char infinite[] = "local bias = tensor('bias', 'fp32', nk)\n"
                               "score = s + where(j % 3 == 1, -inf, bias(j))";
static const char extreme[] = "local bias = tensor('bias', 'fp32', nk)\n"
                              "score = s + where(j % 2 == 1, -2e38, bias(j))";

static const struct {
  const char *text, *request, *config;
  double scale; /* 0: the usual one */
} runs[] = {
    {sides, "bf16 d64 hq2 b2 nq200 nk264", TURNS, 0},
    {sides, "bf16 d128 hq2 nq70 nk400 causal", CONFIG(128, 128, 2, "overlap_tiles=1 pingpong=1"),
     0},
    {sides, "bf16 d64 hq2 nq300 nk400 window", CONFIG(256, 64, 1, "pingpong=2 direct_store=1"), 0},
    {sides, "bf16 d64 hq2 nq200 nk264 mask=128x64@0.6", TURNS, 0},
    {sides, "bf16 d64 hq2 b3 nq200 nk264 ragged", TURNS, 0},
    {sides, "bf16 d64 hq2 nq300 nk400", CONFIG(64, 64, 1, "multicast=1"), 0},
    {sides, "bf16 d64 hq2 nq64 nk520", CONFIG(64, 64, 1, "direct_store=1 split_keys=1"), 0},
    {sides, "bf16 d64 hq2 nq200 nk264", TURNS, 1e-44}, /* element by element */
    {steep, "bf16 d16 hq2 nq300 nk600", TURNS, 0},
    {steep, "bf16 d128 hq2 nq200 nk700 causal", CONFIG(128, 128, 2, "overlap_tiles=1 pingpong=1"),
     0},
    {steep, "bf16 d16 hq2 nq300 nk600", CONFIG(64, 64, 1, "multicast=1"), 0},
    {steep, "bf16 d16 hq2 nq64 nk900", CONFIG(64, 64, 1, "direct_store=1 split_keys=1"), 0},
    {islands, "bf16 d16 hq2 nq300 nk700", TURNS, 0},
    {islands, "fp16 d16 hq2 nq300 nk700", CONFIG(192, 64, 2, "overlap_tiles=1 direct_store=1"), 0},
    {islands, "bf16 d16 hq2 nq300 nk700 causal", CONFIG(256, 64, 1, "pingpong=2 direct_store=1"),
     0},
    {islands, "bf16 d16 hq2 nq300 nk700 window", CONFIG(128, 80, 2, "ascending_keys=1"), 0},
    {islands, "bf16 d16 hq2 nq300 nk700 mask=128x64@0.6", TURNS, 0},
    {islands, "bf16 d16 hq2 b3 nq700 nk700 ragged", TURNS, 0},
    {steeper, "bf16 d16 hq4 b2 nq500 nk500", NEAR, 0},
    {steeper, "fp16 d64 hq4 hkv2 b2 nq300 nk700", NEAR_EACH(192, 64, 1, "direct_store=1"), 0},
    {steeper, "bf16 d72 hq2 nq700 nk300", NEAR_EACH(64, 80, 2, ""), 0},
    {steeper, "bf16 d128 hq2 nq300 nk700 causal",
     NEAR_EACH(128, 128, 2, "overlap_tiles=1 pingpong=1"), 0},
    {steeper, "bf16 d16 hq2 nq600 nk200 causal", NEAR, 0},
    {steeper, "bf16 d256 dv64 hq2 nq200 nk600 causal=top-left", NEAR_EACH(128, 64, 1, ""), 0},
    {steeper, "bf16 d16 hq2 nq500 nk500 dropout", NEAR, 0},
    {steeper, "bf16 d16 hq2 nq300 nk500", NEAR, 1e-44},
    {steeper, "bf16 d16 hq2 nq300 nk500", NEAR, 20},
    {steeper, "bf16 d16 hq2 nq300 nk500 causal", NEAR, 200},
    {steep, "bf16 d16 hq2 nq300 nk900", NEAR, 0},
    {one_sided, "bf16 d16 hq2 nq300 nk900", NEAR, 0},
    {one_sided, "bf16 d16 hq2 nq300 nk900 causal", NEAR, 0},
    {away, "bf16 d16 hq2 nq300 nk600", NEAR, 0},
    {islands, "bf16 d16 hq2 nq300 nk700", NEAR, 0},
    {hidden, "bf16 d64 hq2 nq200 nk264", NEAR, 0},
    {rising, "bf16 d64 hq2 nq300 nk384", CONFIG(192, 96, 1, "overlap_tiles=1 direct_store=1"), 0},
    {leaning, "bf16 d64 hq2 nq200 nk240", CONFIG(128, 80, 2, "ascending_keys=1"), 0},
    {of_keys, "fp16 d64 hq4 hkv2 b2 nq200 nk264", TURNS, 0},
    {far, "fp16 d64 hq2 nq200 nk264", TURNS, 0},
    {of_keys, "bf16 d40 hq2 nq200 nk352", CONFIG(128, 176, 1, "overlap_tiles=1 direct_store=1"), 0},
    {of_keys, "bf16 d64 hq2 nq200 nk264 mask=128x64@0.6", CONFIG(128, 64, 1, "pingpong=1"), 0},
    {of_keys, "bf16 d64 hq2 b2 nq40 nk264 pages=16", CONFIG(128, 80, 1, ""), 0},
    {of_keys, "bf16 d64 hq2 b3 nq200 nk264 ragged causal", TURNS, 0},
    {of_keys, "bf16 d64 hq2 nq200 nk264", TURNS, 1e-44},
    {far, "bf16 d64 hq2 nq200 nk264", TURNS, 0},
    {leaning_keys, "bf16 d64 hq2 nq200 nk264", TURNS, 0},
    {both, "bf16 d64 hq2 b2 nq200 nk264 causal", CONFIG(192, 128, 2, "overlap_tiles=1 pingpong=2"),
     0},
    {hidden, "bf16 d64 hq2 nq200 nk264", TURNS, 0},
    {hidden, "bf16 d64 hq2 nq200 nk264 mask=128x64@0.6", CONFIG(128, 64, 1, "pingpong=1"), 0},
    {infinite, "bf16 d64 hq2 nq200 nk264", TURNS, 0},
    {extreme, "bf16 d64 hq2 nq200 nk264", TURNS, 0},
};

static void run_keys(struct emulator_run *run, const char *templates, const char *text,
                     const char *request, const char *config, double scale) {
  struct ft_problem_options options = emulator_options(request, FT_LAYOUT_BHSD, emulator_seed());
  if (scale != 0) options.scale = scale;
  emulator_run_scored(run, templates, "some", text, options, config);
}

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  struct emulator_run run;
  run_keys(&run, NULL, runs[number].text, runs[number].request, runs[number].config,
           runs[number].scale);
  emulator_expect_right(runs[number].request, &run);
  emulator_run_free(&run);
}
END_TEST

/* ---- keys that are left out ---- */

enum { FAR_ROWS = 400, FAR_COLUMNS = 16, FAR_HEADS = 2, FAR_ELEMENTS = FAR_ROWS * FAR_COLUMNS };

/* O and LSE of a problem in which one element of Q or K is another. */
struct far_result {
  uint16_t o[FAR_HEADS * FAR_ELEMENTS];
  float lse[FAR_HEADS * FAR_ROWS];
};

static void run_far(struct far_result *result, fatune_session *session,
                    const struct ft_problem_options *options, const char *config, int tensor,
                    int row, uint16_t bits) {
  struct ft_problem *problem;
  ck_assert_msg(ft_problem_make(&problem, session, options) == FT_OK, "%s", ft_detail());
  char *const words = emulator_request_text(&options->request);
  fatune_plan *const plan = emulator_plan(session, words, config);
  const struct ft_driver *const driver = &session->driver;
  const cu_address at = problem->data[tensor] + (cu_address)(row * FAR_COLUMNS + 3) * sizeof bits;
  ck_assert_int_eq(driver->copy_to_device(at, &bits, sizeof bits, NULL), 0);
  ck_assert_msg(ft_problem_fit(problem, plan) == FT_OK, "%s", ft_detail());
  ck_assert_msg(fatune_plan_run(plan, ft_problem_arguments(problem), NULL) == FT_OK, "%s",
                ft_detail());
  ck_assert_int_eq(driver->copy_to_host(result->o, problem->data[FT_O], sizeof result->o, NULL), 0);
  ck_assert_int_eq(
      driver->copy_to_host(result->lse, problem->data[FT_LSE], sizeof result->lse, NULL), 0);
  free(words);
  fatune_plan_free(plan);
  ft_problem_free(problem);
}

enum { FAR_CASES = 2 * 10 }; /* ten odd elements, causal and not */

/* Whatever is in Q and K, O and LSE have the same bits with and without the keys that are left out.
 */
START_TEST(far_keys_change_no_bit) {
  enum { LARGE = 0x4496, INFINITE = 0x7F80, LOWEST = 0xFF80, NOT_A_NUMBER = 0x7FC0 }; /* 1200 */
  static const struct {
    int tensor, row;
    uint16_t bits;
  } odd[] = {{FT_K, 0, 0},        {FT_K, 7, LARGE},          {FT_K, 399, LARGE},
             {FT_Q, 390, LARGE},  {FT_Q, 0, LARGE},          {FT_K, 5, INFINITE},
             {FT_K, 398, LOWEST}, {FT_K, 399, NOT_A_NUMBER}, {FT_Q, 200, NOT_A_NUMBER},
             {FT_Q, 3, INFINITE}};
  static struct far_result results[2];
  const size_t number = emulator_choose(_i, (size_t)emulator_runs(FAR_CASES), FAR_CASES);
  const bool causal = number % 2;
  fatune_session *const session = emulator_open("h200", NULL);
  struct ft_problem_options options =
      emulator_options(causal ? "forward bf16 d16 hq2 nq400 causal" : "forward bf16 d16 hq2 nq400",
                       FT_LAYOUT_BHSD, emulator_seed());
  ck_assert_int_eq(fatune_score_add(&options.request.score, session, "some", steeper), FT_OK);
  const size_t n = number / 2;
  run_far(&results[0], session, &options, TURNS, odd[n].tensor, odd[n].row, odd[n].bits);
  run_far(&results[1], session, &options, NEAR, odd[n].tensor, odd[n].row, odd[n].bits);
  ck_assert_int_eq(memcmp(&results[0], &results[1], sizeof results[0]), 0);
  fatune_session_close(session);
}
END_TEST

/* ---- random sums ---- */

/* What a sum has besides: of each some, and the one that gives it its kind. */
static const char *const pieces[] = {
    " + 0.125 * (j - i)",     " - 2 * of_all(j)", " + of_head(h, j) * slope(h)",
    " + 0.5 * slope(h) * i",  " - slope(h)",      " + where(j % 5 == 2, of_all(j), 1)",
    " + min(of_all(j), 0.5)", " - 0.01 * j",
};
static const char *const firsts[] = {" - (abs(slope(h)) + 0.1) * abs(i + nk - nq - j)",
                                     " + 0.2 * abs(2 + j - i)", " + of_head(h, j)", " - of_all(j)"};
static const char *const factors[] = {"s", "0.5 * s", "-s", "slope(h) * s", "(s - 3) * 1.5"};
static const char *const requests[] = {
    "bf16 d64 hq2 b2 nq200 nk264", "fp16 d64 hq2 nq200 nk264 causal",
    "bf16 d40 hq4 hkv2 nq150 nk230 window", "bf16 d64 hq2 nq200 nk264 mask=128x64@0.6"};

START_TEST(random_sums_are_right) {
  char text[1024] =
      "local slope, of_all = tensor('slope', 'fp32', heads), tensor('of_all', 'bf16', nk)\n"
      "local of_head = tensor('of_head', 'fp32', heads, nk)\nscore = ";
  random_seed = emulator_seed() + (uint64_t)_i;
  strcat(text, factors[below((int)EMULATOR_COUNT(factors))]);
  strcat(text, firsts[below((int)EMULATOR_COUNT(firsts))]);
  for (size_t i = 0; i < EMULATOR_COUNT(pieces); i++)
    if (below(3) == 0) strcat(text, pieces[i]);
  if (below(4) == 0) strcat(text, "\nvisible = (3 * i + j) % 5 ~= 0");
  const int dense = 2, number = below((int)EMULATOR_COUNT(requests));
  const char *const request = requests[number];
  const bool is_near = strstr(text, "abs(") != NULL && number < dense && below(2) == 0;
  struct emulator_run run;
  run_keys(&run, NULL, text, request, is_near ? NEAR : TURNS, 0);
  char name[1200];
  (void)snprintf(name, sizeof name, "%s: %s", request, text);
  emulator_expect_right(name, &run);
  emulator_run_free(&run);
}
END_TEST

/* ---- bugs ---- */

#define KEYS     "parts/score_keys.cu.in"
#define STEPS    "parts/consumer_steps.cu.in"
#define FAR_KEYS "parts/near_keys.cu.in"
#define WHOLE    "bf16 d64 hq2 nq200 nk256"

static const struct {
  bool is_fault; /* of the kernel; else the result is wrong */
  const char *name, *text, *file, *piece, *other;
} bugs[] = {
    {false, "keys that are near are left out", steeper, FAR_KEYS, "FAR_BELOW = 128.f + P_LIMIT",
     "FAR_BELOW = -100.f"},
    {false, "q . k is taken for 0", steeper, FAR_KEYS, "const float spread = 2.02f",
     "const float spread = -99.f"},
    {false, "the other side's slope", one_sided, FAR_KEYS,
     "reach_of(spread, -$(score.x_grows and \"above\"",
     "reach_of(spread, $(score.x_grows and \"below\""},
    {true, "terms are read before all are stored", of_keys, STEPS,
     "  if (HAS_KEY_TERMS) barrier_sync(FIRST_OWN_BARRIER + consumer.number, 128);",
     "  if (false) {}"},
    {true, "terms that the products may not see", of_keys, KEYS,
     "    store_shared_8(key_columns(consumer, key, 0), columns);\n  }\n  async_proxy_fence();\n",
     "    store_shared_8(key_columns(consumer, key, 0), columns);\n  }\n"},
    {false, "lanes of a row have maxima of their own", leaning_keys, "parts/wgmma_exponents.cu.in",
     "quad_max(own[h] * exponents.factor + added[h])",
     "quad_max(own[h]) * exponents.factor + added[h]"},
    {false, "a third of a term is missing", far, KEYS, "distance_of(key) << 16 | parts[2]",
     "distance_of(key) << 16"},
    {false, "two thirds of a term are missing", of_keys, KEYS, "parts[1] << 16 | parts[0])",
     "parts[0])"},
    {false, "the term of the next key", of_keys, KEYS, "first_key + i * 128 + warp * 32 + lane",
     "first_key + i * 128 + warp * 32 + lane + 1"},
    {false, "terms in exponents, not in units of q . k", of_keys, KEYS, "of_product = term * unit",
     "of_product = term"},
    {false, "the terms of this step for the next", of_keys, STEPS,
     "read_terms_ahead(consumer, params, step_of(consumer, work, left - 1));",
     "read_terms_ahead(consumer, params, step_of(consumer, work, left));"},
    {false, "distances from the step's first key", sides, KEYS, "(key & ~7) | (key & 1)", "key"},
    {false, "the other side", sides, KEYS, "place.side = 1.f", "place.side = -1.f"},
    {false, "only the first key is asked for its side", sides, KEYS,
     ": -float(first_key + BLOCK_N - 1);", ": -float(first_key);"},
    {false, "P that is not 0 is skipped", leaning, KEYS, "ALL_ZEROS = -127.f", "ALL_ZEROS = 7.f"},
    {false, "slopes to 8 bits", sides, KEYS, "pair == 2 ? parts[2] << 16 | parts[1]",
     "pair == 2 ? 0"},
    {false, "infinite terms are split", infinite, KEYS,
     "fabsf(x) <= MOST_IN_PRODUCT ? x - __uint_as_float(parts[0] << 16) : 0.f",
     "x - __uint_as_float(parts[0] << 16)"},
    {false, "nothing is hidden", hidden, "parts/wgmma_exponents.cu.in", "keyless_exponents<true>",
     "keyless_exponents<false>"},
};

START_TEST(bugs_are_seen) {
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  const struct planted planted =
      emulator_plant(bugs[number].file, bugs[number].piece, bugs[number].other);
  struct emulator_run run;
  const bool is_near = strcmp(bugs[number].file, FAR_KEYS) == 0;
  run_keys(&run, planted.folder, bugs[number].text, WHOLE, is_near ? NEAR : TURNS, 0);
  emulator_expect_caught(bugs[number].name, &run, bugs[number].is_fault);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
}
END_TEST

Suite *make_emulator_score_keys_suite(void) {
  enum { SUMS = 6 };
  Suite *const suite = suite_create("emulator_score_keys");
  TCase *const tests = tcase_create("keys");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_loop_test(tests, far_keys_change_no_bit, 0, emulator_runs(FAR_CASES));
  tcase_add_loop_test(tests, random_sums_are_right, 0, SUMS);
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
