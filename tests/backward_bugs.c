/* backward_bugs.c: runs of the backward with a bug in its templates, and without. */
#include "tests/backward_bugs.h"

#include <stdlib.h>

#include "tests/emulator_lab.h"

static const struct backward_bugs *used; /* by the test that runs */

static void run_with(struct emulator_run *run, const struct backward_bug *bug, const char *folder) {
  struct ft_problem_options options = {
      .layout = FT_LAYOUT_PADDED, .seed = emulator_seed(), .want_lse = true, .want_dlse = true};
  fatune_session *const session = emulator_open("h200", folder);
  const char *const request = bug->request ? bug->request : "backward bf16 d64 nq200 nk250 hq2";
  ck_assert_int_eq(ft_request_parse(&options.request, request), FT_OK);
  if (bug->score != NULL) {
    ck_assert_int_eq(fatune_score_add(&options.request.score, session, bug->score, NULL), FT_OK);
    options.request.score_gradients = bug->gradients;
  }
  setenv("FATUNE_EMULATOR_STEPS", "8000000", 1);
  emulator_run(run, session, &options, bug->config ? bug->config : ATOMIC);
  fatune_session_close(session);
}

START_TEST(faults_are_caught) {
  const size_t runs = (size_t)emulator_runs(used->fault_count);
  const struct backward_bug *const bug =
      &used->faults[emulator_choose(_i, runs, used->fault_count)];
  struct emulator_run run;
  setenv("FATUNE_EMULATOR_HOOKS", "1", 1);
  const struct planted planted = emulator_plant(bug->file, bug->piece, bug->other);
  run_with(&run, bug, planted.folder);
  emulator_expect_fault(bug->name, &run);
  emulator_expect_words(bug->name, run.fault, bug->words, 3);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(wrong_results_are_told) {
  const size_t runs = (size_t)emulator_runs(used->wrong_count);
  const struct backward_bug *const bug =
      &used->wrong_results[emulator_choose(_i, runs, used->wrong_count)];
  struct emulator_run run;
  const struct planted planted = emulator_plant(bug->file, bug->piece, bug->other);
  run_with(&run, bug, planted.folder);
  emulator_expect_wrong(bug->name, &run);
  emulator_expect_words(bug->name, run.explanation.data, bug->words, 3);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(unedited_templates_are_right) {
  struct emulator_run run;
  run_with(&run, &used->absent[_i], NULL);
  emulator_expect_right(used->absent[_i].name, &run);
  emulator_run_free(&run);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  for (size_t i = 0; i < used->fault_count; i++)
    emulator_expect_piece(used->faults[i].file, used->faults[i].piece, true);
  for (size_t i = 0; i < used->wrong_count; i++)
    emulator_expect_piece(used->wrong_results[i].file, used->wrong_results[i].piece, true);
}
END_TEST

void backward_bugs_use(const struct backward_bugs *bugs) {
  used = bugs;
}

Suite *backward_bugs_suite(const char *name, const struct backward_bugs *bugs, void (*use)(void)) {
  Suite *const suite = suite_create(name);
  TCase *const tests = tcase_create("bugs");
  tcase_set_timeout(tests, 120);
  tcase_add_checked_fixture(tests, use, NULL);
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, faults_are_caught, 0, emulator_runs(bugs->fault_count));
  tcase_add_loop_test(tests, wrong_results_are_told, 0, emulator_runs(bugs->wrong_count));
  tcase_add_loop_test(tests, unedited_templates_are_right, 0, (int)bugs->absent_count);
  suite_add_tcase(suite, tests);
  return suite;
}
