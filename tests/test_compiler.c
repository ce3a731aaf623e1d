/* test_compiler.c: finding NVRTC, compiling, and what is read of logs and images.
 * in -> out: tiny sources -> kernels, by the fake NVRTC and, where there is one, by the real. */
#include <stdio.h>
#include <string.h>

#include "cache/kernel.h"
#include "generator/emit.h"
#include "generator/space.h"
#include "generator/status.h"
#include "runtime/compiler.h"
#include "runtime/image.h"
#include "tests/fake/use_fake.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

static const char small_text[] = "extern \"C\" __global__ void __launch_bounds__(64)\n"
                                 "fatune_kernel(float *p) { p[threadIdx.x] *= 2; }\n";

/* 32 live values that the loop indexes: they have to lie in local memory. */
static const char spilling_text[] =
    "extern \"C\" __global__ void fatune_kernel(float *p, int n) {\n"
    "  float a[32];\n"
    "  for (int i = 0; i < 32; i++) a[i] = p[i];\n"
    "  for (int i = 0; i < n; i++) a[(i * 7) & 31] += a[i & 31];\n"
    "  for (int i = 0; i < 32; i++) p[i] = a[i];\n"
    "}\n";

static struct ft_source source_of(const char *text) {
  struct ft_source source = {.text = strdup(text), .length = strlen(text), .target = "sm_90"};
  for (const char *c = text; *c; c++) source.line_count += *c == '\n';
  source.origins = calloc((size_t)source.line_count, sizeof *source.origins);
  source.names = strdup("part.cu.in");
  for (int i = 0; i < source.line_count; i++)
    source.origins[i] = (struct ft_origin){source.names, 100 + i};
  source.digest = ft_digest_of(text, source.length);
  source.budget.threads = 64;
  source.budget.smem_bytes = 4096;
  return source;
}

START_TEST(a_named_library_is_the_only_one_tried) {
  struct ft_compiler *compiler;
  setenv("FATUNE_LIBNVRTC", "/nowhere/libnvrtc.so.13", 1);
  ck_assert_status(ft_compiler_open(&compiler), FT_E_NO_NVRTC);
  ck_assert_detail("FATUNE_LIBNVRTC is \"/nowhere/libnvrtc.so.13\"");
  ck_assert_ptr_null(compiler);
  use_fake_cuda();
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_cuda.so", 1);
  ck_assert_status(ft_compiler_open(&compiler), FT_E_NO_NVRTC);
  ck_assert_detail("lacks nvrtcGetErrorString");
}
END_TEST

START_TEST(the_fake_compiles) {
  const struct fake_controls nvrtc = use_fake_nvrtc();
  struct ft_compiler *compiler;
  struct ft_kernel kernel;
  struct ft_source source = source_of(small_text);
  ck_assert_status(ft_compiler_open(&compiler), FT_OK);
  ck_assert_ptr_nonnull(strstr(ft_compiler_path(compiler), "libfake_nvrtc.so"));
  ck_assert_int_eq(strncmp(ft_compiler_version(compiler), "13.0+", 5), 0);
  ck_assert_status(ft_compiler_compile(compiler, &source, &kernel), FT_OK);

  ck_assert_str_eq(kernel.target, "sm_90");
  ck_assert_str_eq(kernel.nvrtc, ft_compiler_version(compiler));
  ck_assert_int_eq(kernel.registers, 0); /* the fake's image says nothing */
  ck_assert_int_eq(kernel.threads, 64);
  ck_assert_int_eq(kernel.smem_bytes, 4096);
  ck_assert(ft_digest_equal(&kernel.source, &source.digest));
  const struct ft_digest key = ft_compiler_key(compiler, &source);
  ck_assert(ft_digest_equal(&kernel.key, &key));
  const struct ft_digest image = ft_digest_of(kernel.image, kernel.image_size);
  ck_assert(ft_digest_equal(&kernel.image_digest, &image));
  ck_assert_ptr_nonnull(kernel.log);
  ck_assert_ptr_nonnull(strstr(kernel.log, "C7510"));
  ck_assert_ptr_null(strstr(kernel.log, "Used")); /* kept: what bears on speed */
  ck_assert_ptr_null(strstr(kernel.log, "spill"));

  ft_kernel_free(&kernel);
  ft_source_free(&source);
  ft_compiler_close(compiler);
  ck_assert_int_eq(nvrtc.live(), 0);
}
END_TEST

