/* test_kernel_key.c: an image is served by its whole key, never by its source alone.
 * in -> out: stores that hold images of the right source by other compilers, or under keys not
 * their own -> what plans take, on a fake GPU -> Check suite. */
#include <stdio.h>
#include <string.h>

#include "generator/emit.h"
#include "generator/space.h"
#include "runtime/choice.h"
#include "runtime/kernel_source.h"
#include "runtime/session.h"
#include "tests/fake_lab.h"
#include "tests/trust_lab.h"
#include "tests/suites.h"

static const char WORDS[] = "forward bf16 d64 nq128";
static const char OTHER_NVRTC[] = "12.9.41+0123456789ab";

static struct fixture fixture;

static void set_up(void) {
  use_fake_cuda();
  use_fake_nvrtc();
  fixture_open(&fixture);
}

static void tear_down(void) {
  fixture_close(&fixture);
}

static fatune_session *open_session(int may_compile) {
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  fatune_session *session;
  options.cache_dir = fixture.folder;
  options.system_path = "";
  options.compile = may_compile ? 0 : -1;
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_OK);
  return session;
}

/* Makes the plan; *compiled: it took a compile. */
static int try_plan(fatune_session *session, const char *config, char origin[256], bool *compiled) {
  const fatune_request request = fake_request(WORDS);
  fatune_plan *plan;
  const int status = config ? fatune_plan_make_with(&plan, session, &request, config)
                            : fatune_plan_make(&plan, session, &request);
  if (status != FATUNE_OK) return status;
  snprintf(origin, 256, "%s", fatune_plan_origin(plan));
  *compiled = strstr(origin, "compiled now") != NULL;
  fatune_plan_free(plan);
  return FATUNE_OK;
}

static void expect_plan(bool compiled, const char *part) {
  fatune_session *const session = open_session(1);
  char origin[256];
  bool got;
  ck_assert_status(try_plan(session, NULL, origin, &got), FATUNE_OK);
  ck_assert_msg(got == compiled, "%s", origin);
  ck_assert_msg(strstr(origin, part) != NULL, "'%s' is not in '%s'", part, origin);
  fatune_session_close(session);
}

/* The kernel that plans of WORDS ask for with the default config. */
static struct ft_kernel wanted_kernel(fatune_session *session) {
  const struct ft_arch *const arch = &session->device.arch;
  const struct ft_request request = request_of(WORDS);
  struct ft_choice choice;
  struct ft_source source;
  struct ft_kernel kernel;
  bool compiled;
  assert_ok(ft_session_choose(session, &request, arch, session->device.id, &choice));
  assert_ok(ft_session_emit(session, &request, arch, &choice.config, &source));
  assert_ok(ft_session_kernel(session, &source, NULL, &kernel, &compiled));
  ft_source_free(&source);
  return kernel;
}

/* The same source by another compiler, which gave other bytes. */
static void make_other(struct ft_kernel *kernel) {
  snprintf(kernel->nvrtc, sizeof kernel->nvrtc, "%s", OTHER_NVRTC);
  kernel->key = ft_kernel_key(&kernel->source, kernel->nvrtc);
  ((char *)kernel->image)[kernel->image_size - 2] ^= 1; /* the last is the NUL of a fake image */
  kernel->image_digest = ft_digest_of(kernel->image, kernel->image_size);
}

START_TEST(another_compilers_kernel_does_not_shadow) {
  expect_plan(true, "compiled now");
  fatune_session *session = open_session(1);
  struct ft_kernel kernel = wanted_kernel(session);
  char own[96];
  snprintf(own, sizeof own, "from the cache, by NVRTC %s", kernel.nvrtc);
  make_other(&kernel);
  assert_ok(ft_store_kernel_put(session->store, &kernel)); /* the newest of its source */
  fatune_session_close(session);
  expect_plan(false, own);
  /* Without one of its own the machine's compiler is asked, not the other's kernel taken. */
  session = open_session(1);
  const struct ft_digest key = ft_kernel_key(&kernel.source, strrchr(own, ' ') + 1);
  assert_ok(ft_store_kernel_forget(session->store, &key));
  fatune_session_close(session);
  expect_plan(true, "compiled now");
  ft_kernel_free(&kernel);
}
END_TEST

