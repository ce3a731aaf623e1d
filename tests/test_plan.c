/* test_plan.c: plans on the fake GPU, from request to launch.
 * in -> out: request -> plan -> the launch the fake driver saw; each driver and NVRTC call failing
 * in turn. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "generator/families/wgmma_forward.h"
#include "generator/status.h"
#include "generator/arguments.h"
#include "runtime/public.h"
#include "runtime/session.h"
#include "tests/fake_lab.h"
#include "tests/suites.h"

static struct fake_controls cuda, nvrtc;
static char folder[64];
static int warnings;
static char last_warning[512];

static void log_warning(void *payload, const char *message) {
  (void)payload;
  warnings++;
  snprintf(last_warning, sizeof last_warning, "%s", message);
}

static void set_up(void) {
  cuda = use_fake_cuda();
  nvrtc = use_fake_nvrtc();
  warnings = 0;
  strcpy(folder, "/tmp/fatune-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void tear_down(void) {
  DIR *const files = opendir(folder);
  for (struct dirent *file; (file = readdir(files));) unlinkat(dirfd(files), file->d_name, 0);
  closedir(files);
  ck_assert_int_eq(rmdir(folder), 0);
}

static fatune_session *open_session(int memory_only) {
  fatune_session *session;
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  options.cache_dir = folder;
  options.system_path = "";
  options.memory_only = memory_only;
  options.log = log_warning;
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_OK);
  return session;
}

static const char *const family_configs[] = {
    "mma_forward block_m=128 block_n=64 warps=4 stages=2 ctas_per_sm=1",
    "wgmma_forward block_m=128 block_n=128 stages=2 q_stages=2 overlap_tiles=1"};

START_TEST(a_plan_launches_what_its_source_says) {
  fatune_session *const session = open_session(1);
  const fatune_request request = fake_request("forward bf16 d128 hq8 hkv2 b3 nq1000 nk500 causal");
  fatune_plan *plan;
  ck_assert_status(fatune_plan_make_with(&plan, session, &request, family_configs[_i]), FATUNE_OK);
  ck_assert_ptr_nonnull(strstr(fatune_plan_origin(plan), "given"));
  ck_assert_ptr_nonnull(strstr(fatune_plan_origin(plan), "compiled now"));
  ck_assert_ptr_nonnull(strstr(fatune_plan_source(plan), "fatune_kernel"));
  struct ft_config config;
  ck_assert_status(ft_config_parse(&config, fatune_plan_config(plan)), FT_OK);
  size_t workspace = 1;
  ck_assert_status(fatune_plan_workspace_size(plan, &workspace), FATUNE_OK);
  ck_assert_uint_eq(workspace, 0);

  const fatune_arguments arguments = fake_arguments(&request);
  int stream;
  ck_assert_status(ft_session_enter(session), FT_OK);
  const int before = cuda.calls(NULL);
  ck_assert_status(fatune_plan_run(plan, &arguments, &stream), FATUNE_OK);
  /* The launch, and for wgmma the four tensor maps; nothing else. */
  const bool tiled = config.family == &ft_wgmma_forward_family;
  ck_assert_int_eq(cuda.calls("cuTensorMapEncodeTiled"), tiled ? 4 : 0);
  ck_assert_int_eq(cuda.calls(NULL), before + (tiled ? 5 : 1));
  /* Once more: the maps are there. */
  const struct fake_launch first = *cuda.last_launch();
  ck_assert_status(fatune_plan_run(plan, &arguments, &stream), FATUNE_OK);
  ck_assert_int_eq(cuda.calls(NULL), before + (tiled ? 6 : 2));
  ck_assert_mem_eq(cuda.last_launch()->params, first.params, sizeof first.params);
  ft_session_leave(session);

  struct ft_request inner;
  ck_assert_status(ft_request_from_public(&inner, &request), FT_OK);
  const struct ft_budget budget = ft_budget_of(&inner, &config, &session->device.arch);
  const struct fake_launch *const seen = cuda.last_launch();
  const unsigned block_m = (unsigned)ft_config_block_m(&config);
  const unsigned tiles = (1000 + block_m - 1) / block_m;
  ck_assert_int_eq(seen->count, 2);
  /* 8 tiles of 24 heads are more than the 132 places of the GPU. */
  ck_assert_uint_eq(seen->grid[0], tiled ? 132 : tiles * 3 * 8);
  ck_assert_uint_eq(seen->grid[1], 1);
  ck_assert_uint_eq(seen->block[0], (unsigned)budget.threads);
  ck_assert_uint_eq(seen->smem, (unsigned)budget.smem_bytes);
  ck_assert_ptr_eq(seen->stream, &stream);
  ck_assert_int_eq(cuda.setting(9), 100);
  ck_assert_int_eq(cuda.setting(8), budget.smem_bytes > 49152 ? budget.smem_bytes : -1);
  struct ft_forward_params params;
  memcpy(&params, seen->params + (tiled ? offsetof(struct ft_tiled_forward_params, rest) : 0),
         sizeof params);
  ck_assert_uint_eq(params.q.data, 0x1000);
  ck_assert_int_eq(params.sequence.nq, 1000);
  ck_assert_int_eq(params.sequence.group, 4);
  ck_assert_int_eq(params.visibility.last_diagonal, -500);

  fatune_plan_free(plan);
  fatune_session_close(session);
  ck_assert_int_eq(cuda.live(), 0);
  ck_assert_int_eq(cuda.depth(), 0);
  ck_assert_int_eq(nvrtc.live(), 0);
  ck_assert_int_eq(warnings, 0);
}
END_TEST

