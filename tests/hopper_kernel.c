/* hopper_kernel.c: kernels with TMA, mbarriers and wgmma, written in tests.
 * in -> out: body -> template folder, emission, C++ compiler; tensors -> maps; launch -> words. */
#include "tests/hopper_kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/driver_module.h"
#include "runtime/emulator/tensor.h"
#include "runtime/session.h"

#define assert_ok(expression)                                                                      \
  ck_assert_msg((expression) == FT_OK, "%s: %s", #expression, ft_detail())

#define MAIN "mma_forward.cu.in"
#define CONFIG                                                                                     \
  "mma_forward block_m=64 block_n=32 warps=4 stages=1 q_in_regs=0 overlap_qk=0 draw_early=0 "      \
  "ctas_per_sm=1"

/* The body begins in line HEAD_LINES + 1. */
enum { HEAD_LINES = 9 };
static const char head[] =
    "//@ for _, family in ipairs { 'common', 'memory', 'mbarrier', 'tma', 'bulk', 'barriers', "
    "'stmatrix', 'stmatrix_trans', "
    "'registers', 'wgmma', 'wgmma_product', 'cluster', 'multicast', 'cluster_copy', "
    "'cluster_reads' } do "
    "part('parts/ptx_' .. family .. '.cu.in', {}) end\n"
    "struct Words { TensorMap maps[4]; unsigned *in, *out; };\n"
    "extern \"C\" __global__ void %s __launch_bounds__(1024, 1)\n"
    "fatune_kernel(const __grid_constant__ Words words) {\n"
    "extern __shared__ __align__(128) unsigned char shared[];\n"
    "const unsigned smem = shared_address(shared);\n"
    "unsigned *const in = words.in, *const out = words.out;\n"
    "const TensorMap (&maps)[4] = words.maps;\n"
    "const int thread = threadIdx.x, lane = thread %% 32, warp = thread / 32;"
    "\n";

/* ---- numbers ---- */

unsigned hopper_swizzled(unsigned byte) {
  const unsigned chunk = byte / 16 % 8, row = byte / 128 % 8;
  return byte - chunk * 16 + (chunk ^ row) * 16;
}

/* 0.5 <= |x| < 2 */
uint16_t hopper_element(enum ft_dtype dtype) {
  const uint32_t bits = random_word();
  const int fraction = dtype == FT_FP16 ? 10 : 7, one = dtype == FT_FP16 ? 15 : 127;
  const uint32_t exponent = (uint32_t)one - (bits >> 20 & 1);
  return (uint16_t)((bits & 0x8000u) | exponent << fraction |
                    (bits >> 21 & ((1u << fraction) - 1)));
}

/* ---- kernels ---- */

/* A part of its own in place of the real one, which wants values; the emulator goes by its name. */
static void write_part(const struct planted *planted, const char *name) {
  char file[64];
  (void)snprintf(file, sizeof file, "parts/ptx_%s.cu.in", name);
  emulator_plant_more(planted, file, "// the wrappers\n");
}

void hopper_open(struct small_kernel *kernel, enum ft_dtype dtype, const char *body) {
  hopper_open_clusters(kernel, dtype, "", body);
}

void hopper_open_clusters(struct small_kernel *kernel, enum ft_dtype dtype, const char *clusters,
                          const char *body) {
  struct ft_text text = FT_TEXT_INIT;
  ft_text_add(&text, head, clusters);
  ft_text_add(&text, "%s\n}\n", body);
  assert_ok(ft_text_status(&text));
  const struct planted planted = emulator_plant_file(MAIN, text.data);
  write_part(&planted, "common");
  write_part(&planted, "wgmma_product");
  small_kernel_load(kernel, "h200", planted.folder, dtype, CONFIG);
  emulator_unplant(&planted);
  ft_text_free(&text);
}

char *hopper_edited(const char *body, const char *piece, const char *other) {
  struct ft_text text = FT_TEXT_INIT;
  const char *const at = strstr(body, piece);
  ck_assert_msg(at && !strstr(at + 1, piece), "\"%s\" is not there once", piece);
  ft_text_append(&text, body, (size_t)(at - body));
  ft_text_add(&text, "%s%s", other, at + strlen(piece));
  ck_assert_int_eq(ft_text_status(&text), FT_OK);
  return text.data;
}

/* The number, from 1, of the first line of the body that holds the piece. */
static int line_of(const char *body, const char *piece) {
  const char *const found = strstr(body, piece);
  ck_assert_msg(found != NULL, "no %s", piece);
  int line = 1;
  for (const char *at = body; at < found; at++) line += *at == '\n';
  return line;
}

void hopper_expect_fault(const char *name, const char *body, const char *piece,
                         const char *const *words, int word_count) {
  char place[64];
  (void)snprintf(place, sizeof place, "(" MAIN ":%d)", HEAD_LINES + line_of(body, piece));
  ck_assert_msg(strstr(ft_detail(), place) != NULL, "%s: not in %s: %s", name, place, ft_detail());
  emulator_expect_words(name, ft_detail(), words, word_count);
}

/* ---- tensors ---- */

uint64_t hopper_tensor_size(const struct hopper_tensor *tensor) {
  return tensor->strides[3] * tensor->extents[3];
}

void hopper_tensor_make(struct hopper_tensor *tensor, enum ft_dtype dtype, uint64_t padding) {
  tensor->strides[0] = 1;
  tensor->strides[1] = tensor->extents[0] + padding;
  for (int dim = 2; dim < 4; dim++)
    tensor->strides[dim] = tensor->strides[dim - 1] * tensor->extents[dim - 1];
  tensor->host = malloc(hopper_tensor_size(tensor) * sizeof *tensor->host);
  ck_assert_ptr_nonnull(tensor->host);
  for (uint64_t i = 0; i < hopper_tensor_size(tensor); i++) tensor->host[i] = hopper_element(dtype);
}

uint16_t hopper_at(const struct hopper_tensor *tensor, int64_t column, int64_t row, int64_t head_,
                   int64_t batch) {
  const int64_t index[] = {column, row, head_, batch};
  uint64_t at = 0;
  for (int dim = 0; dim < 4; dim++) {
    if (index[dim] < 0 || (uint64_t)index[dim] >= tensor->extents[dim]) return 0;
    at += (uint64_t)index[dim] * tensor->strides[dim];
  }
  return tensor->host[at];
}

/* CUtensorMap, CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion */
enum { MAP_BYTES = 128, TYPE_BFLOAT16 = 9, SWIZZLE_128B = 3, PROMOTION_256B = 3 };

struct words {
  _Alignas(64) unsigned char maps[HOPPER_MAPS][MAP_BYTES];
  cu_address in, out;
};

static void upload(const struct ft_driver *driver, struct hopper_tensor *tensor,
                   unsigned char map[MAP_BYTES], cu_address *address,
                   struct ft_emulated_tensor *described) {
  const size_t bytes = hopper_tensor_size(tensor) * sizeof *tensor->host;
  const uint64_t strides[] = {2 * tensor->strides[1], 2 * tensor->strides[2],
                              2 * tensor->strides[3]};
  uint64_t extents[4];
  memcpy(extents, tensor->extents, sizeof extents);
  extents[1] += tensor->rows_beyond;
  const unsigned box[] = {PANEL_COLUMNS, tensor->box_rows, 1, 1}, ones[] = {1, 1, 1, 1};
  ck_assert_int_eq(driver->memory_alloc(address, bytes), 0);
  ck_assert_int_eq(driver->copy_to_device(*address, tensor->host, bytes, NULL), 0);
  const cu_result result =
      driver->tensor_map_encode(map, TYPE_BFLOAT16, 4, (void *)(uintptr_t)*address, extents,
                                strides, box, ones, 0, SWIZZLE_128B, PROMOTION_256B, 0);
  assert_ok(ft_driver_status(driver, result, "cuTensorMapEncodeTiled"));
  *described = (struct ft_emulated_tensor){
      .name = tensor->name, .address = *address, .element_bytes = 2, .writable = tensor->writable};
  for (int dim = 0; dim < FT_TENSOR_DIMS; dim++) { /* batch, row, head, column */
    static const int order[] = {3, 1, 2, 0};
    described->extents[dim] = (int64_t)tensor->extents[order[dim]];
    described->strides[dim] = (int64_t)tensor->strides[order[dim]];
  }
}

static void download(const struct ft_driver *driver, struct hopper_tensor *tensor,
                     cu_address address) {
  const size_t bytes = hopper_tensor_size(tensor) * sizeof *tensor->host;
  ck_assert_int_eq(driver->copy_to_host(tensor->host, address, bytes, NULL), 0);
  ck_assert_int_eq(driver->memory_free(address), 0);
}

/* ---- launches ---- */

int hopper_launch(struct small_kernel *kernel, unsigned grid, unsigned threads,
                  struct hopper_tensor *tensors, int tensor_count, const void *in, size_t in_count,
                  void *out, size_t out_count) {
  enum { NOISE = 0xB7, DYNAMIC_SMEM = 8 };
  const struct ft_driver *const driver = &kernel->session->driver;
  struct ft_emulated_tensor described[HOPPER_MAPS];
  cu_address addresses[HOPPER_MAPS];
  struct words words;
  memset(&words, 0, sizeof words);
  for (int n = 0; n < tensor_count; n++)
    upload(driver, &tensors[n], words.maps[n], &addresses[n], &described[n]);
  memset(out, NOISE, 4 * out_count);
  ck_assert_int_eq(driver->memory_alloc(&words.in, 4 * in_count), 0);
  ck_assert_int_eq(driver->memory_alloc(&words.out, 4 * out_count), 0);
  ck_assert_int_eq(driver->copy_to_device(words.in, in, 4 * in_count, NULL), 0);
  ck_assert_int_eq(driver->copy_to_device(words.out, out, 4 * out_count, NULL), 0);
  ck_assert_int_eq(driver->function_set(kernel->module.main, DYNAMIC_SMEM, HOPPER_SMEM), 0);
  ft_emulator_expect(described, tensor_count);
  void *arguments[] = {&words};
  const int status = ft_driver_status(driver,
                                      driver->launch(kernel->module.main, grid, 1, 1, threads, 1, 1,
                                                     HOPPER_SMEM, NULL, arguments, NULL),
                                      "cuLaunchKernel");
  ck_assert_int_eq(driver->copy_to_host(out, words.out, 4 * out_count, NULL), 0);
  ck_assert_int_eq(driver->memory_free(words.in), 0);
  ck_assert_int_eq(driver->memory_free(words.out), 0);
  for (int n = 0; n < tensor_count; n++) download(driver, &tensors[n], addresses[n]);
  return status;
}

void hopper_run(enum ft_dtype dtype, const char *body, unsigned threads,
                struct hopper_tensor *tensors, int tensor_count, const void *in, size_t in_count,
                void *out, size_t out_count) {
  struct small_kernel kernel;
  hopper_open(&kernel, dtype, body);
  assert_ok(
      hopper_launch(&kernel, 1, threads, tensors, tensor_count, in, in_count, out, out_count));
  small_kernel_close(&kernel);
}
