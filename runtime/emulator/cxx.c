/* cxx.c: an emitted kernel compiled for the CPU.
 * in -> out: struct ft_source -> C++ compiler, run in a folder of its own -> struct ft_kernel, or
 * the compiler's messages in terms of template lines. */
#include "runtime/emulator/cxx.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator/status.h"
#include "generator/templates.h"
#include "generator/text.h"
#include "runtime/emulator/child.h"
#include "runtime/emulator/cxx_search.h"
#include "runtime/emulator/object.h"
#include "runtime/emulator/scratch.h"
#include "runtime/emulator/text.h"

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__clang__)
#define UNDER_ASAN __has_feature(address_sanitizer)
#else
#define UNDER_ASAN 0
#endif

/* -Og: compiler and kernel together take less time than with -O1, and the compiler removes fewer of
 * the reads of variables without a value, which the emulator is to find. -g1: messages name lines.
 * Contraction: as NVRTC does. pattern: variables without a value hold one that shows. */
static const char *const common_flags[] = {
    "-std=c++17",
    "-Og",
    "-g1",
    "-w",
    "-pipe",
    "-fPIC",
    "-shared",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-ftrivial-auto-var-init=pattern",
    "-fdiagnostics-color=never",
#if defined(__x86_64__)
    "-march=native",
#endif
    "-fsanitize-coverage=trace-pc",
};

/* ThreadSanitizer's instrumentation without its runtime: device/entry.h has the hooks. */
static const char *const hook_flags[] = {"-fsanitize=thread", "-nodefaultlibs", "-Wl,-z,defs"};
#if UNDER_ASAN
static const char *const asan_flags[] = {"-fsanitize=address,undefined",
                                         "-fno-sanitize-recover=all", "-DFE_ADDRESS_SANITIZER",
                                         "-fno-omit-frame-pointer"};
enum { MODE_FLAGS_MOST = sizeof asan_flags / sizeof *asan_flags };
#else
enum { MODE_FLAGS_MOST = sizeof hook_flags / sizeof *hook_flags };
#endif

static const char *const gcc_flags[] = {"-fmax-errors=8", "-fno-diagnostics-show-caret", "--param",
                                        "tsan-instrument-func-entry-exit=0"};
static const char *const clang_flags[] = {"-ferror-limit=8", "-fno-caret-diagnostics",
#if UNDER_ASAN
                                          "-fno-sanitize=function", /* C has no such runtime */
#endif
                                          "-mllvm", "-tsan-instrument-func-entry-exit=0"};

static const char *const last_flags[] = {"kernel.cc", "-o", "kernel.so", "-lm", "-lc"};

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
enum { ARGUMENTS_MOST = 40 };
_Static_assert(COUNT(common_flags) + MODE_FLAGS_MOST + COUNT(gcc_flags) + COUNT(last_flags) + 3 <=
                   ARGUMENTS_MOST,
               "room for the arguments");
_Static_assert(COUNT(clang_flags) <= COUNT(gcc_flags) + 1, "room for the arguments");

static int add_flags(const char **arguments, int count, const char *const *flags, int flag_count) {
  for (int i = 0; i < flag_count; i++) arguments[count++] = flags[i];
  return count;
}

/* The hooks see some faults that the sanitizers do not: FATUNE_EMULATOR_HOOKS=1 keeps them in a
 * library under AddressSanitizer, too. */
static int add_mode_flags(const char **arguments, int count) {
#if UNDER_ASAN
  const char *const hooks = secure_getenv("FATUNE_EMULATOR_HOOKS");
  if (!hooks || strcmp(hooks, "1") != 0)
    return add_flags(arguments, count, asan_flags, COUNT(asan_flags));
#endif
  return add_flags(arguments, count, hook_flags, COUNT(hook_flags));
}

static void write_arguments(const char *arguments[ARGUMENTS_MOST], const struct ft_cxx *cxx) {
  int count = 0;
  arguments[count++] = cxx->path;
  count = add_flags(arguments, count, common_flags, COUNT(common_flags));
  count = add_mode_flags(arguments, count);
  if (cxx->clang)
    count = add_flags(arguments, count, clang_flags, COUNT(clang_flags));
  else
    count = add_flags(arguments, count, gcc_flags, COUNT(gcc_flags));
  count = add_flags(arguments, count, last_flags, COUNT(last_flags));
  arguments[count] = NULL;
}

/* ---- the folder ---- */

static int write_file(const char *folder, const char *name, const char *bytes, size_t size) {
  char path[PATH_MAX];
  (void)snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *const file = fopen(path, "wbe");
  bool written = file && fwrite(bytes, 1, size, file) == size;
  const int error = errno;
  if (file && fclose(file) != 0) written = false;
  return written ? FT_OK : ft_fail(FT_E_IO, "cannot write %s: %s", path, strerror(error));
}

static int write_sources(const char *folder, const struct ft_text *text) {
  for (const struct ft_template *file = ft_emulator_files; file->name; file++)
    FT_TRY(write_file(folder, file->name, file->text, file->length));
  return write_file(folder, "kernel.cc", text->data, text->length);
}

