/* test_emulator_softmax.c: sharp rows, whose maxima move far and often, in all ways of wgmma's
 * softmax to follow them.
 * in -> out: requests with a large scale -> every row against float64; bugs planted into the
 * softmax -> all seen. */
#include "tests/emulator_lab.h"
#include "tests/suites.h"

#define CONFIG(as_int, late, more)                                                                 \
  "wgmma_forward block_m=128 block_n=64 stages=2 q_stages=1 integer_max=" #as_int                  \
  " lazy_rescale=" #late " " more ""

/* With this the scores' standard deviation is 35 in units of log2: most steps move some maximum by
 * more than any limit, and a third of the rows that see one key have a maximum so far below 0 that
 * unnormalised P beside 0 would lose bits. */
static const double sharp = 3;
static const char both[] = "fp16 d64 hq4 nq200 causal", steps[] = "fp16 d64 hq8 nq128 nk400",
                  few_keys[] = "fp16 d64 hq16 b4 nq10 causal";

/* ---- runs ---- */

static const struct {
  const char *request, *config;
} runs[] = {
    {both, CONFIG(0, 0, "")},
    {both, CONFIG(0, 1, "")},
    {both, CONFIG(1, 0, "")},
    {both, CONFIG(1, 1, "")},
    {both, CONFIG(0, 1, "exp2_poly=1")},
    {both, CONFIG(1, 1, "ascending_keys=1")},
    {both, CONFIG(1, 1, "overlap_tiles=1 pingpong=2 direct_store=1")},
    {"fp16 d64 hq4 b2 nq150 nk400 dropout", CONFIG(1, 1, "overlap_tiles=1 direct_store=1")},
    {"bf16 d64 hq4 nq256 nk400 mask=128x64@0.3", CONFIG(1, 1, "pingpong=1")},
};

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  emulator_row_by_row(runs[number].request, FT_LAYOUT_BHSD, sharp, runs[number].config);
}
END_TEST

/* ---- bugs ---- */

static const struct {
  const char *name, *request, *file, *piece, *other;
} bugs[] = {
    {"each lane has a maximum of its own", steps, "parts/wgmma_softmax.cu.in",
     "quad_max(own[h]) * scale_log2", "own[h] * scale_log2"},
    {"lower rows are not watched", steps, "parts/wgmma_softmax.cu.in",
     "own[1] * scale_log2 - row_max[1] > P_LIMIT", "false"},
    {"negative scores count as 0", few_keys, "parts/wgmma_softmax.cu.in", "    largest(own, rS);\n",
     ""},
    {"maxima without their scale", steps, "parts/wgmma_softmax.cu.in",
     "fmaxf(row_max[h], quad_max(own[h]) * scale_log2", "fmaxf(row_max[h], quad_max(own[h])"},
    {"sums that are not corrected", steps, "parts/wgmma_softmax.cu.in",
     "    row_sum[h] *= factor[h];\n", ""},
    {"O that is not corrected", steps, "parts/consumer_steps.cu.in",
     "  correct(consumer.rO, correction);\n", ""},
    {"O corrected where no maximum has grown", steps, "parts/wgmma_softmax.cu.in",
     "  if (!correction.due) return;\n", ""},
    {"rows g + 8 of O corrected by the factor of rows g", steps, "parts/consumer_steps.cu.in",
     "return {due, factor[0], factor[1]};", "return {due, factor[0], factor[0]};"},
    {"LSE with half the maximum", steps, "parts/epilogue_wgmma.cu.in", "(row_max + lg2(l))",
     "(0.5f * row_max + lg2(l))"},
};

START_TEST(bugs_are_seen) {
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  const struct planted planted =
      emulator_plant(bugs[number].file, bugs[number].piece, bugs[number].other);
  struct ft_problem_options options =
      emulator_options(bugs[number].request, FT_LAYOUT_BHSD, emulator_seed());
  options.scale = sharp;
  struct emulator_run run;
  emulator_run_alone(&run, planted.folder, &options, CONFIG(1, 1, ""));
  emulator_expect_wrong(bugs[number].name, &run);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
}
END_TEST

Suite *make_emulator_softmax_suite(void) {
  Suite *const suite = suite_create("emulator_softmax");
  TCase *const tests = tcase_create("softmax");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
