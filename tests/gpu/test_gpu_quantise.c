/* test_gpu_quantise.c: fatune_quantise on the GPU.
 * in -> out: random tensors, some at once on several streams -> descales and bytes beside float64.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_lab.h"
#include "tests/gpu/gpu_suites.h"
#include "tuner/verify/halves.h"

enum { STREAMS = 3, ROTATION = 11, DIM_MOST = 256 };

struct tensor {
  enum ft_dtype dtype;
  int heads, rows, dim, descale_rows, rotate;
};

static size_t elements_of(const struct tensor *tensor) {
  return (size_t)tensor->heads * (size_t)tensor->rows * (size_t)tensor->dim;
}

static int rows_of_descale(const struct tensor *tensor) {
  return tensor->descale_rows > 0 ? tensor->descale_rows : tensor->rows;
}

static size_t descales_of(const struct tensor *tensor) {
  const int each = rows_of_descale(tensor);
  return (size_t)tensor->heads * (size_t)((tensor->rows + each - 1) / each);
}

/* ---- what should come out ---- */

static double sign_of(int column) {
  uint64_t x = ROTATION ^ (uint64_t)column * 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDu;
  x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53u;
  return x >> 63 ? -1 : 1;
}

static void expected_row(double *y, const struct tensor *tensor, const uint16_t *x) {
  const int block = tensor->dim & -tensor->dim;
  for (int c = 0; c < tensor->dim; c++)
    y[c] = ft_from_dtype(tensor->dtype, x[c]) * (tensor->rotate ? sign_of(c) / sqrt(block) : 1);
  for (int step = 1; step < block && tensor->rotate; step *= 2)
    for (int c = 0; c < tensor->dim; c++) {
      if (c & step || c + step >= tensor->dim) continue;
      const double a = y[c], b = y[c + step];
      y[c] = a + b;
      y[c + step] = a - b;
    }
}

static void check_rows(const struct tensor *tensor, const uint16_t *x, const uint8_t *out,
                       double descale, int count) {
  double y[DIM_MOST], largest = 0;
  for (int row = 0; row < count; row++) {
    expected_row(y, tensor, x + (size_t)row * (size_t)tensor->dim);
    for (int c = 0; c < tensor->dim; c++) largest = fmax(largest, fabs(y[c]));
  }
  ck_assert_double_eq_tol(descale, fmax(largest / 448, 0x1p-40), 1e-5 * descale);
  for (int row = 0; row < count; row++) {
    expected_row(y, tensor, x + (size_t)row * (size_t)tensor->dim);
    for (int c = 0; c < tensor->dim; c++) {
      const double is =
          (double)ft_from_e4m3(out[(size_t)row * (size_t)tensor->dim + (size_t)c]) * descale;
      /* Half a unit of the last of four digits, and what is below 2^-6. */
      const double allowed = fabs(y[c]) * (0x1p-4 + 1e-5) + descale * 0x1p-10;
      ck_assert_msg(fabs(is - y[c]) <= allowed, "row %d column %d: %g, not %g (seed %llu)", row, c,
                    is, y[c], (unsigned long long)gpu_lab()->seed);
    }
  }
}

static void check(const struct tensor *tensor, const uint16_t *x, const uint8_t *out,
                  const float *descale) {
  const int each = rows_of_descale(tensor);
  const size_t descales = descales_of(tensor), of_head = descales / (size_t)tensor->heads;
  for (size_t n = 0; n < descales; n++) {
    const int row = (int)(n % of_head) * each;
    const size_t first = (n / of_head * (size_t)tensor->rows + (size_t)row) * (size_t)tensor->dim;
    const int count = each < tensor->rows - row ? each : tensor->rows - row;
    check_rows(tensor, x + first, out + first, (double)descale[n], count);
  }
}

/* ---- runs ---- */