START_TEST(a_run_without_a_context_says_so) {
  fatune_session *const session = open_session(1);
  const fatune_request request = fake_request("forward bf16 d64 nq128");
  const fatune_arguments arguments = fake_arguments(&request);
  fatune_plan *plan;
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  ck_assert_status(fatune_plan_run(plan, &arguments, NULL), FATUNE_E_DEVICE);
  ck_assert_detail("context current");
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

START_TEST(a_warm_cache_needs_no_nvrtc) {
  const fatune_request request = fake_request("forward bf16 d64 nq128");
  fatune_plan *plan;
  fatune_session *session = open_session(0);
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  fatune_plan_free(plan);
  fatune_session_close(session);
  nvrtc.reset(NULL);
  setenv("FATUNE_LIBNVRTC", "/nowhere/libnvrtc.so", 1);
  session = open_session(0);
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  ck_assert_ptr_nonnull(strstr(fatune_plan_origin(plan), "from the cache"));
  ck_assert_int_eq(nvrtc.calls(NULL), 0);
  ck_assert_ptr_null(session->compiler);
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

START_TEST(a_refused_image_is_compiled_anew_once) {
  const fatune_request request = fake_request("forward bf16 d64 nq128");
  fatune_plan *plan;
  fatune_session *session = open_session(0);
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  fatune_plan_free(plan);
  fatune_session_close(session);

  session = open_session(0);
  cuda.reset("cuModuleLoadData:1:200");
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  ck_assert_ptr_nonnull(strstr(fatune_plan_origin(plan), "compiled now"));
  ck_assert_int_eq(cuda.calls("cuModuleLoadData"), 2);
  ck_assert_int_eq(warnings, 1);
  ck_assert_ptr_nonnull(strstr(last_warning, "CUDA_ERROR_INVALID_IMAGE"));
  fatune_plan_free(plan);

  /* A freshly compiled image that is refused is not compiled again: that would be for ever. */
  const fatune_request other = fake_request("forward bf16 d96 nq128");
  cuda.reset("cuModuleLoadData:1:200");
  ck_assert_status(fatune_plan_make(&plan, session, &other), FATUNE_E_DEVICE);
  ck_assert_int_eq(cuda.calls("cuModuleLoadData"), 1);
  ck_assert_detail("cuModuleLoadData");
  /* Trouble of the GPU is no fault of the image. */
  fatune_session_close(session);
  session = open_session(0);
  nvrtc.reset(NULL);
  cuda.reset("cuModuleLoadData:1:2");
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_E_MEMORY);
  ck_assert_int_eq(nvrtc.calls("nvrtcCompileProgram"), 0);
  fatune_session_close(session);
}
END_TEST

START_TEST(bad_arguments_are_named) {
  fatune_session *const session = open_session(1);
  const fatune_request request = fake_request("forward bf16 d64 nq128");
  const fatune_arguments arguments = fake_arguments(&request);
  fatune_plan *plan;
  ck_assert_status(fatune_plan_make(NULL, session, &request), FATUNE_E_ARGUMENT);
  ck_assert_status(fatune_plan_make(&plan, NULL, &request), FATUNE_E_ARGUMENT);
  ck_assert_detail("session is NULL");
  ck_assert_status(fatune_plan_make(&plan, session, NULL), FATUNE_E_ARGUMENT);
  ck_assert_detail("request is NULL");
  ck_assert_status(fatune_plan_make_with(&plan, session, &request, NULL), FATUNE_E_ARGUMENT);
  ck_assert_detail("config is NULL");
  ck_assert_status(fatune_plan_make_with(&plan, session, &request, "mma_forward block_m=1"),
                   FATUNE_E_ARGUMENT);
  ck_assert_ptr_null(plan);
  ck_assert_status(fatune_plan_run(NULL, &arguments, NULL), FATUNE_E_ARGUMENT);
  ck_assert_status(fatune_plan_workspace_size(NULL, NULL), FATUNE_E_ARGUMENT);
  ck_assert_str_eq(fatune_plan_origin(NULL), "");
  fatune_plan_free(NULL);
  fatune_session_close(session);
  ck_assert_int_eq(cuda.live(), 0);
}
END_TEST

START_TEST(a_given_config_is_used) {
  fatune_session *const session = open_session(1);
  const fatune_request request = fake_request("forward bf16 d64 nq128");
  fatune_plan *plan, *same;
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  ck_assert_status(fatune_plan_make_with(&same, session, &request, fatune_plan_config(plan)),
                   FATUNE_OK);
  ck_assert_str_eq(fatune_plan_source(same), fatune_plan_source(plan));
  ck_assert_int_eq(strncmp(fatune_plan_origin(same), "given", 5), 0);
  ck_assert_int_eq(nvrtc.calls("nvrtcCompileProgram"), 1);
  fatune_plan_free(plan);
  fatune_plan_free(same);
  fatune_session_close(session);
}
END_TEST

START_TEST(a_capture_is_refused) {
  fatune_session *const session = open_session(1);
  const struct fake_gpu capturing = {"NVIDIA H200", 90, 132, 1, 1, 0};
  const fatune_request request = fake_request("forward bf16 d64 nq128");
  fatune_plan *plan;
  cuda.gpu(&capturing);
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_E_NOT_PREPARED);
  ck_assert_detail("before the capture");
  ck_assert_int_eq(cuda.calls("cuModuleLoadData"), 0);
  fatune_session_close(session);
}
END_TEST

