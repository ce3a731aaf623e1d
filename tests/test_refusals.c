/* test_refusals.c: errors of public calls, and of the checks that FATUNE_CHECK adds to a run.
 * in -> out: NULL where an object is needed, options out of range, memory that is shared, a driver
 * whose copies fail -> an error that names the argument, or the driver's function -> Check suite.
 */
#include "tests/suites.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/session.h"
#include "tests/fake_lab.h"

static struct fake_lab lab;
static struct fake_controls nvrtc;

static void set_up(void) {
  nvrtc = use_fake_nvrtc();
  lab = fake_lab_open();
}

static void tear_down(void) {
  fake_lab_close(&lab);
  ck_assert_int_eq(nvrtc.live(), 0);
}

static void expect_refusal(int status, const char *words) {
  ck_assert_msg(status == FATUNE_E_ARGUMENT, "%d: %s", status, fatune_detail());
  ck_assert_msg(strstr(fatune_detail(), words) != NULL, "'%s' lacks '%s'", fatune_detail(), words);
}

static fatune_plan *plan_of(const char *words) {
  fatune_plan *plan = NULL;
  const fatune_request request = fake_request(words);
  ck_assert_status(fatune_plan_make(&plan, lab.session, &request), FATUNE_OK);
  return plan;
}

/* ---- nothing where something is needed ---- */

START_TEST(a_search_wants_a_session_and_a_request) {
  const fatune_request request = fake_request("forward bf16 d64 nq256");
  fatune_tune_options options = FATUNE_TUNE_OPTIONS_INIT;
  expect_refusal(fatune_tune(NULL, &request, NULL), "session is NULL");
  expect_refusal(fatune_tune(lab.session, NULL, NULL), "request is NULL");
  static const int switches[] = {-1, 2};
  for (size_t i = 0; i < 2; i++) {
    options.if_missing = switches[i];
    expect_refusal(fatune_tune(lab.session, &request, &options), "options.if_missing is ");
  }
  options.if_missing = 0;
  const double budgets[] = {-1, -INFINITY, NAN};
  for (size_t i = 0; i < 3; i++) {
    options.budget_seconds = budgets[i];
    expect_refusal(fatune_tune(lab.session, &request, &options), "options.budget_seconds is ");
  }
  options.budget_seconds = 0;
  options.jobs = -2;
  expect_refusal(fatune_tune(lab.session, &request, &options), "options.jobs is -2");
  options.jobs = 0;
  options.size = 4;
  expect_refusal(fatune_tune(lab.session, &request, &options), "options.size is 4");
  fatune_request bad = request;
  bad.head_dim = 3;
  expect_refusal(fatune_tune(lab.session, &bad, NULL), "head_dim is 3");
}
END_TEST

START_TEST(a_plan_that_is_none_has_no_words) {
  size_t bytes = 1;
  ck_assert_str_eq(fatune_plan_origin(NULL), "");
  ck_assert_str_eq(fatune_plan_config(NULL), "");
  ck_assert_str_eq(fatune_plan_source(NULL), "");
  expect_refusal(fatune_plan_workspace_size(NULL, &bytes), "plan is NULL");
  ck_assert_uint_eq(bytes, 0);
  fatune_plan_free(NULL);
}
END_TEST

START_TEST(a_mask_of_a_score_wants_its_places) {
  fatune_visible_options options = FATUNE_VISIBLE_OPTIONS_INIT;
  fatune_mask *mask = NULL;
  size_t bytes;
  options.score = 1;
  expect_refusal(fatune_visible_memory_size(NULL, &options, &bytes), "session is NULL");
  expect_refusal(fatune_visible_memory_size(lab.session, NULL, &bytes), "options is NULL");
  expect_refusal(fatune_visible_memory_size(lab.session, &options, NULL), "bytes is NULL");
  expect_refusal(fatune_visible_mask(NULL, lab.session, &options), "mask is NULL");
  expect_refusal(fatune_visible_mask(&mask, NULL, &options), "session is NULL");
  expect_refusal(fatune_visible_mask(&mask, lab.session, NULL), "options is NULL");
  ck_assert_ptr_null(mask);
}
END_TEST

