/* test_shared_plans.c: equal requests of a session share a plan while it is right to.
 * in -> out: requests, trials that come, captures, threads -> which plan is given, what is loaded
 * -> Check suite. */
#include <pthread.h>

#include "runtime/session.h"
#include "tests/fake_lab.h"
#include "tests/store_fixture.h"
#include "tests/suites.h"

#define PROBLEM "forward bf16 d64 hq1 nq128"

static struct fixture fixture;
static struct fake_controls cuda;
static fatune_session *session;

static fatune_session *open_session(void) {
  fatune_session *opened;
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  options.cache_dir = fixture.folder;
  options.system_path = "";
  ck_assert_status(fatune_session_open(&opened, &options), FATUNE_OK);
  return opened;
}

static void set_up(void) {
  fixture_open(&fixture);
  cuda = use_fake_cuda();
  use_fake_nvrtc();
  session = open_session();
}

/* Nothing is left loaded, whatever was kept. */
static void tear_down(void) {
  fatune_session_close(session);
  ck_assert_int_eq(cuda.live(), 0);
  ck_assert_int_eq(cuda.depth(), 0);
  fixture_close(&fixture);
}

static fatune_plan *make(const char *words) {
  const fatune_request request = fake_request(words);
  fatune_plan *plan;
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  return plan;
}

START_TEST(equal_requests_share_a_plan) {
  fatune_plan *const plan = make(PROBLEM);
  const int calls = cuda.calls(NULL);
  ck_assert_ptr_eq(make(PROBLEM), plan);
  ck_assert_int_eq(cuda.calls(NULL), calls);
  fatune_plan *const longer = make("forward bf16 d64 hq1 nq256");
  ck_assert_ptr_ne(longer, plan);
  fatune_plan_free(plan);
  ck_assert_int_gt((int)strlen(fatune_plan_config(plan)), 0); /* it is used once more */
  fatune_plan_free(plan);
  fatune_plan_free(longer);
  ck_assert_int_eq(cuda.calls("cuModuleUnload"), 0);
  ck_assert_ptr_eq(make(PROBLEM), plan); /* it was kept */
  fatune_plan_free(plan);
}
END_TEST

START_TEST(a_given_config_is_not_shared) {
  fatune_plan *const plan = make(PROBLEM), *given;
  const fatune_request request = fake_request(PROBLEM);
  ck_assert_status(fatune_plan_make_with(&given, session, &request, fatune_plan_config(plan)),
                   FATUNE_OK);
  ck_assert_ptr_ne(given, plan);
  const int unloads = cuda.calls("cuModuleUnload");
  fatune_plan_free(given);
  ck_assert_int_eq(cuda.calls("cuModuleUnload"), unloads + 1);
  fatune_plan_free(plan);
}
END_TEST

START_TEST(a_kept_plan_is_given_during_a_capture) {
  const struct fake_gpu capturing = {"NVIDIA H200", 90, 132, 1, 1, 0};
  const fatune_request other = fake_request("forward bf16 d96 nq128");
  fatune_plan *const plan = make(PROBLEM), *refused;
  cuda.gpu(&capturing);
  ck_assert_ptr_eq(make(PROBLEM), plan);
  ck_assert_status(fatune_plan_make(&refused, session, &other), FATUNE_E_NOT_PREPARED);
  fatune_plan_free(plan);
  fatune_plan_free(plan);
}
END_TEST

/* As measured on the session's GPU: another config than the default. */
static struct ft_trial winner(void) {
  struct ft_trial trial = make_trial(PROBLEM, session->device.id, 0, 1);
  trial.templates = session->templates;
  const struct ft_request request = request_of(PROBLEM);
  const struct ft_config config = FT_CONFIG(mma_forward, .block_m = 64, .block_n = 32, .warps = 4,
                                            .stages = 2, .ctas_per_sm = 1);
  ck_assert_ptr_null(ft_rules_broken(&request, &session->device.arch, &config, FT_EVERY_RULE));
  trial.config = config;
  return trial;
}

static void assert_chooses_winner(fatune_plan *before) {
  fatune_plan *const after = make(PROBLEM);
  ck_assert_ptr_ne(after, before);
  ck_assert_ptr_nonnull(strstr(fatune_plan_origin(after), "exact"));
  ck_assert_ptr_nonnull(strstr(fatune_plan_config(after), "block_n=32"));
  ck_assert_ptr_null(strstr(fatune_plan_config(before), "block_n=32")); /* it lives on */
  fatune_plan_free(before);
  fatune_plan_free(after);
}

