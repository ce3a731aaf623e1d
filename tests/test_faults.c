/* test_faults.c: every command, with the n-th call of each kind failing (fault_sweep.h), on a
 * machine without a GPU. in -> out: lines of fault_lines.c -> Check suite. */
#include "tests/fault_sweep.h"
#include "tests/run_program.h"
#include "tests/slow_tests.h"
#include "tests/suites.h"

static void set_up(void) {
  fault_sweep_begin(false);
}

START_TEST(a_failing_call_is_told_and_harms_nothing) {
  fault_sweep(&fault_lines_alone.lines[_i], _i);
}
END_TEST

static bool is_swept(const char *words) {
  const struct fault_lines all[] = {fault_lines_alone, fault_lines_on_gpu};
  const size_t length = strlen(words);
  for (int kind = 0; kind < 2; kind++) {
    for (int i = 0; i < all[kind].count; i++) {
      const struct fault_line *const line = &all[kind].lines[i];
      const bool begins = strncmp(line->words, words, length) == 0;
      if (!line->calls && begins && (line->words[length] == ' ' || !line->words[length]))
        return true;
    }
  }
  return false;
}

/* So that a command that is new is swept, too. */
START_TEST(each_command_is_swept) {
  int commands = 0, actions = 0;
  begin_program_test();
  expect("--help", 0);
  const char *at = strstr(output, " Commands:\n");
  ck_assert_ptr_nonnull(at);
  char name[32];
  for (at = strchr(at, '\n'); sscanf(at, "\n  %31[a-z] ", name) == 1; at = strchr(at + 1, '\n')) {
    ck_assert_msg(is_swept(name), "no line has the command %s", name);
    commands++;
  }
  expect("cache --help", 0);
  for (at = output; (at = strstr(at, " [OPTION...] ")) != NULL;) {
    for (at = strstr(at, "] ") + 1; sscanf(at + 1, "%31[a-z]", name) == 1 && strchr(" |", *at);) {
      char words[48];
      snprintf(words, sizeof words, "cache %s", name);
      ck_assert_msg(is_swept(words), "no line has the command %s", words);
      at += 1 + strlen(name);
      actions++;
      if (*at != '|') break;
    }
  }
  ck_assert_int_ge(commands, 10);
  ck_assert_int_ge(actions, 8);
  end_program_test();
}
END_TEST

/* No row says that a candidate cannot be compiled: the next run tries each. */
START_TEST(a_broken_nvrtc_leaves_no_rows) {
  begin_program_test();
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  setenv("FATUNE_FAKE_FAIL", "nvrtcCompileProgram:1:7:ever", 1);
  expect("tune d64 nq512 --gpu a100 --effort quick --shard 1/7 -q", 4);
  expect_message("nvrtcCompileProgram");
  unsetenv("FATUNE_FAKE_FAIL");
  expect("tune d64 nq512 --gpu a100 --effort quick --shard 1/7 -q", 0);
  end_program_test();
}
END_TEST

START_TEST(doctor_notices_a_network) {
  begin_program_test();
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  expect("tune d64 nq512 --gpu a100 --effort quick --shard 1/40 -q", 0);
  expect("doctor", 0);
  ck_assert_ptr_null(strstr(output, "network"));
  setenv("FATUNE_TEST_NETWORK", "1", 1);
  strcat(program, "_faulty");
  expect("doctor", 0);
  expect_output("tuning         unknown");
  expect_output("kernels        unknown");
  expect_output("its file system may be of a network");
  end_program_test();
}
END_TEST

Suite *make_faults_suite(void) {
  Suite *const suite = suite_create("faults");
  TCase *const sweeps = tcase_create("sweeps"), *const tests = tcase_create("lines");
  tcase_set_timeout(sweeps, tests_are_slow() ? 36000 : 120);
  tcase_add_unchecked_fixture(sweeps, set_up, fault_sweep_end);
  tcase_add_loop_test(sweeps, a_failing_call_is_told_and_harms_nothing, 0, fault_lines_alone.count);
  tcase_add_test(tests, each_command_is_swept);
  tcase_add_test(tests, a_broken_nvrtc_leaves_no_rows);
  tcase_add_test(tests, doctor_notices_a_network);
  suite_add_tcase(suite, sweeps);
  suite_add_tcase(suite, tests);
  return suite;
}