START_TEST(an_error_names_the_template_line) {
  const struct fake_controls nvrtc = use_fake_nvrtc();
  struct ft_compiler *compiler;
  struct ft_kernel kernel;
  struct ft_source source = source_of("int a;\n#error wrong\n");
  ck_assert_status(ft_compiler_open(&compiler), FT_OK);
  ck_assert_status(ft_compiler_compile(compiler, &source, &kernel), FT_E_COMPILE);
  ck_assert_detail("templates/part.cu.in(101): error");
  ck_assert_ptr_null(kernel.image);
  ck_assert_ptr_null(kernel.log);
  ft_source_free(&source);
  ft_compiler_close(compiler);
  ck_assert_int_eq(nvrtc.live(), 0);
}
END_TEST

/* A search records FT_E_COMPILE as the candidate's fault and does not try it again. So only errors
 * that the text causes may have this status. */
START_TEST(an_nvrtc_that_does_not_work_blames_no_kernel) {
  static const struct {
    const char *failure;
    int status;
  } rows[] = {
      {"nvrtcCompileProgram:1:6", FT_E_COMPILE},   {"nvrtcCompileProgram:1:11", FT_E_COMPILE},
      {"nvrtcCompileProgram:1:7", FT_E_NO_NVRTC},  {"nvrtcCompileProgram:1:1", FT_E_MEMORY},
      {"nvrtcCreateProgram:1:999", FT_E_NO_NVRTC}, {"nvrtcGetCUBIN:1:3", FT_E_NO_NVRTC}};
  const struct fake_controls nvrtc = use_fake_nvrtc();
  struct ft_source source = source_of("int a;\n");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct ft_compiler *compiler;
    struct ft_kernel kernel;
    nvrtc.reset(rows[i].failure);
    ck_assert_status(ft_compiler_open(&compiler), FT_OK);
    ck_assert_status(ft_compiler_compile(compiler, &source, &kernel), rows[i].status);
    ck_assert_ptr_null(kernel.image);
    ft_compiler_close(compiler);
    ck_assert_int_eq(nvrtc.live(), 0);
  }
  ft_source_free(&source);
}
END_TEST

START_TEST(unknown_targets_are_refused) {
  use_fake_nvrtc();
  struct ft_compiler *compiler;
  struct ft_kernel kernel;
  ck_assert_status(ft_compiler_open(&compiler), FT_OK);
  ck_assert_status(ft_compiler_supports(compiler, "sm_80"), FT_OK);
  ck_assert_status(ft_compiler_supports(compiler, "sm_90a"), FT_OK);
  static const char *const unknown[] = {"sm_86", "sm_9", "sm_", "", "compute_80"};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    ck_assert_status(ft_compiler_supports(compiler, unknown[i]), FT_E_UNSUPPORTED);
    ck_assert_detail("sm_75 sm_80 sm_90");
  }
  struct ft_source source = source_of(small_text);
  strcpy(source.target, "sm_120");
  ck_assert_status(ft_compiler_compile(compiler, &source, &kernel), FT_E_UNSUPPORTED);
  ft_source_free(&source);
  ft_compiler_close(compiler);
}
END_TEST

START_TEST(keys_depend_on_the_source) {
  use_fake_nvrtc();
  struct ft_compiler *compiler;
  ck_assert_status(ft_compiler_open(&compiler), FT_OK);
  struct ft_source one = source_of("int a;\n"), other = source_of("int b;\n");
  const struct ft_digest a = ft_compiler_key(compiler, &one), b = ft_compiler_key(compiler, &other);
  const struct ft_digest again = ft_compiler_key(compiler, &one);
  ck_assert(!ft_digest_equal(&a, &b));
  ck_assert(!ft_digest_equal(&a, &one.digest));
  ck_assert(ft_digest_equal(&a, &again));
  ft_source_free(&one);
  ft_source_free(&other);
  ft_compiler_close(compiler);
}
END_TEST

