/* test_program_emulator.c: `fatune --gpu emulator`, as its users see it on a machine without a GPU.
 * in -> out: command lines -> documents, exit codes, and the words that tell what was emulated. */
#include "generator/status.h"
#include "runtime/choice.h"
#include "runtime/session.h"
#include "tests/run_program.h"
#include "tests/suites.h"

#define SMALL "d64 hq2 hkv1 nq70 causal"
#define FEW   "--effort quick --shard 1/4" /* some four candidates */

static const json_t *gpu_of(const json_t *root) {
  return json_object_get(root, "gpu");
}

/* All cases right, none of them without having been compared. */
static void check_cases(const json_t *run, size_t expected) {
  const json_t *const cases = json_object_get(run, "cases");
  const json_t *one;
  size_t i;
  ck_assert_uint_eq(json_array_size(cases), expected);
  ck_assert_int_eq(json_integer_value(json_object_get(run, "wrong")), 0);
  ck_assert(json_is_null(json_object_get(run, "explanation")));
  json_array_foreach(cases, i, one) {
    const double ratio = json_number_value(json_object_get(one, "error_ratio"));
    ck_assert(json_is_true(json_object_get(one, "right")));
    ck_assert_msg(ratio > 0 && ratio <= 1, "case %zu: %g", i, ratio);
  }
}

/* -- what runs ------------------------------------------------------------------------------ */

START_TEST(verify_runs_a_small_request_as_asked) {
  expect("verify " SMALL " --gpu emulator --json", 0);
  json_t *const root = document("verify");
  ck_assert(json_is_true(json_object_get(root, "emulated")));
  ck_assert_str_ne(text_at(root, "cxx"), "");
  ck_assert(json_is_true(json_object_get(gpu_of(root), "emulated")));
  ck_assert(json_is_false(json_object_get(gpu_of(root), "here")));
  ck_assert_str_eq(text_at(gpu_of(root), "class"), "nvidia-a100-80gb/sm_80/108");
  ck_assert_str_eq(text_at(root, "checked"), text_at(root, "request"));
  check_cases(root, 15);
  json_decref(root);
}
END_TEST

START_TEST(verify_runs_both_passes) {
  expect("verify both d64 hq2 hkv1 nq70 causal --gpu emulator:h200 --json", 0);
  json_t *const root = document("verify");
  const json_t *const passes = json_object_get(root, "passes");
  ck_assert_uint_eq(json_array_size(passes), 2);
  for (size_t i = 0; i < 2; ++i) {
    const json_t *const pass = json_array_get(passes, i);
    const json_t *const one = json_array_get(json_object_get(pass, "cases"), 0);
    const char *const request = json_string_value(json_object_get(pass, "request"));
    ck_assert_int_eq(strncmp(request, i ? "backward" : "forward", 7), 0);
    ck_assert_double_gt(json_number_value(json_object_get(one, i ? "dk_error" : "o_error")), 0);
    ck_assert_double_gt(json_number_value(json_object_get(one, i ? "dq_allowed" : "lse_allowed")),
                        0);
    check_cases(pass, 15);
  }
  json_decref(root);
}
END_TEST

START_TEST(verify_cuts_a_large_request_and_says_so) {
  expect("verify fp16 d64 dv32 hq32 hkv8 b4 nq4096 causal dropout mask=128x64@0.5 --rows 64 "
         "--gpu emulator:h200",
         0);
  expect_output("h200 on this CPU");
  expect_output("cut to");
  expect_output("fp16 d64 dv32 hq4 hkv2 b2"); /* every feature is kept, and grouped heads are */
  expect_output("causal dropout mask=128x64@0.5");
  ck_assert_ptr_null(strstr(output, "WRONG"));
  ck_assert_ptr_null(strstr(output, " us"));
}
END_TEST

/* The ranking is that of the real GPU and nothing is a measurement, now or later. */
START_TEST(tune_predicts_and_runs_the_winner) {
  need_nvrtc();
  expect("--gpu emulator:h200 " FEW " --json d64 nq4096", 0);
  expect_message("PREDICTED");
  expect_message("h200 is emulated");
  json_t *root = document("tune");
  static char best[1024];
  ck_assert(json_is_true(json_object_get(root, "emulated")));
  ck_assert(json_is_false(json_object_get(root, "measured")));
  const json_t *const result = json_array_get(json_object_get(root, "results"), 0);
  ck_assert(json_is_false(json_object_get(result, "measured")));
  ck_assert_double_eq(json_number_value(json_object_get(result, "measure_seconds")), 0);
  check_cases(json_object_get(result, "emulated_run"), 5);
  ck_assert_str_ne(text_at(json_object_get(result, "emulated_run"), "checked"),
                   text_at(result, "request"));
  const json_t *const steps = json_object_get(root, "steps");
  ck_assert_str_eq(text_at(steps, "compile"), "real");
  ck_assert_str_eq(text_at(steps, "rank"), "predicted");
  ck_assert_str_eq(text_at(steps, "run"), "emulated");
  snprintf(best, sizeof best, "%s", text_at(result, "config"));
  json_decref(root);

  expect("explain d64 nq4096 --gpu h200 --json", 0);
  root = document("explain");
  ck_assert_str_eq(text_at(root, "hit"), "model");
  ck_assert_str_eq(text_at(root, "config"), best);
  json_decref(root);
  expect("cache list --all --json", 0);
  root = document("cache");
  const json_t *trial;
  size_t i;
  json_array_foreach(json_object_get(root, "trials"), i, trial) {
    ck_assert_str_ne(text_at(trial, "outcome"), "ok");
    ck_assert_str_eq(text_at(trial, "device"), "nvidia-h200/sm_90/132");
  }
  ck_assert_uint_gt(i, 1);
  json_decref(root);

  /* No kernel of the C++ compiler is kept: the winner's is NVRTC's. */
  expect("compile d64 nq4096 --gpu emulator:h200", 0);
  expect_output("from the cache");
  expect_output("sm_90");
}
END_TEST

