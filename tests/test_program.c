/* test_program.c: the program `fatune` as its users see it, on a machine without a GPU.
 * in -> out: command lines -> what was printed where, and the exit code. */
#include "tests/run_program.h"
#include "tests/suites.h"

#include <sys/stat.h>

/* -- help and usage ------------------------------------------------------------------------- */

START_TEST(help_is_everywhere) {
  static const char *const names[] = {"",       "tune",   "emit",     "compile",
                                      "bench",  "verify", "quantise", "explain",
                                      "report", "cache",  "gpus",     "doctor"};
  char line[64];
  snprintf(line, sizeof line, "%s --help", names[_i]);
  expect(line, 0);
  expect_output("Usage: fatune");
  expect_output(names[_i]);
  ck_assert_str_eq(messages, "");
  if (_i == 0) return;
  snprintf(line, sizeof line, "help %s", names[_i]);
  expect(line, 0);
  expect_output("Usage: fatune");
}
END_TEST

START_TEST(version_is_told) {
  expect("--version", 0);
  ck_assert(strncmp(output, "fatune ", 7) == 0 && strchr(output, '.') != NULL);
  expect("emit --version", 0);
}
END_TEST

/* Nothing of a failure may land on stdout, where a script takes it for data. */
static const struct {
  const char *arguments;
  int code;
  const char *message;
} failures[] = {
    {"", 2, "Usage: fatune"},
    {"tunee", 2, "did you mean 'tune'?"},
    {"banana", 2, "no command 'banana'"},
    {"expl", 2, "did you mean 'explain'?"},
    {"emit float16 d64 nq64", 2, "did you mean 'fp16'?"},
    {"help banana", 2, "no command 'banana'"},
    {"tune", 2, "no request"},
    {"--gpu a100", 2, "no request"},
    {"--frobnicate", 2, "unrecognized option"},
    {"emit", 2, "no request"},
    {"emit d128 nq64 --gpu h20", 2, "did you mean 'h200'?"},
    {"emit d128 nq64 --gpu nonsense", 2, "known:"},
    {"emit d128 nq64 --gpu ''", 2, "--gpu is ''"},
    {"emit d129 nq64 --gpu a100", 2, "head_dim is 129"},
    {"emit --gpu a100 --head-dim 129 --seqlen 64", 2, "--head-dim '129'"},
    {"emit --gpu a100 --head-dim 128 --seqlen 64 --heads 32:5", 2, "--heads '32:5'"},
    {"emit d128 hq32 hkv5 nq64 --gpu a100", 2, "heads_q is 32"},
    {"emit --gpu a100 --head-dim 128 --seqlen 0", 2, "--seqlen is '0'"},
    {"emit d128 nq0 --gpu a100", 2, "seqlen_q is 0"},
    {"emit d128 nq1 nk0 --gpu a100", 2, "seqlen_k is 0"},
    {"emit d128 nq1 b0 --gpu a100", 2, "batch is 0"},
    {"emit --gpu a100 --head-dim 128", 2, "--seqlen is missing"},
    {"emit d64 nq1 --gpu a100 --config 'mma_forward block_m=1'", 2, "--config"},
    {"emit d64 nq1 --gpu a100 -o /nowhere/x.cu", 1, "/nowhere/x.cu"},
    {"emit bf16 d64 nq1 --gpu t4", 3, "bf16"},
    {"emit d64 nq1", 3, "--gpu"},
    {"emit d64 nq1 --gpu auto", 3, "without a GPU these work"},
    {"tune d64 nq1 --gpu auto", 3, "without a GPU these work"},
    {"bench d64 nq1", 3, "without a GPU these work"},
    {"verify d64 nq1 --gpu a100", 3, "not in this machine"},
    {"explain d64 nq1", 3, "--gpu"},
    {"explain --score alibbi", 2, "score 'alibbi' is unknown; built in: alibi"},
    {"explain --score ./alibi.lua", 1, "--score './alibi.lua': No such file"},
    {"explain --score ''", 2, "--score is ''"},
    {"emit d64 nq1 --gpu a100 --score alibbi", 2, "score 'alibbi' is unknown"},
    {"emit d64 nq1 score=000000000001 --gpu a100", 1, "score 000000000001 is not known"},
    {"emit d64 nq1 score=1 --gpu a100", 2, "score=DIGEST"},
    {"cache", 2, "path, list, stats"},
    {"cache burn", 2, "'burn'"},
    {"cache stats extra", 2, "'extra'"},
    {"cache merge", 2, "FILE"},
    {"cache gc", 2, "--cap"},
    {"cache export --gpu a100", 2, "-o FILE"},
    {"cache import /dev/null", 2, "/dev/null"},
    {"gpus --gpu a100", 2, "unrecognized option"},
    {"doctor word", 2, "'word'"},
};

