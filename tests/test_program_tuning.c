/* test_program_tuning.c: `fatune` compiling, predicting, tuning and verifying.
 * in -> out: command lines -> documents and exit codes, for GPUs that are not there and for the
 * fake one. */
#include "tests/run_program.h"
#include "tests/suites.h"

#include <signal.h>
#include <sys/stat.h>

/* -- compiling and predicting --------------------------------------------------------------- */

START_TEST(compile_describes_and_keeps_the_kernel) {
  need_nvrtc();
  char line[256];
  struct stat state;
  snprintf(line, sizeof line, "compile d64 nq128 --gpu a100 --json -o '%s/k.cubin'", folder);
  expect(line, 0);
  json_t *root = document("compile");
  ck_assert(json_is_true(json_object_get(root, "compiled")));
  const json_int_t registers = json_integer_value(json_object_get(root, "registers"));
  const bool is_fake = getenv("FATUNE_LIBNVRTC") != NULL; /* its image tells of no registers */
  ck_assert(is_fake || (registers > 16 && registers <= 255));
  snprintf(line, sizeof line, "%s/k.cubin", folder);
  ck_assert_int_eq(stat(line, &state), 0);
  ck_assert_int_eq(state.st_size, json_integer_value(json_object_get(root, "size")));
  json_decref(root);

  expect("compile d64 nq128 --gpu a100", 0);
  expect_output("from the cache");
  expect_output("registers");
  expect("cache stats --json", 0);
  root = document("cache");
  ck_assert_int_eq(json_integer_value(json_object_get(root, "kernels")), 1);
  json_decref(root);
}
END_TEST

/* The knobs of a document beside the config's text: each word of the text, and the switches it
 * leaves out, which are 0. */
static void expect_knobs(const json_t *knobs, const char *config) {
  const char *name;
  json_t *value;
  int shown = 0;
  json_object_foreach((json_t *)knobs, name, value) {
    char word[64];
    if (strcmp(name, "family") == 0) {
      ck_assert_int_eq(strncmp(config, json_string_value(value), strlen(json_string_value(value))),
                       0);
      continue;
    }
    ck_assert(json_is_integer(value));
    snprintf(word, sizeof word, " %s=%d", name, (int)json_integer_value(value));
    const char *const found = strstr(config, word);
    const bool whole = found && (found[strlen(word)] == ' ' || found[strlen(word)] == '\0');
    ck_assert_msg(whole == (json_integer_value(value) != 0), "%s in '%s'", word, config);
    shown += whole;
  }
  int words = 0;
  for (const char *at = config; (at = strchr(at, '=')) != NULL; at++) words++;
  ck_assert_int_gt(words, 0);
  ck_assert_int_eq(shown, words);
}

START_TEST(tuning_for_another_gpu_predicts_and_says_so) {
  need_nvrtc();
  expect("--gpu a100 --effort quick --shard 1/4 --json d64 nq128", 0);
  expect_message("PREDICTED");
  json_t *root = document("tune");
  ck_assert(json_is_false(json_object_get(root, "measured")));
  const json_t *const result = json_array_get(json_object_get(root, "results"), 0);
  ck_assert(json_is_false(json_object_get(result, "measured")));
  ck_assert_double_gt(json_number_value(json_object_get(result, "best_us")), 0);
  static char best[1024];
  snprintf(best, sizeof best, "%s", text_at(result, "config"));
  expect_knobs(json_object_get(result, "knobs"), best);
  json_decref(root);

  /* What was found is used from now on, and explained as what it is. */
  expect("explain d64 nq128 --gpu a100 --json", 0);
  root = document("explain");
  ck_assert_str_eq(text_at(root, "hit"), "model");
  ck_assert_str_eq(text_at(root, "config"), best);
  const json_t *const trial = json_array_get(json_object_get(root, "trials"), 0);
  ck_assert_str_eq(text_at(trial, "config"), best);
  expect_knobs(json_object_get(root, "knobs"), best);
  expect_knobs(json_object_get(trial, "knobs"), best);
  ck_assert(json_is_null(json_object_get(trial, "spread_us"))); /* nothing was measured */
  const json_t *const space = json_object_get(root, "space");
  const json_int_t legal = json_integer_value(json_object_get(space, "legal"));
  json_int_t rejected = 0;
  const char *rule;
  json_t *count;
  json_object_foreach(json_object_get(space, "rejected"), rule, count) {
    rejected += json_integer_value(count);
  }
  ck_assert_int_gt(legal, 0);
  ck_assert_int_eq(legal + rejected, json_integer_value(json_object_get(space, "product")));
  json_decref(root);
  expect("explain d64 nq128 --gpu a100", 0);
  expect_output("predicted for nvidia-a100-80gb/sm_80/108; user file");
  expect("cache list", 0);
  expect_output("predicted");
  expect_message("1 predicted: `cache stats` counts winners that were measured");

  /* It travels in a file. */
  char line[512];
  snprintf(line, sizeof line, "cache export --gpu a100 -o '%s/sm_80.fatune' --json", folder);
  expect(line, 0);
  root = document("cache");
  ck_assert_int_eq(json_integer_value(json_object_get(root, "kernels")), 1);
  ck_assert_int_eq(json_integer_value(json_object_get(root, "recipes")), 1);
  json_decref(root);
  snprintf(line, sizeof line, "cache verify '%s/sm_80.fatune' --json", folder);
  expect(line, 0);
  root = document("cache");
  const json_t *const file = json_array_get(json_object_get(root, "files"), 0);
  ck_assert_int_eq(json_integer_value(json_object_get(file, "recipes")), 1);
  json_decref(root);
  snprintf(line, sizeof line, "cache import '%s/sm_80.fatune' --cache-dir '%s/other'", folder,
           folder);
  expect(line, 0);
  snprintf(line, sizeof line, "emit d64 nq128 --gpu a100 --json --cache-dir '%s/other'", folder);
  expect(line, 0);
  root = document("emit");
  ck_assert_str_eq(text_at(root, "config"), best);
  json_decref(root);
}
END_TEST