START_TEST(every_failing_call_is_survived) {
  const struct fake_controls nvrtc = use_fake_nvrtc();
  struct ft_source source = source_of(small_text);
  for (int n = 1;; n++) {
    char failure[32];
    struct ft_compiler *compiler;
    struct ft_kernel kernel = {0};
    snprintf(failure, sizeof failure, "*:%d:%d", n, n % 2 ? 11 : 1);
    nvrtc.reset(failure);
    int status = ft_compiler_open(&compiler);
    if (status == FT_OK) status = ft_compiler_compile(compiler, &source, &kernel);
    const char *const failed = nvrtc.failed();
    if (status != FT_OK) {
      ck_assert_str_ne(fatune_detail(), "");
      ck_assert_ptr_null(kernel.image);
    } else if (*failed) {
      ck_assert_str_eq(failed, "nvrtcDestroyProgram");
    }
    ft_kernel_free(&kernel);
    ft_compiler_close(compiler);
    ck_assert_int_eq(nvrtc.live(), 0);
    if (!*failed) break;
    ck_assert_int_lt(n, 50);
  }
  ft_source_free(&source);
}
END_TEST

/* ---- the real NVRTC, where there is one ---- */

static struct ft_compiler *real_compiler(void) {
  struct ft_compiler *compiler;
  const int status = ft_compiler_open(&compiler);
  if (status == FT_E_NO_NVRTC)
    (void)fprintf(stderr, "test_compiler: skipped, %s\n", fatune_detail());
  ck_assert(status == FT_OK || status == FT_E_NO_NVRTC);
  return compiler;
}

START_TEST(the_real_one_compiles_and_repeats_itself) {
  struct ft_compiler *const compiler = real_compiler();
  if (!compiler) return;
  struct ft_source source = source_of(small_text);
  struct ft_kernel kernel, again;
  ck_assert_status(ft_compiler_compile(compiler, &source, &kernel), FT_OK);
  ck_assert_status(ft_compiler_compile(compiler, &source, &again), FT_OK);
  ck_assert_int_ge(kernel.registers, 4);
  ck_assert_int_le(kernel.registers, 32);
  ck_assert_int_eq(kernel.spill_bytes, 0);
  ck_assert_ptr_null(kernel.log);
  ck_assert(ft_digest_equal(&kernel.image_digest, &again.image_digest));
  ck_assert_ptr_nonnull(strchr(ft_compiler_version(compiler), '+'));
  ft_kernel_free(&kernel);
  ft_kernel_free(&again);
  ft_source_free(&source);
  ft_compiler_close(compiler);
}
END_TEST

START_TEST(local_memory_is_seen) {
  struct ft_compiler *const compiler = real_compiler();
  if (!compiler) return;
  struct ft_source source = source_of(spilling_text);
  struct ft_kernel kernel;
  ck_assert_status(ft_compiler_compile(compiler, &source, &kernel), FT_OK);
  ck_assert_int_eq(kernel.spill_bytes, 32 * (int)sizeof(float));
  ft_kernel_free(&kernel);
  ft_source_free(&source);
  ft_compiler_close(compiler);
}
END_TEST

/* Defaults of requests with score functions: bias_bf16, t5, alibi, documents. What ptxas makes of
 * them is known of one release. */
static const char *const scored[] = {
    "backward bf16 d128 nq1 score=366b727be7878",   "backward bf16 d128 nq1 score=18d408ab1c4fe+1",
    "backward bf16 d128 nq1 score=64f88b3063166+1", "backward bf16 d128 nq1 score=366b727be7878+1",
    "backward bf16 d256 nq1 score=18d408ab1c4fe",   "backward bf16 d128 nq1 score=0b66b4ed2939",
    "forward bf16 d128 nq1 score=18d408ab1c4fe"};

START_TEST(defaults_beside_scores_spill_nothing) {
  struct ft_compiler *const compiler = real_compiler();
  if (!compiler) return;
  const struct ft_arch arch = known_gpu("h200");
  const struct ft_request request = known_request(scored[_i]);
  struct ft_config config;
  struct ft_lua *lua;
  struct ft_source source;
  struct ft_kernel kernel;
  ck_assert_status(ft_default_config(&request, &arch, &config), FT_OK);
  ck_assert_status(ft_lua_open(&lua, NULL), FT_OK);
  ck_assert_status(ft_emit(&source, lua, &request, &arch, &config), FT_OK);
  ck_assert_status(ft_compiler_compile(compiler, &source, &kernel), FT_OK);
  if (strncmp(ft_compiler_version(compiler), "13.0.", 5) == 0)
    ck_assert_msg(kernel.spill_bytes == 0, "%s: %d bytes", scored[_i], kernel.spill_bytes);
  ft_kernel_free(&kernel);
  ft_source_free(&source);
  ft_lua_close(lua);
  ft_compiler_close(compiler);
}
END_TEST