/* ---- faults ---- */

static int whole_program(void) {
  return fake_program("forward bf16 d64 nq256 mask=128x128");
}

/* Failures that may rightly go unnoticed: rates are guessed, no context is current, and what gives
 * something back (after a push of the context) has given it back. */
static bool is_harmless(const char *symbol) {
  static const char *const harmless[] = {
      "cuDeviceGetAttribute", "cuCtxGetCurrent",    "cuCtxPushCurrent_v2",
      "cuCtxPopCurrent_v2",   "cuModuleUnload",     "cuDevicePrimaryCtxRelease_v2",
      "cuMemFree_v2",         "cuDeviceGetUuid_v2", "nvrtcDestroyProgram"};
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
    if (strcmp(symbol, harmless[i]) == 0) return true;
  return false;
}

static void fail_every_call(const struct fake_controls *library) {
  static const int codes[] = {999, 2, 200, 700, 1, 100};
  int n = 1;
  for (;; n++) {
    char failure[32];
    const int code = codes[n % 6];
    snprintf(failure, sizeof failure, "*:%d:%d", n, code);
    cuda.reset(NULL);
    nvrtc.reset(NULL);
    library->reset(failure);
    const int status = whole_program();
    const char *const failed = library->failed();
    ck_assert_msg(status != FATUNE_OK || !*failed || is_harmless(failed),
                  "call %d, %s giving %d, went unnoticed", n, failed, code);
    if (status != FATUNE_OK) ck_assert_str_ne(fatune_detail(), "");
    ck_assert_msg(cuda.live() == 0 && nvrtc.live() == 0, "%s (%d): %d and %d objects left", failed,
                  n, cuda.live(), nvrtc.live());
    ck_assert_msg(cuda.depth() == 0, "%s (%d): %d contexts left", failed, n, cuda.depth());
    cuda.reset(NULL);
    nvrtc.reset(NULL);
    if (!*failed) break;
    ck_assert_status(whole_program(), FATUNE_OK);
    ck_assert_int_lt(n, 200);
  }
  ck_assert_int_gt(n, 8);
}