/* A machine without NVRTC has what a trial names, and what it compiled when it had one. */
START_TEST(without_nvrtc_a_trial_names_the_kernel) {
  fatune_session *session = open_session(1);
  struct ft_kernel kernel = wanted_kernel(session);
  const struct ft_digest own = kernel.key;
  const struct ft_request request = request_of(WORDS);
  struct ft_choice choice;
  char origin[256], config[256], memo[160];
  bool compiled;
  make_other(&kernel);
  assert_ok(
      ft_session_choose(session, &request, &session->device.arch, session->device.id, &choice));
  assert_ok(ft_store_kernel_put(session->store, &kernel));
  struct ft_trial trial = make_trial(WORDS, session->device.id, 1, 10);
  trial.config = choice.config;
  trial.kernel = kernel.key;
  trial.templates = session->templates;
  fatune_session_close(session);
  setenv("FATUNE_LIBNVRTC", "/nowhere/libnvrtc.so", 1);

  session = open_session(1); /* what it compiled */
  assert_ok(try_plan(session, NULL, origin, &compiled));
  ck_assert_ptr_null(strstr(origin, OTHER_NVRTC));
  assert_ok(ft_store_kernel_forget(session->store, &own));
  fatune_session_close(session); /* it has kept the plan */
  session = open_session(1);
  ck_assert_status(try_plan(session, NULL, origin, &compiled), FATUNE_E_NO_NVRTC);
  snprintf(memo, sizeof memo, "%s/nvrtc", fixture.folder);
  ck_assert_int_eq(unlink(memo), 0);
  ck_assert_status(try_plan(session, NULL, origin, &compiled), FATUNE_E_NO_NVRTC);

  assert_ok(ft_store_trial_put(session->store, &trial));
  assert_ok(try_plan(session, NULL, origin, &compiled));
  ck_assert_msg(strstr(origin, OTHER_NVRTC) != NULL, "%s", origin);
  struct ft_text text = FT_TEXT_INIT;
  ft_config_print(&choice.config, &text);
  snprintf(config, sizeof config, "%s", text.data);
  ft_text_free(&text);
  assert_ok(try_plan(session, config, origin, &compiled));
  ck_assert_msg(strstr(origin, "given") && strstr(origin, OTHER_NVRTC), "%s", origin);
  fatune_session_close(session);
  ft_kernel_free(&kernel);
}
END_TEST

/* A winner too far away to be chosen: its kernel is better than none, and is not taken else. */
START_TEST(without_nvrtc_a_winner_from_anywhere_is_run) {
  fatune_session *session = open_session(1);
  const struct ft_request request = request_of(WORDS);
  struct ft_space space;
  struct ft_trial trial = make_trial("forward bf16 d64 nq8192", session->device.id, 1, 10);
  struct ft_source source;
  struct ft_kernel kernel;
  char origin[256];
  bool compiled;
  assert_ok(ft_space_open(&space, &request, &session->device.arch));
  do ck_assert(ft_space_next(&space, &trial.config));
  while (ft_config_compare(&trial.config, &space.first) == 0);
  assert_ok(ft_session_emit(session, &request, &session->device.arch, &trial.config, &source));
  assert_ok(ft_session_kernel(session, &source, NULL, &kernel, &compiled));
  trial.kernel = kernel.key;
  trial.templates = session->templates;
  assert_ok(ft_store_trial_put(session->store, &trial));
  fatune_session_close(session);

  setenv("FATUNE_LIBNVRTC", "/nowhere/libnvrtc.so", 1);
  session = open_session(1);
  assert_ok(try_plan(session, NULL, origin, &compiled));
  ck_assert_msg(strstr(origin, "near: ") && strstr(origin, "octaves away"), "%s", origin);
  ck_assert(!compiled);
  assert_ok(ft_store_kernel_forget(session->store, &kernel.key));
  fatune_session_close(session); /* it has kept the plan */
  session = open_session(1);
  ck_assert_status(try_plan(session, NULL, origin, &compiled), FATUNE_E_NO_NVRTC);
  ck_assert_ptr_nonnull(strstr(fatune_detail(), "/nowhere/libnvrtc.so"));
  fatune_session_close(session);
  ft_source_free(&source);
  ft_kernel_free(&kernel);

  use_fake_nvrtc();
  expect_plan(true, "the nearest winner is");
}
END_TEST

