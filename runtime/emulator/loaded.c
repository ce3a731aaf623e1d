/* loaded.c: compiled kernels at work, each time in a child process that loads them anew.
 * in -> out: shared object -> what it says of itself; that and a launch -> its effects on shared
 * memory, or the fault in words. */
#include "runtime/emulator/loaded.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/launch.h"
#include "runtime/emulator/lines.h"
#include "runtime/emulator/memory.h"
#include "runtime/emulator/pages.h"
#include "runtime/emulator/result.h"
#include "runtime/emulator/runner.h"

/* Shared: what comes out of a job. */
struct outcome {
  int status; /* a CUresult of reading; 0 or -1 of a launch */
  char message[2048];
  struct ft_loaded loaded;
};

/* ---- in the child ---- */

static const struct fe_kernel *open_object(struct outcome *outcome) {
  void *const library = dlopen(FT_RUNNER_FILE, RTLD_NOW | RTLD_LOCAL);
  const struct fe_kernel *const kernel = library ? dlsym(library, "fatune_emulated") : NULL;
  ft_runner_progress();
  if (kernel && kernel->abi == FE_ABI && kernel->entry_count <= FT_ENTRIES_MOST) return kernel;
  outcome->status = library ? CU_INVALID_IMAGE : CU_OPERATING_SYSTEM;
  (void)snprintf(outcome->message, sizeof outcome->message, "%s",
                 library ? "a kernel for another version of the emulator" : dlerror());
  return NULL;
}

static void read_object(void *payload) {
  struct outcome *const outcome = payload;
  struct ft_loaded *const loaded = &outcome->loaded;
  const struct fe_kernel *const kernel = open_object(outcome);
  if (!kernel) return;
  loaded->sees_plain = kernel->sees_plain != 0;
  loaded->entry_count = kernel->entry_count;
  for (int n = 0; n < kernel->entry_count; n++) {
    (void)snprintf(loaded->entries[n].name, sizeof loaded->entries[n].name, "%s",
                   kernel->entries[n].name);
    loaded->entries[n].cluster = kernel->entries[n].cluster;
  }
}

/* A tensor in the host's own memory, which the child has a copy of. */
struct host_tensor {
  char *begin;
  size_t bytes;
  void *shared; /* what the child's copy holds at the end */
};

struct launching {
  const struct ft_loaded *loaded;
  int entry;
  struct ft_emulated_launch launch;
  struct outcome *outcome;
  struct host_tensor host_tensors[FT_TENSORS_MOST];
  int host_tensor_count;
};

static void launch_object(void *payload) {
  struct launching *const launching = payload;
  struct outcome *const outcome = launching->outcome;
  launching->launch.kernel = open_object(outcome);
  if (!launching->launch.kernel) return;
  launching->launch.entry = &launching->launch.kernel->entries[launching->entry];
  outcome->status =
      ft_emulated_launch_run(&launching->launch, outcome->message, sizeof outcome->message);
  for (int n = 0; n < launching->host_tensor_count; n++) {
    const struct host_tensor *const tensor = &launching->host_tensors[n];
    memcpy(tensor->shared, tensor->begin, tensor->bytes);
  }
}

static void where(void *payload, char *words, size_t size) {
  (void)payload;
  ft_fault_place(words, size);
}

/* ---- in the host ---- */

static int answer(void *payload, const uint64_t *question, int count, int lines[FT_ANSWER_MOST]) {
  const struct launching *const launching = payload;
  return ft_lines_of(launching->loaded->path, question, count, lines, FT_ANSWER_MOST);
}

/* What came out of the child, checked: no words without an end, no kernel that cannot be. */
static cu_result take_table(struct ft_loaded *loaded, struct ft_loaded *made, char *message,
                            size_t size) {
  bool sound = made->entry_count >= 1 && made->entry_count <= FT_ENTRIES_MOST;
  for (int n = 0; sound && n < made->entry_count; n++) {
    const int cluster = made->entries[n].cluster;
    made->entries[n].name[sizeof made->entries[n].name - 1] = '\0';
    sound = cluster >= 1 && cluster <= FT_CLUSTER_MOST && (cluster & (cluster - 1)) == 0;
  }
  if (!sound) {
    (void)snprintf(message, size, "its table of kernels is damaged");
    return CU_INVALID_IMAGE;
  }
  loaded->sees_plain = made->sees_plain;
  loaded->entry_count = made->entry_count;
  memcpy(loaded->entries, made->entries, sizeof loaded->entries);
  return 0;
}

