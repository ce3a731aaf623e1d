/* test_candidates.c: what is known already is tried early.
 * in -> out: candidates of a request and a config -> their order -> Check suite. */
#include "tests/suites.h"

#include <stdlib.h>

#include "generator/lua_host.h"
#include "generator/status.h"
#include "tuner/search/candidates.h"

static struct ft_candidates make(enum ft_effort effort) {
  const struct ft_tune_options options = {.effort = effort};
  struct ft_candidates candidates;
  struct ft_lua *lua = NULL;
  struct ft_arch arch;
  struct ft_request request;
  ck_assert_int_eq(ft_request_parse(&request, "fp16 d64 hq8 nq1024 causal"), FT_OK);
  ck_assert_int_eq(ft_lua_open(&lua, NULL), FT_OK);
  ck_assert_int_eq(ft_lua_gpu(lua, "a100", &arch), FT_OK);
  ft_lua_close(lua);
  ck_assert_int_eq(ft_candidates_make(&candidates, &request, &arch, NULL, &options), FT_OK);
  return candidates;
}

static int by_config(const void *a, const void *b) {
  const struct ft_candidate *const x = a, *const y = b;
  return ft_config_compare(&x->config, &y->config);
}

/* The last of all, one that effort left out, and the default: nothing is lost or doubled. */
START_TEST(a_known_config_goes_second) {
  struct ft_candidates all = make(FT_EFFORT_EXHAUSTIVE), few = make(FT_EFFORT_QUICK);
  const struct ft_candidate first = all.list[0], second = all.list[1],
                            last = all.list[all.count - 1];
  const int all_count = all.count, few_count = few.count;
  ck_assert_int_gt(all_count, few_count);
  ck_assert_int_eq(ft_candidates_lead(&all, &last.config, 5), FT_OK);
  ck_assert_int_eq(ft_candidates_lead(&few, &last.config, 5), FT_OK);
  ck_assert_int_eq(ft_candidates_lead(&few, &first.config, 5), FT_OK);
  ck_assert_int_eq(all.count, all_count);
  ck_assert_int_eq(few.count, few_count + 1);
  const struct ft_candidates *const both[] = {&all, &few};
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(by_config(&both[i]->list[0], &first), 0);
    ck_assert_int_eq(by_config(&both[i]->list[1], &last), 0);
    ck_assert_int_eq(by_config(&both[i]->list[2], &second), 0);
    ck_assert(both[i]->list[0].is_default && !both[i]->list[1].is_default);
  }
  qsort(all.list, (size_t)all.count, sizeof *all.list, by_config);
  for (int n = 1; n < all.count; n++)
    ck_assert_int_ne(by_config(&all.list[n - 1], &all.list[n]), 0);
  ft_candidates_free(&all);
  ft_candidates_free(&few);
}
END_TEST

Suite *make_candidates_suite(void) {
  Suite *const suite = suite_create("candidates");
  TCase *const tests = tcase_create("order");
  tcase_add_test(tests, a_known_config_goes_second);
  suite_add_tcase(suite, tests);
  return suite;
}