/* Its row says that it is for another target than the source's: a mistake, or forged. */
START_TEST(a_kernel_for_another_target_is_not_taken) {
  char file[160];
  expect_plan(true, "compiled now");
  expect_plan(false, "from the cache");
  snprintf(file, sizeof file, "%s/kernels.db", fixture.folder);
  trust_lab_forge_text(file, 1, "kernel sm_90", "kernel sm_80");
  expect_plan(true, "compiled now");
  expect_plan(false, "from the cache");
}
END_TEST

/* A trial may name a kernel of another source: by mistake, or to deceive. */
START_TEST(a_trial_that_names_a_strangers_kernel_is_not_followed) {
  fatune_session *session = open_session(1);
  struct ft_kernel kernel = wanted_kernel(session), stranger = make_kernel(&fixture.dice, 64);
  const struct ft_request request = request_of(WORDS);
  struct ft_choice choice;
  assert_ok(
      ft_session_choose(session, &request, &session->device.arch, session->device.id, &choice));
  struct ft_trial trial = make_trial(WORDS, session->device.id, 1, 10);
  trial.config = choice.config;
  trial.kernel = stranger.key;
  trial.templates = session->templates;
  assert_ok(ft_store_kernel_put(session->store, &stranger));
  assert_ok(ft_store_trial_put(session->store, &trial));
  fatune_session_close(session);
  expect_plan(false, kernel.nvrtc);
  ft_kernel_free(&kernel);
  ft_kernel_free(&stranger);
}
END_TEST

static bool opens_nvrtc(void) {
  fatune_session *const session = open_session(1);
  char origin[256];
  bool compiled;
  assert_ok(try_plan(session, NULL, origin, &compiled));
  ck_assert(!compiled);
  const bool opened = session->compiler != NULL;
  fatune_session_close(session);
  return opened;
}

/* A library that changed, or a note that is not ours alone or not whole, is a reason to look. */
START_TEST(nvrtc_is_opened_for_its_name_only_when_it_changed) {
  char memo[160], library[160];
  snprintf(memo, sizeof memo, "%s/nvrtc", fixture.folder);
  snprintf(library, sizeof library, "%s/libnvrtc.so", fixture.root);
  struct bytes fake = read_bytes(FATUNE_FAKE_DIR "/libfake_nvrtc.so");
  write_bytes(library, fake.data, fake.size);
  setenv("FATUNE_LIBNVRTC", library, 1);
  expect_plan(true, "compiled now");
  ck_assert(!opens_nvrtc());
  const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
  ck_assert_int_eq(utimensat(AT_FDCWD, library, times, 0), 0);
  ck_assert(opens_nvrtc());
  ck_assert(!opens_nvrtc());
  static const char *const notes[] = {
      "", "13.0+x", "13.0+x\n", "a b c d e f\n", "13.0+x 1 2 3 4 relative\n", "\n"};
  for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
    write_bytes(memo, notes[i], strlen(notes[i]));
    ck_assert(opens_nvrtc());
    ck_assert(!opens_nvrtc());
  }
  ck_assert_int_eq(chmod(memo, 0666), 0);
  ck_assert(opens_nvrtc());
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  ck_assert_int_eq(chmod(memo, 0600), 0);
  ck_assert(opens_nvrtc());
  free(fake.data);
}
END_TEST

Suite *make_kernel_key_suite(void) {
  Suite *const suite = suite_create("kernel_key");
  TCase *const tests = tcase_create("key");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, another_compilers_kernel_does_not_shadow);
  tcase_add_test(tests, without_nvrtc_a_trial_names_the_kernel);
  tcase_add_test(tests, without_nvrtc_a_winner_from_anywhere_is_run);
  tcase_add_test(tests, a_kernel_for_another_target_is_not_taken);
  tcase_add_test(tests, a_trial_that_names_a_strangers_kernel_is_not_followed);
  tcase_add_test(tests, nvrtc_is_opened_for_its_name_only_when_it_changed);
  suite_add_tcase(suite, tests);
  return suite;
}
