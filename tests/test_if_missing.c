/* test_if_missing.c: what has a measured winner is not tuned again where nobody asks for it.
 * in -> out: a trial in the store; the program and the public call, told to tune what is missing ->
 * nothing is compiled or run -> Check suite. */
#include "tests/suites.h"

#include "generator/space.h"
#include "generator/status.h"
#include "runtime/choice.h"
#include "runtime/session.h"
#include "tests/fake_lab.h"
#include "tests/run_program.h"
#include "tests/store_fixture.h"
#include "tuner/search/measure.h"

#define TUNED  "forward bf16 d64 nq1024"
#define OTHERS "forward bf16 d64 nq128"

/* As a search would leave it, of these templates. */
static struct ft_trial measured(const fatune_session *session, const struct ft_arch *arch,
                                const char *device) {
  struct ft_trial trial = make_trial(TUNED, device, 0, 20);
  ck_assert_int_eq(ft_default_config(&trial.request, arch, &trial.config), FT_OK);
  trial.templates = session->templates;
  snprintf(trial.policy, sizeof trial.policy, "%s", FT_POLICY);
  return trial;
}

static struct ft_choice choice_for(fatune_session *session, const struct ft_arch *arch,
                                   const char *device) {
  struct ft_choice choice;
  const struct ft_request request = request_of(TUNED);
  ck_assert_int_eq(ft_session_choose(session, &request, arch, device, &choice), FT_OK);
  return choice;
}

START_TEST(the_public_call_returns_at_once) {
  const struct fake_controls nvrtc = use_fake_nvrtc();
  const struct fake_lab lab = fake_lab_open();
  const struct ft_arch *const arch = &lab.session->device.arch;
  const char *const device = lab.session->device.id;
  const struct ft_trial trial = measured(lab.session, arch, device);
  fatune_tune_options options = FATUNE_TUNE_OPTIONS_INIT;
  options.if_missing = 1;
  const fatune_request tuned = fake_request(TUNED);
  assert_ok(ft_store_trial_put(lab.session->store, &trial));
  ck_assert_int_eq(choice_for(lab.session, arch, device).hit, FT_HIT_EXACT);
  ck_assert_status(fatune_tune(lab.session, &tuned, &options), FATUNE_OK);
  ck_assert_int_eq(nvrtc.calls("nvrtcCompileProgram"), 0);
  ck_assert_int_eq(lab.cuda.calls("cuLaunchKernel"), 0);
  struct ft_store_stats stats;
  assert_ok(ft_store_stats(lab.session->store, &stats));
  ck_assert_int_eq(stats.trials, 1);
  fake_lab_close(&lab);
}
END_TEST

/* The session's folder is that of the test's program. */
static void put_measured(void) {
  fatune_session *session = NULL;
  struct ft_arch arch;
  char device[96];
  ck_assert_status(fatune_session_open(&session, NULL), FATUNE_OK);
  ck_assert_int_eq(ft_lua_gpu(session->lua, "a100", &arch), FT_OK);
  ft_device_class(&arch, device);
  const struct ft_trial trial = measured(session, &arch, device);
  assert_ok(ft_store_trial_put(session->store, &trial));
  ck_assert_int_eq(choice_for(session, &arch, device).hit, FT_HIT_EXACT);
  fatune_session_close(session);
}

static size_t results(void) {
  json_t *const root = document("tune");
  const size_t count = json_array_size(json_object_get(root, "results"));
  json_decref(root);
  return count;
}

START_TEST(the_program_passes_it_over) {
  begin_program_test();
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  put_measured();
  expect("tune --gpu a100 --effort quick --if-missing --json '" TUNED "'", 0);
  expect_message("has a measured winner, skipped");
  ck_assert_uint_eq(results(), 0);
  expect("tune --gpu a100 --effort quick --shard 1/9 --if-missing --json '" OTHERS "'", 0);
  ck_assert_ptr_null(strstr(messages, "skipped"));
  ck_assert_uint_eq(results(), 1);
  /* What was predicted there is no measurement. */
  expect("tune --gpu a100 --effort quick --shard 1/9 --if-missing --json '" OTHERS "'", 0);
  ck_assert_uint_eq(results(), 1);
  expect("tune --gpu a100 --effort quick --shard 1/9 --json '" TUNED "'", 0); /* nobody said so */
  ck_assert_uint_eq(results(), 1);
  end_program_test();
}
END_TEST

Suite *make_if_missing_suite(void) {
  Suite *const suite = suite_create("if_missing");
  TCase *const tests = tcase_create("if_missing");
  tcase_add_test(tests, the_public_call_returns_at_once);
  tcase_add_test(tests, the_program_passes_it_over);
  suite_add_tcase(suite, tests);
  return suite;
}