START_TEST(failures_have_a_code_and_a_message) {
  expect(failures[_i].arguments, failures[_i].code);
  expect_message(failures[_i].message);
  ck_assert_str_eq(output, "");
}
END_TEST

START_TEST(failures_are_documents_with_json) {
  expect("emit d129 nq64 --gpu a100 --json", 2);
  json_t *root = document("emit");
  const json_t *error = json_object_get(root, "error");
  ck_assert_int_eq(json_integer_value(json_object_get(error, "exit")), 2);
  ck_assert_ptr_nonnull(strstr(text_at(error, "message"), "129"));
  json_decref(root);

  expect("--json bench d64 nq64", 3);
  root = document("bench");
  error = json_object_get(root, "error");
  ck_assert_int_eq(json_integer_value(json_object_get(error, "exit")), 3);
  json_decref(root);

  expect("emit --json --bogus", 2); /* where argp ends the program */
  root = document("emit");
  error = json_object_get(root, "error");
  ck_assert_int_eq(json_integer_value(json_object_get(error, "exit")), 2);
  ck_assert_ptr_nonnull(strstr(text_at(error, "message"), "stderr tells what is wrong"));
  json_decref(root);
  expect_message("unrecognized option '--bogus'");
}
END_TEST

START_TEST(both_passes_are_one_document) {
  expect("emit both bf16 d64 nq64 --gpu a100 --json", 0);
  json_t *const root = document("emit");
  const json_t *const passes = json_object_get(root, "passes");
  ck_assert_uint_eq(json_array_size(passes), 2);
  ck_assert_ptr_nonnull(strstr(text_at(json_array_get(passes, 0), "request"), "forward"));
  ck_assert_ptr_nonnull(strstr(text_at(json_array_get(passes, 1), "request"), "backward"));
  json_decref(root);
  expect("explain both bf16 d64 nq64 --gpu t4", 3); /* each tells what it lacks */
}
END_TEST

/* Whoever starts it without a standard stream gets no message into a store. */
START_TEST(closed_streams_are_held) {
  static const char *const closed[] = {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"};
  for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
    char line[8192];
    const bool no_output = strstr(closed[i], ">&-") == closed[i] || i == 3;
    snprintf(line, sizeof line, "'%s' compile d64 nq64 --gpu a100 -o '%s/k.cubin' %s %s", program,
             folder, no_output ? "" : ">/dev/null", closed[i]);
    setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
    const int status = system(line);
    unsetenv("FATUNE_LIBNVRTC");
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == (no_output ? 1 : 0), "%s: %d", line,
                  status);
    expect("cache verify", 0);
  }
}
END_TEST

START_TEST(doctor_tells_of_a_folder_that_cannot_be_made) {
  expect("doctor --cache-dir /proc/nowhere", 0);
  expect_output("it cannot be made");
}
END_TEST

/* -- commands without a GPU ----------------------------------------------------------------- */

