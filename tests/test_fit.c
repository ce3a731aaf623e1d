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
#include "tuner/model/rates.h"

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
    ck_assert_double_le(fit->ceiling, 1);
    if (!fit->used) continue;
    used++;
    ck_assert_double_gt(fit->rank, fit->rank_by_hand);
    ck_assert_double_gt(fit->kind_rank, fit->rank_by_hand);
    ck_assert_double_le(fit->rank, 1);
  }
  ck_assert_int_gt(used, 0);
}
END_TEST

/* Of a target that no GPU is. */
#define FIGURES                                                                                    \
  " target=sm_33 used=1 dtypes=bf16 trials=9 requests=3 kinds=2 rank_by_hand=0.1 rank=0.5 "        \
  "kind_rank=0.4 ceiling=0.9 error_by_hand=0.2 error=0.1 order=0.5"

static int lost_of(const char *text) {
  return ft_fits_read(text, strlen(text));
}

START_TEST(lines_that_cannot_be_read_are_counted) {
  static const char *const names[] = {
      "target=",    "used=",  "dtypes=",       "trials=",  "rank=",
      "kind_rank=", "order=", "rank_by_hand=", "ceiling=", "error="};
  static const char *const wrong[] = {"family",
                                      "family mma_forward",
                                      "family mma_forward target=sm_33333333333333333 used=1",
                                      "no_knob=1 any 0.5",
                                      "block_m any 0.5",
                                      "block_m=64 often 0.5",
                                      "block_m=64 any",
                                      "block_m=64 any 0.5x",
                                      "block_m=64 any nan",
                                      "block_m=64",
                                      "nothing"};
  struct ft_arch arch = arch_of("h200");
  ck_assert_int_eq(ft_fits_unread(), 0); /* those of the build come first */
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    char line[512] = "family mma_forward" FIGURES;
    char *const at = strstr(line, names[n]);
    ck_assert_ptr_nonnull(at);
    at[0] = 'x'; /* another word */
    ck_assert_msg(lost_of(line) == 1, "%s", line);
  }
  ck_assert_int_eq(lost_of("# a note\n\nfamily mma_forward" FIGURES "\nblock_m=64 any 0.5\n"), 0);
  ck_assert_int_eq(lost_of("block_m=7 any 0.5\n"), 0); /* no longer searched */
  ck_assert_int_eq(lost_of("family no_such_family" FIGURES), 1);
  ck_assert_int_eq(lost_of("family mma_forward" FIGURES), 1); /* twice */
  for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++)
    ck_assert_msg(lost_of(wrong[n]) == 1, "%s", wrong[n]);
  arch.sm = 33;
  const struct ft_fit *const fit = ft_fit_of(ft_family_named("mma_forward"), &arch);
  ck_assert_ptr_nonnull(fit);
  ck_assert(fit->used && fit->trials == 9 && fit->requests == 3 && fit->kinds == 2);
  ck_assert_str_eq(fit->dtypes, "bf16");
  ck_assert_double_eq(fit->order, 0.5);
  ck_assert_double_eq(fit->error_by_hand, 0.2);
}
END_TEST

static struct ft_modelled modelled(const struct ft_request *request, const struct ft_arch *arch,
                                   const struct ft_config *config) {
  return (struct ft_modelled){.request = request, .arch = arch, .config = config};
}

/* Of a GPU or a dtype that was not measured nothing is claimed. */
START_TEST(what_was_not_measured_stays_by_hand) {
  static const struct {
    const char *gpu, *request;
    bool fitted;
  } cases[] = {{"h200", "backward fp32 d64 hq8 nq1024", true},
               {"h200", "backward tf32 d64 hq8 nq1024", true},
               {"h200", "forward bf16 d64 hq8 nq1024", false},
               {"a100", "backward fp32 d64 hq8 nq1024", false}};
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    const struct ft_arch arch = arch_of(cases[n].gpu);
    struct ft_request request;
    struct ft_config config;
    ck_assert_int_eq(ft_request_parse(&request, cases[n].request), FT_OK);
    const struct ft_request alike = ft_request_alike(&request);
    ck_assert_int_eq(ft_default_config(&request, &arch, &config), FT_OK);
    const struct ft_modelled of = modelled(&alike, &arch, &config);
    const double by_hand = ft_model_by_hand(&of).us;
    const double us = ft_model(&request, &arch, &config, NULL, 0, 0).us;
    ck_assert_msg((us != by_hand) == cases[n].fitted, "%s on %s: %g us, by hand %g",
                  cases[n].request, cases[n].gpu, us, by_hand);
    ck_assert(us < 2.1 * by_hand && by_hand < 2.1 * us);
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
  FILE *const file = fopen(FATUNE_SOURCE_DIR "/tuner/model/fit/nvidia-h200.trials", "re");
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
    it->us = ft_model(&it->trial.request, arch, &it->trial.config, NULL, 0, 0).us;
    count++;
  }
  fclose(file);
  free(line);
  return count;
}

/* If this fails, a model, its features or the trials are no longer those of the figures and
 * coefficients in sm_90.fit: fit.py makes these anew. */
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
    ck_assert_msg(fabs(order - recorded) < 0.005, "%s: order kept %.3f, recorded %.3f; see fit.py",
                  family->name, order, recorded);
    ck_assert_double_gt(order, 0.2); /* no better than chance would be 0 */
  }
  free(list);
}
END_TEST

Suite *make_fit_suite(void) {
  Suite *const suite = suite_create("fit");
  TCase *const tests = tcase_create("fit");
  tcase_add_test(tests, every_line_is_read);
  tcase_add_test(tests, lines_that_cannot_be_read_are_counted);
  tcase_add_test(tests, what_was_not_measured_stays_by_hand);
  tcase_add_test(tests, figures_are_of_this_model);
  suite_add_tcase(suite, tests);
  return suite;
}
