/* test_model_score.c: what scores cost: counts of their operations, and predicted times.
 * in -> out: texts -> counts; texts, requests, configs -> predictions beside measured times. */
#include <math.h>

#include "generator/score/registry.h"
#include "generator/space.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"
#include "generator/model/model.h"
#include "generator/model/ranker.h"
#include "tuner/search/candidates.h"

static const char learnt[] =
    "local bias = tensor('bias', 'fp32', heads, nk)\nscore = s + bias(h, j)";

static struct ft_template_files files;
static struct ft_score_registry registry;

static void open_registry(void) {
  ck_assert_int_eq(ft_template_files_open(&files, NULL), FT_OK);
  registry = (struct ft_score_registry){0};
}

static void close_registry(void) {
  ft_registry_close(&registry);
  ft_template_files_close(&files);
}

/* text: of a score, or the name of a built-in one; NULL: none. */
static const struct ft_known_score *known_score(const char *text) {
  const struct ft_known_score *known;
  int64_t number;
  if (text == NULL) return NULL;
  const bool is_name = strchr(text, '=') == NULL;
  ck_assert_msg(ft_registry_add(&registry, &files, is_name ? text : "mine", is_name ? NULL : text,
                                &number) == FT_OK,
                "%s", ft_detail());
  ck_assert_int_eq(ft_registry_find(&registry, &files, number, &known), FT_OK);
  return known;
}

static double us_of(const char *request_text, const struct ft_config *config, const char *score) {
  const struct ft_arch gpu = known_gpu("h200");
  struct ft_request request = known_request(request_text);
  const struct ft_known_score *const known = known_score(score);
  if (known != NULL) request.score = known->number;
  request.pass = config->family->pass;
  return ft_model(&request, &gpu, config, known ? &known->costs : NULL, 0, 0).us;
}

/* ---- counts ---- */

/* Of the exponent beyond one FFMA, of the score with its slope, and of what hides keys. */
static const struct {
  const char *text;
  struct ft_score_cost exponent, slope, visible;
} counts[] = {
    {"score = s * 2", {0, 0, 0}, {1, 0, 0}, {0, 0, 0}},
    /* Exponent: a sum made once a step plus the key's distance, one operation. The score by
     * itself: |i - j| is made for each element, two operations. */
    {"alibi", {1, 0, 0}, {2, 0, 0}, {0, 0, 0}},
    /* A read for two elements, times log2(e), added. */
    {learnt, {2.5, 0, 0.5}, {2, 0, 0.5}, {0, 0, 0}},
    /* The argument, a power of 2, a sum and a share of a reciprocal. */
    {"local cap = scalar('cap')\nscore = cap * tanh(s / cap)", {4, 1.25, 0}, {8, 2, 0}, {0, 0, 0}},
    {"local bias = tensor('bias', 'bf16', heads, nq, nk)\nscore = s + bias(h, i, j)",
     {3, 0, 1},
     {3, 0, 1},
     {0, 0, 0}},
    {"visible = j <= i and (i + j) % 3 == 0", {0, 0, 0}, {0, 0, 0}, {8, 0, 0}},
    {"visible = i % (j + 1) == 0", {0, 0, 0}, {0, 0, 0}, {21.5, 2, 0}},
};

static void compare(const char *text, const char *what, struct ft_score_cost is,
                    struct ft_score_cost be) {
  ck_assert_msg(is.instructions == be.instructions && is.special == be.special &&
                    is.reads == be.reads,
                "%s of %s: %g instructions, %g special, %g reads; not %g, %g, %g", what, text,
                is.instructions, is.special, is.reads, be.instructions, be.special, be.reads);
}

START_TEST(operations_are_counted) {
  const struct ft_score_costs *const costs = &known_score(counts[_i].text)->costs;
  compare(counts[_i].text, "exponent", costs->exponent, counts[_i].exponent);
  compare(counts[_i].text, "slope", costs->slope, counts[_i].slope);
  compare(counts[_i].text, "visible", costs->visible, counts[_i].visible);
}
END_TEST

/* ---- predictions ---- */

#define CONFIG(m, n, stages_)                                                                      \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=" #stages_                                   \
  " q_stages=2 integer_max=1 lazy_rescale=1 overlap_tiles=1 pingpong=1"

/* Measured on an H200, batch 4, n 4096: shares of the plain kernel's speed (bench/ledger.md). ALiBi
 * is that of slopes 0, where maxima move as they do without it. */
static const struct {
  const char *request, *config, *score;
  double share;
} measured[] = {
    {"forward bf16 d128 hq16 b4 nq4096", CONFIG(128, 128, 2), "alibi", 0.88},
    {"forward bf16 d128 hq16 b4 nq4096", CONFIG(128, 128, 2), "softcap", 0.61},
    {"forward bf16 d128 hq16 b4 nq4096", CONFIG(128, 128, 2), learnt, 0.72},
    {"forward bf16 d64 hq32 b4 nq4096", CONFIG(192, 128, 2) " direct_store=1", "alibi", 0.82},
    {"forward bf16 d64 hq32 b4 nq4096", CONFIG(192, 128, 2) " direct_store=1", "softcap", 0.53},
    {"forward bf16 d64 hq32 b4 nq4096", CONFIG(256, 64, 4) " direct_store=1", "softcap", 0.52},
};

