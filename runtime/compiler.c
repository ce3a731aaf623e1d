/* compiler.c: NVRTC at work.
 * in -> out: struct ft_source -> struct ft_kernel: cubin, its resources, the part of the log worth
 * keeping. */
#include "runtime/compiler.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "generator/text.h"
#include "runtime/image.h"
#include "runtime/nvrtc.h"
#include "runtime/nvrtc_identity.h"
#include "runtime/nvrtc_search.h"

struct ft_compiler {
  struct ft_nvrtc nvrtc;
  char version[64];
  bool has_cache; /* knows --no-cache */
  int *targets;   /* 75, 80, ..., ascending; owned */
  int target_count;
};

/* FT_E_COMPILE: NVRTC refuses the text, or fails inside while it compiles it. FT_E_NO_NVRTC: NVRTC
 * itself does not work, for instance because its builtins are missing; the kernel is not at fault.
 */
static int nvrtc_status(const struct ft_nvrtc *nvrtc, int result, const char *call) {
  enum { OUT_OF_MEMORY = 1, COMPILATION = 6, INTERNAL_ERROR = 11 };
  if (!result) return FT_OK;
  const bool blames_text = result == COMPILATION || result == INTERNAL_ERROR;
  const int status = blames_text ? FT_E_COMPILE : FT_E_NO_NVRTC;
  return ft_fail(result == OUT_OF_MEMORY ? FT_E_MEMORY : status, "%s: %s (%d)", call,
                 nvrtc->error_text(result), result);
}

static int read_targets(struct ft_compiler *compiler) {
  const struct ft_nvrtc *const nvrtc = &compiler->nvrtc;
  int count = 0;
  FT_TRY(nvrtc_status(nvrtc, nvrtc->target_count(&count), "nvrtcGetNumSupportedArchs"));
  if (count < 1 || count > 1000)
    return ft_fail(FT_E_COMPILE, "nvrtcGetNumSupportedArchs gave %d", count);
  compiler->targets = calloc((size_t)count, sizeof *compiler->targets);
  if (!compiler->targets) return ft_fail(FT_E_MEMORY, "no memory for %d targets", count);
  compiler->target_count = count;
  return nvrtc_status(nvrtc, nvrtc->targets(compiler->targets), "nvrtcGetSupportedArchs");
}

/* "13.0.88+..." is at least major.minor. */
static bool is_at_least(const char *version, long major, long minor) {
  char *end;
  const long own_major = strtol(version, &end, 10);
  const long own_minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
  return own_major != major ? own_major > major : own_minor >= minor;
}

int ft_compiler_open(struct ft_compiler **out) {
  *out = NULL;
  struct ft_compiler *const compiler = calloc(1, sizeof *compiler);
  if (!compiler) return ft_fail(FT_E_MEMORY, "no memory for the compiler");
  int status = ft_nvrtc_open(&compiler->nvrtc);
  if (status == FT_OK) status = ft_nvrtc_identify(&compiler->nvrtc, compiler->version);
  if (status == FT_OK) compiler->has_cache = is_at_least(compiler->version, 12, 9);
  if (status == FT_OK) status = read_targets(compiler);
  if (status != FT_OK) {
    ft_compiler_close(compiler);
    return status;
  }
  *out = compiler;
  return FT_OK;
}

void ft_compiler_close(struct ft_compiler *compiler) {
  if (!compiler) return;
  ft_nvrtc_close(&compiler->nvrtc);
  free(compiler->targets);
  free(compiler);
}

const char *ft_compiler_version(const struct ft_compiler *compiler) {
  return compiler->version;
}

const char *ft_compiler_path(const struct ft_compiler *compiler) {
  return compiler->nvrtc.path;
}

int ft_compiler_supports(const struct ft_compiler *compiler, const char *target) {
  /* "sm_90a" is a variant of 90. */
  const long sm = strncmp(target, "sm_", 3) == 0 ? strtol(target + 3, NULL, 10) : 0;
  for (int i = 0; i < compiler->target_count; i++)
    if (compiler->targets[i] == sm) return FT_OK;

  struct ft_text known = FT_TEXT_INIT;
  for (int i = 0; i < compiler->target_count; i++)
    ft_text_add(&known, " sm_%d", compiler->targets[i]);
  const int status =
      ft_fail(FT_E_UNSUPPORTED, "target is \"%s\"; NVRTC %s (%s) compiles for%s", target,
              compiler->version, compiler->nvrtc.path, known.data ? known.data : " nothing");
  ft_text_free(&known);
  return status;
}

struct ft_digest ft_compiler_key(const struct ft_compiler *compiler,
                                 const struct ft_source *source) {
  return ft_kernel_key(&source->digest, compiler->version);
}

/* The log as template lines. Empty where NVRTC gives none. */
static int read_log(const struct ft_nvrtc *nvrtc, nvrtc_program program,
                    const struct ft_source *source, struct ft_text *mapped) {
  size_t size = 0;
  FT_TRY(nvrtc_status(nvrtc, nvrtc->log_size(program, &size), "nvrtcGetProgramLogSize"));
  if (size <= 1) return FT_OK;
  char *const log = calloc(size + 1, 1);
  if (!log) return ft_fail(FT_E_MEMORY, "no memory for %zu bytes of compile log", size);
  const int status = nvrtc_status(nvrtc, nvrtc->log(program, log), "nvrtcGetProgramLog");
  if (status == FT_OK) ft_source_map_log(source, log, mapped);
  free(log);
  return status == FT_OK ? ft_text_status(mapped) : status;
}