static cu_result no_memory(char *message, size_t size) {
  (void)snprintf(message, size, "no memory for what a kernel has to say");
  return CU_OUT_OF_MEMORY;
}

static void take_message(const struct outcome *outcome, char *message, size_t size) {
  (void)snprintf(message, size, "%.*s", (int)sizeof outcome->message - 1, outcome->message);
}

cu_result ft_loaded_read(struct ft_loaded *loaded, char *message, size_t size) {
  struct outcome *const outcome = ft_pages_allocate(sizeof *outcome);
  if (!outcome) return no_memory(message, size);
  const struct ft_runner_job job = {
      .run = read_object, .payload = outcome, .name = "the compiled kernel", .file = loaded->file};
  cu_result result = CU_OPERATING_SYSTEM;
  if (ft_runner_run(&job, message, size) == 0) {
    result = outcome->status;
    if (result)
      take_message(outcome, message, size);
    else
      result = take_table(loaded, &outcome->loaded, message, size);
  }
  ft_pages_release(outcome, sizeof *outcome);
  return result;
}

static size_t bytes_of(const struct ft_emulated_tensor *tensor) {
  int64_t elements = 1;
  for (int dim = 0; dim < FT_TENSOR_DIMS; dim++) {
    if (tensor->extents[dim] < 1) return 0;
    elements += (tensor->extents[dim] - 1) * tensor->strides[dim];
  }
  return elements > 0 ? (size_t)(elements * tensor->element_bytes) : 0;
}

static bool share_host_tensors(struct launching *launching) {
  for (int n = 0; n < launching->launch.tensor_count; n++) {
    const struct ft_emulated_tensor *const tensor = &launching->launch.tensors[n];
    const size_t bytes = bytes_of(tensor);
    if (!tensor->writable || bytes == 0 || ft_memory_holds(tensor->address, 1)) continue;
    void *const shared = ft_pages_allocate(bytes);
    if (!shared) return false;
    launching->host_tensors[launching->host_tensor_count++] =
        (struct host_tensor){(char *)(uintptr_t)tensor->address, bytes, shared};
  }
  return true;
}

static void release_host_tensors(const struct launching *launching, bool take) {
  for (int n = 0; n < launching->host_tensor_count; n++) {
    const struct host_tensor *const tensor = &launching->host_tensors[n];
    if (take) memcpy(tensor->begin, tensor->shared, tensor->bytes);
    ft_pages_release(tensor->shared, tensor->bytes);
  }
}

static int run_launch(struct launching *launching, char *message, size_t size) {
  const struct ft_runner_job job = {.run = launch_object,
                                    .where = where,
                                    .answer = answer,
                                    .payload = launching,
                                    .name = launching->loaded->entries[launching->entry].name,
                                    .file = launching->loaded->file};
  const int ended = ft_runner_run(&job, message, size);
  if (ended != 0 || launching->outcome->status == 0) return ended;
  take_message(launching->outcome, message, size);
  return -1;
}

int ft_loaded_launch(const struct ft_loaded *loaded, int entry,
                     const struct ft_emulated_launch *launch, char *message, size_t size) {
  struct launching launching = {.loaded = loaded,
                                .entry = entry,
                                .launch = *launch,
                                .outcome = ft_pages_allocate(sizeof *launching.outcome)};
  int result = -1;
  if (launching.outcome && share_host_tensors(&launching))
    result = run_launch(&launching, message, size);
  else
    (void)no_memory(message, size);
  release_host_tensors(&launching, result == 0);
  ft_pages_release(launching.outcome, sizeof *launching.outcome);
  return result;
}
