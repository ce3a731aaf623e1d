/* test_bundle_forged.c: a recipe leads to no other kernel.
 * in -> out: a file to ship whose recipes are damaged or forged -> what was asked for is served, or
 * nothing -> Check suite. */
#include "tests/bundle_lab.h"
#include "tests/suites.h"
#include "tests/trust_lab.h"

static struct bundle_lab lab;

static void set_up(void) {
  bundle_lab_open(&lab);
}

static void tear_down(void) {
  bundle_lab_close(&lab);
}

static const char *const damages[] = {
    "UPDATE recipes SET source = randomblob(32)", "UPDATE recipes SET identity = zeroblob(32)",
    "UPDATE recipes SET source = x'00'", "UPDATE recipes SET identity = 7",
    ("UPDATE recipes SET (source, identity) = "
     "(SELECT r.source, r.identity FROM recipes r WHERE r.id <> recipes.id)")};

START_TEST(a_damaged_recipe_is_a_miss_and_told) {
  struct ft_bundle_verdict verdict;
  assert_ok(bundle_lab_verify(&lab, lab.bundle, &verdict));
  ck_assert_int_eq(verdict.recipes, 2);
  run_sql(lab.bundle, damages[_i]);
  bundle_lab_assert_served(&lab, 1);
  assert_warnings(&lab.fixture, 1);
  ck_assert_ptr_nonnull(
      strstr(lab.fixture.warnings[0], "sm_90.fatune: a row is damaged: a recipe"));
  assert_status(bundle_lab_verify(&lab, lab.bundle, &verdict), FT_E_CACHE);
  ck_assert_int_ge(verdict.damaged, 1);
  assert_status(bundle_lab_import(&lab, lab.bundle), FT_E_CACHE);
  ck_assert_int_eq(number_of(lab.kernels_db, "SELECT count(*) FROM kernels"), 0);
}
END_TEST

/* The recipe of what is asked for leads to the other source. */
static void forge_recipe(const char *file) {
  bundle_lab_put_recipe(file, &lab.recipes[0], &lab.sources[1]);
}

/* Adds a file in which the trial of what is asked for names the other kernel, too. */
static void forge_trial(void) {
  struct ft_trial forged = lab.trials[0];
  fatune_session *const session = bundle_lab_session(&lab, lab.layers, 0);
  struct ft_kernel kernel;
  assert_ok(ft_store_kernel_get(session->store, &lab.trials[1].kernel, &kernel));
  forged.kernel = kernel.key;
  assert_ok(ft_store_kernel_put(session->store, &kernel));
  assert_ok(ft_store_trial_put(session->store, &forged));
  ft_kernel_free(&kernel);
  fatune_session_close(session);
  fatune_session *const alone = bundle_lab_session(&lab, "", 0);
  ck_assert_int_eq(bundle_lab_export(alone, lab.other).recipes, 0);
  fatune_session_close(alone);
  forge_recipe(lab.other);
  bundle_lab_forget_user(&lab);
}

/* Its one wrong recipe is found by whoever looks at the file, which is then not taken in. */
static void assert_told_and_not_taken_in(const char *file) {
  struct ft_bundle_verdict verdict;
  assert_status(bundle_lab_verify(&lab, file, &verdict), FT_E_CACHE);
  ck_assert_int_eq(verdict.damaged, 1);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "recipes of a text that they do not give"));
  assert_status(bundle_lab_import(&lab, file), FT_E_CACHE);
  ck_assert_int_ne(access(lab.kernels_db, F_OK), 0);
}

/* The kernel that the trial names is not of the source that the recipe leads to. */
START_TEST(a_recipe_of_another_kernel_is_not_believed) {
  forge_recipe(lab.bundle);
  bundle_lab_assert_served(&lab, 1);
  assert_told_and_not_taken_in(lab.bundle);
}
END_TEST

static void assert_emitted_and_found(void) {
  const struct bundle_served served = bundle_lab_serve(&lab, 0);
  ck_assert_msg(served.status == FT_OK, "%s", ft_detail());
  ck_assert_int_eq(served.emitted, 1);
  ck_assert(!served.compiled);
  ck_assert(ft_digest_equal(&served.source, &lab.sources[0]));
}

START_TEST(a_kernel_of_another_target_is_not_served) {
  for (int row = 1; row <= 2; row++)
    trust_lab_forge_text(lab.bundle, row, "kernel sm_90", "kernel sm_80");
  ck_assert_int_eq(bundle_lab_serve(&lab, -1).status, FATUNE_E_NO_NVRTC);
}
END_TEST

/* No trial names a kernel of the request: the recipe alone is not enough. */
START_TEST(a_recipe_without_a_trial_is_not_believed) {
  forge_recipe(lab.bundle);
  run_sql(lab.bundle, "DELETE FROM trials");
  assert_emitted_and_found();
}
END_TEST

/* A file leads to its own kernels alone: neither to those of other files nor to the user's. */
START_TEST(a_recipe_leads_to_kernels_of_its_file_alone) {
  char tuning[128];
  int64_t taken[2];
  forge_trial();
  run_sql(lab.other, "DELETE FROM kernels");
  run_sql(lab.bundle, "DELETE FROM trials; DELETE FROM recipes");
  assert_emitted_and_found();
  bundle_lab_forget_user(&lab);
  struct ft_store *const store = open_store(&lab.fixture);
  assert_ok(ft_store_import(store, lab.bundle, &taken[0], &taken[1]));
  ck_assert_int_eq(taken[1], 2);
  ft_store_close(store);
  ck_assert_int_eq(unlink(lab.bundle), 0);
  ck_assert_int_eq(recipes_in(lab.kernels_db), 0);
  snprintf(tuning, sizeof tuning, "%s/tuning.db", lab.fixture.folder);
  ck_assert_int_eq(number_of(tuning, "SELECT count(*) FROM trials"), 0);
  assert_emitted_and_found();
}
END_TEST

/* Trial, recipe and kernel forged together are worth what a forged image is: the trust in the file.
 * Whoever looks at the file finds it, and it is not taken in. */
START_TEST(a_whole_forgery_is_found) {
  forge_trial();
  ck_assert_int_eq(unlink(lab.bundle), 0);
  const struct bundle_served served = bundle_lab_serve(&lab, -1);
  ck_assert_int_eq(served.status, FT_OK);
  ck_assert(ft_digest_equal(&served.source, &lab.sources[1]));
  assert_told_and_not_taken_in(lab.other);
}
END_TEST

Suite *make_bundle_forged_suite(void) {
  Suite *const suite = suite_create("bundle_forged");
  TCase *const tests = tcase_create("forged");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, a_damaged_recipe_is_a_miss_and_told, 0,
                      sizeof damages / sizeof *damages);
  tcase_add_test(tests, a_recipe_of_another_kernel_is_not_believed);
  tcase_add_test(tests, a_kernel_of_another_target_is_not_served);
  tcase_add_test(tests, a_recipe_without_a_trial_is_not_believed);
  tcase_add_test(tests, a_recipe_leads_to_kernels_of_its_file_alone);
  tcase_add_test(tests, a_whole_forgery_is_found);
  suite_add_tcase(suite, tests);
  return suite;
}
