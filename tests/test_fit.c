/* test_fit.c: coefficients of the build, and the trials that they were fitted to.
 * in -> out: tuner/model/fit -> factors, rankings -> Check suite. */
#include "tests/suites.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/trial.h"
#include "generator/lua_host.h"
#include "generator/space.h"
#include "generator/status.h"
#include "tuner/model/fit.h"
#include "tuner/model/model.h"

static struct ft_arch arch_of(const char *name) {
  struct ft_lua *lua;
  struct ft_arch arch;
  ck_assert_int_eq(ft_lua_open(&lua, NULL), FT_OK);
  ck_assert_int_eq(ft_lua_gpu(lua, name, &arch), FT_OK);
  ft_lua_close(lua);
  return arch;
}

/* A coefficient of a knob that was renamed would be lost in silence. */
START_TEST(every_line_is_read) {
  const struct ft_arch h200 = arch_of("h200");
  int used = 0;
  ck_assert_msg(ft_fits_unread() == 0, "%d lines of *.fit; tuner/model/fit/fit.py makes them anew",
                ft_fits_unread());
  for (int n = 0; ft_family_at(n) != NULL; n++) {
    const struct ft_fit *const fit = ft_fit_of(ft_family_at(n), &h200);
    ck_assert_msg(fit != NULL, "%s has no line", ft_family_at(n)->name);
    ck_assert_int_gt(fit->trials, 0);
    if (!fit->used) continue;
    used++;
    ck_assert_double_gt(fit->rank, fit->rank_by_hand);
    ck_assert_double_le(fit->rank, 1);
  }
  ck_assert_int_gt(used, 0);
}
END_TEST

static struct ft_modelled modelled(const struct ft_request *request, const struct ft_arch *arch,
                                   const struct ft_config *config) {
  return (struct ft_modelled){.request = request, .arch = arch, .config = config};
}

/* Of a GPU that was not measured nothing is claimed. */
START_TEST(other_targets_stay_by_hand) {
  const struct ft_arch archs[] = {arch_of("a100"), arch_of("h200")};
  struct ft_request request;
  ck_assert_int_eq(ft_request_parse(&request, "forward fp32 d64 hq8 nq1024"), FT_OK);
  const struct ft_request alike = ft_request_alike(&request);
  for (int n = 0; n < 2; n++) {
    struct ft_config config;
    ck_assert_int_eq(ft_default_config(&request, &archs[n], &config), FT_OK);
    const struct ft_modelled of = modelled(&alike, &archs[n], &config);
    const double by_hand = ft_model_by_hand(&of).us;
    const double us = ft_model(&request, &archs[n], &config, NULL, 0, 0).us;
    ck_assert_int_eq(us == by_hand, n == 0);
    ck_assert(us < 2.1 * by_hand && by_hand < 2.1 * us);
  }
}
END_TEST

struct timed {
  int section;
  struct ft_trial trial;
  double by_hand, fitted;
};

/* Pairs of a group in the order measured less those in the other, of all such pairs. */
static double order_kept(const struct timed *list, int count, bool fitted) {
  long kept = 0, all = 0;
  for (int a = 0; a < count; a++) {
    for (int b = 0; b < a; b++) {
      const struct timed *const x = &list[a], *const y = &list[b];
      if (x->section != y->section || x->trial.config.family != y->trial.config.family ||
          memcmp(&x->trial.request, &y->trial.request, sizeof x->trial.request) != 0)
        continue;
      const double measured = x->trial.median_us - y->trial.median_us;
      const double said = fitted ? x->fitted - y->fitted : x->by_hand - y->by_hand;
      kept += (measured * said > 0) - (measured * said < 0);
      all++;
    }
  }
  return (double)kept / (double)all;
}

/* What the features are has moved away from the coefficients if this fails. */
START_TEST(a_fit_ranks_its_own_trials) {
  enum { MOST = 4000 };
  const struct ft_arch arch = arch_of("h200");
  struct timed *const list = calloc(MOST, sizeof *list);
  int count = 0, section = 0;
  char *line = NULL;
  size_t room = 0;
  FILE *const file = fopen(FATUNE_SOURCE_DIR "/tuner/model/fit/nvidia-h200.trials", "re");
  ck_assert_ptr_nonnull(file);
  ck_assert_ptr_nonnull(list);
  while (getline(&line, &room, file) >= 0 && count < MOST) {
    struct timed *const it = &list[count];
    line[strcspn(line, "\n")] = '\0';
    section += line[0] == '#';
    if (line[0] == '#' || ft_trial_parse(&it->trial, line) != FT_OK ||
        ft_config_out_of_range(&it->trial.config) != NULL)
      continue;
    const struct ft_request alike = ft_request_alike(&it->trial.request);
    const struct ft_modelled of = modelled(&alike, &arch, &it->trial.config);
    it->section = section;
    it->by_hand = ft_model_by_hand(&of).us;
    it->fitted = ft_model(&it->trial.request, &arch, &it->trial.config, NULL, 0, 0).us;
    count++;
  }
  fclose(file);
  free(line);
  const double by_hand = order_kept(list, count, false), fitted = order_kept(list, count, true);
  ck_assert_int_gt(count, 500);
  ck_assert_msg(fitted > by_hand + 0.2, "order kept %.3f, by hand %.3f", fitted, by_hand);
  free(list);
}
END_TEST

Suite *make_fit_suite(void) {
  Suite *const suite = suite_create("fit");
  TCase *const tests = tcase_create("fit");
  tcase_add_test(tests, every_line_is_read);
  tcase_add_test(tests, other_targets_stay_by_hand);
  tcase_add_test(tests, a_fit_ranks_its_own_trials);
  suite_add_tcase(suite, tests);
  return suite;
}
