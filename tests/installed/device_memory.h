/* device_memory.h: memory of a GPU for the examples, by the driver alone; of an emulated GPU, the
 * process's own. in -> out: sizes, arrays of the host -> device addresses, copies. A failure ends
 * the program. */
#ifndef DEVICE_MEMORY_H
#define DEVICE_MEMORY_H

#include <dlfcn.h>
#include <fatune.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef _Float16 half;

static bool device_emulated;

static void must(int status, const char *what) {
  if (!status) return;
  fprintf(stderr, "%s: %s: %s\n", what, fatune_status_text(status), fatune_detail());
  exit(1);
}

/* A function of the driver's, by name. */
static void *driver(const char *name) {
  static void *library;
  if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
  void *const function = library ? dlsym(library, name) : NULL;
  if (function) return function;
  fprintf(stderr, "no %s: %s\n", name, dlerror());
  exit(1);
}

static void driver_must(int result, const char *what) {
  if (!result) return;
  fprintf(stderr, "%s gives %d\n", what, result);
  exit(1);
}

/* emulated: the name of a GPU, or NULL: the first one in the machine is made current. bundles: a
 * folder with shipped files, beyond which nothing is compiled, or NULL. */
static fatune_session *device_open(const char *emulated, const char *bundles) {
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  fatune_session *session;
  options.emulate = emulated;
  options.system_path = bundles;
  options.memory_only = bundles != NULL;
  options.compile = bundles && !emulated ? -1 : 0; /* the emulator compiles for the CPU */
  device_emulated = emulated != NULL;
  if (!emulated) {
    int gpu;
    void *context;
    driver_must(((int (*)(unsigned))driver("cuInit"))(0), "cuInit");
    driver_must(((int (*)(int *, int))driver("cuDeviceGet"))(&gpu, 0), "cuDeviceGet");
    driver_must(((int (*)(void **, int))driver("cuDevicePrimaryCtxRetain"))(&context, gpu),
                "cuDevicePrimaryCtxRetain");
    driver_must(((int (*)(void *))driver("cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
  }
  must(fatune_session_open(&session, &options), "fatune_session_open");
  return session;
}

static void device_write(void *to, const void *from, size_t bytes) {
  if (device_emulated)
    memcpy(to, from, bytes);
  else
    driver_must(((int (*)(uint64_t, const void *, size_t))driver("cuMemcpyHtoD_v2"))((uintptr_t)to,
                                                                                     from, bytes),
                "cuMemcpyHtoD");
}

/* 256-byte aligned; from: what is copied there, or NULL. */
static void *device_new(size_t bytes, const void *from) {
  uint64_t address = 0;
  if (device_emulated) {
    void *const memory = aligned_alloc(256, (bytes + 256) / 256 * 256);
    if (!memory) exit(1);
    if (from) memcpy(memory, from, bytes);
    return memory;
  }
  driver_must(((int (*)(uint64_t *, size_t))driver("cuMemAlloc_v2"))(&address, bytes + 1),
              "cuMemAlloc");
  if (from) device_write((void *)(uintptr_t)address, from, bytes);
  return (void *)(uintptr_t)address;
}

/* Waits for what runs on the default stream. */
static void device_read(void *to, const void *from, size_t bytes) {
  if (device_emulated)
    memcpy(to, from, bytes);
  else
    driver_must(
        ((int (*)(void *, uint64_t, size_t))driver("cuMemcpyDtoH_v2"))(to, (uintptr_t)from, bytes),
        "cuMemcpyDtoH");
}

/* Numbers between -1 and 1, the same in every run. */
static void fill(half *to, size_t count, uint32_t seed) {
  for (size_t n = 0; n < count; n++) {
    seed = seed * 1664525 + 1013904223;
    to[n] = (half)((double)(seed >> 8) / (1 << 23) - 1);
  }
}

static int finish(const char *name, double worst, double allowed) {
  printf("%s: largest error %.2e, allowed %.0e%s\n", name, worst, allowed,
         device_emulated ? ", emulated" : "");
  return worst <= allowed ? 0 : 1;
}

#endif
