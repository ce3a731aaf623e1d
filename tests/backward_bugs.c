/* backward_bugs.c: runs of the backward with a bug in its templates, and without. */
#include "tests/backward_bugs.h"

#include <stdlib.h>

#include "tests/emulator_lab.h"

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
  setenv("FATUNE_EMULATOR_STEPS", "3000000", 1);
  emulator_run(run, session, &options, bug->config ? bug->config : ATOMIC);
  fatune_session_close(session);
}

void backward_bug_faults(const struct backward_bug *bug) {
  struct emulator_run run;
  setenv("FATUNE_EMULATOR_HOOKS", "1", 1);
  const struct planted planted = emulator_plant(bug->file, bug->piece, bug->other);
  run_with(&run, bug, planted.folder);
  emulator_expect_fault(bug->name, &run);
  emulator_expect_words(bug->name, run.fault, bug->words, 3);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}

void backward_bug_is_wrong(const struct backward_bug *bug) {
  struct emulator_run run;
  const struct planted planted = emulator_plant(bug->file, bug->piece, bug->other);
  run_with(&run, bug, planted.folder);
  emulator_expect_wrong(bug->name, &run);
  emulator_expect_words(bug->name, run.explanation.data, bug->words, 3);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}

void backward_bug_absent(const struct backward_bug *bug) {
  struct emulator_run run;
  run_with(&run, bug, NULL);
  emulator_expect_right(bug->name, &run);
  emulator_run_free(&run);
}
