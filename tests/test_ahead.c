/* test_ahead.c: the search that is opened before another ends.
 * in -> out: fake GPU, fake NVRTC, simulated machine -> kernels compiled before the search that
 * takes them -> Check suite. */
#include "tests/suites.h"

#include <time.h>

#include "generator/clock.h"
#include "generator/status.h"
#include "tests/fake_lab.h"
#include "tests/simulated_machine.h"
#include "tuner/search/ahead.h"
#include "tuner/search/tune.h"

enum { OF_SHARE = 3 }; /* candidates of the first request */
static const char words[] = "forward bf16 d64 nq256 hq2", others[] = "forward bf16 d64 nq4096 hq2";

struct ahead_lab {
  struct fake_controls nvrtc;
  struct fake_lab gpu;
  struct ft_ahead *ahead;
  struct ft_tune_options options;
};

static struct ahead_lab lab_open(void) {
  struct ahead_lab lab = {.nvrtc = use_fake_nvrtc(), .gpu = fake_lab_open()};
  ck_assert_int_eq(ft_ahead_make(&lab.ahead), FT_OK);
  lab.options = (struct ft_tune_options){
      .effort = FT_EFFORT_QUICK, .jobs = 2, .shards = 6, .ahead = lab.ahead};
  return lab;
}

static void lab_close(struct ahead_lab *lab) {
  ft_ahead_free(lab->ahead);
  fake_lab_close(&lab->gpu);
  ck_assert_int_eq(lab->nvrtc.live(), 0);
}

static struct ft_request request_of(const char *text) {
  struct ft_request request;
  ck_assert_int_eq(ft_request_parse(&request, text), FT_OK);
  return request;
}

static void begin(const struct ahead_lab *lab, const char *text) {
  const struct ft_request request = request_of(text);
  ft_ahead_begin(lab->ahead, lab->gpu.session, &request, &lab->options);
}

/* The fake GPU computes nothing, so a search ends with all candidates wrong. Returns how many. */
static int tune(const struct ahead_lab *lab, const char *text) {
  const struct ft_request request = request_of(text);
  struct ft_tune_summary summary;
  ck_assert_int_eq(ft_tune(lab->gpu.session, &request, &lab->options, &summary), FT_E_NOT_FOUND);
  ck_assert_int_gt(summary.tried, 0);
  ck_assert_int_eq(summary.wrong, summary.tried);
  return summary.tried;
}

static void wait_for_compiles(const struct ahead_lab *lab, int count) {
  const struct timespec pause = {.tv_nsec = 1000000};
  const double until = ft_seconds_now() + 30;
  while (lab->nvrtc.calls("nvrtcCompileProgram") < count && ft_seconds_now() < until)
    nanosleep(&pause, NULL);
  ck_assert_int_eq(lab->nvrtc.calls("nvrtcCompileProgram"), count);
}

START_TEST(kernels_are_compiled_before_the_search_and_once) {
  struct ahead_lab lab = lab_open();
  begin(&lab, words);
  wait_for_compiles(&lab, OF_SHARE);
  ck_assert_int_eq(lab.gpu.cuda.calls("cuModuleLoadData"), 0); /* the GPU is another's meanwhile */
  ck_assert_int_eq(tune(&lab, words), OF_SHARE);
  ck_assert_int_eq(lab.nvrtc.calls("nvrtcCompileProgram"), OF_SHARE);
  lab_close(&lab);
}
END_TEST

START_TEST(another_request_is_searched_as_without) {
  struct ahead_lab lab = lab_open();
  begin(&lab, words);
  wait_for_compiles(&lab, OF_SHARE);
  const int tried = tune(&lab, others);
  ck_assert_int_eq(lab.nvrtc.calls("nvrtcCompileProgram"), OF_SHARE + tried);
  begin(&lab, words);
  begin(&lab, others); /* in its place */
  tune(&lab, others);
  tune(&lab, words);
  lab_close(&lab);
}
END_TEST

/* The config that would be used without the search is one of its candidates. */
START_TEST(what_a_search_has_found_since_is_not_passed_over) {
  struct ahead_lab lab = lab_open();
  const struct ft_request request = request_of(words);
  struct ft_trial trial;
  begin(&lab, words);
  struct ft_tuning *const tuning = ft_ahead_take(lab.ahead, &request);
  ck_assert_ptr_nonnull(tuning);
  ck_assert(ft_tuning_is_current(tuning));
  ck_assert_ptr_null(ft_ahead_take(lab.ahead, &request)); /* it is taken once */
  begin(&lab, words);
  wait_for_compiles(&lab, 2 * OF_SHARE);
  fake_measured(lab.gpu.session, words, &trial);
  ck_assert(!ft_tuning_is_current(tuning));
  ck_assert_ptr_null(ft_ahead_take(lab.ahead, &request));
  ft_tuning_close(tuning);
  lab_close(&lab);
}
END_TEST

/* A request that cannot be listed fails in its own search, with its own words. */
START_TEST(a_failure_ahead_is_told_by_the_search) {
  struct ahead_lab lab = lab_open();
  struct ft_request request = request_of(words);
  struct ft_tune_summary summary;
  request.score = 0x63; /* nobody has added it */
  ft_ahead_begin(lab.ahead, lab.gpu.session, &request, &lab.options);
  ck_assert_int_eq(ft_tune(lab.gpu.session, &request, &lab.options, &summary), FT_E_NOT_FOUND);
  ck_assert_msg(strstr(ft_detail(), "score 000000000063 is not known") != NULL, "%s", ft_detail());
  lab_close(&lab);
}
END_TEST

struct told {
  const struct simulated *machine;
  int times, measures, rounds;
};

static void on_cores_free(void *payload) {
  struct told *const told = payload;
  told->times += 1;
  told->measures = told->machine->measures;
  told->rounds = told->machine->rounds;
}

/* Two threads compile at most three kernels early. */
START_TEST(free_cores_are_told_before_the_finals) {
  struct setting *const s = setting_make(_i == 0 ? FT_EFFORT_NORMAL : FT_EFFORT_EXHAUSTIVE);
  struct told told = {.machine = s->machine};
  s->options.cores_are_free = on_cores_free;
  s->options.payload = &told;
  ck_assert_int_eq(search(s), FT_OK);
  ck_assert_int_eq(told.times, 1);
  ck_assert_int_ge(told.measures, s->machine->measures - 4);
  ck_assert_int_eq(told.rounds, 0);
  ck_assert_int_gt(s->machine->rounds, 0);
  setting_free(s);
}
END_TEST

Suite *make_ahead_suite(void) {
  Suite *const suite = suite_create("ahead");
  TCase *const tests = tcase_create("ahead");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, kernels_are_compiled_before_the_search_and_once);
  tcase_add_test(tests, another_request_is_searched_as_without);
  tcase_add_test(tests, what_a_search_has_found_since_is_not_passed_over);
  tcase_add_test(tests, a_failure_ahead_is_told_by_the_search);
  tcase_add_loop_test(tests, free_cores_are_told_before_the_finals, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}
