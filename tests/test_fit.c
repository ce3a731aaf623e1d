/* test_fit.c: the trees of the build, and the trials that they were fitted to.
 * in -> out: generator/model/fit -> factors, rankings -> Check suite. */
#include "tests/suites.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "generator/lua_host.h"
#include "generator/space.h"
#include "generator/status.h"
#include "generator/model/fit.h"
#include "generator/model/ranker.h"
#include "generator/model/rates.h"
#include "tests/generator_cases.h"
#include "tests/recorded_trials.h"

static struct ft_arch arch_of(const char *name) {
  struct ft_lua *lua;
  struct ft_arch arch;
  ck_assert_int_eq(ft_lua_open(&lua, NULL), FT_OK);
  ck_assert_int_eq(ft_lua_gpu(lua, name, &arch), FT_OK);
  ft_lua_close(lua);
  return arch;
}

START_TEST(every_family_has_figures) {
  const struct ft_arch h200 = arch_of("h200");
  for (int n = 0; ft_family_at(n) != NULL; n++) {
    const struct ft_fit *const fit = ft_fit_of(ft_family_at(n), &h200);
    ck_assert_msg(fit != NULL, "%s has no row", ft_family_at(n)->name);
    ck_assert_int_gt(fit->trials, 0);
    ck_assert_int_gt(fit->requests, 0);
    ck_assert_double_le(fit->ceiling, 1);
    ck_assert_double_le(fit->rank, 1);
    if (fit->rank != 0) ck_assert_double_gt(fit->rank, fit->rank_by_hand);
  }
}
END_TEST

/* A margin below 1 would take what is slower; a choice that is worse than the defaults where it was
 * held out has no place in a build. */
START_TEST(a_choice_held_out_is_better_than_defaults) {
  const struct ft_arch h200 = arch_of("h200");
  for (int pass = FT_FORWARD; pass <= FT_BACKWARD; pass++) {
    const struct ft_fit_choice *const choice = ft_fit_choice_of((enum ft_pass)pass, &h200);
    ck_assert_ptr_nonnull(choice);
    ck_assert_int_gt(choice->requests, 40);
    ck_assert_double_ge(choice->margin, 1);
    ck_assert_double_gt(choice->chosen, choice->usual);
  }
}
END_TEST

/* Each pass's trees, then those of each family that has trees of its own. NULL beyond the last. */
static const struct ft_trees *trees_at(int index, const struct ft_arch *arch) {
  const struct ft_family *family;
  if (index <= FT_BACKWARD) return ft_fit_trees_of_pass((enum ft_pass)index, arch);
  int left = index - FT_BACKWARD - 1;
  for (int n = 0; (family = ft_family_at(n)) != NULL; n++) {
    const struct ft_trees *const trees = ft_fit_trees_of_family(family, arch);
    if (trees && left-- == 0) return trees;
  }
  return NULL;
}

START_TEST(trees_are_whole) {
  const struct ft_arch h200 = arch_of("h200");
  const struct ft_trees *trees;
  int files = 0;
  for (; (trees = trees_at(files, &h200)) != NULL; files++) {
    ck_assert_int_gt(trees->count, 100);
    for (int n = 0; n < trees->question_count; n++) {
      ck_assert_int_ge(trees->questions[n].feature, 0);
      ck_assert_int_lt(trees->questions[n].feature, FT_FEATURES);
    }
    for (int n = 0; n < trees->count; n++)
      for (int i = 0; i < FT_TREE_DEPTH; i++)
        ck_assert_int_lt(trees->asked[n][i], trees->question_count);
  }
  ck_assert_int_eq(files, 5); /* two passes, three families */
}
END_TEST

/* Features whose values lie around what trees compare them with. */
static void draw_features(const struct ft_trees *trees, struct ft_features *features) {
  for (int f = 0; f < FT_FEATURES; f++) features->of[f] = (float)random_int(-2, 12);
  for (int n = 0; n < 200; n++) {
    const struct ft_tree_question *const question =
        &trees->questions[random_int(0, trees->question_count - 1)];
    features->of[question->feature] =
        random_int(0, 1) ? question->above : nextafterf(question->above, INFINITY);
  }
}

/* By one tree after the other. */
static double sum_of(const struct ft_trees *trees, const struct ft_features *features) {
  int sum = 0;
  for (int n = 0; n < trees->count; n++) {
    int leaf = 0;
    for (int i = 0; i < FT_TREE_DEPTH; i++) {
      const struct ft_tree_question *const question = &trees->questions[trees->asked[n][i]];
      leaf = 2 * leaf + (features->of[question->feature] > question->above);
    }
    sum += trees->scales[n] * trees->leaves[n][leaf];
  }
  return (double)sum / FT_TREE_UNIT;
}

/* The sums of several configs are those of each config alone. The number of configs is drawn. The
 * code adds the leaves of four trees at a time. So the test also leaves out up to three trees. */
