/* test_gpu_rig.c: what a search asks of a GPU, on the fake one: candidates compiled, loaded, judged
 * and timed, while each call of the driver or for memory fails. in -> out: request -> verdicts,
 * times, a status, nothing left on the device -> Check suite. */
#include "tests/suites.h"

#include <stdio.h>

#include "generator/space.h"
#include "generator/status.h"
#include "runtime/session.h"
#include "tests/fake_lab.h"
#include "tests/faulty/fault_calls.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"
#include "tuner/search/gpu_rig.h"

static const struct {
  const char *words, *score; /* NULL: none */
} requests[] = {{"forward bf16 d16 nq40 nk48 hq2", NULL},
                {"backward bf16 d16 nq40", NULL},
                {"forward fp16 d16 nq40 sinks", NULL},
                {"forward bf16 d16 nq40 hq2", "alibi"}}; /* it captures slopes */
enum { REQUESTS = sizeof requests / sizeof *requests, LOADED = 3 };

static struct fake_lab lab;
static struct ft_request request;
static struct ft_config config;

static void set_up(void) {
  fault_calls_begin();
  use_fake_nvrtc();
  setenv("FATUNE_FAKE_MS", "1000", 1); /* an interval is one launch */
  lab = fake_lab_open();
}

static void tear_down(void) {
  unsetenv("FATUNE_FAKE_MS");
}

static void choose(int which) {
  const char *const words = requests[which].words, *const score = requests[which].score;
  ck_assert_msg(ft_request_parse(&request, words) == FT_OK, "%s", ft_detail());
  if (score) ck_assert_status(fatune_score_add(&request.score, lab.session, score, NULL), FT_OK);
  ck_assert_status(ft_default_config(&request, &lab.session->device.arch, &config), FT_OK);
}

/* A rig and its candidates. */
struct use {
  struct ft_gpu_rig *rig;
  const struct ft_rig *functions;
  void *loaded[LOADED];
  struct ft_comparison comparison;
  struct ft_timing alone, beside[2], in_turn[LOADED];
};

static int load(struct use *use) {
  const struct ft_rig *const rig = use->functions;
  struct ft_kernel kernel = {0};
  int status = rig->compile(rig->payload, &config, &kernel);
  for (int i = 0; status == FT_OK && i < LOADED; i++)
    status = rig->load(rig->payload, &config, &kernel, &use->loaded[i]);
  ft_kernel_free(&kernel);
  return status;
}

/* All that a search does with candidates, until a failure ends it. Judging, which takes long, has
 * failures in a suite of its own (test_problem_failures.c). */
static int run(struct use *use, bool judge) {
  const struct ft_tune_options options = {.jobs = 1, .seed = 7};
  *use = (struct use){NULL};
  int status =
      ft_gpu_rig_open(&use->rig, lab.session, &request, &lab.session->device.arch, &options, true);
  if (status == FT_OK) status = ft_gpu_rig_enter(use->rig);
  if (status != FT_OK) return status;
  use->functions = ft_gpu_rig_functions(use->rig);
  const struct ft_rig *const rig = use->functions;
  void *const machine = rig->payload;
  FT_CHECK(load(use));
  if (judge) FT_CHECK(rig->verify(machine, use->loaded[0], &use->comparison));
  FT_CHECK(rig->measure(machine, use->loaded[0], NULL, 0, &use->alone, &use->beside[0]));
  FT_CHECK(
      rig->measure(machine, use->loaded[1], use->loaded[0], 0, &use->beside[0], &use->beside[1]));
  FT_CHECK(rig->measure_in_turn(machine, use->loaded, LOADED, use->in_turn));
done:
  if (status != FT_OK) (void)rig->health(machine);
  return status;
}

static void end(struct use *use) {
  for (int i = 0; i < LOADED; i++)
    if (use->loaded[i]) use->functions->unload(use->functions->payload, use->loaded[i]);
  ft_gpu_rig_close(use->rig);
}

START_TEST(candidates_are_judged_and_timed) {
  struct use use;
  choose(_i);
  ck_assert_status(run(&use, true), FT_OK);
  ck_assert(!(use.comparison.error_ratio <= 1)); /* the fake GPU computes nothing */
  ck_assert_int_gt(use.alone.sample_count, 0);
  ck_assert_double_gt(use.alone.median_us, 0);
  ck_assert_int_eq(use.beside[0].sample_count, use.beside[1].sample_count);
  for (int i = 0; i < LOADED; i++) {
    ck_assert_int_gt(use.in_turn[i].sample_count, use.alone.sample_count);
    ck_assert_double_gt(use.in_turn[i].median_us, 0);
  }
  ck_assert_int_eq(use.functions->health(use.functions->payload), FT_HEALTH_GOOD);
  void *many[FT_TRIAL_SAMPLES + 1];
  for (int i = 0; i <= FT_TRIAL_SAMPLES; i++) many[i] = use.loaded[0];
  ck_assert_status(use.functions->measure_in_turn(use.functions->payload, many,
                                                  FT_TRIAL_SAMPLES + 1, use.in_turn),
                   FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "cannot be measured in turn"));
  end(&use);
  fake_lab_close(&lab);
}
END_TEST

