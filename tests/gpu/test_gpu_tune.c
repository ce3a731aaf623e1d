/* test_gpu_tune.c: tuning on a real GPU, and what it leaves for later sessions and other machines.
 * in -> out: request -> trials, winner; a second session that compiles and measures nothing; a file
 * to ship that does without NVRTC. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/gpu/gpu_child.h"
#include "tests/gpu/gpu_lab.h"
#include "tests/gpu/gpu_suites.h"
#include "tuner/search/tune.h"

static char tuned_request[] = "forward bf16 d64 hq4 b2 nq512 causal";

/* "folder/name" below the lab's folder, made. */
static void make_folder(char *path, size_t size, const char *name) {
  const int length = snprintf(path, size, "%s/%s", gpu_lab()->folder, name);
  ck_assert(length > 0 && (size_t)length < size);
  ck_assert_msg(mkdir(path, 0700) == 0, "mkdir %s", path);
}

static fatune_session *open_session(const char *folder) {
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  fatune_session *session = NULL;
  options.cache_dir = folder;
  gpu_assert_ok(fatune_session_open(&session, &options));
  return session;
}

static struct ft_tune_summary tune(fatune_session *session, const char *text) {
  const struct ft_request request = gpu_request(text);
  const struct ft_tune_options options = {
      .effort = FT_EFFORT_QUICK, .jobs = gpu_lab()->threads, .seed = gpu_seed(600)};
  struct ft_tune_summary summary;
  gpu_assert_ok(ft_tune(session, &request, &options, &summary));
  return summary;
}

static int64_t trials_in(fatune_session *session) {
  struct ft_store_stats stats;
  gpu_assert_ok(ft_store_stats(session->store, &stats));
  return stats.trials;
}

static void expect_tuned_plan(fatune_session *session, const struct ft_config *best) {
  const struct ft_request request = gpu_request(tuned_request);
  const fatune_request wanted = gpu_public_request(&request);
  fatune_plan *plan = NULL;
  gpu_assert_ok(fatune_plan_make(&plan, session, &wanted));
  ck_assert_msg(strncmp(fatune_plan_origin(plan), "exact", 5) == 0, "%s", fatune_plan_origin(plan));
  ck_assert_msg(strstr(fatune_plan_origin(plan), "kernel from the cache") != NULL, "%s",
                fatune_plan_origin(plan));
  char *const config = gpu_config_text(best);
  ck_assert_str_eq(fatune_plan_config(plan), config);
  free(config);
  fatune_plan_free(plan);
}

START_TEST(a_second_session_finds_what_the_first_measured) {
  char folder[128];
  make_folder(folder, sizeof folder, "tune");
  fatune_session *session = open_session(folder);
  const struct ft_tune_summary first = tune(session, tuned_request);
  const int64_t trials = trials_in(session);
  printf("tune: %d candidates in %.1f s: %d ok, %d spilled, %d failed, %d wrong; best %.1f us, "
         "default %.1f us\n",
         first.tried, first.seconds, first.ok, first.spilled, first.failed, first.wrong,
         first.best_us, first.default_us);
  ck_assert(first.measured);
  ck_assert_int_gt(first.ok, 0);
  ck_assert_int_eq(first.wrong, 0);
  ck_assert_int_eq(first.recalled, 0);
  ck_assert_int_ge(trials, first.tried);
  ck_assert_double_gt(first.best_us, 0);
  ck_assert_double_le(first.best_us, first.default_us * 1.02); /* ties go to the default */
  fatune_session_close(session);

  session = open_session(folder);
  const struct ft_tune_summary second = tune(session, tuned_request);
  ck_assert_int_eq(second.tried, first.tried);
  ck_assert_int_eq(second.recalled, second.tried);
  ck_assert_double_eq(second.compile_seconds, 0);
  ck_assert_int_eq(trials_in(session), trials);
  ck_assert_int_eq(ft_config_compare(&second.best, &first.best), 0);
  expect_tuned_plan(session, &first.best);
  fatune_session_close(session);
}
END_TEST

/* Features that make candidates differ most; every one of them must still be right. */
START_TEST(no_candidate_of_a_masked_dropout_is_wrong) {
  char folder[128];
  make_folder(folder, sizeof folder, "features");
  fatune_session *const session = open_session(folder);
  const struct ft_tune_summary summary =
      tune(session, "forward fp16 d96 dv64 hq4 hkv2 nq512 nk700 causal dropout mask=64x64@0.5");
  ck_assert_int_gt(summary.ok, 0);
  ck_assert_int_eq(summary.wrong, 0);
  fatune_session_close(session);
}
END_TEST