START_TEST(a_trial_of_this_session_counts_at_once) {
  fatune_plan *const before = make(PROBLEM);
  const struct ft_trial trial = winner();
  assert_ok(ft_store_trial_put(session->store, &trial));
  assert_chooses_winner(before);
}
END_TEST

START_TEST(a_trial_of_another_process_counts_soon) {
  const struct timespec while_checked = {0, (long)(1.2e9 * FT_PLANS_CHECK_SECONDS)};
  fatune_plan *const before = make(PROBLEM);
  const struct ft_trial trial = winner();
  struct ft_store *const other = open_store(&fixture);
  assert_ok(ft_store_trial_put(other, &trial));
  nanosleep(&while_checked, NULL);
  assert_chooses_winner(before);
  ft_store_close(other);
}
END_TEST

/* A trial that came while a plan was made: the plan is right, and not kept. */
START_TEST(a_plan_from_before_a_trial_is_not_kept) {
  const fatune_request request = fake_request(PROBLEM);
  const struct ft_trial trial = winner();
  uint64_t state;
  ck_assert_ptr_null(ft_shared_plan_take(&session->plans, &request, &state));
  assert_ok(ft_store_trial_put(session->store, &trial));
  fatune_plan *const plan = make("forward bf16 d64 hq1 nq256");
  ft_shared_plan_keep(&session->plans, (struct ft_shared_plan *)plan, &request, state);
  uint64_t now;
  ck_assert_ptr_null(ft_shared_plan_take(&session->plans, &request, &now));
  ck_assert_uint_ne(now, state);
  fatune_plan_free(plan);
}
END_TEST

static fatune_plan *make_length(int length) {
  char words[64];
  snprintf(words, sizeof words, "forward bf16 d64 hq1 nq%d", length);
  return make(words);
}

START_TEST(the_oldest_goes_first) {
  fatune_plan *const used = make_length(1);
  fatune_plan *plan = NULL;
  for (int i = 0; i < FT_PLANS_MOST; i++) {
    plan = make_length(2 + i);
    fatune_plan_free(plan);
    fatune_plan *const again = make_length(2); /* by being used it stays */
    fatune_plan_free(again);
  }
  ck_assert_int_eq(cuda.calls("cuModuleUnload"), 0); /* what had to go is in use */
  const int loads = cuda.calls("cuModuleLoadData");
  fatune_plan_free(make_length(2));
  fatune_plan_free(make_length(1 + FT_PLANS_MOST));
  ck_assert_int_eq(cuda.calls("cuModuleLoadData"), loads);
  fatune_plan_free(used);
  ck_assert_int_eq(cuda.calls("cuModuleUnload"), 1);
  fatune_plan_free(make_length(1));
  ck_assert_int_eq(cuda.calls("cuModuleLoadData"), loads + 1);
  ck_assert_int_eq(cuda.calls("cuModuleUnload"), 2);
}
END_TEST

static void *make_and_free(void *payload) {
  unsigned seed = (unsigned)(uintptr_t)payload;
  for (int i = 0; i < 300; i++) {
    char words[64];
    fatune_plan *plan = NULL;
    snprintf(words, sizeof words, "forward bf16 d64 hq1 nq%d", 1 + rand_r(&seed) % 48);
    fatune_request request = FATUNE_REQUEST_INIT;
    int status = fatune_request_parse(&request, words);
    if (status == FATUNE_OK) status = fatune_plan_make(&plan, session, &request);
    if (status != FATUNE_OK) return (void *)1;
    fatune_plan_free(plan);
  }
  return NULL;
}

START_TEST(threads_share_plans) {
  enum { THREADS = 8 };
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, make_and_free, (void *)(i + 1)), 0);
  for (int i = 0; i < THREADS; i++) {
    void *failed;
    ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
    ck_assert_ptr_null(failed);
  }
  ck_assert_int_eq(cuda.calls("cuModuleLoadData"),
                   cuda.calls("cuModuleUnload") + session->plans.count);
}
END_TEST

Suite *make_shared_plans_suite(void) {
  Suite *const suite = suite_create("shared_plans");
  TCase *const tests = tcase_create("all");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_set_timeout(tests, 120);
  tcase_add_test(tests, equal_requests_share_a_plan);
  tcase_add_test(tests, a_given_config_is_not_shared);
  tcase_add_test(tests, a_kept_plan_is_given_during_a_capture);
  tcase_add_test(tests, a_trial_of_this_session_counts_at_once);
  tcase_add_test(tests, a_trial_of_another_process_counts_soon);
  tcase_add_test(tests, a_plan_from_before_a_trial_is_not_kept);
  tcase_add_test(tests, the_oldest_goes_first);
  tcase_add_test(tests, threads_share_plans);
  suite_add_tcase(suite, tests);
  return suite;
}
