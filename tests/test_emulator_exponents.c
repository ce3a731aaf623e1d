/* test_emulator_exponents.c: exponents of scores by wgmma, whose maxima move far and often, in all
 * ways to make and to follow them.
 * in -> out: score functions, requests with a large scale -> every row against float64; bugs
 * planted into the exponents -> all seen. */
#include <stdio.h>

#include "generator/family.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"

#define CONFIG(as_int, late, more)                                                                 \
  "wgmma_forward block_m=128 block_n=64 stages=2 q_stages=1 integer_max=" #as_int                  \
  " lazy_rescale=" #late " " more ""

static const double sharp = 3;
/* Far keys come first, so that maxima rise from step to step. */
static const char sides[] = "local slope = tensor('slope', 'fp32', heads)\n"
                            "score = s - (abs(slope(h)) + 0.25) * abs(i + nk - nq - j)";
static const char line[] = "score = s * 0.5 + 0.75 * (j - i) - 3";
static const char cap[] = "local cap = scalar('cap')\nscore = (20 + abs(cap)) * tanh(s / 20)";
/* Arguments of tanh that are all near 0, or in some warps. */
static const char gentle[] = "score = 90 * tanh(s / 1000) - 0.01 * i",
                  between[] = "score = 20 * tanh(s / 200)", mixed[] = "score = 90 * tanh(s / 90)",
                  wide[] = "score = 400 * tanh(s / 400)";
static const char tight[] = "score = 12 * tanh(s) - 0.25 * j", shifted[] = "score = s + 0.5";
static const char of_keys[] =
    "local of_head, of_all = tensor('of_head', 'fp32', heads, nk), tensor('of_all', 'bf16', nk)\n"
    "score = s + 3 * of_head(h, j) - of_all(j)";
static const char hidden[] = "score = 9 * sigmoid(s - 2) + s\nvisible = (i + j) % 7 ~= 0";
static const char dense[] = "fp16 d64 hq2 nq200 nk260", causal[] = "fp16 d64 hq2 nq200 causal",
                  steps[] = "fp16 d64 hq8 nq128 nk400", few_keys[] = "fp16 d64 hq16 b4 nq10 causal";

static void run_sharp(struct emulator_run *run, const char *templates, const char *text,
                      const char *request, const char *config) {
  struct ft_problem_options options = emulator_options(request, FT_LAYOUT_BHSD, emulator_seed());
  options.scale = sharp;
  emulator_run_scored(run, templates, "some", text, options, config);
}

/* ---- runs ---- */

static const struct {
  const char *text, *request, *config;
} runs[] = {
    {sides, dense, CONFIG(1, 1, "")},
    {sides, dense, CONFIG(0, 1, "pingpong=1")},
    {sides, causal, CONFIG(1, 0, "overlap_tiles=1 direct_store=1")},
    {line, dense, CONFIG(1, 1, "overlap_tiles=1 pingpong=2 direct_store=1")},
    {line, "fp16 d64 hq4 hkv2 nq100 nk260", CONFIG(1, 1, "pack_gqa=1 direct_store=1")},
    {of_keys, dense, CONFIG(1, 1, "")},
    {of_keys, "fp16 d64 hq4 hkv2 nq100 nk260", CONFIG(1, 1, "pack_gqa=1 direct_store=1")},
    {cap, dense, CONFIG(1, 1, "")},
    {cap, dense, CONFIG(1, 1, "exp2_poly=1")},
    {cap, causal, CONFIG(0, 0, "exp2_poly=1 pingpong=1")},
    {gentle, dense, CONFIG(1, 1, "overlap_tiles=1 pingpong=1 direct_store=1")},
    {gentle, "fp16 d64 hq4 hkv2 nq100 nk260 causal", CONFIG(0, 1, "pack_gqa=1 direct_store=1")},
    {mixed, dense, CONFIG(1, 1, "exp2_poly=1")},
    {between, dense, CONFIG(1, 1, "pingpong=1")},
    {wide, dense, CONFIG(1, 1, "pingpong=2")},
    {mixed, causal, CONFIG(0, 1, "overlap_tiles=1 pingpong=2 direct_store=1")},
    {tight, dense, CONFIG(1, 1, "overlap_tiles=1 direct_store=1 exp2_poly=1")},
    {shifted, few_keys, CONFIG(1, 1, "")},
    {hidden, dense, CONFIG(1, 1, "exp2_poly=1")},
    {hidden, "bf16 d64 hq2 nq200 nk260 mask=128x64@0.4", CONFIG(1, 1, "")},
};

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  struct emulator_run run;
  run_sharp(&run, NULL, runs[number].text, runs[number].request, runs[number].config);
  emulator_expect_right(runs[number].text, &run);
  emulator_run_free(&run);
}
END_TEST