/* New rows go into K and V alone, each into memory of its own. */
START_TEST(new_rows_have_memory_of_their_own) {
  const fatune_request request = fake_request("forward bf16 d64 nq8 nk64");
  fatune_plan *const plan = plan_of("forward bf16 d64 nq8 nk64");
  fatune_plan *const backward = plan_of("backward bf16 d64 nq64");
  const fatune_arguments good = fake_arguments(&request);
  const fatune_tensor k = {(void *)0x20000, 8 * 64, 64, 64}, v = {(void *)0x30000, 8 * 64, 64, 64};
  expect_refusal(fatune_append(plan, &good, NULL, &v, NULL), "new_k is NULL");
  expect_refusal(fatune_append(plan, &good, &k, NULL, NULL), "new_v is NULL");
  expect_refusal(fatune_append(backward, &good, &k, &v, NULL), "pass is backward");
  expect_refusal(fatune_append(plan, NULL, &k, &v, NULL), "arguments is NULL");
  fatune_arguments bad;
  const void *const places[] = {k.data, v.data};
  for (size_t i = 0; i < 2; i++) {
    bad = good;
    bad.k.data = (void *)(uintptr_t)places[i];
    expect_refusal(fatune_append(plan, &bad, &k, &v, NULL), "must not share memory");
    bad = good;
    bad.v.data = (void *)(uintptr_t)places[i];
    expect_refusal(fatune_append(plan, &bad, &k, &v, NULL), "must not share memory");
  }
  fatune_tensor wrong = k;
  wrong.data = (void *)0x20004;
  expect_refusal(fatune_append(plan, &good, &wrong, &v, NULL), "new_k");
  expect_refusal(fatune_append(plan, &good, &k, &wrong, NULL), "new_v");
  fatune_plan_free(backward);
  fatune_plan_free(plan);
}
END_TEST

/* ---- what a run on a GPU checks where FATUNE_CHECK asks for it ---- */

enum { SEQUENCES = 3, ROWS = 96 };

static struct {
  int32_t starts[SEQUENCES + 1], used[SEQUENCES], table[SEQUENCES];
  float descales[2];
} memory; /* of the fake GPU, as far as its driver copies it */

static const char *const checked[] = {"forward bf16 d64 nq96 ragged",
                                      "forward bf16 d64 b3 nq16 nk32 pages=32",
                                      "forward e4m3 d64 hq2 nq96"};
enum { RAGGED, PAGED, SCALED, CHECKED };

static fatune_arguments arguments_of(int which) {
  const fatune_request request = fake_request(checked[which]);
  fatune_arguments arguments = fake_arguments(&request);
  static const int32_t starts[SEQUENCES + 1] = {0, 40, 40, ROWS};
  memcpy(memory.starts, starts, sizeof starts);
  for (int n = 0; n < SEQUENCES; n++) {
    memory.used[n] = which == PAGED ? 32 : starts[n + 1] - starts[n];
    memory.table[n] = n;
  }
  memory.descales[0] = memory.descales[1] = 0.5f;
  if (which == RAGGED) {
    arguments.batch = SEQUENCES;
    arguments.cu_seqlens_q = arguments.cu_seqlens_k = memory.starts;
    arguments.seqused_q = arguments.seqused_k = memory.used;
    arguments.workspace = (void *)0x10000;
  } else if (which == PAGED) {
    arguments.seqused_k = memory.used;
    arguments.page_table = (fatune_page_table){memory.table, 1, 1, 1, SEQUENCES};
  } else {
    arguments.descale_q = (fatune_descale){memory.descales, 0, 1};
    arguments.descale_k = arguments.descale_v = (fatune_descale){memory.descales, 0, 0};
  }
  return arguments;
}

/* The fake driver makes no tensor maps of e4m3: a family that wants none serves it. */
static fatune_plan *plan_to_check(int which) {
  fatune_plan *plan = NULL;
  const fatune_request request = fake_request(checked[which]);
  const char *const config =
      which == SCALED ? "mma_forward block_m=64 block_n=64 warps=4 stages=2 ctas_per_sm=1" : NULL;
  ck_assert_status(config ? fatune_plan_make_with(&plan, lab.session, &request, config)
                          : fatune_plan_make(&plan, lab.session, &request),
                   FATUNE_OK);
  return plan;
}

static int run(fatune_plan *plan, const fatune_arguments *arguments) {
  ck_assert_status(ft_session_enter(lab.session), FATUNE_OK);
  const int status = fatune_plan_run(plan, arguments, NULL);
  ft_session_leave(lab.session);
  return status;
}

/* The fake GPU has no function that lists the tiles of a ragged run: its launch is refused. */
static void expect_launch(int which, int status) {
  if (which != RAGGED) ck_assert_status(status, FATUNE_OK);
  if (which == RAGGED) ck_assert_status(status, FATUNE_E_DEVICE);
  if (which == RAGGED) ck_assert_ptr_nonnull(strstr(fatune_detail(), "cuLaunchKernel"));
}

static void open_checking(const char *failing) {
  const fatune_session_options options = memory_only_options();
  lab.cuda.reset(failing);
  ck_assert_status(fatune_session_open(&lab.session, &options), FATUNE_OK);
}

static void set_up_checks(void) {
  setenv("FATUNE_CHECK", "1", 1);
  nvrtc = use_fake_nvrtc();
  lab.cuda = use_fake_cuda();
  open_checking(NULL);
}

START_TEST(a_checked_run_names_the_wrong_number) {
  fatune_plan *const plan = plan_to_check(_i);
  const fatune_arguments arguments = arguments_of(_i);
  expect_launch(_i, run(plan, &arguments));
  if (_i == SCALED) {
    memory.descales[1] = -1;
    expect_refusal(run(plan, &arguments), "arguments.descale_q has -1 for head 1");
    memory.descales[1] = 0.5f;
  } else {
    static const int32_t wrong[] = {-1, 60};
    for (size_t n = 0; n < 2; n++) {
      memory.used[0] = wrong[n];
      expect_refusal(run(plan, &arguments), "[0] is ");
    }
    memory.used[0] = 32;
  }
  expect_launch(_i, run(plan, &arguments));
  fatune_plan_free(plan);
}
END_TEST

