/* run_program.h: running `fatune` from a test, in a cache folder of the test's own.
 * in -> out: arguments -> exit code, stdout, stderr, the JSON document. No real GPU is used: either
 * none is found, or the fake one is. */
#ifndef TESTS_RUN_PROGRAM_H
#define TESTS_RUN_PROGRAM_H

#include <check.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64]; /* of this test; holds caches and files */
static char program[4096];
static char output[1 << 20]; /* stdout of the last run */
static char messages[65536]; /* its stderr */

static inline void find_program(void) {
#ifdef FATUNE_PROGRAM
  snprintf(program, sizeof program, "%s", FATUNE_PROGRAM);
#else
  const char *const build = getenv("FATUNE_BUILD_DIR");
  snprintf(program, sizeof program, "%s/fatune", build != NULL ? build : ".");
#endif
  ck_assert_msg(access(program, X_OK) == 0, "no program at '%s'", program);
}

static inline void begin_program_test(void) {
  find_program();
  strcpy(folder, "/tmp/fatune_program_XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  setenv("FATUNE_CACHE_DIR", folder, 1);
  setenv("FATUNE_LIBCUDA", "/nowhere/libcuda.so.1", 1); /* as on a machine without a GPU */
  unsetenv("FATUNE_SYSTEM_PATH");
  unsetenv("FATUNE_TEMPLATE_DIR");
  setenv("TERM", "dumb", 1);
}

static inline void end_program_test(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  ck_assert_int_eq(system(command), 0);
}

static inline void read_file(const char *name, char *content, size_t room) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *const file = fopen(path, "r");
  ck_assert_ptr_nonnull(file);
  const size_t length = fread(content, 1, room - 1, file);
  content[length] = '\0';
  fclose(file);
}

/* After a run: its exit code, from what waitpid said; its output is read. */
static inline int take_end(const char *arguments, int status) {
  ck_assert_msg(WIFEXITED(status), "fatune %s: ended by a signal", arguments);
  read_file("out", output, sizeof output);
  read_file("err", messages, sizeof messages);
  const char *const found = strstr(messages, "Sanitizer");
  ck_assert_msg(found == NULL, "fatune %s: %.3000s", arguments, found);
  return WEXITSTATUS(status);
}

/* Runs "fatune <arguments>" by the shell; returns its exit code. */
static inline int run(const char *arguments) {
  char command[8192];
  snprintf(command, sizeof command, "'%s' %s >'%s/out' 2>'%s/err' </dev/null", program, arguments,
           folder, folder);
  return take_end(arguments, system(command));
}

static inline void expect(const char *arguments, int code) {
  const int got = run(arguments);
  ck_assert_msg(got == code, "fatune %s: exit code %d, not %d\n%s", arguments, got, code, messages);
}

static inline void expect_message(const char *part) {
  ck_assert_msg(strstr(messages, part) != NULL, "\"%s\" is not in:\n%s", part, messages);
}

static inline void expect_output(const char *part) {
  ck_assert_msg(strstr(output, part) != NULL, "\"%s\" is not in:\n%s", part, output);
}

/* The one document on stdout; its schema is checked. */
static inline json_t *document(const char *command) {
  json_error_t error;
  char schema[64];
  json_t *const root = json_loads(output, JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(root != NULL, "line %d: %s\n%s", error.line, error.text, output);
  snprintf(schema, sizeof schema, "fatune.%s/1", command);
  ck_assert_str_eq(json_string_value(json_object_get(root, "schema")), schema);
  return root;
}

static inline const char *text_at(const json_t *object, const char *key) {
  const char *const text = json_string_value(json_object_get(object, key));
  ck_assert_msg(text != NULL, "no text '%s' in:\n%s", key, output);
  return text;
}

/* For tests that compile: where no NVRTC is found, the fake one has to do. */
static inline void need_nvrtc(void) {
  expect("doctor --json", 0);
  json_t *const root = document("doctor"), *one;
  size_t i;
  json_array_foreach(json_object_get(root, "checks"), i, one) {
    if (strcmp(text_at(one, "name"), "NVRTC") != 0) continue;
    if (strcmp(text_at(one, "state"), "ok") == 0) continue;
    setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  }
  json_decref(root);
}

#endif