START_TEST(gpus_are_listed) {
  expect("gpus", 0);
  expect_output("h200");
  expect_output("sm_80");
  expect("--json gpus", 0);
  json_t *const root = document("gpus"), *const gpus = json_object_get(root, "gpus"), *gpu;
  size_t i;
  ck_assert_uint_gt(json_array_size(gpus), 5);
  json_array_foreach(gpus, i, gpu) {
    ck_assert_int_gt(json_integer_value(json_object_get(gpu, "sm_count")), 0);
    ck_assert(json_is_false(json_object_get(gpu, "here")));
    ck_assert(strncmp(text_at(gpu, "target"), "sm_", 3) == 0);
  }
  json_decref(root);
}
END_TEST

START_TEST(emit_prints_a_source_that_repeats_itself) {
  static char first[sizeof output], again[4096];
  expect("emit --gpu a100 --head-dim 128 --heads 32:8 --seqlen 4096 --causal", 0);
  expect_output("__global__");
  expect_output("fatune_kernel");
  ck_assert_str_eq(messages, "");
  strcpy(first, output);

  /* The text form asks the same; the command in the source's head emits it again. */
  expect("emit --gpu a100 forward bf16 d128 hq32 hkv8 nq4096 causal", 0);
  ck_assert_str_eq(output, first);
  const char *const command = strstr(first, "fatune emit ");
  ck_assert_ptr_nonnull(command);
  snprintf(again, sizeof again, "%.*s", (int)strcspn(command, "\n"), command);
  expect(again + strlen("fatune "), 0);
  ck_assert_str_eq(output, first);

  char line[256];
  snprintf(line, sizeof line, "emit --gpu a100 d128 hq32 hkv8 nq4096 causal -o '%s/k.cu'", folder);
  expect(line, 0);
  ck_assert_str_eq(output, "");
  static char written[sizeof output];
  read_file("k.cu", written, sizeof written);
  ck_assert_str_eq(written, first);
}
END_TEST

START_TEST(emit_has_a_document) {
  static char config[512], source[sizeof output], line[1024];
  expect("emit d64 nq512 --gpu sm_80 --json", 0);
  json_t *root = document("emit");
  ck_assert_str_eq(text_at(root, "origin"), "default");
  ck_assert_str_eq(text_at(json_object_get(root, "gpu"), "target"), "sm_80");
  ck_assert_ptr_nonnull(strstr(text_at(root, "source"), "fatune_kernel"));
  ck_assert_uint_eq(strlen(text_at(root, "digest")), 64);
  snprintf(config, sizeof config, "%s", text_at(root, "config"));
  snprintf(source, sizeof source, "%s", text_at(root, "source"));
  json_decref(root);

  snprintf(line, sizeof line, "emit d64 nq512 --gpu sm_80 --json --config '%s'", config);
  expect(line, 0);
  root = document("emit");
  ck_assert_str_eq(text_at(root, "origin"), "given");
  ck_assert_str_eq(text_at(root, "config"), config);
  ck_assert_str_eq(text_at(root, "source"), source);
  json_decref(root);
}
END_TEST

/* The word that it tells names a built-in score function in a request, without --score. */
START_TEST(explain_tells_how_requests_name_a_score) {
  char command[128], word[32];
  expect("explain --score alibi --json", 0);
  json_t *const root = document("explain");
  snprintf(word, sizeof word, "%s", text_at(root, "word"));
  json_decref(root);
  snprintf(command, sizeof command, "explain d64 nq64 %s --gpu h200", word);
  expect(command, 0);
  expect_output(word);
  snprintf(command, sizeof command, "explain d64 nq64 %s --score softcap --gpu h200", word);
  expect(command, 2);
  expect_message("--score 'softcap' beside a request with another score");
}
END_TEST

