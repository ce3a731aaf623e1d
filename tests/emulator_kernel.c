/* emulator_kernel.c: kernels written in tests.
 * in -> out: body -> template folder, emission, C++ compiler, launch -> words. */
#include "tests/emulator_kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/kernel.h"
#include "generator/emit.h"
#include "generator/space.h"
#include "runtime/kernel_source.h"
#include "runtime/module.h"
#include "runtime/session.h"

#define assert_ok(expression)                                                                      \
  ck_assert_msg((expression) == FT_OK, "%s: %s", #expression, ft_detail())

#define MAIN "mma_forward.cu.in"
/* MAIN is the mma family's, and this is legal for all GPUs. */
#define CONFIG "mma_forward block_m=64 block_n=32 warps=4 stages=1 ctas_per_sm=1"

/* The body begins in line HEAD_LINES + 1. */
enum { HEAD_LINES = 8 };
static const char head[] =
    "//@ local given = { dtype = request.dtype, sm = sm } "
    "part('parts/ptx_common.cu.in', given) part('parts/ptx_memory.cu.in', {}) "
    "part('parts/ptx_mma.cu.in', given) part('parts/ptx_copies.cu.in', { sm = sm })\n"
    "struct Words { unsigned *in, *out; };\n"
    "extern \"C\" __global__ void __launch_bounds__(1024, 1)\n"
    "fatune_kernel(const __grid_constant__ Words words) {\n"
    "extern __shared__ __align__(128) unsigned char shared[];\n"
    "const unsigned smem = shared_address(shared);\n"
    "unsigned *const in = words.in, *const out = words.out;\n"
    "const int lane = threadIdx.x % 32;\n";

static void emit(fatune_session *session, enum ft_dtype dtype, const char *words,
                 struct ft_source *source) {
  struct ft_request request;
  struct ft_config config;
  assert_ok(ft_request_parse(&request, dtype == FT_BF16 ? "bf16 d64 nq1" : "fp16 d64 nq1"));
  assert_ok(ft_config_parse(&config, words));
  assert_ok(ft_session_emit(session, &request, &session->device.arch, &config, source));
}

void small_kernel_load(struct small_kernel *kernel, const char *gpu, const char *templates,
                       enum ft_dtype dtype, const char *config) {
  struct ft_source source;
  bool compiled;
  memset(kernel, 0, sizeof *kernel);
  kernel->session = emulator_open(gpu, templates);
  emit(kernel->session, dtype, config, &source);
  assert_ok(ft_session_enter(kernel->session));
  assert_ok(
      ft_session_load(kernel->session, &source, NULL, &kernel->kernel, &kernel->module, &compiled));
  ft_source_free(&source);
}

void small_kernel_open(struct small_kernel *kernel, const char *gpu, enum ft_dtype dtype,
                       const char *body) {
  struct ft_text text = FT_TEXT_INIT;
  ft_text_add(&text, "%s%s\n}\n", head, body);
  assert_ok(ft_text_status(&text));
  const struct planted planted = emulator_plant_file(MAIN, text.data);
  small_kernel_load(kernel, gpu, planted.folder, dtype, CONFIG);
  emulator_unplant(&planted);
  ft_text_free(&text);
}

void small_kernel_close(struct small_kernel *kernel) {
  ft_module_unload(&kernel->module, kernel->session);
  ft_kernel_free(&kernel->kernel);
  ft_session_leave(kernel->session);
  fatune_session_close(kernel->session);
}

/* ---- launches ---- */

int small_kernel_launch(struct small_kernel *kernel, unsigned grid, unsigned threads,
                        const void *in, size_t in_count, void *out, size_t out_count) {
  enum { NOISE = 0xB7 };
  const struct ft_driver *const driver = &kernel->session->driver;
  struct {
    cu_address in, out;
  } words;
  memset(out, NOISE, 4 * out_count);
  ck_assert_int_eq(driver->memory_alloc(&words.in, 4 * in_count), 0);
  ck_assert_int_eq(driver->memory_alloc(&words.out, 4 * out_count), 0);
  ck_assert_int_eq(driver->copy_to_device(words.in, in, 4 * in_count, NULL), 0);
  ck_assert_int_eq(driver->copy_to_device(words.out, out, 4 * out_count, NULL), 0);
  void *arguments[] = {&words};
  const int status =
      ft_driver_status(driver,
                       driver->launch(kernel->module.main, grid, 1, 1, threads, 1, 1,
                                      (unsigned)kernel->kernel.smem_bytes, NULL, arguments, NULL),
                       "cuLaunchKernel");
  ck_assert_int_eq(driver->copy_to_host(out, words.out, 4 * out_count, NULL), 0);
  ck_assert_int_eq(driver->memory_free(words.in), 0);
  ck_assert_int_eq(driver->memory_free(words.out), 0);
  return status;
}

void small_kernel_run(const char *body, const void *in, size_t in_count, void *out,
                      size_t out_count) {
  struct small_kernel kernel;
  small_kernel_open(&kernel, "a100", FT_BF16, body);
  assert_ok(small_kernel_launch(&kernel, 1, 32, in, in_count, out, out_count));
  small_kernel_close(&kernel);
}

void small_kernel_fault(const char *body, int line, const char *words) {
  struct small_kernel kernel;
  char place[64];
  uint32_t in[1024] = {0}, out[1024];
  small_kernel_open(&kernel, "a100", FT_BF16, body);
  const int status = small_kernel_launch(&kernel, 1, 32, in, 1024, out, 1024);
  ck_assert_msg(status == FT_E_DEVICE, "status %d: not caught: %s", status, body);
  (void)snprintf(place, sizeof place, "(" MAIN ":%d)", HEAD_LINES + line);
  ck_assert_msg(strstr(ft_detail(), place) != NULL, "no %s in: %s", place, ft_detail());
  ck_assert_msg(strstr(ft_detail(), words) != NULL, "no \"%s\" in: %s", words, ft_detail());
  small_kernel_close(&kernel);
}

/* ---- numbers ---- */

double number_of(enum ft_dtype dtype, uint16_t bits) {
  const int fraction = dtype == FT_FP16 ? 10 : 7, bias = dtype == FT_FP16 ? 15 : 127;
  const int exponent = (bits & 0x7FFF) >> fraction, rest = bits & ((1 << fraction) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 2 * bias + 1) return rest ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexp(rest, 1 - bias - fraction);
  return sign * ldexp((1 << fraction) + rest, exponent - bias - fraction);
}