/* Lines that bear on speed: C75xx (wgmma serialised, setmaxnreg ignored, ...), real spills,
 * warnings. The rest of `ptxas -v` is said better by the image. */
static bool worth_keeping(const char *line) {
  if (strstr(line, "spill")) return !strstr(line, " 0 bytes spill stores, 0 bytes spill loads");
  return strstr(line, "C75") || strstr(line, "warning");
}

static int keep_log(struct ft_kernel *kernel, char *log) {
  struct ft_text kept = FT_TEXT_INIT;
  char *rest = NULL;
  for (char *line = strtok_r(log, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    if (worth_keeping(line)) ft_text_add(&kept, "%s\n", line);
  const int status = ft_text_status(&kept);
  if (status != FT_OK) {
    ft_text_free(&kept);
    return status;
  }
  kernel->log = kept.data; /* ours to keep: NULL when there was nothing */
  return FT_OK;
}

static int read_image(const struct ft_nvrtc *nvrtc, nvrtc_program program,
                      struct ft_kernel *kernel) {
  size_t size = 0;
  FT_TRY(nvrtc_status(nvrtc, nvrtc->image_size(program, &size), "nvrtcGetCUBINSize"));
  if (size == 0) return ft_fail(FT_E_COMPILE, "nvrtcGetCUBINSize gave 0 for %s", kernel->target);
  kernel->image = malloc(size);
  if (!kernel->image) return ft_fail(FT_E_MEMORY, "no memory for %zu bytes of kernel", size);
  kernel->image_size = size;
  return nvrtc_status(nvrtc, nvrtc->image(program, kernel->image), "nvrtcGetCUBIN");
}

static void describe(const struct ft_compiler *compiler, const struct ft_source *source,
                     struct ft_kernel *kernel) {
  static const char *const others[] = FT_ENTRIES;
  struct ft_image_resources resources, other;
  ft_image_read(kernel->image, kernel->image_size, FT_ENTRY, &resources);
  /* Registers are those of the main kernel; a spill is one wherever it is. An image need not have
   * the other kernels. */
  for (size_t n = 0; n < sizeof others / sizeof *others; n++) {
    ft_image_read(kernel->image, kernel->image_size, others[n], &other);
    if (other.local_bytes > resources.local_bytes) resources.local_bytes = other.local_bytes;
  }
  kernel->registers =
      resources.registers; /* 0 where the image is silent; the driver knows once loaded */
  kernel->spill_bytes = resources.local_bytes;
  kernel->smem_bytes = source->budget.smem_bytes;
  kernel->threads = source->budget.threads;
  kernel->source = source->digest;
  kernel->key = ft_compiler_key(compiler, source);
  kernel->image_digest = ft_digest_of(kernel->image, kernel->image_size);
  snprintf(kernel->nvrtc, sizeof kernel->nvrtc, "%s", compiler->version);
}

/* The source's options that this NVRTC knows. An NVRTC before 12.9 has no cache of its own and
 * refuses the option not to use one. The kernel is the same. */
static int read_options(const struct ft_compiler *compiler, const struct ft_source *source,
                        char *architecture, const char *options[8]) {
  const char *storage[8];
  const char *const *const all = ft_source_options(source, architecture, storage);
  int count = 0;
  for (int i = 0; all[i]; i++)
    if (compiler->has_cache || strcmp(all[i], "--no-cache") != 0) options[count++] = all[i];
  return count;
}

int ft_compiler_compile(struct ft_compiler *compiler, const struct ft_source *source,
                        struct ft_kernel *kernel) {
  memset(kernel, 0, sizeof *kernel);
  FT_TRY(ft_compiler_supports(compiler, source->target));
  snprintf(kernel->target, sizeof kernel->target, "%s", source->target);

  const struct ft_nvrtc *const nvrtc = &compiler->nvrtc;
  struct ft_text log = FT_TEXT_INIT;
  nvrtc_program program = NULL;
  char architecture[64];
  const char *options[8];
  const int option_count = read_options(compiler, source, architecture, options);

  int status;
  FT_CHECK(nvrtc_status(nvrtc, nvrtc->create(&program, source->text, FT_ENTRY ".cu", 0, NULL, NULL),
                        "nvrtcCreateProgram"));
  const int result = nvrtc->compile(program, option_count, options);
  FT_CHECK(read_log(nvrtc, program, source, &log));
  if (result) {
    status = nvrtc_status(nvrtc, result, "nvrtcCompileProgram");
    if (log.length > 0) status = ft_fail(status, "%s: %s", nvrtc->error_text(result), log.data);
    goto done;
  }
  FT_CHECK(read_image(nvrtc, program, kernel));
  if (log.data) FT_CHECK(keep_log(kernel, log.data));
  describe(compiler, source, kernel);

done:
  if (program) nvrtc->destroy(&program);
  ft_text_free(&log);
  if (status != FT_OK) ft_kernel_free(kernel);
  return status;
}