START_TEST(explain_tells_a_score_function) {
  expect("explain --score softcap", 0);
  expect_output("score = cap * tanh(s / cap)\n");
  expect_output("local _1 = tanh(s / cap)\nd score / d s = 1.0 - _1 * _1\n");
  expect_output("d score / d cap = ");
  char command[256], path[128];
  snprintf(path, sizeof path, "%s/mine.lua", folder);
  FILE *const file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_ge(fputs("local t = tensor('t', 'fp32', nk)\nscore = s + floor(t(j))\n", file), 0);
  ck_assert_int_eq(fclose(file), 0);
  snprintf(command, sizeof command, "explain --json --score %s", path);
  expect(command, 0);
  json_t *const root = document("explain");
  ck_assert_str_eq(text_at(root, "score"), "mine.lua");
  ck_assert_ptr_nonnull(strstr(text_at(root, "cuda"), "score_of("));
  const json_t *const derivatives = json_object_get(root, "derivatives");
  ck_assert_uint_eq(json_array_size(derivatives), 2);
  ck_assert_str_eq(text_at(json_array_get(derivatives, 0), "text"), "d score / d s = 1.0\n");
  ck_assert_str_eq(
      text_at(json_array_get(derivatives, 1), "text"),
      "-- mine.lua:2: score is not differentiable by 't': floor makes an integer of it\n");
  json_decref(root);
}
END_TEST

START_TEST(requests_take_a_score_function) {
  static char first[sizeof output];
  expect("emit d64 nq64 --gpu a100 --score alibi", 0);
  expect_output("float score_of(");
  const char *const word = strstr(output, "score=");
  ck_assert_ptr_nonnull(word);
  char command[128];
  snprintf(command, sizeof command, "emit d64 nq64 %.*s --gpu a100", (int)strcspn(word, " \n"),
           word);
  strcpy(first, output);
  expect(command, 0); /* built-in ones are known by number, too */
  ck_assert_str_eq(output, first);
  expect("emit backward d64 nq64 --gpu a100 --score softcap", 0);
  expect_output("float slope_of(");
  snprintf(command, sizeof command, "%s/steps.lua", folder);
  FILE *const file = fopen(command, "w");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_ge(fputs("local step = 0.5\nscore = step * floor(s / step)\n", file), 0);
  ck_assert_int_eq(fclose(file), 0);
  snprintf(command, sizeof command, "emit d64 nq64 --gpu a100 --score %s/steps.lua", folder);
  expect(command, 0);
  snprintf(command, sizeof command, "emit backward d64 nq64 --gpu a100 --score %s/steps.lua",
           folder);
  expect(command, 2);
  expect_message("steps.lua:2: score is not differentiable by 's': floor makes an integer of it");
  expect("explain d64 nq64 --gpu a100 --score alibi", 0);
  expect_output("d score / d s = 1.0");
  expect_output("config");
}
END_TEST

START_TEST(doctor_tells_what_is_missing) {
  setenv("FATUNE_LIBNVRTC", "/nowhere/libnvrtc.so", 1);
  setenv("FATUNE_NO_SUCH_VARIABLE", "1", 1);
  setenv("FATUNE_HIDE_CUDA", "1", 1); /* of make; FATUNE_LIBRARY is of the Python package */
  setenv("FATUNE_LIBRARY", "/nowhere/libfatune.so", 1);
  expect("doctor --json", 0);
  json_t *const root = document("doctor"), *one;
  size_t i;
  int missing = 0, unknown = 0;
  json_array_foreach(json_object_get(root, "checks"), i, one) {
    const char *const name = text_at(one, "name"), *const state = text_at(one, "state");
    const bool absent =
        strcmp(name, "driver") == 0 || strcmp(name, "GPU") == 0 || strcmp(name, "NVRTC") == 0;
    if (absent) ck_assert_str_eq(state, "missing");
    if (strcmp(name, "tuning") == 0) ck_assert_str_eq(state, "ok");
    if (strcmp(state, "ok") != 0) ck_assert_str_ne(text_at(one, "consequence"), "");
    missing += strcmp(state, "missing") == 0;
    if (strcmp(name, "environment") != 0) continue;
    const bool none = strcmp(text_at(one, "value"), "FATUNE_NO_SUCH_VARIABLE=1") == 0;
    if (strncmp(text_at(one, "value"), "FATUNE_TEST_", 12) == 0)
      continue; /* of who runs the tests */
    ck_assert_str_eq(state, none ? "unknown" : "ok");
    unknown += none;
  }
  ck_assert_int_ge(missing, 3);
  ck_assert_int_eq(unknown, 1);
  json_decref(root);
}
END_TEST