/* Starts of sequences begin at 0, do not fall, and do not exceed the number of rows. Page numbers
 * are less than the pool has pages. */
START_TEST(wrong_starts_and_pages_are_named) {
  static const struct {
    int place, wrong;
    const char *words;
  } cases[] = {{0, 1, "arguments.cu_seqlens_q[0] is 1; allowed: 0"},
               {2, 39,
                "arguments.cu_seqlens_q[2] is 39, and the one before is 40; allowed: not to fall "
                "(batch entry 1)"},
               {3, ROWS + 1,
                "arguments.cu_seqlens_q[3] is 97; allowed: at most seqlen_q, 96 (batch entry "
                "2)"}};
  fatune_plan *plan = plan_to_check(RAGGED);
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    const fatune_arguments arguments = arguments_of(RAGGED);
    memory.starts[cases[n].place] = cases[n].wrong;
    expect_refusal(run(plan, &arguments), cases[n].words);
  }
  fatune_plan_free(plan);
  plan = plan_to_check(PAGED);
  static const int pages[] = {-1, SEQUENCES};
  for (size_t n = 0; n < 2; n++) {
    const fatune_arguments arguments = arguments_of(PAGED);
    memory.table[1] = pages[n];
    expect_refusal(run(plan, &arguments), "in column 0 of batch entry 1; allowed: 0 .. 2");
  }
  fatune_plan_free(plan);
  ck_assert_int_eq(lab.cuda.calls("cuLaunchKernel"), 0);
}
END_TEST

/* Nothing is launched that could not be checked: the n-th copy from the GPU fails. */
START_TEST(a_check_that_fails_stops_the_run) {
  for (int n = 1; n <= 2; n++) {
    char failing[64];
    fake_lab_close(&lab);
    snprintf(failing, sizeof failing, "cuMemcpyDtoHAsync_v2:%d:700", n);
    open_checking(failing);
    fatune_plan *const plan = plan_to_check(_i);
    const fatune_arguments arguments = arguments_of(_i);
    ck_assert_status(run(plan, &arguments), FATUNE_E_DEVICE);
    ck_assert_str_eq(lab.cuda.failed(), "cuMemcpyDtoHAsync_v2");
    ck_assert_int_eq(lab.cuda.calls("cuMemcpyDtoHAsync_v2"), n);
    ck_assert_int_eq(lab.cuda.calls("cuLaunchKernel"), 0);
    expect_launch(_i, run(plan, &arguments)); /* it failed once */
    ck_assert_int_gt(lab.cuda.calls("cuLaunchKernel"), 0);
    fatune_plan_free(plan);
  }
}
END_TEST

/* Arguments of the first version, which has no descales: what lies beyond them is not readable. */
START_TEST(a_check_reads_no_further_than_the_arguments) {
  static const char words[] = "forward bf16 d64 nq96";
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = offsetof(fatune_arguments, window_left);
  char *const memory_of_two =
      mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(memory_of_two, MAP_FAILED);
  ck_assert_int_eq(mprotect(memory_of_two + page, page, PROT_NONE), 0);
  const fatune_request request = fake_request(words);
  fatune_arguments whole = fake_arguments(&request);
  whole.size = size;
  void *const first_version = memory_of_two + page - size;
  memcpy(first_version, &whole, size);
  fatune_plan *const plan = plan_of(words);
  ck_assert_status(run(plan, first_version), FATUNE_OK);
  fatune_plan_free(plan);
  munmap(memory_of_two, 2 * page);
}
END_TEST

Suite *make_refusals_suite(void) {
  Suite *const suite = suite_create("refusals");
  TCase *const calls = tcase_create("calls"), *const checks = tcase_create("checks");
  tcase_add_checked_fixture(calls, set_up, tear_down);
  tcase_add_test(calls, a_search_wants_a_session_and_a_request);
  tcase_add_test(calls, a_plan_that_is_none_has_no_words);
  tcase_add_test(calls, a_mask_of_a_score_wants_its_places);
  tcase_add_test(calls, new_rows_have_memory_of_their_own);
  suite_add_tcase(suite, calls);
  tcase_add_checked_fixture(checks, set_up_checks, tear_down);
  tcase_add_loop_test(checks, a_checked_run_names_the_wrong_number, 0, CHECKED);
  tcase_add_test(checks, wrong_starts_and_pages_are_named);
  tcase_add_loop_test(checks, a_check_that_fails_stops_the_run, 0, CHECKED);
  tcase_add_test(checks, a_check_reads_no_further_than_the_arguments);
  suite_add_tcase(suite, checks);
  return suite;
}