START_TEST(real_errors_name_the_template_line) {
  struct ft_compiler *const compiler = real_compiler();
  if (!compiler) return;
  struct ft_source source = source_of("int a;\nint b = c;\n");
  struct ft_kernel kernel;
  ck_assert_status(ft_compiler_compile(compiler, &source, &kernel), FT_E_COMPILE);
  ck_assert_detail("templates/part.cu.in(101): error: identifier \"c\" is undefined");
  ft_source_free(&source);
  ft_compiler_close(compiler);
}
END_TEST

/* Flipped bytes and cut ends must never lead the reader outside the image (ASan watches). */
START_TEST(damaged_images_are_read_safely) {
  struct ft_compiler *const compiler = real_compiler();
  if (!compiler) return;
  struct ft_source source = source_of(small_text);
  struct ft_kernel kernel;
  struct ft_image_resources resources;
  ck_assert_status(ft_compiler_compile(compiler, &source, &kernel), FT_OK);
  ck_assert(ft_image_read(kernel.image, kernel.image_size, FT_ENTRY, &resources));
  ck_assert(!ft_image_read(kernel.image, kernel.image_size, "another_kernel", &resources));
  ck_assert_int_eq(resources.registers, 0);
  ck_assert(!ft_image_lacks(kernel.image, kernel.image_size, FT_ENTRY));
  ck_assert(ft_image_lacks(kernel.image, kernel.image_size, "another_kernel"));
  ck_assert(!ft_image_lacks("no cubin", sizeof "no cubin", "another_kernel"));
  for (size_t size = 0; size < kernel.image_size; size++) {
    void *const part = malloc(size ? size : 1);
    memcpy(part, kernel.image, size);
    ft_image_read(part, size, FT_ENTRY, &resources);
    ft_image_lacks(part, size, FT_ENTRY);
    free(part);
  }
  unsigned char *const bytes = kernel.image;
  for (size_t i = 0; i < kernel.image_size; i++) {
    const unsigned char kept = bytes[i];
    bytes[i] = (unsigned char)(kept ^ 0xff);
    ft_image_read(bytes, kernel.image_size, FT_ENTRY, &resources);
    ft_image_lacks(bytes, kernel.image_size, FT_ENTRY);
    bytes[i] = kept;
  }
  ft_kernel_free(&kernel);
  ft_source_free(&source);
  ft_compiler_close(compiler);
}
END_TEST

Suite *make_compiler_suite(void) {
  Suite *const suite = suite_create("compiler");
  TCase *const fake_tests = tcase_create("fake");
  tcase_add_test(fake_tests, an_nvrtc_that_does_not_work_blames_no_kernel);
  tcase_add_test(fake_tests, a_named_library_is_the_only_one_tried);
  tcase_add_test(fake_tests, the_fake_compiles);
  tcase_add_test(fake_tests, an_error_names_the_template_line);
  tcase_add_test(fake_tests, unknown_targets_are_refused);
  tcase_add_test(fake_tests, keys_depend_on_the_source);
  tcase_add_test(fake_tests, every_failing_call_is_survived);
  suite_add_tcase(suite, fake_tests);
  TCase *const real = tcase_create("real");
  tcase_set_timeout(real, 60);
  tcase_add_test(real, the_real_one_compiles_and_repeats_itself);
  tcase_add_test(real, local_memory_is_seen);
  tcase_add_loop_test(real, defaults_beside_scores_spill_nothing, 0,
                      (int)(sizeof scored / sizeof *scored));
  tcase_add_test(real, real_errors_name_the_template_line);
  tcase_add_test(real, damaged_images_are_read_safely);
  suite_add_tcase(suite, real);
  return suite;
}