/* Each that the README names, and none of them has a value. */
START_TEST(doctor_knows_the_variables_of_the_readme) {
  FILE *const file = fopen(FATUNE_SOURCE_DIR "/README.md", "r");
  ck_assert_ptr_nonnull(file);
  char line[4096], name[64];
  bool table = false;
  int named = 0;
  while (fgets(line, sizeof line, file)) {
    if (line[0] == '#') table = strcmp(line, "## Environment\n") == 0;
    if (!table || line[0] != '|') continue;
    line[1 + strcspn(line + 1, "|")] = '\0'; /* of the row the first cell */
    for (const char *at = line; (at = strstr(at, "`FATUNE_")) != NULL; at++, named++) {
      snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 1, "`"), at + 1);
      setenv(name, "", 0);
    }
  }
  fclose(file);
  ck_assert_int_gt(named, 10);
  expect("doctor --json", 0);
  json_t *const root = document("doctor"), *one;
  size_t i;
  json_array_foreach(json_object_get(root, "checks"), i, one) {
    const char *const value = text_at(one, "value");
    if (strcmp(text_at(one, "name"), "environment") != 0) continue;
    if (strncmp(value, "FATUNE_TEST_", 12) == 0) continue; /* of who runs the tests */
    ck_assert_msg(strcmp(text_at(one, "state"), "ok") == 0, "doctor does not know %s", value);
  }
  json_decref(root);
}
END_TEST

START_TEST(compiling_without_nvrtc_is_a_compile_failure) {
  setenv("FATUNE_LIBNVRTC", "/nowhere/libnvrtc.so", 1);
  expect("compile d64 nq128 --gpu a100", 4);
  expect_message("NVRTC");
  expect("emit d64 nq128 --gpu a100", 0);
}
END_TEST

START_TEST(a_switch_that_is_none_is_told) {
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  setenv("FATUNE_JIT", "no", 1);
  expect("compile d64 nq128 --gpu a100 -o -", 0);
  expect_message("FATUNE_JIT is 'no'; allowed: 0, off, 1, on; taken as 1");
  setenv("FATUNE_JIT", "on", 1);
  setenv("FATUNE_CHECK", "yes", 1);
  setenv("FATUNE_CACHE_CAP", "much", 1);
  expect("cache stats", 0);
  ck_assert_ptr_null(strstr(messages, "FATUNE_JIT"));
  expect_message("FATUNE_CHECK is 'yes'; allowed: 0, off, 1, on; taken as 0");
  expect_message("FATUNE_CACHE_CAP is 'much'");
  unsetenv("FATUNE_JIT");
  unsetenv("FATUNE_CHECK");
  unsetenv("FATUNE_CACHE_CAP");
  unsetenv("FATUNE_LIBNVRTC");
}
END_TEST

START_TEST(without_jit_nothing_is_compiled) {
  setenv("FATUNE_JIT", "0", 1);
  expect("compile d64 nq128 --gpu a100", 4);
  expect_message("FATUNE_JIT is 0");
  expect_message("cache export");
  expect("emit d64 nq128 --gpu a100", 0);
  unsetenv("FATUNE_JIT");
}
END_TEST

START_TEST(cache_starts_empty) {
  char expected[256];
  expect("cache path", 0);
  snprintf(expected, sizeof expected, "%s/tuning.db\n%s/kernels.db\n", folder, folder);
  ck_assert_str_eq(output, expected);
  expect("cache list", 0);
  ck_assert_str_eq(output, "");
  expect("cache stats --json", 0);
  json_t *const root = document("cache");
  ck_assert_str_eq(text_at(root, "action"), "stats");
  ck_assert_int_eq(json_integer_value(json_object_get(root, "trials")), 0);
  ck_assert_int_eq(json_integer_value(json_object_get(root, "kernels")), 0);
  json_decref(root);
  expect("cache verify", 0);
  expect_output("0 damaged");
  snprintf(expected, sizeof expected, "cache export --gpu a100 -o '%s/x.fatune'", folder);
  expect(expected, 1);
  expect_message("is not written");
  strcat(expected, " --allow-empty");
  expect(expected, 0);
}
END_TEST

