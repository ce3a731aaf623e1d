/* test_fit.c: the trees of the build, and the trials that they were fitted to.
 * in -> out: generator/model/fit -> factors, rankings -> Check suite. */
#include "tests/suites.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/trial.h"
#include "generator/lua_host.h"
#include "generator/space.h"
#include "generator/status.h"
#include "generator/model/fit.h"
#include "generator/model/ranker.h"
#include "generator/model/rates.h"

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
  int section;
  struct ft_trial trial;
  double measured_us, us;
};

/* Pairs of a group in the order measured less those in the other, of all such pairs. fit.py
 * computes the same. */
static double order_kept(const struct timed *list, int count, const struct ft_family *family) {
  long kept = 0, all = 0;
  for (int a = 0; a < count; a++) {
    for (int b = 0; b < a; b++) {
      const struct timed *const x = &list[a], *const y = &list[b];
      if (x->section != y->section || x->trial.config.family != family ||
          y->trial.config.family != family ||
          memcmp(&x->trial.request, &y->trial.request, sizeof x->trial.request) != 0)
        continue;
      const double both = (x->measured_us - y->measured_us) * (x->us - y->us);
      kept += (both > 0) - (both < 0);
      all++;
    }
  }
  return all > 0 ? (double)kept / (double)all : 0;
}

static int read_timed(struct timed *list, int most, const struct ft_arch *arch) {
  int count = 0, section = 0;
  char *line = NULL;
  size_t room = 0;
  FILE *const file = fopen(FATUNE_SOURCE_DIR "/generator/model/fit/nvidia-h200.trials", "re");
  ck_assert_ptr_nonnull(file);
  while (getline(&line, &room, file) >= 0) {
    struct timed *const it = &list[count];
    ck_assert_int_lt(count, most);
    line[strcspn(line, "\n")] = '\0';
    section += line[0] == '#';
    if (line[0] == '#' || ft_trial_parse(&it->trial, line) != FT_OK ||
        !ft_outcome_ran(it->trial.outcome) || !(it->trial.median_us > 0) ||
        ft_config_out_of_range(&it->trial.config) != NULL)
      continue;
    it->section = section;
    it->measured_us = ft_trial_us_at(&it->trial, ft_cycles_per_us(arch));
    if (it->trial.request.score != 0) continue;
    struct ft_ranker ranker;
    ck_assert_int_eq(ft_ranker_open(&ranker, &it->trial.request, arch, NULL), FT_OK);
    const struct ft_prediction by_hand = ft_ranker_by_hand(&ranker, &it->trial.config);
    it->us = ft_ranker_us(&ranker, &it->trial.config, &by_hand);
    count++;
  }
  fclose(file);
  free(line);
  return count;
}

/* If this fails, a model, its features, the defaults or the trials are no longer those that the
 * trees were fitted by: fit.py makes these anew. */
START_TEST(figures_are_of_this_model) {
  enum { MOST = 20000 };
  const struct ft_arch arch = arch_of("h200");
  struct timed *const list = calloc(MOST, sizeof *list);
  ck_assert_ptr_nonnull(list);
  const int count = read_timed(list, MOST, &arch);
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
