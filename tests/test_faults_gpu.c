/* test_faults_gpu.c: commands on the fake GPU and on an emulated one, and every public call, with
 * the n-th call of each kind failing (fault_sweep.h). in -> out: lines of fault_lines.c -> Check
 * suite. */
#include "tests/fault_sweep.h"
#include "tests/run_program.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"
#include "tests/suites.h"

static void set_up(void) {
  fault_sweep_begin(true);
}

START_TEST(a_failing_call_is_told_and_harms_nothing) {
  fault_sweep(&fault_lines_on_gpu.lines[_i], _i);
}
END_TEST

/* The worker that lost it frees what it has, which a leak check sees. */
START_TEST(a_lost_gpu_leaks_nothing) {
  begin_program_test();
  setenv("FATUNE_LIBCUDA", FATUNE_FAKE_DIR "/libfake_cuda.so", 1);
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  setenv("FATUNE_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
  setenv("FATUNE_FAKE_FAIL", "cuMemAlloc_v2:1:700", 1);
  expect("tune --gpu auto --effort quick --shard 1/20 'backward d16 nq16'", 1);
  expect_message("another worker goes on");
  end_program_test();
}
END_TEST

/* So that a public function that is new is swept, too. */
START_TEST(each_public_function_is_called) {
  static const char *const paths[] = {FATUNE_SOURCE_DIR "/runtime/fatune.h",
                                      FATUNE_TESTS_DIR "/faulty/public_calls.c"};
  struct bytes header = read_bytes(paths[0]), calls = read_bytes(paths[1]);
  int functions = 0;
  header.data[header.size] = calls.data[calls.size] = '\0';
  for (const char *at = (const char *)header.data; (at = strstr(at, "\nFATUNE_API ")) != NULL;) {
    char name[64];
    at = strchr(at, '(');
    ck_assert_ptr_nonnull(at);
    int length = 0;
    while (at[-length - 1] == '_' || (at[-length - 1] >= 'a' && at[-length - 1] <= 'z')) length++;
    snprintf(name, sizeof name, "%.*s(", length, at - length);
    ck_assert_msg(strstr((const char *)calls.data, name) != NULL, "%s is not called", name);
    functions++;
  }
  ck_assert_int_gt(functions, 20);
  free(header.data);
  free(calls.data);
}
END_TEST

Suite *make_faults_gpu_suite(void) {
  Suite *const suite = suite_create("faults_gpu");
  TCase *const sweeps = tcase_create("sweeps"), *const tests = tcase_create("functions");
  tcase_set_timeout(sweeps, tests_are_slow() ? 36000 : 120);
  tcase_add_unchecked_fixture(sweeps, set_up, fault_sweep_end);
  tcase_add_loop_test(sweeps, a_failing_call_is_told_and_harms_nothing, 0,
                      fault_lines_on_gpu.count);
  tcase_add_test(tests, a_lost_gpu_leaks_nothing);
  tcase_add_test(tests, each_public_function_is_called);
  suite_add_tcase(suite, sweeps);
  suite_add_tcase(suite, tests);
  return suite;
}