/* Each of the first calls of the driver fails in turn, and some of the later ones; with
 * FATUNE_TEST_SLOW=1 each of all. */
START_TEST(a_failing_driver_leaves_nothing) {
  enum { EACH = 30, STEP = 40 };
  struct dice dice = dice_new();
  bool failed = true;
  int call = 1;
  choose(_i);
  while (failed) {
    struct use use;
    char failure[32];
    snprintf(failure, sizeof failure, "*:%d:700", call);
    lab.cuda.reset(failure);
    const int status = run(&use, false);
    failed = lab.cuda.failed()[0] != '\0';
    const bool gives_up = strstr(lab.cuda.failed(), "Destroy") ||
                          strstr(lab.cuda.failed(), "Free") || strstr(lab.cuda.failed(), "Pop");
    ck_assert_msg(!failed || status != FT_OK || gives_up, "call %d, %s: not told", call,
                  lab.cuda.failed());
    end(&use);
    failed = lab.cuda.failed()[0] != '\0';
    ck_assert_msg(lab.cuda.live() == 0, "call %d, %s: %d left", call, lab.cuda.failed(),
                  lab.cuda.live());
    call += call < EACH || tests_are_slow() ? 1 : 1 + dice_below(&dice, STEP);
  }
  ck_assert_int_gt(call, 50);
  fatune_session_close(lab.session);
}
END_TEST

/* The n-th call for memory; whether there was one. */
static bool fail_memory(long n, int live) {
  struct use use;
  fault_calls_arm(FAULT_MEMORY, n, false);
  const int status = run(&use, false);
  const bool fired = fault_calls_disarm() >= n && n > 0;
  end(&use);
  ck_assert_msg(status == FT_OK || (fired && status == FT_E_MEMORY), "call %ld: %d %s", n, status,
                ft_detail());
  ck_assert_msg(lab.cuda.live() == live, "call %ld: %d left", n, lab.cuda.live());
  return fired;
}

/* Of the calls by the same two callers the first. */
START_TEST(without_memory_nothing_is_left) {
  enum { CALLERS = 6, MOST = 2048 }; /* four of them are of fault_calls.c */
  static long firsts[MOST];
  size_t at = 0;
  int count = 0;
  choose(_i);
  const int live = lab.cuda.live();
  fault_calls_note_places(CALLERS);
  fail_memory(0, live);
  for (const struct fault_place *place; (place = fault_calls_place(&at)) != NULL;) {
    ck_assert_int_lt(count, MOST);
    firsts[count++] = place->first;
  }
  fault_calls_note_places(0);
  ck_assert_int_gt(count, 10);
  for (int i = 0; i < count; i++) fail_memory(firsts[i], live);
  fake_lab_close(&lab);
}
END_TEST

/* A candidate is judged on a problem that is small and has all that the request has. */
START_TEST(a_small_request_has_every_feature) {
  static const struct {
    const char *words;
    int64_t rows, keys, left; /* of a sequence; left of a window */
    double density;
  } cases[] = {{"forward bf16 d64 hq8 hkv2 nq4096", 529, 349, -1, 1},
               {"forward bf16 d64 nq4096 mask=128x64@0.1", 529, 205, -1, 0.5},
               {"forward bf16 d64 nq4096 mask=512x128@0.1", 1041, 397, -1, 0.5},
               {"forward bf16 d64 nq4096 window@4000,7", 529, 349, 116, 1},
               {"forward bf16 d64 nq4096 b8 ragged", 529, 349, -1, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ck_assert_msg(ft_request_parse(&request, cases[i].words) == FT_OK, "%s", ft_detail());
    const struct ft_request small = ft_small_request(&request, &lab.session->device.arch);
    const int64_t sequences = request.ragged ? small.batch : 1;
    ck_assert_int_eq(small.seqlen_q, cases[i].rows * sequences);
    ck_assert_int_eq(small.seqlen_k, cases[i].keys * sequences);
    if (request.mask_rows > 0) ck_assert_double_eq(small.mask_density, cases[i].density);
    if (request.window != FT_WINDOW_NONE) ck_assert_int_eq(small.window_left, cases[i].left);
    if (request.window != FT_WINDOW_NONE) ck_assert_int_eq(small.window_right, 7);
    ck_assert_int_ge(small.batch, 2);
    ck_assert_msg(ft_request_validate(&small) == FT_OK, "%s: %s", cases[i].words, ft_detail());
  }
  fake_lab_close(&lab);
}
END_TEST

Suite *make_gpu_rig_suite(void) {
  Suite *const suite = suite_create("gpu_rig");
  TCase *const tests = tcase_create("rig");
  tcase_set_timeout(tests, 120);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, a_small_request_has_every_feature);
  tcase_add_loop_test(tests, candidates_are_judged_and_timed, 0, REQUESTS);
  tcase_add_loop_test(tests, a_failing_driver_leaves_nothing, 0, 2);
  tcase_add_loop_test(tests, without_memory_nothing_is_left, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}