/* ---- what came out ---- */

/* "kernel.cu:12" wherever it stands becomes "templates/parts/softmax.cu.in:3". */
static void map_messages(const struct ft_source *source, const char *messages,
                         struct ft_text *mapped) {
  static const char file[] = "kernel.cu:";
  for (const char *found; (found = strstr(messages, file));) {
    char *end;
    const long line = strtol(found + sizeof file - 1, &end, 10);
    ft_text_append(mapped, messages, (size_t)(found - messages));
    if (line >= 1 && line <= source->line_count)
      ft_text_add(mapped, "templates/%s:%d", source->origins[line - 1].file,
                  source->origins[line - 1].line);
    else
      ft_text_append(mapped, found, (size_t)(end - found));
    messages = end;
  }
  ft_text_add(mapped, "%s", messages);
}

static int refused(const struct ft_source *source, const struct ft_cxx *cxx, int code,
                   const struct ft_text *messages) {
  if (code == -SIGINT) return ft_fail(FT_E_INTERRUPTED, "%s was interrupted", cxx->name);
  if (code < 0) return ft_fail(FT_E_COMPILE, "%s was ended by signal %d", cxx->name, -code);
  struct ft_text mapped = FT_TEXT_INIT;
  if (messages->data) map_messages(source, messages->data, &mapped);
  const int status = ft_fail(FT_E_COMPILE, "%s (%s) refused the emulated kernel, exit %d: %s",
                             cxx->name, cxx->path, code, mapped.data ? mapped.data : "no message");
  ft_text_free(&mapped);
  return status;
}

static int read_object(FILE *file, size_t bytes, struct ft_kernel *kernel) {
  const size_t head = sizeof(struct ft_emulator_image);
  kernel->image = malloc(head + bytes);
  if (!kernel->image) return ft_fail(FT_E_MEMORY, "no memory for %zu bytes of kernel", bytes);
  struct ft_emulator_image image = {.bytes = bytes};
  memcpy(image.magic, FT_EMULATOR_MAGIC, sizeof image.magic);
  memcpy(kernel->image, &image, head);
  kernel->image_size = head + bytes;
  if (fread((char *)kernel->image + head, 1, bytes, file) == bytes) return FT_OK;
  return ft_fail(FT_E_IO, "the compiled kernel could not be read: %s", strerror(errno));
}

static int read_image(const char *folder, const struct ft_cxx *cxx, struct ft_kernel *kernel) {
  char path[PATH_MAX];
  struct stat object;
  (void)snprintf(path, sizeof path, "%s/kernel.so", folder);
  FILE *const file = fopen(path, "rbe");
  if (!file || fstat(fileno(file), &object) != 0 || object.st_size <= 0) {
    if (file) (void)fclose(file); /* only read */
    return ft_fail(FT_E_COMPILE, "%s (%s) left no compiled kernel", cxx->name, cxx->path);
  }
  const int status = read_object(file, (size_t)object.st_size, kernel);
  (void)fclose(file); /* only read */
  return status;
}

static void describe(const struct ft_source *source, const struct ft_cxx *cxx,
                     struct ft_kernel *kernel) {
  struct ft_hasher hasher;
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "kernel key", "emulated 1", 10);
  ft_hasher_section(&hasher, "source", source->digest.bytes, sizeof source->digest.bytes);
  ft_hasher_section(&hasher, "cxx", cxx->name, strlen(cxx->name));
  kernel->key = ft_hasher_final(&hasher);
  kernel->source = source->digest;
  kernel->image_digest = ft_digest_of(kernel->image, kernel->image_size);
  kernel->smem_bytes = source->budget.smem_bytes;
  kernel->threads = source->budget.threads;
  (void)snprintf(kernel->target, sizeof kernel->target, "%s", source->target);
  memcpy(kernel->nvrtc, cxx->name, sizeof cxx->name);
}

int ft_emulator_compile(const struct ft_source *source, struct ft_kernel *kernel) {
  memset(kernel, 0, sizeof *kernel);
  struct ft_scratch scratch = {.lock = -1};
  const char *const folder = scratch.path;
  const char *arguments[ARGUMENTS_MOST];
  struct ft_text text = FT_TEXT_INIT, messages = FT_TEXT_INIT;
  struct ft_cxx cxx;
  int status, code = 0;
  FT_CHECK(ft_cxx_find(&cxx));
  FT_CHECK(ft_emulator_text(source, &text));
  FT_CHECK(ft_scratch_make(&scratch));
  FT_CHECK(write_sources(folder, &text));
  write_arguments(arguments, &cxx);
  FT_CHECK(ft_child_run(arguments, folder, &messages, &code));
  if (code != 0) {
    status = refused(source, &cxx, code, &messages);
    goto done;
  }
  FT_CHECK(read_image(folder, &cxx, kernel));
  describe(source, &cxx, kernel);

done:
  ft_scratch_remove(&scratch);
  ft_text_free(&text);
  ft_text_free(&messages);
  if (status != FT_OK) ft_kernel_free(kernel);
  return status;
}
