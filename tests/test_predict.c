/* test_predict.c: the search when the model says the times: with simulated compiles, and for real
 * where there is NVRTC.
 * in -> out: fates of compiles -> rows, winner -> Check suite. */
#include "generator/lua_host.h"
#include "generator/model/choice.h"
#include "runtime/choice.h"
#include "runtime/kernel_source.h"
#include "tests/simulated_machine.h"
#include "tests/suites.h"
#include "tuner/search/by_model.h"
#include "tuner/search/tune.h"

/* ---- times of the model ---- */

static int predict(struct setting *s) {
  const struct ft_request request = the_request();
  struct ft_ranker ranker;
  ck_assert_int_eq(ft_ranker_open(&ranker, &request, &arch, NULL), FT_OK);
  const struct ft_measuring measuring = ft_measuring_by_model(&ranker);
  s->rig.load = NULL; /* nothing is loaded, run or timed */
  s->rig.verify = NULL;
  s->rig.measure = NULL;
  s->rig.measure_in_turn = NULL;
  return search_by(s, &measuring);
}

static double predicted_us(const struct setting *s, int candidate) {
  const struct ft_request request = the_request();
  const struct ft_config *const config = &s->candidates.list[candidate].config;
  struct ft_ranker ranker;
  ck_assert_int_eq(ft_ranker_open(&ranker, &request, &arch, NULL), FT_OK);
  return ft_choice_margin(&ranker, config) *
         ft_ranker_compiled_us(&ranker, config, 100 + candidate % 7, 0);
}

START_TEST(predictions_are_rows_and_the_least_wins) {
  struct setting *s = setting_make(FT_EFFORT_NORMAL);
  const struct ft_trial *row = NULL;
  for (int n = 0; n < s->candidates.count; n++) s->machine->fates[n] = n % 3 == 1 ? SPILLS : RUNS;
  s->machine->fates[2] = NO_COMPILE;
  ck_assert_int_eq(predict(s), FT_OK);
  ck_assert_int_eq(s->summary.tried, s->candidates.count); /* no patience is lost */
  ck_assert_int_eq(s->summary.ok + s->summary.spilled, s->summary.tried - 1);
  ck_assert_int_eq(s->summary.failed, 1);
  double least = INFINITY;
  for (int n = 0; n < s->candidates.count; n++) {
    ck_assert_int_eq(rows_of(s, n, &row), 1);
    ck_assert_int_eq(row->outcome, n == 2       ? FT_OUTCOME_COMPILE
                                   : n % 3 == 1 ? FT_OUTCOME_SPILLED
                                                : FT_OUTCOME_PREDICTED);
    if (row->outcome != FT_OUTCOME_PREDICTED) continue;
    ck_assert_double_eq(row->median_us, predicted_us(s, n));
    least = fmin(least, row->median_us);
  }
  ck_assert_double_le(s->summary.best_us, 1.003 * least);
  ck_assert_double_eq(s->summary.default_us, predicted_us(s, 0));

  s->machine->compiles = 0;
  const struct ft_config best = s->summary.best;
  ck_assert_int_eq(predict(s), FT_OK);
  ck_assert_int_eq(s->machine->compiles, 0);
  ck_assert_int_eq(s->summary.recalled, s->candidates.count);
  ck_assert_int_eq(ft_config_compare(&s->summary.best, &best), 0);
  setting_free(s);
}
END_TEST

static void expect_rows_at_once(void *payload, const struct ft_tune_progress *progress) {
  const struct setting *s = payload;
  ck_assert_int_eq(s->machine->row_count, progress->done);
}

START_TEST(predicted_rows_do_not_wait) {
  struct setting *s = setting_make(FT_EFFORT_QUICK);
  s->options.progress = expect_rows_at_once;
  s->options.payload = s;
  ck_assert_int_eq(predict(s), FT_OK);
  ck_assert_int_eq(s->machine->row_count, s->candidates.count);
  setting_free(s);
}
END_TEST

START_TEST(nothing_that_can_be_predicted_is_said) {
  struct setting *s = setting_make(FT_EFFORT_QUICK);
  for (int n = 0; n < s->candidates.count; n++) s->machine->fates[n] = NO_COMPILE;
  ck_assert_int_eq(predict(s), FT_E_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "none of 13 candidates is fit: 0 wrong, 0 spilled, "
                                            "13 failed otherwise"));
  setting_free(s);
}
END_TEST