START_TEST(an_untuned_choice_says_what_the_model_said) {
  static const struct {
    const char *gpu, *said;
  } asked[] = {{"h200", "model"}, {"a100", NULL}}; /* no trials of sm_80 are recorded */
  char line[128];
  for (int n = 0; n < 2; n++) {
    snprintf(line, sizeof line, "explain --json --gpu %s bf16 d128 hq7 nq4096", asked[n].gpu);
    expect(line, 0);
    json_t *const root = document("explain");
    const char *const note = text_at(root, "note"), *const hit = text_at(root, "hit");
    ck_assert_ptr_nonnull(strstr(note, "nothing measured"));
    if (asked[n].said == NULL)
      ck_assert_ptr_null(strstr(note, "model"));
    else
      ck_assert_ptr_nonnull(strstr(note, strcmp(hit, "default") == 0
                                             ? "; the model puts nothing before the default"
                                             : "; by the model the default takes"));
    json_decref(root);
  }
}
END_TEST

/* What cannot be stored is told, once, and by the exit code; every request is tuned all the same.
 */
START_TEST(tuning_goes_on_where_nothing_can_be_stored) {
  need_nvrtc();
  expect("--gpu a100 --effort quick --shard 1/4 --cache-dir /proc/nowhere --json d64 nq128", 6);
  expect_message("results could not be stored");
  json_t *const root = document("tune");
  const json_t *const result = json_array_get(json_object_get(root, "results"), 0);
  ck_assert_int_eq(json_integer_value(json_object_get(result, "tried")), 4);
  ck_assert_int_eq(json_integer_value(json_object_get(result, "unstored")), 4);
  ck_assert_double_gt(json_number_value(json_object_get(result, "best_us")), 0);
  json_decref(root);
}
END_TEST

START_TEST(shapes_and_failures_mix) {
  need_nvrtc();
  char path[128], line[256];
  snprintf(path, sizeof path, "%s/shapes", folder);
  FILE *const file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs("bf16 d64 nq128 # a T4 has no bf16\nfp16 d64 nq128\n", file);
  fclose(file);
  snprintf(line, sizeof line, "--gpu t4 --effort quick --json --shapes '%s'", path);
  expect(line, 3);
  expect_message("bf16");
  expect_message("request 2 of 2: forward fp16 d64 nq128");
  json_t *const root = document("tune");
  const json_t *const results = json_object_get(root, "results");
  ck_assert_uint_eq(json_array_size(results), 2);
  ck_assert(json_is_null(json_object_get(json_array_get(results, 0), "best_us")));
  ck_assert(json_is_real(json_object_get(json_array_get(results, 1), "best_us")));
  json_decref(root);
}
END_TEST

START_TEST(a_spent_budget_has_a_code) {
  need_nvrtc();
  expect("--gpu a100 --effort exhaustive --budget 0.2 --json d128 nq4096 hq32", 8);
  json_t *const root = document("tune");
  ck_assert(json_is_false(json_object_get(root, "complete")));
  const json_t *const result = json_array_get(json_object_get(root, "results"), 0);
  ck_assert_double_gt(json_number_value(json_object_get(result, "best_us")), 0);
  ck_assert_int_lt(json_integer_value(json_object_get(result, "tried")),
                   json_integer_value(json_object_get(result, "legal")));
  json_decref(root);
}
END_TEST