START_TEST(sums_are_of_all_trees) {
  const struct ft_arch h200 = arch_of("h200");
  const struct ft_trees *whole;
  seed_cases();
  for (int index = 0; (whole = trees_at(index, &h200)) != NULL; index++) {
    for (int left_out = 0; left_out < 4; left_out++) {
      struct ft_trees trees = *whole;
      struct ft_features features[FT_TREE_LANES];
      double sums[FT_TREE_LANES], plain[FT_TREE_LANES];
      const int count = random_int(1, FT_TREE_LANES);
      trees.count -= left_out;
      for (int n = 0; n < count; n++) draw_features(&trees, &features[n]);
      ft_trees_sums(&trees, features, count, sums);
      ft_trees_plain_sums(&trees, features, count, plain);
      for (int n = 0; n < count; n++) {
        const double alone = sum_of(&trees, &features[n]);
        ck_assert_msg(sums[n] == alone && plain[n] == alone,
                      "%d of %d, seed %llu: %g, plainly %g, not %g", n, count,
                      (unsigned long long)cases_seed, sums[n], plain[n], alone);
      }
    }
  }
}
END_TEST

/* Legal configs of families in turn, as many as have room; returns how many. */
static int draw_ranked(const struct ft_ranker *ranker, const struct ft_request *request,
                       const struct ft_arch *arch, struct ft_ranked *list, int room) {
  int count = 0;
  for (int n = 0; count < room && n < 4 * room; n++) {
    struct ft_config config;
    if (!random_legal_config(request, arch, random_family(), &config)) continue;
    list[count++] = (struct ft_ranked){config, ft_ranker_by_hand(ranker, &config)};
  }
  return count;
}

/* Configs of several families in turn. The time by hand of each is corrected by the trees of the
 * pass and by those of its family. */
START_TEST(times_are_by_trees_of_pass_and_family) {
  static const char *const requests[] = {"backward bf16 d256 hq8 nq2048 causal",
                                         "backward bf16 d128 hq8 nq1024",
                                         "forward bf16 d128 hq8 nq2048"};
  enum { ROOM = 3 * FT_TREE_LANES };
  const struct ft_arch h200 = arch_of("h200");
  seed_cases();
  for (size_t r = 0; r < sizeof requests / sizeof *requests; r++) {
    const struct ft_request request = known_request(requests[r]);
    struct ft_ranker ranker;
    struct ft_ranked list[ROOM];
    double us[ROOM];
    ck_assert_int_eq(ft_ranker_open(&ranker, &request, &h200, NULL), FT_OK);
    const int count = draw_ranked(&ranker, &request, &h200, list, ROOM);
    ck_assert_int_gt(count, FT_TREE_LANES);
    ft_ranker_us_of(&ranker, list, count, us);
    for (int n = 0; n < count; n++) {
      const struct ft_features features = ft_ranker_features(&ranker, &list[n]);
      const struct ft_family *const family = list[n].config.family;
      const struct ft_trees *const own = ft_fit_trees_of_family(family, &h200);
      double sum = sum_of(ft_fit_trees_of_pass(request.pass, &h200), &features);
      if (own) sum += sum_of(own, &features);
      const double wanted = list[n].by_hand.us * exp(fmax(-1.2, fmin(1.2, sum)));
      ck_assert_msg(fabs(us[n] - wanted) < 1e-9 * wanted, "%s, %s, seed %llu: %g us, not %g",
                    requests[r], family->name, (unsigned long long)cases_seed, us[n], wanted);
    }
  }
}
END_TEST

/* Of a GPU that was not measured nothing is claimed. */
START_TEST(what_was_not_measured_stays_by_hand) {
  static const struct {
    const char *gpu, *request;
    bool fitted;
  } cases[] = {{"h200", "backward fp32 d64 hq8 nq1024", true},
               {"h200", "forward bf16 d64 hq8 nq1024", true},
               {"a100", "forward bf16 d64 hq8 nq1024", false},
               {"a100", "backward fp32 d64 hq8 nq1024", false}};
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    const struct ft_arch arch = arch_of(cases[n].gpu);
    struct ft_request request;
    struct ft_ranker ranker;
    ck_assert_int_eq(ft_request_parse(&request, cases[n].request), FT_OK);
    ck_assert_int_eq(ft_ranker_open(&ranker, &request, &arch, NULL), FT_OK);
    const struct ft_prediction by_hand = ft_ranker_by_hand(&ranker, &ranker.standard.config);
    const double us = ft_ranker_us(&ranker, &ranker.standard.config, &by_hand);
    ck_assert_msg((us != by_hand.us) == cases[n].fitted, "%s on %s: %g us, by hand %g",
                  cases[n].request, cases[n].gpu, us, by_hand.us);
    ck_assert(us < 2.1 * by_hand.us && by_hand.us < 2.1 * us);
  }
}
END_TEST

enum { FAMILIES_MOST = 16 };

