/* test_gpu_quantise.c: fatune_quantise on the GPU.
 * in -> out: random tensors, some at once on several streams -> descales and bytes beside float64.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_lab.h"
#include "tests/gpu/gpu_suites.h"
#include "tests/gpu/quantised.h"
#include "tuner/verify/halves.h"

enum { STREAMS = 3, ROTATION = 11, DRAWN = 4 };

/* ---- runs ---- */

/* Two thousand numbers from -2 to 2, one in a thousand ten times as large. */
static uint16_t *random_numbers(const struct quantised_tensor *tensor, uint64_t *seed) {
  enum { SMALL = 2001, MIDDLE = SMALL / 2, LARGER_ONE_IN = 1000 };
  uint16_t patterns[2][SMALL];
  uint16_t *const x = malloc(quantised_elements(tensor) * sizeof *x);
  ck_assert_ptr_nonnull(x);
  for (int n = 0; n < SMALL; n++) {
    patterns[0][n] = ft_to_dtype(tensor->dtype, (n - MIDDLE) / 500.0);
    patterns[1][n] = ft_to_dtype(tensor->dtype, (n - MIDDLE) / 50.0);
  }
  for (size_t n = 0; n < quantised_elements(tensor); n++) {
    const uint64_t drawn = gpu_random(seed);
    x[n] = patterns[(uint32_t)drawn % LARGER_ONE_IN == 0][(drawn >> 32) * SMALL >> 32];
  }
  return x;
}

static cu_address filled(size_t bytes, unsigned char with) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  cu_address memory = 0;
  gpu_assert_cuda(driver->memory_alloc(&memory, bytes));
  gpu_assert_cuda(driver->set_bytes(memory, with, bytes, NULL));
  return memory;
}

static fatune_quantise_arguments arguments_of(const struct quantised_tensor *tensor, cu_address x,
                                              cu_address out, cu_address descale) {
  const int64_t head = (int64_t)tensor->rows * tensor->dim;
  fatune_quantise_arguments arguments = FATUNE_QUANTISE_ARGUMENTS_INIT;
  arguments.dtype = tensor->dtype == FT_BF16 ? FATUNE_BF16 : FATUNE_FP16;
  arguments.head_dim = tensor->dim;
  arguments.batch = 1;
  arguments.heads = tensor->heads;
  arguments.seqlen = tensor->rows;
  arguments.x = tensor->heads_inside
                    ? (fatune_tensor){(void *)x, head * tensor->heads,
                                      (int64_t)tensor->heads * tensor->dim, tensor->dim}
                    : (fatune_tensor){(void *)x, head * tensor->heads, tensor->dim, head};
  arguments.out = (fatune_tensor){(void *)out, head * tensor->heads, tensor->dim, head};
  arguments.descale = (float *)descale;
  arguments.descale_rows = tensor->descale_rows;
  arguments.rotate = tensor->rotate;
  arguments.seed = ROTATION;
  return arguments;
}

/* Bytes and descales of the first stream are held against float64, those of others against its. */
static void check_results(const struct quantised_tensor *tensor, const uint16_t *x, int streams,
                          const cu_address *d_out, const cu_address *d_descale) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  const size_t count = quantised_elements(tensor);
  const size_t descales = quantised_descales(tensor) * sizeof(float);
  uint8_t *const out = malloc(count), *const other_out = malloc(count);
  float *const descale = malloc(descales), *const other_descale = malloc(descales);
  ck_assert(out && other_out && descale && other_descale);
  gpu_assert_ok(ft_driver_fetch(driver, out, d_out[0], count, NULL));
  gpu_assert_ok(ft_driver_fetch(driver, descale, d_descale[0], descales, NULL));
  quantised_check(tensor, ROTATION, x, out, descale);
  for (int s = 1; s < streams; s++) {
    gpu_assert_ok(ft_driver_fetch(driver, other_out, d_out[s], count, NULL));
    gpu_assert_ok(ft_driver_fetch(driver, other_descale, d_descale[s], descales, NULL));
    ck_assert_msg(memcmp(out, other_out, count) == 0, "stream %d has other bytes", s);
    ck_assert_msg(memcmp(descale, other_descale, descales) == 0, "stream %d: other descales", s);
  }
  free(out);
  free(other_out);
  free(descale);
  free(other_descale);
}