/* ---- bugs ---- */

#define EXPONENTS "parts/wgmma_exponents.cu.in"

static const struct {
  const char *name, *text, *request, *file, *piece, *other;
} bugs[] = {
    {"each lane has a maximum of its own", sides, steps, EXPONENTS, "quad_max(own[h])", "own[h]"},
    {"exponents that stay where they were", sides, steps, EXPONENTS,
     "      consumer.rS[0][n][2 * h] += moved;\n", ""},
    {"sums that are not corrected", sides, steps, EXPONENTS,
     "    consumer.row_sum[h] *= factor[h];\n", ""},
    {"lower rows are not watched", shifted, steps, EXPONENTS, " || own[1] > P_LIMIT", ""},
    {"first maxima are at least 0", shifted, few_keys, EXPONENTS,
     "  if (__any_sync(0xffffffffu, begins)) largest(own, consumer.rS[0]);\n", ""},
    {"the last key of a step is not asked for its side", sides, steps, EXPONENTS,
     "place.first_j = float(first_key + BLOCK_N - 1)", "place.first_j = float(first_key)"},
    {"the other side", sides, steps, EXPONENTS, "1.f : __all_sync", "-1.f : __all_sync"},
    {"a key of the step for its neighbour", of_keys, steps, EXPONENTS,
     "own_key + delta, float(own_key)", "own_key + delta + 1, float(own_key)"},
    {"the first of four for the second", cap, steps, EXPONENTS, "inverse[0] = of_first * of[1]",
     "inverse[0] = of_first * of[0]"},
    {"a polynomial for arguments far from 0", cap, steps, EXPONENTS, "LESS_NEAR_0 = 1.4f",
     "LESS_NEAR_0 = 100.f"},
    {"three terms where four are needed", between, steps, EXPONENTS, "NEAR_0 = 0.8f",
     "NEAR_0 = 2.f"},
    {"a polynomial of another function", gentle, steps, EXPONENTS, "-0.00693444639f",
     "0.00693444639f"},
    {"the middle of the other row", gentle, steps, EXPONENTS, "+ exponents.minus_max[h]",
     "+ exponents.minus_max[1 - h]"},
    {"maxima that are too far behind", wide, steps, EXPONENTS, "near.middle[h] <= P_LIMIT",
     "near.middle[h] <= 100.f"},
    {"denominators that overflow", tight, steps, EXPONENTS, "max_nan(x[i], -31.f)", "x[i]"},
};

START_TEST(bugs_are_seen) {
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  const struct planted planted =
      emulator_plant(bugs[number].file, bugs[number].piece, bugs[number].other);
  struct emulator_run run;
  run_sharp(&run, planted.folder, bugs[number].text, bugs[number].request, CONFIG(1, 1, ""));
  emulator_expect_wrong(bugs[number].name, &run);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
}
END_TEST

Suite *make_emulator_exponents_suite(void) {
  Suite *const suite = suite_create("emulator_exponents");
  TCase *const tests = tcase_create("exponents");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