START_TEST(every_failing_driver_call_is_survived) {
  fail_every_call(&cuda);
}
END_TEST

START_TEST(every_failing_nvrtc_call_is_survived) {
  fail_every_call(&nvrtc);
}
END_TEST

/* ---- threads ---- */

struct worker {
  pthread_t thread;
  fatune_session *session;
  int status;
  char detail[512];
};

static void *make_and_run(void *payload) {
  struct worker *const worker = payload;
  static const char *const words[] = {"forward bf16 d64 nq128", "forward fp16 d128 nq300 causal",
                                      "forward bf16 d64 nq128 dropout"};
  worker->status = FATUNE_OK;
  for (int i = 0; i < 3 && worker->status == FATUNE_OK; i++) {
    fatune_request request = FATUNE_REQUEST_INIT;
    fatune_plan *plan = NULL;
    int status = fatune_request_parse(&request, words[i]);
    if (status == FATUNE_OK) status = fatune_plan_make(&plan, worker->session, &request);
    if (status == FATUNE_OK) status = ft_session_enter(worker->session);
    if (status == FATUNE_OK) {
      const fatune_arguments arguments = fake_arguments(&request);
      status = fatune_plan_run(plan, &arguments, NULL);
      ft_session_leave(worker->session);
    }
    fatune_plan_free(plan);
    worker->status = status;
  }
  (void)snprintf(worker->detail, sizeof worker->detail, "%s", fatune_detail());
  return NULL;
}

START_TEST(a_session_serves_many_threads) {
  enum { WORKERS = 8 };
  struct worker workers[WORKERS];
  fatune_session *const session = open_session(0);
  for (int i = 0; i < WORKERS; i++) {
    workers[i].session = session;
    ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, make_and_run, &workers[i]), 0);
  }
  for (int i = 0; i < WORKERS; i++) {
    pthread_join(workers[i].thread, NULL);
    ck_assert_msg(workers[i].status == FATUNE_OK, "%d: %s", workers[i].status, workers[i].detail);
  }
  ck_assert_int_eq(cuda.last_launch()->count, 3 * WORKERS);
  fatune_session_close(session);
  ck_assert_int_eq(cuda.live(), 0);
}
END_TEST

/* Host time of a run, which is to be at most 3 us: CPU time of this thread, best of some, so that a
 * busy machine does not fail it. The fake's launch (a lock, some string compares) counts in. */
static double microseconds_of_runs(fatune_plan *plan, const fatune_arguments *arguments) {
  enum { RUNS = 1000 };
  struct timespec start, end;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
  for (int i = 0; i < RUNS; i++) ck_assert_int_eq(fatune_plan_run(plan, arguments, NULL), 0);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) *
         1e-3 / RUNS;
}

START_TEST(a_run_costs_little) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const double limit_us = 30;
#else
  const double limit_us = 3;
#endif
  fatune_session *const session = open_session(1);
  const fatune_request request = fake_request("forward bf16 d128 hq32 hkv8 b2 nq4096 causal");
  const fatune_arguments arguments = fake_arguments(&request);
  fatune_plan *plan;
  ck_assert_status(fatune_plan_make_with(&plan, session, &request, family_configs[_i]), FATUNE_OK);
  ck_assert_status(ft_session_enter(session), FT_OK);
  double best = 1e9;
  for (int i = 0; i < 20; i++) {
    const double us = microseconds_of_runs(plan, &arguments);
    if (us < best) best = us;
  }
  ck_assert_msg(best < limit_us, "%.2f us a run", best);
  ft_session_leave(session);
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

Suite *make_plan_suite(void) {
  Suite *const suite = suite_create("plan");
  TCase *const tests = tcase_create("plan");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, a_plan_launches_what_its_source_says, 0, 2);
  tcase_add_test(tests, a_run_without_a_context_says_so);
  tcase_add_test(tests, a_warm_cache_needs_no_nvrtc);
  tcase_add_test(tests, a_refused_image_is_compiled_anew_once);
  tcase_add_test(tests, bad_arguments_are_named);
  tcase_add_test(tests, a_given_config_is_used);
  tcase_add_test(tests, a_capture_is_refused);
  tcase_add_test(tests, every_failing_driver_call_is_survived);
  tcase_add_test(tests, every_failing_nvrtc_call_is_survived);
  tcase_add_test(tests, a_session_serves_many_threads);
  tcase_add_loop_test(tests, a_run_costs_little, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}