static uint16_t *random_numbers(const struct tensor *tensor, uint64_t *seed) {
  uint16_t *const x = malloc(elements_of(tensor) * sizeof *x);
  ck_assert_ptr_nonnull(x);
  for (size_t n = 0; n < elements_of(tensor); n++) {
    const double larger = gpu_random_below(seed, 1000) == 0 ? 10 : 1;
    x[n] = ft_to_dtype(tensor->dtype, larger * (gpu_random_below(seed, 2001) - 1000) / 500);
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

static fatune_quantise_arguments arguments_of(const struct tensor *tensor, cu_address x,
                                              cu_address out, cu_address descale) {
  const int64_t head = (int64_t)tensor->rows * tensor->dim;
  fatune_quantise_arguments arguments = FATUNE_QUANTISE_ARGUMENTS_INIT;
  arguments.dtype = tensor->dtype == FT_BF16 ? FATUNE_BF16 : FATUNE_FP16;
  arguments.head_dim = tensor->dim;
  arguments.batch = 1;
  arguments.heads = tensor->heads;
  arguments.seqlen = tensor->rows;
  arguments.x = (fatune_tensor){(void *)x, head * tensor->heads, tensor->dim, head};
  arguments.out = (fatune_tensor){(void *)out, head * tensor->heads, tensor->dim, head};
  arguments.descale = (float *)descale;
  arguments.descale_rows = tensor->descale_rows;
  arguments.rotate = tensor->rotate;
  arguments.seed = ROTATION;
  return arguments;
}

/* On each stream, `times` after each other. */
static void check_on_streams(const struct tensor *tensor, int streams, int times, uint64_t salt) {
  fatune_session *const session = gpu_lab()->session;
  const struct ft_driver *const driver = &session->driver;
  const size_t count = elements_of(tensor), descales = descales_of(tensor);
  uint64_t seed = gpu_seed(salt);
  uint16_t *const x = random_numbers(tensor, &seed);
  uint8_t *const out = malloc(count);
  float *const descale = malloc(descales * sizeof *descale);
  cu_stream stream[STREAMS] = {NULL};
  cu_address d_x = filled(count * sizeof *x, 0), d_out[STREAMS], d_descale[STREAMS];
  ck_assert(out && descale);
  gpu_assert_ok(ft_driver_send(driver, d_x, x, count * sizeof *x, NULL));
  for (int s = 0; s < streams; s++) {
    d_out[s] = filled(count, 0x7F);
    d_descale[s] = filled(descales * sizeof *descale, 0xFF);
    if (streams > 1) gpu_assert_cuda(driver->stream_create(&stream[s], 0));
  }
  gpu_assert_cuda(driver->context_synchronize());
  for (int n = 0; n < times * streams; n++) {
    const int s = n % streams;
    const fatune_quantise_arguments arguments = arguments_of(tensor, d_x, d_out[s], d_descale[s]);
    gpu_assert_ok(fatune_quantise(session, &arguments, stream[s]));
  }
  gpu_assert_cuda(driver->context_synchronize());
  for (int s = 0; s < streams; s++) {
    gpu_assert_ok(ft_driver_fetch(driver, out, d_out[s], count, NULL));
    gpu_assert_ok(ft_driver_fetch(driver, descale, d_descale[s], descales * sizeof *descale, NULL));
    check(tensor, x, out, descale);
    gpu_assert_cuda(driver->memory_free(d_out[s]));
    gpu_assert_cuda(driver->memory_free(d_descale[s]));
    if (streams > 1) gpu_assert_cuda(driver->stream_destroy(stream[s]));
  }
  gpu_assert_cuda(driver->memory_free(d_x));
  free(x);
  free(out);
  free(descale);
}

static const struct tensor small[] = {{FT_BF16, 3, 300, 128, 0, 1},   {FT_BF16, 3, 300, 128, 64, 0},
                                      {FT_FP16, 2, 200, 256, 128, 1}, {FT_FP16, 2, 450, 80, 0, 0},
                                      {FT_BF16, 1, 1, 64, 0, 0},      {FT_BF16, 5, 129, 208, 0, 1}};

START_TEST(small_tensors_are_right) {
  check_on_streams(&small[_i], 1, 1, 700 + (uint64_t)_i);
}
END_TEST

static const struct tensor large[] = {
    {FT_BF16, 20, 16384, 128, 0, 0}, {FT_BF16, 7, 16384, 64, 0, 1},
    {FT_BF16, 5, 16384, 256, 0, 1},  {FT_FP16, 300, 129, 128, 0, 0},
    {FT_BF16, 1, 200000, 64, 0, 1},  {FT_BF16, 2, 40000, 256, 0, 0},
    {FT_BF16, 8, 16384, 128, 64, 1}, {FT_BF16, 4, 16384, 256, 128, 1}};

START_TEST(large_tensors_are_right) {
  check_on_streams(&large[_i], 1, 3, 720 + (uint64_t)_i);
}
END_TEST

START_TEST(streams_do_not_block_each_other) {
  const struct tensor tensor = {FT_BF16, 8, 4096, 128, 0, 1};
  check_on_streams(&tensor, STREAMS, 20, 740);
}
END_TEST

Suite *make_gpu_quantise_suite(void) {
  Suite *const suite = suite_create("gpu_quantise");
  TCase *const tests = tcase_create("small");
  tcase_add_loop_test(tests, small_tensors_are_right, 0, sizeof small / sizeof *small);
  suite_add_tcase(suite, tests);
  if (gpu_lab()->session->driver.emulated) return suite; /* which is too slow for long sequences */
  TCase *const more = tcase_create("large");
  tcase_add_loop_test(more, large_tensors_are_right, 0, sizeof large / sizeof *large);
  tcase_add_test(more, streams_do_not_block_each_other);
  suite_add_tcase(suite, more);
  return suite;
}