/* On each stream, `times` after each other. */
static void check_on_streams(const struct quantised_tensor *tensor, int streams, int times,
                             uint64_t salt) {
  fatune_session *const session = gpu_lab()->session;
  const struct ft_driver *const driver = &session->driver;
  const size_t count = quantised_elements(tensor), descales = quantised_descales(tensor);
  uint64_t seed = gpu_seed(salt);
  uint16_t *const x = random_numbers(tensor, &seed);
  cu_stream stream[STREAMS] = {NULL};
  cu_address d_x = filled(count * sizeof *x, 0), d_out[STREAMS], d_descale[STREAMS];
  gpu_assert_ok(ft_driver_send(driver, d_x, x, count * sizeof *x, NULL));
  for (int s = 0; s < streams; s++) {
    d_out[s] = filled(count, 0x7F);
    d_descale[s] = filled(descales * sizeof(float), 0xFF);
    if (streams > 1) gpu_assert_cuda(driver->stream_create(&stream[s], 0));
  }
  gpu_assert_cuda(driver->context_synchronize());
  for (int n = 0; n < times * streams; n++) {
    const int s = n % streams;
    const fatune_quantise_arguments arguments = arguments_of(tensor, d_x, d_out[s], d_descale[s]);
    gpu_assert_ok(fatune_quantise(session, &arguments, stream[s]));
  }
  gpu_assert_cuda(driver->context_synchronize());
  check_results(tensor, x, streams, d_out, d_descale);
  for (int s = 0; s < streams; s++) {
    gpu_assert_cuda(driver->memory_free(d_out[s]));
    gpu_assert_cuda(driver->memory_free(d_descale[s]));
    if (streams > 1) gpu_assert_cuda(driver->stream_destroy(stream[s]));
  }
  gpu_assert_cuda(driver->memory_free(d_x));
  free(x);
}

static const struct quantised_tensor small[] = {
    {FT_BF16, 3, 300, 128, 0, 1, 0},   {FT_BF16, 3, 300, 128, 64, 0, 1},
    {FT_FP16, 2, 200, 256, 128, 1, 0}, {FT_FP16, 2, 450, 80, 0, 0, 0},
    {FT_BF16, 1, 1, 64, 0, 0, 0},      {FT_BF16, 5, 129, 208, 0, 1, 0}};

START_TEST(small_tensors_are_right) {
  check_on_streams(&small[_i], 1, 1, 700 + (uint64_t)_i);
}
END_TEST

/* Any head dim, rows of heads side by side or apart. */
START_TEST(drawn_tensors_are_right) {
  enum { DIMS = 16, ROWS_MOST = 900, HEADS_MOST = 5 };
  static const int descale_rows[] = {0, 64, 128};
  uint64_t seed = gpu_seed(760 + (uint64_t)_i);
  const struct quantised_tensor tensor = {.dtype = gpu_random_below(&seed, 2) ? FT_FP16 : FT_BF16,
                                          .heads = 1 + gpu_random_below(&seed, HEADS_MOST),
                                          .rows = 1 + gpu_random_below(&seed, ROWS_MOST),
                                          .dim = 16 + 16 * gpu_random_below(&seed, DIMS),
                                          .descale_rows = descale_rows[gpu_random_below(&seed, 3)],
                                          .rotate = gpu_random_below(&seed, 2),
                                          .heads_inside = gpu_random_below(&seed, 2)};
  printf("drawn: %s d%d h%d n%d descale_rows %d rotate %d heads_inside %d\n",
         ft_dtype_name(tensor.dtype), tensor.dim, tensor.heads, tensor.rows, tensor.descale_rows,
         tensor.rotate, tensor.heads_inside);
  check_on_streams(&tensor, 1, 2, 780 + (uint64_t)_i);
}
END_TEST

static const struct quantised_tensor large[] = {
    {FT_BF16, 20, 16384, 128, 0, 0, 0}, {FT_BF16, 7, 16384, 64, 0, 1, 0},
    {FT_BF16, 5, 16384, 256, 0, 1, 0},  {FT_FP16, 300, 129, 128, 0, 0, 0},
    {FT_BF16, 1, 200000, 64, 0, 1, 0},  {FT_BF16, 2, 40000, 256, 0, 0, 0},
    {FT_BF16, 8, 16384, 128, 64, 1, 1}, {FT_BF16, 4, 16384, 256, 128, 1, 0}};

START_TEST(large_tensors_are_right) {
  check_on_streams(&large[_i], 1, 3, 720 + (uint64_t)_i);
}
END_TEST

START_TEST(streams_do_not_block_each_other) {
  const struct quantised_tensor tensor = {FT_BF16, 8, 4096, 128, 0, 1, 0};
  check_on_streams(&tensor, STREAMS, 20, 740);
}
END_TEST

Suite *make_gpu_quantise_suite(void) {
  Suite *const suite = suite_create("gpu_quantise");
  TCase *const tests = tcase_create("small");
  tcase_add_loop_test(tests, small_tensors_are_right, 0, sizeof small / sizeof *small);
  tcase_add_loop_test(tests, drawn_tensors_are_right, 0, DRAWN);
  suite_add_tcase(suite, tests);
  if (gpu_lab()->session->driver.emulated) return suite; /* which is too slow for long sequences */
  TCase *const more = tcase_create("large");
  tcase_add_loop_test(more, large_tensors_are_right, 0, sizeof large / sizeof *large);
  tcase_add_test(more, streams_do_not_block_each_other);
  suite_add_tcase(suite, more);
  return suite;
}