/* Pairs of a group in the order measured less those in the other, and all such pairs, of each
 * family. fit.py computes the same. */
struct order {
  int64_t kept, all;
};

static int number_of(const struct ft_family *family) {
  int n = 0;
  while (ft_family_at(n) != NULL && ft_family_at(n) != family) n++;
  ck_assert_int_lt(n, FAMILIES_MOST);
  return n;
}

/* measured, predicted: of the rows from `begin` to `end`, which are of one group; predicted 0: the
 * search may not try its config. */
static void add_pairs(struct order *orders, const struct recorded *recorded, int begin, int end,
                      const double *measured, const double *predicted) {
  for (int a = begin; a < end; a++) {
    const struct ft_family *const family =
        recorded->trials.configs[recorded->rows[a]->config].config.family;
    struct order *const order = &orders[number_of(family)];
    for (int b = begin; b < a; b++) {
      if (predicted[a] <= 0 || predicted[b] <= 0 ||
          recorded->trials.configs[recorded->rows[b]->config].config.family != family)
        continue;
      const double both = (measured[a] - measured[b]) * (predicted[a] - predicted[b]);
      order->kept += (both > 0) - (both < 0);
      order->all++;
    }
  }
}

/* Of a group, whose request has no score function. */
static void predict_group(const struct recorded *recorded, int begin, int end,
                          const struct ft_arch *arch, double *measured, double *predicted) {
  const struct ft_trials *const trials = &recorded->trials;
  struct ft_ranker ranker;
  ck_assert_int_eq(ft_ranker_open(&ranker,
                                  &trials->requests[recorded->rows[begin]->request].request, arch,
                                  NULL),
                   FT_OK);
  struct ft_ranked lot[FT_TREE_LANES];
  int rows[FT_TREE_LANES], count = 0;
  double us[FT_TREE_LANES];
  for (int n = begin; n < end; n++) {
    const struct ft_config *const config = &trials->configs[recorded->rows[n]->config].config;
    if (ft_config_out_of_range(config) == NULL) {
      lot[count] = (struct ft_ranked){*config, ft_ranker_by_hand(&ranker, config)};
      rows[count++] = n;
      measured[n] = ft_trials_us_at(recorded->rows[n], ft_cycles_per_us(arch));
    }
    if (count < FT_TREE_LANES && n + 1 < end) continue;
    ft_ranker_us_of(&ranker, lot, count, us);
    for (int i = 0; i < count; i++) predicted[rows[i]] = us[i];
    count = 0;
  }
}

/* The order that the fit keeps, over the trials that it is made of, is what fit.py
 * recorded. If this fails, a model, its features, the defaults or the trials are no longer those
 * that the trees were fitted by: fit.py makes these anew. */
START_TEST(figures_are_of_this_model) {
  const struct ft_arch arch = arch_of("h200");
  struct order orders[FAMILIES_MOST] = {{0}};
  struct recorded recorded;
  read_recorded(&recorded);
  ck_assert_int_gt(recorded.count, 500);
  double *const measured = calloc((size_t)recorded.count, sizeof *measured);
  double *const predicted = calloc((size_t)recorded.count, sizeof *predicted);
  ck_assert(measured != NULL && predicted != NULL);
  for (int begin = 0, end; begin < recorded.count; begin = end) {
    end = end_of_group(&recorded, begin);
    if (recorded.trials.requests[recorded.rows[begin]->request].request.score != 0) continue;
    if (is_in_no_fit(&recorded, begin)) continue;
    predict_group(&recorded, begin, end, &arch, measured, predicted);
    add_pairs(orders, &recorded, begin, end, measured, predicted);
  }
  for (int n = 0; ft_family_at(n) != NULL; n++) {
    const struct ft_family *const family = ft_family_at(n);
    ck_assert_msg(orders[n].all > 0, "%s: no trials", family->name);
    const double order = (double)orders[n].kept / (double)orders[n].all;
    const double figure = ft_fit_of(family, &arch)->order;
    ck_assert_msg(fabs(order - figure) < 0.02, "%s: order kept %.3f, recorded %.3f; see fit.py",
                  family->name, order, figure);
    ck_assert_double_gt(order, 0.2); /* no better than chance would be 0 */
  }
  free(measured);
  free(predicted);
  free_recorded(&recorded);
}
END_TEST

Suite *make_fit_suite(void) {
  Suite *const suite = suite_create("fit");
  TCase *const tests = tcase_create("fit");
  tcase_add_test(tests, every_family_has_figures);
  tcase_add_test(tests, a_choice_held_out_is_better_than_defaults);
  tcase_add_test(tests, trees_are_whole);
  tcase_add_test(tests, sums_are_of_all_trees);
  tcase_add_test(tests, times_are_by_trees_of_pass_and_family);
  tcase_add_test(tests, what_was_not_measured_stays_by_hand);
  tcase_add_test(tests, figures_are_of_this_model);
  suite_add_tcase(suite, tests);
  return suite;
}
