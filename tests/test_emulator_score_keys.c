/* test_emulator_score_keys.c: scores of which the products add what is of a key (keys_in_product).
 * in -> out: score functions, given ones and random sums, requests, configs -> every row against
 * float64; bugs planted into the terms -> all seen. */
#include <stdio.h>
#include <string.h>

#include "tests/emulator_lab.h"
#include "tests/suites.h"

#define CONFIG(m, n, q, more)                                                                      \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=2 q_stages=" #q                              \
  " integer_max=1 lazy_rescale=1 keys_in_product=1 " more
#define TURNS CONFIG(128, 64, 2, "overlap_tiles=1 pingpong=1")

static const char sides[] = "local slope = tensor('slope', 'fp32', heads)\n"
                            "score = s - (abs(slope(h)) + 0.1) * abs(i + nk - nq - j)";
static const char rising[] = "score = 2 * s - 0.3 * abs(j - i) + 0.4 * i";
static const char leaning[] = "score = s - 0.25 * abs(i - j) + 0.125 * (j - i)";
/* P of most steps is 0; but for some keys far from the query. */
static const char steep[] = "score = s - 0.8 * abs(i + nk - nq - j)";
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
  const char *const request = requests[below((int)EMULATOR_COUNT(requests))];
  struct emulator_run run;
  run_keys(&run, NULL, text, request, TURNS, 0);
  char name[1200];
  (void)snprintf(name, sizeof name, "%s: %s", request, text);
  emulator_expect_right(name, &run);
  emulator_run_free(&run);
}
END_TEST

/* ---- bugs ---- */

#define KEYS  "parts/score_keys.cu.in"
#define STEPS "parts/consumer_steps.cu.in"
#define WHOLE "bf16 d64 hq2 nq200 nk256"

static const struct {
  bool is_fault; /* of the kernel; else the result is wrong */
  const char *name, *text, *file, *piece, *other;
} bugs[] = {
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
    {false, "the terms of this step for the next", of_keys, STEPS, "read_terms_ahead(consumer, params, step_of(consumer, work, left - 1));",
     "read_terms_ahead(consumer, params, step_of(consumer, work, left));"},
    {false, "distances from the step's first key", sides, KEYS, "(key & ~7) | (key & 1)", "key"},
    {false, "the other side", sides, KEYS, "place.side = 1.f", "place.side = -1.f"},
    {false, "only the first key is asked for its side", sides, KEYS,
     ": -float(first_key + BLOCK_N - 1);", ": -float(first_key);"},
    {false, "P that is not 0 is skipped", sides, KEYS, "ALL_ZEROS = -127.f", "ALL_ZEROS = 7.f"},
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
  run_keys(&run, planted.folder, bugs[number].text, WHOLE, TURNS, 0);
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
  tcase_add_loop_test(tests, random_sums_are_right, 0, SUMS);
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