START_TEST(tune_says_which_steps_were_emulated) {
  need_nvrtc();
  expect("--gpu emulator " FEW " " SMALL, 0);
  expect_output("predicted us");
  expect_output("right (5 problems)");
  expect_output("emulated");
  expect_output("no time was measured");
}
END_TEST

/* What the program stands on: tuning a session that emulates measures nothing either. */
START_TEST(the_library_predicts) {
  need_nvrtc();
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  fatune_session *session;
  fatune_request asked = FATUNE_REQUEST_INIT;
  struct ft_request request;
  struct ft_choice choice;
  options.emulate = "h200";
  ck_assert_msg(fatune_session_open(&session, &options) == FT_OK, "%s", ft_detail());
  ck_assert_int_eq(fatune_request_parse(&asked, "d64 nq128"), FT_OK);
  ck_assert_int_eq(ft_request_parse(&request, "d64 nq128"), FT_OK);
  fatune_tune_options tune = FATUNE_TUNE_OPTIONS_INIT;
  tune.budget_seconds = 0.5;
  ck_assert_msg(fatune_tune(session, &asked, &tune) == FT_OK, "%s", ft_detail());
  ck_assert_int_eq(
      ft_session_choose(session, &request, &session->device.arch, session->device.id, &choice),
      FT_OK);
  ck_assert_int_eq(choice.hit, FT_HIT_MODEL);
  fatune_session_close(session);
}
END_TEST

/* -- what does not run: the GPU's name ------------------------------------------------------ */

START_TEST(the_source_is_that_of_the_gpu) {
  static char real[sizeof output];
  expect("emit " SMALL " --gpu h200", 0);
  strcpy(real, output);
  expect("emit " SMALL " --gpu emulator:h200", 0);
  ck_assert_str_eq(output, real);
  expect("explain " SMALL " --gpu emulator:h200", 0);
  expect_output("h200 (nvidia-h200/sm_90/132), emulated");
}
END_TEST

/* -- what is refused ------------------------------------------------------------------------ */

static const struct {
  const char *arguments;
  int code;
  const char *message;
} failures[] = {
    {"bench " SMALL " --gpu emulator", 3, "no clock"},
    {"bench " SMALL " --gpu emulator:h200", 3, "--gpu h200` predicts"},
    {"verify " SMALL " --gpu emulator:h20", 2, "did you mean 'emulator:h200'?"},
    {"verify " SMALL " --gpu emulator:nonsense", 2, "known:"},
    {"verify " SMALL " --gpu emulator:auto", 2, "known:"},
    {"bench " SMALL " --gpu emulator:nonsense", 2, "known:"},
    {"emit " SMALL " --gpu emulater", 2, "did you mean 'emulator'?"},
    {"emit " SMALL " --gpu emulator:", 2, "emulator:NAME"},
    {"verify " SMALL " --gpu emulator --device 0", 2, "exclude each other"},
    {"verify bf16 " SMALL " --gpu emulator:t4", 3, "bf16"},
    {"verify " SMALL " --gpu emulator --config 'mma_forward block_m=1'", 2, "'block_n' is missing"},
    {"verify " SMALL, 3, "verify with --gpu emulator"},
};

START_TEST(failures_have_a_code_and_a_message) {
  expect(failures[_i].arguments, failures[_i].code);
  expect_message(failures[_i].message);
  ck_assert_str_eq(output, "");
}
END_TEST

START_TEST(a_score_that_makes_nan_is_told) {
  static const char *const told[][2] = {
      {"forward", "score nan.lua makes NaN of batch 0 head "},
      {"backward", "score nan.lua makes NaN of dQ of batch 0 head "}};
  char command[256], path[128];
  snprintf(path, sizeof path, "%s/nan.lua", folder);
  FILE *const file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_ge(fputs("score = s + 0 * log(j - 5)\n", file), 0);
  ck_assert_int_eq(fclose(file), 0);
  snprintf(command, sizeof command, "verify %s d64 hq2 nq20 --gpu emulator --score %s", told[_i][0],
           path);
  expect(command, 2);
  expect_message(told[_i][1]);
}
END_TEST

