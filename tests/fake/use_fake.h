/* use_fake.h: opening the fake libraries from a test, and a session on them.
 * in -> out: FATUNE_FAKE_DIR -> the controls of fake.h; options for a session that leaves no trace.
 */
#ifndef TESTS_FAKE_USE_FAKE_H
#define TESTS_FAKE_USE_FAKE_H

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "runtime/fatune.h"
#include "tests/fake/fake.h"

struct fake_controls {
  void *library;
  fake_reset_function *reset;
  fake_calls_function *calls;
  fake_failed_function *failed;
  fake_live_function *live;
  fake_live_function *depth;           /* fake CUDA only: contexts pushed in this thread */
  fake_launch_function *last_launch;   /* fake CUDA only */
  fake_gpu_function *gpu;              /* fake CUDA only */
  fake_clock_function *clock;          /* fake CUDA only */
  fake_function_set_function *setting; /* fake CUDA only */
};

static inline void *fake_symbol(void *library, const char *name) {
  void *const symbol = dlsym(library, name);
  ck_assert_msg(symbol != NULL, "%s", dlerror());
  return symbol;
}

static inline struct fake_controls open_fake(const char *file) {
  struct fake_controls controls = {.library = dlopen(file, RTLD_NOW | RTLD_LOCAL)};
  ck_assert_msg(controls.library != NULL, "%s", dlerror());
  return controls;
}

/* From here on the code under test finds this driver. */
static inline struct fake_controls use_fake_cuda(void) {
  const char *const file = FATUNE_FAKE_DIR "/libfake_cuda.so";
  struct fake_controls c = open_fake(file);
  setenv("FATUNE_LIBCUDA", file, 1);
  setenv("FATUNE_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
  *(void **)&c.reset = fake_symbol(c.library, "fake_cuda_reset");
  *(void **)&c.calls = fake_symbol(c.library, "fake_cuda_calls");
  *(void **)&c.failed = fake_symbol(c.library, "fake_cuda_failed");
  *(void **)&c.live = fake_symbol(c.library, "fake_cuda_live");
  *(void **)&c.depth = fake_symbol(c.library, "fake_cuda_depth");
  *(void **)&c.last_launch = fake_symbol(c.library, "fake_cuda_last_launch");
  *(void **)&c.gpu = fake_symbol(c.library, "fake_cuda_gpu");
  *(void **)&c.clock = fake_symbol(c.library, "fake_cuda_clock");
  *(void **)&c.setting = fake_symbol(c.library, "fake_cuda_function_setting");
  c.reset(NULL);
  return c;
}

static inline struct fake_controls use_fake_nvrtc(void) {
  const char *const file = FATUNE_FAKE_DIR "/libfake_nvrtc.so";
  struct fake_controls c = open_fake(file);
  setenv("FATUNE_LIBNVRTC", file, 1);
  *(void **)&c.reset = fake_symbol(c.library, "fake_nvrtc_reset");
  *(void **)&c.calls = fake_symbol(c.library, "fake_nvrtc_calls");
  *(void **)&c.failed = fake_symbol(c.library, "fake_nvrtc_failed");
  *(void **)&c.live = fake_symbol(c.library, "fake_nvrtc_live");
  c.reset(NULL);
  return c;
}

static inline fatune_session_options memory_only_options(void) {
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  options.memory_only = 1;
  return options;
}

#define ck_assert_status(expression, expected)                                                     \
  do {                                                                                             \
    const int ck_status = (expression);                                                            \
    ck_assert_msg(ck_status == (expected), "%s is %d, not %d: %s", #expression, ck_status,         \
                  (int)(expected), fatune_detail());                                               \
  } while (0)

#define ck_assert_detail(part)                                                                     \
  ck_assert_msg(strstr(fatune_detail(), part) != NULL, "detail \"%s\" lacks \"%s\"",               \
                fatune_detail(), part)

#endif
