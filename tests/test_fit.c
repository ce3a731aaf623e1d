/* test_fit.c: the trees of the build, and the trials that they were fitted to.
 * in -> out: generator/model/fit -> factors, rankings -> Check suite. */
#include "tests/suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/lua_host.h"
#include "generator/space.h"
#include "generator/status.h"
#include "generator/model/fit.h"
#include "generator/model/ranker.h"
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
    ck_assert_double_ge(choice->other_family, choice->margin);
    ck_assert_double_gt(choice->chosen, choice->usual);
    ck_assert_double_ge(choice->chosen_least, choice->usual_least);
  }
}
END_TEST

START_TEST(trees_are_whole) {
  const struct ft_arch h200 = arch_of("h200");
  for (int pass = FT_FORWARD; pass <= FT_BACKWARD; pass++) {
    const struct ft_trees *const trees = ft_fit_trees((enum ft_pass)pass, &h200);
    ck_assert_ptr_nonnull(trees);
    ck_assert_int_gt(trees->count, 100);
    for (int n = 0; n < trees->count; n++)
      for (int i = 0; i < FT_TREE_DEPTH; i++) {
        ck_assert_int_ge(trees->list[n].splits[i].feature, 0);
        ck_assert_int_lt(trees->list[n].splits[i].feature, FT_FEATURES);
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

struct timed {
  struct recorded of;
  double us; /* predicted */
};

/* Pairs of a group in the order measured less those in the other, of all such pairs. fit.py
 * computes the same. */
static double order_kept(const struct timed *list, int count, const struct ft_family *family) {
  long kept = 0, all = 0;
  for (int a = 0; a < count; a++) {
    for (int b = 0; b < a; b++) {
      const struct timed *const x = &list[a], *const y = &list[b];
      if (x->of.section != y->of.section || x->of.trial.config.family != family ||
          y->of.trial.config.family != family ||
          memcmp(&x->of.trial.request, &y->of.trial.request, sizeof x->of.trial.request) != 0)
        continue;
      const double both = (x->of.us - y->of.us) * (x->us - y->us);
      kept += (both > 0) - (both < 0);
      all++;
    }
  }
  return all > 0 ? (double)kept / (double)all : 0;
}

/* Those without a score, whose configs the search may try. */
static int predict_recorded(struct timed *list, const struct recorded *recorded, int count,
                            const struct ft_arch *arch) {
  int kept = 0;
  for (int n = 0; n < count; n++) {
    const struct ft_trial *const trial = &recorded[n].trial;
    if (ft_config_out_of_range(&trial->config) != NULL || trial->request.score != 0) continue;
    struct ft_ranker ranker;
    ck_assert_int_eq(ft_ranker_open(&ranker, &trial->request, arch, NULL), FT_OK);
    const struct ft_prediction by_hand = ft_ranker_by_hand(&ranker, &trial->config);
    list[kept++] = (struct timed){recorded[n], ft_ranker_us(&ranker, &trial->config, &by_hand)};
  }
  return kept;
}

/* If this fails, a model, its features, the defaults or the trials are no longer those that the
 * trees were fitted by: fit.py makes these anew. */
START_TEST(figures_are_of_this_model) {
  const struct ft_arch arch = arch_of("h200");
  struct recorded *trials;
  struct timed *const list = calloc(RECORDED_MOST, sizeof *list);
  ck_assert_ptr_nonnull(list);
  const int all = read_recorded(&trials, &arch);
  const int count = predict_recorded(list, trials, all, &arch);
  free(trials);
  ck_assert_int_gt(count, 500);
  for (int n = 0; ft_family_at(n) != NULL; n++) {
    const struct ft_family *const family = ft_family_at(n);
    const double order = order_kept(list, count, family);
    const double recorded = ft_fit_of(family, &arch)->order;
    ck_assert_msg(fabs(order - recorded) < 0.02, "%s: order kept %.3f, recorded %.3f; see fit.py",
                  family->name, order, recorded);
    ck_assert_double_gt(order, 0.2); /* no better than chance would be 0 */
  }
  free(list);
}
END_TEST

Suite *make_fit_suite(void) {
  Suite *const suite = suite_create("fit");
  TCase *const tests = tcase_create("fit");
  tcase_add_test(tests, every_family_has_figures);
  tcase_add_test(tests, a_choice_held_out_is_better_than_defaults);
  tcase_add_test(tests, trees_are_whole);
  tcase_add_test(tests, what_was_not_measured_stays_by_hand);
  tcase_add_test(tests, figures_are_of_this_model);
  suite_add_tcase(suite, tests);
  return suite;
}