START_TEST(without_a_compiler_it_says_what_still_works) {
  setenv("FATUNE_CXX", "/nowhere/g++", 1);
  static const char *const lines[] = {"verify " SMALL " --gpu emulator",
                                      "tune " SMALL " --gpu emulator --effort quick"};
  for (int i = 0; i < 2; ++i) {
    expect(lines[i], 4);
    expect_message("/nowhere/g++");
    expect_message("still work");
    ck_assert_str_eq(output, "");
  }
  expect("emit " SMALL " --gpu emulator", 0);
  expect("doctor", 0);
  expect_output("/nowhere/g++");
  expect_output("everything but --gpu emulator works");
}
END_TEST

START_TEST(doctor_knows_the_compiler) {
  expect("doctor --json", 0);
  json_t *const root = document("doctor"), *one;
  size_t i;
  int seen = 0;
  json_array_foreach(json_object_get(root, "checks"), i, one) {
    if (strcmp(text_at(one, "name"), "emulator") != 0) continue;
    ck_assert_str_eq(text_at(one, "state"), "ok");
    ck_assert_ptr_nonnull(strchr(text_at(one, "value"), '/'));
    ++seen;
  }
  ck_assert_int_eq(seen, 1);
  json_decref(root);
}
END_TEST

/* -- broken kernels ------------------------------------------------------------------------- */

/* Copies the templates and edits one file by a sed script, which has to change it. */
static void break_template(const char *file, const char *script) {
  char command[1024];
  snprintf(command, sizeof command,
           "cp -r '%s/templates' '%s/broken' && cd '%s/broken' && sed -i.bak '%s' '%s' && "
           "! cmp -s '%s' '%s.bak' && rm '%s.bak'",
           FATUNE_SOURCE_DIR, folder, folder, script, file, file, file, file);
  ck_assert_msg(system(command) == 0, "'%s' does not change %s", script, file);
  snprintf(command, sizeof command, "%s/broken", folder);
  setenv("FATUNE_TEMPLATE_DIR", command, 1);
}

START_TEST(a_wrong_result_is_explained) {
  break_template("parts/visibility.cu.in", "s/(n \\* 8 >= end/(n * 8 > end/");
  expect("verify d64 nq70 nk75 --gpu emulator --json", 7);
  json_t *root = document("verify");
  ck_assert_int_gt(json_integer_value(json_object_get(root, "wrong")), 0);
  ck_assert_str_ne(text_at(root, "explanation"), "");
  ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(root, "error"), "exit")), 7);
  json_decref(root);
  expect("verify d64 nq70 nk75 --gpu emulator", 7);
  expect_output("WRONG");
  expect_message("problems are wrong (--seed ");
}
END_TEST

START_TEST(a_fault_is_wrong_and_says_where) {
  need_nvrtc();
  break_template("parts/store_rows.cu.in", "s/if (row < rows)/if (row <= rows)/");
  expect("verify d64 nq70 --gpu emulator --json", 7);
  expect_message("epilogue_mma.cu.in");
  expect_message("lane");
  json_t *const root = document("verify");
  const json_t *const cases = json_object_get(root, "cases");
  const json_t *const last = json_array_get(cases, json_array_size(cases) - 1);
  ck_assert(json_is_false(json_object_get(last, "right")));
  ck_assert_ptr_nonnull(strstr(text_at(last, "fault"), "epilogue_mma.cu.in"));
  json_decref(root);

  /* Work for all multiprocessors: of a little, warps may share the rows, and store them otherwise.
   */
  expect("tune d64 hq64 b8 nq300 --gpu emulator " FEW, 7);
  expect_output("FAULT (problem 1)");
  expect_message("epilogue_mma.cu.in");
}
END_TEST

#define COUNT(array) (int)(sizeof array / sizeof *array)

Suite *make_program_emulator_suite(void) {
  Suite *const suite = suite_create("program_emulator");
  TCase *const tests = tcase_create("program_emulator");
  tcase_add_checked_fixture(tests, begin_program_test, end_program_test);
  tcase_set_timeout(tests, 240);
  tcase_add_test(tests, verify_runs_a_small_request_as_asked);
  tcase_add_test(tests, verify_runs_both_passes);
  tcase_add_test(tests, verify_cuts_a_large_request_and_says_so);
  tcase_add_test(tests, tune_predicts_and_runs_the_winner);
  tcase_add_test(tests, tune_says_which_steps_were_emulated);
  tcase_add_test(tests, the_library_predicts);
  tcase_add_test(tests, the_source_is_that_of_the_gpu);
  tcase_add_loop_test(tests, failures_have_a_code_and_a_message, 0, COUNT(failures));
  tcase_add_loop_test(tests, a_score_that_makes_nan_is_told, 0, 2);
  tcase_add_test(tests, without_a_compiler_it_says_what_still_works);
  tcase_add_test(tests, doctor_knows_the_compiler);
  tcase_add_test(tests, a_wrong_result_is_explained);
  tcase_add_test(tests, a_fault_is_wrong_and_says_where);
  suite_add_tcase(suite, tests);
  return suite;
}