START_TEST(a_folder_of_the_environment_is_named) {
  setenv("FATUNE_TEMPLATE_DIR", "/nowhere/at/all", 1);
  expect("doctor", 1);
  expect_message("FATUNE_TEMPLATE_DIR: template folder: /nowhere/at/all: No such file");
  unsetenv("FATUNE_TEMPLATE_DIR");
}
END_TEST

START_TEST(cache_dir_goes_before_the_environment) {
  char line[256], expected[256];
  snprintf(line, sizeof line, "cache path --cache-dir '%s/other'", folder);
  expect(line, 0);
  snprintf(expected, sizeof expected, "%s/other/tuning.db", folder);
  expect_output(expected);
}
END_TEST

START_TEST(a_damaged_cache_is_told) {
  char path[128];
  snprintf(path, sizeof path, "%s/tuning.db", folder);
  FILE *const file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  for (int i = 0; i < 1000; ++i) fputs("this is no database. ", file);
  fclose(file);
  ck_assert_int_eq(chmod(path, 0600), 0);
  expect("cache stats", 6);
  expect_message("tuning.db");
  expect("emit d64 nq128 --gpu a100", 0); /* a fault of a cache is a miss and a warning */
  expect_output("fatune_kernel");

  expect("cache verify", 6);
  expect_message("cache verify --repair");
  expect("cache verify --repair --json", 9);
  json_t *const root = document("cache");
  const json_t *const mended = json_array_get(json_object_get(root, "mended"), 0);
  strcat(path, ".damaged");
  ck_assert_str_eq(text_at(mended, "kept"), path);
  json_decref(root);
  expect("cache verify --repair", 0);
  expect("cache stats", 0);
}
END_TEST

#define COUNT(array) (int)(sizeof array / sizeof *array)

Suite *make_program_suite(void) {
  Suite *const suite = suite_create("program");
  TCase *const tests = tcase_create("program");
  tcase_add_checked_fixture(tests, begin_program_test, end_program_test);
  tcase_set_timeout(tests, 240);
  tcase_add_loop_test(tests, help_is_everywhere, 0, 12);
  tcase_add_test(tests, version_is_told);
  tcase_add_loop_test(tests, failures_have_a_code_and_a_message, 0, COUNT(failures));
  tcase_add_test(tests, failures_are_documents_with_json);
  tcase_add_test(tests, doctor_tells_of_a_folder_that_cannot_be_made);
  tcase_add_test(tests, gpus_are_listed);
  tcase_add_test(tests, emit_prints_a_source_that_repeats_itself);
  tcase_add_test(tests, emit_has_a_document);
  tcase_add_test(tests, explain_tells_how_requests_name_a_score);
  tcase_add_test(tests, explain_tells_a_score_function);
  tcase_add_test(tests, requests_take_a_score_function);
  tcase_add_test(tests, doctor_tells_what_is_missing);
  tcase_add_test(tests, doctor_knows_the_variables_of_the_readme);
  tcase_add_test(tests, compiling_without_nvrtc_is_a_compile_failure);
  tcase_add_test(tests, without_jit_nothing_is_compiled);
  tcase_add_test(tests, both_passes_are_one_document);
  tcase_add_test(tests, closed_streams_are_held);
  tcase_add_test(tests, a_switch_that_is_none_is_told);
  tcase_add_test(tests, cache_starts_empty);
  tcase_add_test(tests, cache_dir_goes_before_the_environment);
  tcase_add_test(tests, a_folder_of_the_environment_is_named);
  tcase_add_test(tests, a_damaged_cache_is_told);
  suite_add_tcase(suite, tests);
  return suite;
}