/* Ctrl-C: finished trials are kept and told. */
START_TEST(a_signal_stops_and_keeps) {
  static const int signals[] = {SIGINT, SIGTERM};
  need_nvrtc();
  char command[8192];
  /* A shell starts background jobs with SIGINT ignored; so the program takes the foreground shell's
   * place, and the job in the background is the killer. */
  snprintf(command, sizeof command,
           "sh -c '(sleep 1.5; kill -%d $$) & exec \"%s\" --gpu a100 --effort exhaustive --again "
           "--json \"d128 nq4096 hq32\" \"d64 nq4096 hq32\" \"d96 nq4096 hq32\" "
           "\"d128 nq4096 hq32 causal\" \"d64 nq4096 hq32 causal\" \"d256 nq4096\"' >'%s/out' "
           "2>'%s/err'",
           signals[_i], program, folder, folder);
  const int status = system(command);
  read_file("out", output, sizeof output);
  read_file("err", messages, sizeof messages);
  ck_assert_msg(WIFEXITED(status), "killed by the signal\n%s", messages);
  ck_assert_msg(WEXITSTATUS(status) == 128 + signals[_i], "exit code %d\n%s", WEXITSTATUS(status),
                messages);
  expect_message("stopping");
  json_decref(document("tune"));
}
END_TEST

/* -- on the fake GPU ------------------------------------------------------------------------ */

static void use_fake_gpu(void) {
  setenv("FATUNE_LIBCUDA", FATUNE_FAKE_DIR "/libfake_cuda.so", 1);
  setenv("FATUNE_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
}

START_TEST(the_gpu_in_the_machine_is_found_by_its_names) {
  static const char *const names[] = {"auto", "h200", "H200", "sm_90"};
  char line[128];
  use_fake_gpu();
  snprintf(line, sizeof line, "emit d64 nq128 --json --gpu %s", names[_i]);
  expect(line, 0);
  json_t *const root = document("emit");
  ck_assert(json_is_true(json_object_get(json_object_get(root, "gpu"), "here")));
  json_decref(root);
}
END_TEST

START_TEST(other_gpus_are_not_taken_for_it) {
  static const char *const names[] = {"h100", "gh200", "h100-nvl", "a100", "sm_80"};
  char line[128];
  use_fake_gpu();
  snprintf(line, sizeof line, "emit d64 nq128 --json --gpu %s", names[_i]);
  expect(line, 0);
  json_t *const root = document("emit");
  ck_assert(json_is_false(json_object_get(json_object_get(root, "gpu"), "here")));
  json_decref(root);
}
END_TEST

START_TEST(a_gpu_that_does_not_exist_is_refused) {
  use_fake_gpu();
  expect("doctor --device 7", 2);
  expect_message("--device 7");
}
END_TEST

/* The fake runs no kernel, so that every result is wrong: none may win, and the codes tell. */
START_TEST(wrong_kernels_are_found_out) {
  use_fake_gpu();
  need_nvrtc();
  expect("verify d64 nq64 --rows 8 --json", 7);
  json_t *const root = document("verify");
  ck_assert_int_eq(json_integer_value(json_object_get(root, "wrong")),
                   (json_int_t)json_array_size(json_object_get(root, "cases")));
  json_decref(root);
  expect("tune --effort quick --shard 1/4 d64 nq64", 5);
  expect_message("wrong");
  expect("cache list", 0);
  ck_assert_str_eq(output, "");
}
END_TEST

Suite *make_program_tuning_suite(void) {
  Suite *const suite = suite_create("program_tuning");
  TCase *const tests = tcase_create("program_tuning");
  tcase_add_checked_fixture(tests, begin_program_test, end_program_test);
  tcase_set_timeout(tests, 240);
  tcase_add_test(tests, compile_describes_and_keeps_the_kernel);
  tcase_add_test(tests, tuning_for_another_gpu_predicts_and_says_so);
  tcase_add_test(tests, an_untuned_choice_says_what_the_model_said);
  tcase_add_test(tests, tuning_goes_on_where_nothing_can_be_stored);
  tcase_add_test(tests, shapes_and_failures_mix);
  tcase_add_test(tests, a_spent_budget_has_a_code);
  tcase_add_loop_test(tests, a_signal_stops_and_keeps, 0, 2);
  tcase_add_loop_test(tests, the_gpu_in_the_machine_is_found_by_its_names, 0, 4);
  tcase_add_loop_test(tests, other_gpus_are_not_taken_for_it, 0, 5);
  tcase_add_test(tests, a_gpu_that_does_not_exist_is_refused);
  tcase_add_test(tests, wrong_kernels_are_found_out);
  suite_add_tcase(suite, tests);
  return suite;
}