START_TEST(shares_are_near_the_measured_ones) {
  const struct ft_arch gpu = known_gpu("h200");
  const struct ft_request request = known_request(measured[_i].request);
  const struct ft_config config = known_config(measured[_i].config);
  struct ft_config plain;
  ck_assert_int_eq(ft_default_config(&request, &gpu, &plain), FT_OK);
  const double share = us_of(measured[_i].request, &plain, NULL) /
                       us_of(measured[_i].request, &config, measured[_i].score);
  ck_assert_msg(fabs(share / measured[_i].share - 1) < 0.1, "%s: %.3f, measured %.2f",
                measured[_i].request, share, measured[_i].share);
}
END_TEST

/* With ALiBi tiles of 192 rows took 2.5 % less; with it and with softcap polynomials took more. */
START_TEST(configs_are_ordered_as_measured) {
  static const char *const scores[] = {"alibi", "softcap"};
  static const char d64[] = "forward bf16 d64 hq32 b4 nq4096";
  const struct ft_config rows_192 = known_config(CONFIG(192, 128, 2) " direct_store=1");
  const struct ft_config rows_256 = known_config(CONFIG(256, 64, 4) " direct_store=1");
  const struct ft_config polynomial =
      known_config(CONFIG(192, 128, 2) " direct_store=1 exp2_poly=1");
  const double us = us_of(d64, &rows_192, scores[_i]);
  if (_i == 0) ck_assert_double_lt(us, us_of(d64, &rows_256, scores[_i]));
  ck_assert_double_lt(us, us_of(d64, &polynomial, scores[_i]));
}
END_TEST

/* In each family: what an element costs, and under a block mask not what hides keys. */
START_TEST(every_family_counts_scores) {
  static const char heavy[] =
      "local bias = tensor('bias', 'fp32', heads, nq, nk)\n"
      "local x = tanh(s + bias(h, i, j)) + tanh(s * 0.5) + tanh(bias(h, j % 7, i) * s)\n"
      "score = x + log(abs(x) + 1) + sigmoid(x * x)";
  static const char hides[] = "visible = i % (j + 1) ~= 3 and j % (i + 1) ~= 3";
  const struct ft_arch gpu = known_gpu("h200");
  const struct ft_family *const family = ft_family_at(_i);
  if (family == NULL || strcmp(family->name, "block_mask") == 0) return;
  const char *const text = "forward bf16 d128 hq16 b4 nq4096";
  const char *const wide = "forward bf16 d256 hq16 b4 nq4096";
  struct ft_request request = known_request(text);
  request.pass = family->pass;
  const bool serves = ft_family_serves(family, &request, &gpu);
  if (!serves) request = known_request(wide);
  request.pass = family->pass;
  struct ft_config config;
  ck_assert(family->default_config(&request, &gpu, &config));
  const char *const served = serves ? text : wide;
  const double plain = us_of(served, &config, NULL);
  ck_assert_double_gt(us_of(served, &config, heavy), 1.1 * plain);
  ck_assert_double_gt(us_of(served, &config, hides), 1.1 * plain);
  const char *const masked = serves ? "forward bf16 d128 hq16 b4 nq4096 mask=256x256"
                                    : "forward bf16 d256 hq16 b4 nq4096 mask=256x256";
  ck_assert_double_lt(us_of(masked, &config, hides), 1.1 * us_of(masked, &config, NULL));
}
END_TEST

/* The search tries candidates in the order of what they cost with the score. */
START_TEST(candidates_know_the_score) {
  const struct ft_arch gpu = known_gpu("h200");
  struct ft_request request = known_request("forward bf16 d64 hq32 b4 nq4096");
  const struct ft_tune_options options = {.effort = FT_EFFORT_QUICK};
  const struct ft_known_score *const known = known_score("softcap");
  request.score = known->number;
  struct ft_candidates candidates;
  ck_assert_int_eq(ft_candidates_make(&candidates, &request, &gpu, &known->costs, &options), FT_OK);
  ck_assert(candidates.list[0].is_default);
  ck_assert_int_eq(ft_config_block_m(&candidates.list[0].config), 192);
  struct ft_ranker ranker;
  ck_assert_int_eq(ft_ranker_open(&ranker, &request, &gpu, &known->costs), FT_OK);
  for (int n = 0; n < candidates.count; ++n)
    ck_assert_double_eq(candidates.list[n].predicted_us,
                        ft_ranker_promise(&ranker, &candidates.list[n].config));
  ft_candidates_free(&candidates);
}
END_TEST

Suite *make_model_score_suite(void) {
  enum { FAMILIES_MOST = 16 };
  Suite *const suite = suite_create("model_score");
  TCase *const tests = tcase_create("all");
  tcase_add_checked_fixture(tests, open_registry, close_registry);
  tcase_add_loop_test(tests, operations_are_counted, 0, FT_COUNT(counts));
  tcase_add_loop_test(tests, shares_are_near_the_measured_ones, 0, FT_COUNT(measured));
  tcase_add_loop_test(tests, configs_are_ordered_as_measured, 0, 2);
  tcase_add_loop_test(tests, every_family_counts_scores, 0, FAMILIES_MOST);
  tcase_add_test(tests, candidates_know_the_score);
  suite_add_tcase(suite, tests);
  return suite;
}
