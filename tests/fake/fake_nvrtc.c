/* fake_nvrtc.c: an NVRTC that compiles nothing, for tests.
 * in -> out: source -> an "image" that fake_cuda.c accepts; a source that contains "#error" -> a
 * log with its line; or the failure a test asked for. */
#include <fcntl.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake/fake.h"
#include "tests/fake/fake_core.h"

#define EXPORT __attribute__((visibility("default")))
#define DEFINE(symbol, arguments)                                                                  \
  EXPORT int symbol arguments;                                                                     \
  int symbol arguments

enum { COMPILATION = 6 };

struct program {
  char name[64];
  char log[512];
  char image[64];
  int broken_line; /* 0: compiles */
};

EXPORT fake_reset_function fake_nvrtc_reset;
EXPORT fake_calls_function fake_nvrtc_calls;
EXPORT fake_failed_function fake_nvrtc_failed;
EXPORT fake_live_function fake_nvrtc_live;

void fake_nvrtc_reset(const char *failure) {
  fake_start_over(failure);
}

int fake_nvrtc_calls(const char *symbol) {
  return fake_count(symbol);
}

const char *fake_nvrtc_failed(void) {
  return fake.failed;
}

int fake_nvrtc_live(void) {
  return fake.live;
}

EXPORT const char *nvrtcGetErrorString(int result);
const char *nvrtcGetErrorString(int result) {
  return result == COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_FAKE";
}

DEFINE(nvrtcVersion, (int *major, int *minor)) {
  FAKE_CALL("nvrtcVersion");
  *major = 13;
  *minor = 0;
  return 0;
}

DEFINE(nvrtcGetNumSupportedArchs, (int *count)) {
  FAKE_CALL("nvrtcGetNumSupportedArchs");
  *count = 3;
  return 0;
}

DEFINE(nvrtcGetSupportedArchs, (int *targets)) {
  FAKE_CALL("nvrtcGetSupportedArchs");
  targets[0] = 75;
  targets[1] = 80;
  targets[2] = 90;
  return 0;
}

DEFINE(nvrtcCreateProgram, (struct program * *out, const char *source, const char *name, int count,
                            const char *const *headers, const char *const *names)) {
  FAKE_CALL("nvrtcCreateProgram");
  (void)headers;
  (void)names;
  if (count != 0) return COMPILATION;
  struct program *const program = calloc(1, sizeof *program);
  snprintf(program->name, sizeof program->name, "%s", name);
  const char *const error = strstr(source, "#error");
  if (error) {
    program->broken_line = 1;
    for (const char *c = source; c < error; c++) program->broken_line += *c == '\n';
  }
  const bool passes = strstr(source, "ForwardParams") || strstr(source, "BackwardParams");
  const bool merges = !passes && strstr(source, "MergeParams");
  snprintf(program->image, sizeof program->image, "fake image of %zu bytes%s%s", strlen(source),
           passes ? "" : ", no pass", merges ? ", merges" : "");
  *out = program;
  fake_count_live(1);
  return 0;
}

/* FATUNE_FAKE_COMPILES: a file that gets one byte a compile, of all processes.
 * FATUNE_FAKE_COMPILE_MS: how long one takes. */
static void be_seen_compiling(void) {
  const char *const path = getenv("FATUNE_FAKE_COMPILES"), *const ms =
                                                               getenv("FATUNE_FAKE_COMPILE_MS");
  const int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (file >= 0 && (write(file, "c", 1) != 1 || close(file) != 0)) abort();
  const long length = ms ? strtol(ms, NULL, 10) : 0;
  const struct timespec nap = {length / 1000, length % 1000 * 1000000L};
  nanosleep(&nap, NULL);
}

DEFINE(nvrtcCompileProgram, (struct program * program, int count, const char *const *options)) {
  be_seen_compiling();
  FAKE_CALL("nvrtcCompileProgram");
  for (int i = 0; i < count; i++)
    if (!options[i] || options[i][0] != '-') return COMPILATION;
  if (program->broken_line) {
    snprintf(program->log, sizeof program->log, "%s(%d): error: #error was asked for\n",
             program->name, program->broken_line);
    return COMPILATION;
  }
  snprintf(program->log, sizeof program->log,
           "ptxas info    : Used 168 registers\n"
           "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
           "ptxas info    : (C7510) Potential Performance Loss: made for a test\n");
  return 0;
}

DEFINE(nvrtcGetProgramLogSize, (struct program * program, size_t *size)) {
  FAKE_CALL("nvrtcGetProgramLogSize");
  *size = strlen(program->log) + 1;
  return 0;
}

DEFINE(nvrtcGetProgramLog, (struct program * program, char *log)) {
  FAKE_CALL("nvrtcGetProgramLog");
  memcpy(log, program->log, strlen(program->log) + 1);
  return 0;
}

DEFINE(nvrtcGetCUBINSize, (struct program * program, size_t *size)) {
  FAKE_CALL("nvrtcGetCUBINSize");
  *size = strlen(program->image) + 1;
  return 0;
}

DEFINE(nvrtcGetCUBIN, (struct program * program, char *image)) {
  FAKE_CALL("nvrtcGetCUBIN");
  memcpy(image, program->image, strlen(program->image) + 1);
  return 0;
}

DEFINE(nvrtcDestroyProgram, (struct program * *program)) {
  free(*program);
  *program = NULL;
  fake_count_live(-1);
  return fake_call("nvrtcDestroyProgram");
}
