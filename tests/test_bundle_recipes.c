/* test_bundle_recipes.c: recipes travel with their kernels.
 * in -> out: a file to ship -> plans that emit nothing; exports, other versions, taking in -> Check
 * suite. */
#include "generator/status.h"
#include "tests/bundle_lab.h"
#include "tests/fake_lab.h"
#include "tests/suites.h"

static struct bundle_lab lab;

static void set_up(void) {
  bundle_lab_open(&lab);
}

static void tear_down(void) {
  bundle_lab_close(&lab);
}

START_TEST(a_shipped_kernel_needs_no_text) {
  fatune_plan *plan;
  const fatune_request request = fake_request(ASKED);
  bundle_lab_assert_served(&lab, 0);
  assert_warnings(&lab.fixture, 0);
  ck_assert_int_ne(access(lab.fixture.folder, F_OK), 0); /* nothing of the user's was made */
  fatune_session *const session = bundle_lab_session(&lab, lab.layers, -1);
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  ck_assert_int_eq(atomic_load(&session->emitted), 0);
  ck_assert_ptr_nonnull(strstr(fatune_plan_source(plan), "d64"));
  ck_assert_int_eq(atomic_load(&session->emitted), 1);
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

/* What the user has goes first, as it does of kernels: his own kernel, for which he has no recipe
 * yet, is found by the text, and the recipe is his then. */
START_TEST(the_users_own_goes_first) {
  struct ft_trial trial;
  fatune_session *const session = bundle_lab_session(&lab, "", 0);
  fake_measured(session, ASKED, &trial);
  fatune_session_close(session);
  ck_assert_int_eq(recipes_in(lab.kernels_db), 0);
  bundle_lab_assert_served(&lab, 1);
  ck_assert_int_eq(recipes_in(lab.kernels_db), 1);
  bundle_lab_assert_served(&lab, 0);
}
END_TEST

/* ---- exports ---- */

static void assert_same_files(const char *a, const char *b) {
  struct bytes one = read_bytes(a), two = read_bytes(b);
  ck_assert_uint_eq(one.size, two.size);
  ck_assert_mem_eq(one.data, two.data, one.size);
  free(one.data);
  free(two.data);
}

/* Whatever recipes the user has, and in whatever order rows came. */
START_TEST(equal_rows_give_equal_files) {
  fatune_session *const session = bundle_lab_session(&lab, "", 0);
  struct ft_trial trial;
  fake_measured(session, ANOTHER, &trial);
  fake_measured(session, ASKED, &trial);
  bundle_lab_export(session, lab.other);
  assert_same_files(lab.bundle, lab.other);
  /* The session has emitted two texts. This plan emits the third, and stores its recipe. */
  ck_assert_int_eq(bundle_lab_serve_in(session, ASKED).emitted, 3);
  const struct ft_digest unknown = digest_of_text("a recipe of another version");
  ft_store_recipe_put(session->store, &unknown, &lab.sources[0]);
  ck_assert_int_eq(bundle_lab_export(session, lab.other).recipes, 2);
  assert_same_files(lab.bundle, lab.other);
  fatune_session_close(session);
}
END_TEST

/* Of a kernel that this version does not emit, because of its templates, its GPU or its score, no
 * recipe is known; it is shipped without. */
START_TEST(what_is_not_emitted_here_has_no_recipe) {
  static const char *const strange[] = {"nvidia-h200/sm_90/132", "nvidia-z1/sm_999/1", ""};
  struct ft_kernel kernel = make_kernel(&lab.fixture.dice, 100);
  struct ft_trial trial = lab.trials[0];
  fatune_session *const session = bundle_lab_session(&lab, "", 0);
  assert_ok(ft_store_kernel_put(session->store, &kernel));
  trial.kernel = kernel.key;
  snprintf(trial.device, sizeof trial.device, "%s", strange[_i]);
  if (_i == 2) {
    trial.request = request_of("d64 nq128 score=123456789abcd");
    trial.bucket = ft_request_bucket(&trial.request);
    snprintf(trial.device, sizeof trial.device, "%s", strange[0]);
  }
  assert_ok(ft_store_trial_put(session->store, &trial));
  struct ft_export export = {.may_be_empty = false};
  assert_ok(
      ft_store_export(session->store, _i == 1 ? "sm_999" : "sm_90", NULL, lab.other, &export));
  ck_assert_int_eq(export.kernels, 1);
  ck_assert_int_eq(export.recipes, 0);
  ck_assert_int_eq(recipes_in(lab.other), 0);
  ft_kernel_free(&kernel);
  fatune_session_close(session);
}
END_TEST

/* ---- of another version ---- */

/* A file written before there were recipes. */
START_TEST(a_file_without_recipes_is_served) {
  struct ft_bundle_verdict verdict;
  run_sql(lab.bundle, "DROP TABLE recipes; PRAGMA user_version = 1");
  bundle_lab_assert_served(&lab, 1);
  assert_ok(bundle_lab_verify(&lab, lab.bundle, &verdict));
  ck_assert_int_eq(verdict.kernels, 2);
  ck_assert_int_eq(verdict.recipes, 0);
  bundle_lab_forget_user(&lab);
  assert_ok(bundle_lab_import(&lab, lab.bundle));
  ck_assert_int_eq(recipes_in(lab.kernels_db), 0);
  assert_warnings(&lab.fixture, 0);
}
END_TEST

/* Templates that have changed since make other texts, whose kernels are not there. */
START_TEST(a_stale_recipe_is_not_asked_for) {
  char folder[160], line[512];
  snprintf(folder, sizeof folder, "%s/templates", lab.fixture.root);
  snprintf(
      line, sizeof line,
      "cp -r '%s/templates' '%s' && for f in '%s'/*.cu.in; do echo '// changed' >>\"$f\"; done",
      FATUNE_SOURCE_DIR, folder, folder);
  ck_assert_int_eq(system(line), 0);
  lab.template_dir = folder;
  ck_assert_int_eq(bundle_lab_serve(&lab, -1).status, FATUNE_E_NO_NVRTC);
  struct ft_bundle_verdict verdict;
  assert_ok(bundle_lab_verify(&lab, lab.bundle, &verdict));
  const struct bundle_served compiled = bundle_lab_serve(&lab, 0);
  ck_assert(compiled.status == FT_OK && compiled.compiled);
  ck_assert(!ft_digest_equal(&compiled.source, &lab.sources[0]));
  bundle_lab_forget_user(&lab);
  assert_ok(bundle_lab_import(&lab, lab.bundle));
  ck_assert_int_eq(recipes_in(lab.kernels_db), 0); /* this version cannot prove them */
  bundle_lab_forget_user(&lab);
  lab.template_dir = NULL;
  bundle_lab_assert_served(&lab, 0);
}
END_TEST

/* ---- taking in ---- */

/* Those that no trial of the file leads to cannot be proved, and stay where they are. */
START_TEST(proved_recipes_are_taken_in) {
  struct ft_bundle_verdict verdict;
  const struct ft_digest unknown = digest_of_text("of another version");
  bundle_lab_put_recipe(lab.bundle, &unknown, &lab.sources[1]);
  assert_ok(bundle_lab_verify(&lab, lab.bundle, &verdict));
  ck_assert_int_eq(verdict.recipes, 3);
  assert_ok(bundle_lab_import(&lab, lab.bundle));
  ck_assert_int_eq(recipes_in(lab.kernels_db), 2);
  ck_assert_int_eq(unlink(lab.bundle), 0);
  bundle_lab_assert_served(&lab, 0);
  assert_warnings(&lab.fixture, 0);
}
END_TEST

/* Without templates nothing can be proved. */
START_TEST(a_store_alone_takes_no_recipes_in) {
  int64_t taken[2];
  struct ft_store *const store = open_store(&lab.fixture);
  assert_ok(ft_store_import(store, lab.bundle, &taken[0], &taken[1]));
  ck_assert_int_eq(taken[1], 2);
  ck_assert_int_eq(recipes_in(lab.kernels_db), 0);
  ft_store_close(store);
}
END_TEST

/* Templates that are broken give no recipe, or give one and no text. */
static int derive_badly(void *deriver, const struct ft_trial *trial, const char *target,
                        struct ft_digest *recipe, struct ft_digest *source) {
  const bool *const all = deriver;
  (void)trial;
  ck_assert_str_eq(target, "sm_90");
  if (*all || source) return ft_fail(FT_E_TEMPLATE, "a template is broken");
  *recipe = lab.recipes[0];
  return FT_OK;
}

START_TEST(broken_templates_prove_nothing) {
  struct ft_bundle_verdict verdict;
  struct ft_export export = {.may_be_empty = false};
  int64_t taken[2];
  bool all = _i;
  struct ft_store *const store = open_store_with(
      &lab.fixture, (struct ft_store_options){.derive = derive_badly, .deriver = &all});
  bundle_lab_put_recipe(lab.bundle, &lab.recipes[0], &lab.sources[1]);
  assert_ok(ft_store_verify_bundle(store, lab.bundle, &verdict));
  ck_assert_int_eq(verdict.recipes, 2);
  assert_ok(ft_store_import(store, lab.bundle, &taken[0], &taken[1]));
  ck_assert_int_eq(recipes_in(lab.kernels_db), 0);
  assert_ok(ft_store_export(store, "sm_90", NULL, lab.other, &export));
  ck_assert_int_eq(export.kernels, 2);
  ck_assert_int_eq(export.recipes, 0);
  ft_store_close(store);
}
END_TEST

/* Several trials of a config have one recipe. */
START_TEST(trials_of_a_config_share_their_recipe) {
  struct ft_bundle_verdict verdict;
  assert_ok(bundle_lab_import(&lab, lab.bundle));
  fatune_session *const session = bundle_lab_session(&lab, "", 0);
  for (int i = 0; i < 3; i++) {
    struct ft_trial again = lab.trials[0];
    again.median_us += 0.01 * i;
    again.at += i;
    assert_ok(ft_store_trial_put(session->store, &again));
  }
  const struct ft_export export = bundle_lab_export(session, lab.other);
  ck_assert_int_ge(export.trials, 4);
  ck_assert_int_eq(export.recipes, 2);
  assert_ok(ft_store_verify_bundle(session->store, lab.other, &verdict));
  ck_assert_int_eq(verdict.recipes, 2);
  fatune_session_close(session);
}
END_TEST

Suite *make_bundle_recipes_suite(void) {
  Suite *const suite = suite_create("bundle_recipes");
  TCase *const tests = tcase_create("recipes");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, a_shipped_kernel_needs_no_text);
  tcase_add_test(tests, the_users_own_goes_first);
  tcase_add_test(tests, equal_rows_give_equal_files);
  tcase_add_loop_test(tests, what_is_not_emitted_here_has_no_recipe, 0, 3);
  tcase_add_test(tests, a_file_without_recipes_is_served);
  tcase_add_test(tests, a_stale_recipe_is_not_asked_for);
  tcase_add_test(tests, proved_recipes_are_taken_in);
  tcase_add_test(tests, a_store_alone_takes_no_recipes_in);
  tcase_add_loop_test(tests, broken_templates_prove_nothing, 0, 2);
  tcase_add_test(tests, trials_of_a_config_share_their_recipe);
  suite_add_tcase(suite, tests);
  return suite;
}