START_TEST(a_full_disk_does_not_end_the_prediction) {
  struct setting *s = setting_make(FT_EFFORT_QUICK);
  s->machine->rows_refused = ROWS;
  ck_assert_int_eq(predict(s), FT_E_CACHE);
  ck_assert_int_eq(s->summary.tried, s->candidates.count);
  ck_assert_int_eq(s->summary.unstored, s->candidates.count);
  ck_assert_double_gt(s->summary.best_us, 0);
  setting_free(s);
}
END_TEST

START_TEST(far_behind_is_not_worth_a_prediction) {
  struct setting *s = setting_make(FT_EFFORT_EXHAUSTIVE);
  const struct ft_candidate *list = s->candidates.list;
  const int middle = s->candidates.count / 2;
  const double limit = list[middle].predicted_us;
  ck_assert_double_gt(list[s->candidates.count - 1].predicted_us, limit);
  ft_candidates_cut(&s->candidates, limit / list[1].predicted_us, s->candidates.count);
  ck_assert_int_ge(s->candidates.count, middle);
  ck_assert_double_le(list[s->candidates.count - 1].predicted_us, limit);
  ck_assert_double_gt(list[s->candidates.count].predicted_us, limit);
  const int left = s->candidates.count;
  ck_assert_int_gt(left, 5);
  ft_candidates_cut(&s->candidates, INFINITY, 5);
  ck_assert_int_eq(s->candidates.count, 5); /* as many as are wanted, and the default is one */
  ck_assert(list[0].is_default);
  ft_candidates_cut(&s->candidates, 0, 5);
  ck_assert_int_eq(s->candidates.count, 2); /* the default and the best */
  setting_free(s);
}
END_TEST

/* ---- for real ---- */

START_TEST(prediction_compiles_for_a_gpu_that_is_not_here) {
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  options.memory_only = 1;
  fatune_session *session;
  ck_assert_msg(fatune_session_open(&session, &options) == FT_OK, "%s", ft_detail());
  struct ft_compiler *compiler;
  const int compiles = ft_session_compiler(session, &compiler);
  const struct ft_request request = the_request();
  struct ft_arch a100;
  ck_assert_int_eq(ft_lua_gpu(session->lua, "a100", &a100), FT_OK);
  const struct ft_tune_options tune = {
      .effort = FT_EFFORT_QUICK, .jobs = 2, .shard = 1, .shards = 4};
  struct ft_tune_summary summary;
  const int status = ft_tune_predict(session, &request, &a100, &tune, &summary);
  if (compiles != FT_OK) {
    ck_assert_int_eq(status, FT_E_NO_NVRTC);
    fatune_session_close(session);
    return;
  }
  ck_assert_msg(status == FT_OK, "%s", ft_detail());
  ck_assert_int_eq(summary.tried, 4); /* the default and 1, 5, 9 of 13 */
  ck_assert(!summary.measured && summary.best_us > 0 && summary.default_us > 0);

  struct ft_choice choice;
  ck_assert_int_eq(ft_session_choose(session, &request, &a100, NULL, &choice), FT_OK);
  ck_assert_int_eq(choice.hit, FT_HIT_MODEL);
  ck_assert_int_eq(ft_config_compare(&choice.config, &summary.best), 0);

  ck_assert_int_eq(ft_tune_predict(session, &request, &a100, &tune, &summary), FT_OK);
  ck_assert_int_eq(summary.recalled, 4);
  ck_assert_double_eq(summary.compile_seconds, 0);
  fatune_session_close(session);
}
END_TEST

Suite *make_predict_suite(void) {
  Suite *suite = suite_create("predict");
  TCase *tcase = tcase_create("simulated");
  tcase_add_test(tcase, predictions_are_rows_and_the_least_wins);
  tcase_add_test(tcase, predicted_rows_do_not_wait);
  tcase_add_test(tcase, nothing_that_can_be_predicted_is_said);
  tcase_add_test(tcase, a_full_disk_does_not_end_the_prediction);
  tcase_add_test(tcase, far_behind_is_not_worth_a_prediction);
  suite_add_tcase(suite, tcase);
  TCase *real = tcase_create("for_real");
  tcase_set_timeout(real, 120);
  tcase_add_test(real, prediction_compiles_for_a_gpu_that_is_not_here);
  suite_add_tcase(suite, real);
  return suite;
}