START_TEST(tune_if_missing_returns_at_once) {
  char folder[128];
  make_folder(folder, sizeof folder, "missing");
  fatune_session *const session = open_session(folder);
  const struct ft_request request = gpu_request(tuned_request);
  const fatune_request wanted = gpu_public_request(&request);
  fatune_tune_options options = FATUNE_TUNE_OPTIONS_INIT;
  options.if_missing = 1;
  options.budget_seconds = 2;
  gpu_assert_ok(fatune_tune(session, &wanted, &options));
  const int64_t trials = trials_in(session);
  ck_assert_int_gt(trials, 0);
  gpu_assert_ok(fatune_tune(session, &wanted, &options));
  ck_assert_int_eq(trials_in(session), trials);
  fatune_session_close(session);
}
END_TEST

/* ---- a file to ship ---- */

static void ship(const char *folder) {
  fatune_session *const session = open_session(folder);
  char target[16], file[192], layers[128];
  struct ft_export export = {.may_be_empty = false};
  tune(session, tuned_request);
  make_folder(layers, sizeof layers, "layers");
  ft_arch_target(&session->device.arch, target);
  snprintf(file, sizeof file, "%s/%s.fatune", layers, target);
  gpu_assert_ok(ft_store_export(session->store, target, NULL, file, &export));
  ck_assert_int_gt(export.trials, 0);
  ck_assert_int_eq(export.kernels, 1);
  ck_assert_int_eq(export.recipes, 1);
  fatune_session_close(session);
}

/* All that a process does between the driver's own start and the end of its first kernel. */
static double first_kernel_us(const char *output) {
  return gpu_child_number(output, "session_us") + gpu_child_number(output, "plan_us") +
         gpu_child_number(output, "first_run_us");
}

START_TEST(a_shipped_file_does_without_nvrtc) {
  enum { TIMES = 5 };
  double least_us = 1e9;
  char folder[128], output[1024], system_path[192], cache[192];
  char no_nvrtc[] = "FATUNE_LIBNVRTC=/nowhere/libnvrtc.so";
  make_folder(folder, sizeof folder, "shipping");
  ship(folder);
  make_folder(folder, sizeof folder, "empty");
  snprintf(system_path, sizeof system_path, "FATUNE_SYSTEM_PATH=%s/layers", gpu_lab()->folder);
  snprintf(cache, sizeof cache, "FATUNE_CACHE_DIR=%s", folder);
  char *const variables[] = {system_path, cache, no_nvrtc, NULL};
  for (int n = 0; n < TIMES; n++) {
    ck_assert_int_eq(gpu_child_run(output, sizeof output, "shipped", tuned_request, variables), 0);
    ck_assert_msg(strstr(output, "exact") != NULL, "%s", output);
    ck_assert_msg(strstr(output, "kernel from the cache") != NULL, "%s", output);
    ck_assert_msg(gpu_child_number(output, "emitted") == 0, "%s", output); /* it has a recipe */
    printf("tune: first kernel from a shipped file: session %.1f ms, plan %.1f, first run %.1f\n",
           1e-3 * gpu_child_number(output, "session_us"),
           1e-3 * gpu_child_number(output, "plan_us"),
           1e-3 * gpu_child_number(output, "first_run_us"));
    if (first_kernel_us(output) < least_us) least_us = first_kernel_us(output);
  }
  gpu_judge_time("first kernel from a shipped file in a new process, best of 5", least_us, 10000);
  /* What was not shipped cannot be made. */
  ck_assert_int_ne(
      gpu_child_run(output, sizeof output, "shipped", "forward fp16 d200 nq100", variables), 0);
}
END_TEST

Suite *make_gpu_tune_suite(void) {
  Suite *const suite = suite_create("gpu_tune");
  TCase *const tests = tcase_create("tune");
  tcase_add_test(tests, a_second_session_finds_what_the_first_measured);
  tcase_add_test(tests, no_candidate_of_a_masked_dropout_is_wrong);
  tcase_add_test(tests, tune_if_missing_returns_at_once);
  tcase_add_test(tests, a_shipped_file_does_without_nvrtc);
  suite_add_tcase(suite, tests);
  return suite;
}
