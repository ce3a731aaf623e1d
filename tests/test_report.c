/* test_report.c: `fatune report`: one page that holds everything it needs.
 * in -> out: trials in a cache, bad input -> the page's data and what surrounds it -> Check suite.
 */
#include "tests/suites.h"

#include "generator/lua_host.h"
#include "generator/space.h"
#include "tests/run_program.h"
#include "tests/store_fixture.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"

/* What would end the page's script, or the page. */
#define REASON "O is off </script><!--<script>\xc3\xa9"

static struct fixture fixture;
static char *page; /* the last one; owned */

static void put_trials(int count) {
  struct ft_lua *lua = NULL;
  struct ft_arch arch;
  struct ft_space space;
  struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, 100);
  snprintf(fixture.folder, sizeof fixture.folder, "%s", folder);
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_lua_open(&lua, NULL));
  assert_ok(ft_lua_gpu(lua, "h200", &arch));
  assert_ok(ft_space_open(&space, &trial.request, &arch));
  for (int i = 0; i < count && ft_space_next(&space, &trial.config); i++) {
    trial.median_us = 100 + i;
    trial.at = 1700000000 + i;
    trial.outcome = i % 5 == 4 ? FT_OUTCOME_WRONG : FT_OUTCOME_OK;
    strcpy(trial.reason, i % 5 == 4 ? REASON : "");
    assert_ok(ft_store_trial_put(store, &trial));
  }
  ft_store_close(store);
  ft_lua_close(lua);
}

static void set_up(void) {
  begin_program_test();
  fixture_open(&fixture);
  setenv("FATUNE_CACHE_DIR", folder, 1);
}

static void tear_down(void) {
  free(page);
  page = NULL;
  fixture_close(&fixture);
  end_program_test();
}

/* Writes the page of some requests; its data. */
static json_t *report(const char *requests) {
  static const char begin[] = "<script type=\"application/json\" id=\"data\">";
  char line[512], path[128];
  snprintf(path, sizeof path, "%s/page.html", folder);
  snprintf(line, sizeof line, "report --gpu h200 -o '%s' %s", path, requests);
  expect(line, 0);
  struct bytes bytes = read_bytes(path);
  bytes.data[bytes.size] = '\0';
  free(page);
  page = (char *)bytes.data;
  ck_assert_uint_eq(strlen(page), bytes.size);
  const char *const data = strstr(page, begin);
  ck_assert_ptr_nonnull(data);
  const char *const end = strstr(data, "</script>");
  ck_assert_ptr_nonnull(end);
  json_error_t error;
  json_t *const root = json_loadb(data + sizeof begin - 1, (size_t)(end - data) - sizeof begin + 1,
                                  JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(root != NULL, "line %d: %s", error.line, error.text);
  return root;
}

static int count_of(const char *part) {
  int count = 0;
  for (const char *at = page; (at = strstr(at, part)); at += strlen(part)) count++;
  return count;
}

static void check_trials(const json_t *trials) {
  size_t i;
  int wrong = 0;
  const json_t *trial;
  ck_assert_uint_eq(json_array_size(trials), 50);
  json_array_foreach(trials, i, trial) {
    const json_t *const knobs = json_object_get(trial, "knobs");
    ck_assert_int_gt(json_integer_value(json_object_get(knobs, "block_m")), 0);
    ck_assert_double_gt(json_number_value(json_object_get(trial, "predicted_us")), 0);
    if (strcmp(text_at(trial, "outcome"), "wrong") != 0) continue;
    wrong++;
    ck_assert_str_eq(text_at(trial, "reason"), REASON);
  }
  ck_assert_int_eq(wrong, 10);
}

START_TEST(a_page_has_all_trials_and_loads_nothing) {
  put_trials(50);
  json_t *const root = report("'" PROBLEM "'");
  const json_t *const one = json_array_get(json_object_get(root, "requests"), 0);
  ck_assert_str_eq(text_at(one, "hit"), "near"); /* of other templates */
  ck_assert_double_gt(json_number_value(json_object_get(one, "peak_tflops")), 900);
  ck_assert_double_gt(json_number_value(json_object_get(one, "flops")), 1e9);
  ck_assert(json_is_object(json_object_get(json_object_get(one, "space"), "rejected")));
  check_trials(json_object_get(one, "trials"));
  json_decref(root);
  ck_assert_int_eq(count_of("<script"), 3);
  ck_assert_int_eq(count_of("</script>"), 3);
  ck_assert_int_eq(count_of("<link"), 0);
  ck_assert_int_eq(count_of(" src="), 0);
  ck_assert_int_eq(count_of("url("), 0);
  ck_assert_int_eq(count_of("@import"), 0);
  ck_assert_int_eq(count_of("http"), 2); /* in the library's comment, and of http-equiv */
  ck_assert_int_eq(count_of("(v1.6.32)"), 1);
  ck_assert_int_eq(count_of("The MIT License"), 1);
  ck_assert_int_eq(count_of("%("), 0);
}
END_TEST

START_TEST(several_requests_and_none_known) {
  json_t *const root = report("'" PROBLEM "' 'backward fp16 d64 nq512'");
  const json_t *const requests = json_object_get(root, "requests");
  ck_assert_uint_eq(json_array_size(requests), 2);
  ck_assert_uint_eq(json_array_size(json_object_get(json_array_get(requests, 1), "trials")), 0);
  const char *const hit = text_at(json_array_get(requests, 1), "hit");
  ck_assert_msg(strcmp(hit, "default") == 0 || strcmp(hit, "model") == 0, "%s", hit);
  json_decref(root);
}
END_TEST

START_TEST(bad_input_writes_no_page) {
  char line[512], path[128];
  snprintf(path, sizeof path, "%s/none.html", folder);
  snprintf(line, sizeof line, "report --gpu t4 -o '%s' bf16 d64 nq128", path); /* has no bf16 */
  expect(line, 3);
  ck_assert_int_ne(access(path, F_OK), 0);
  expect("report --gpu h200", 2);
  expect("report --gpu h200 -o /nowhere/page.html d64 nq128", 1);
  expect_message("/nowhere/page.html");
  expect("report --gpu t4 -o /nowhere/page.html bf16 d64 nq128", 1); /* before anything else */
  expect("compile --gpu t4 -o /nowhere/kernel.cubin bf16 d64 nq128", 1);
  expect_message("/nowhere/kernel.cubin");
  snprintf(line, sizeof line, "report --gpu t4 -o '%s' bf16 d64 nq128", folder);
  expect(line, 1);                                 /* a folder */
  expect("report --gpu h200 --json d64 nq128", 2); /* stdout is the document's */
  snprintf(line, sizeof line, "report --gpu h200 --json -o '%s' d64 nq128", path);
  expect(line, 0);
  json_t *const root = document("report");
  ck_assert_str_eq(text_at(root, "file"), path);
  json_decref(root);
  ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

Suite *make_report_suite(void) {
  Suite *const suite = suite_create("report");
  TCase *const tests = tcase_create("page");
  tcase_set_timeout(tests, 60);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, a_page_has_all_trials_and_loads_nothing);
  tcase_add_test(tests, several_requests_and_none_known);
  tcase_add_test(tests, bad_input_writes_no_page);
  suite_add_tcase(suite, tests);
  return suite;
}
