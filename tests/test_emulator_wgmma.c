/* test_emulator_wgmma.c: what wgmma computes on the emulated device.
 * in -> out: random operands laid out by the formulas of the PTX manual, in shared memory or in
 * registers -> products, against arithmetic of this file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hopper_kernel.h"
#include "tests/suites.h"

#define ROOM(array) (sizeof(array) / sizeof *(array))

enum { GROUP = 128 };

/* ---- layouts of the PTX manual, "Shared Memory Matrix Layout" of wgmma, in bytes ---- */

/* K-major: ((8,m),(T,2k)):((8T,SBO),(1,T)), T = 8 elements. */
static unsigned k_major(int outer, int k, unsigned stride) {
  return hopper_swizzled((unsigned)(outer % 8 * 128 + k % 8 * 2 + k / 8 * 16) +
                         (unsigned)(outer / 8) * stride);
}

/* MN-major: ((T,8,m),(8,k)):((1,T,LBO),(8T,SBO)). */
static unsigned mn_major(int outer, int k, unsigned leading, unsigned stride) {
  return hopper_swizzled((unsigned)(outer % 8 * 2 + outer / 8 % 8 * 16 + k % 8 * 128) +
                         (unsigned)(outer / 64) * leading + (unsigned)(k / 8) * stride);
}

/* ---- products ---- */

enum { ROWS = 64, DEPTH = 64, COLUMNS_MOST = 256 };
enum { A_AT = 1024, A_STRIDE = 2048, B_AT = 20 * 1024, B_STRIDE = 1024, B_LEADING = 9 * 1024 };
enum { IMAGE_BYTES = 60 * 1024, IMAGE_WORDS = IMAGE_BYTES / 4 };

struct product {
  enum ft_dtype dtype;
  int columns;
  bool a_in_registers, a_across, b_across, accumulate;
  double a[ROWS][DEPTH], b[DEPTH][COLUMNS_MOST];
  uint32_t in[IMAGE_WORDS + GROUP * (COLUMNS_MOST / 2 + 4 * DEPTH / 16)];
  uint32_t out[GROUP * COLUMNS_MOST / 2];
};

static const char loading[] =
    "for (int w = thread; w < %d; w += 128) store_shared_4(smem + 4 * w, in[w]);\n"
    "async_proxy_fence();\n"
    "__syncthreads();\n"
    "float c[%d];\n"
    "const unsigned *const mine = in + %d + thread * %d;\n"
    "for (int i = 0; i < %d; ++i) c[i] = __uint_as_float(mine[i]);\n"
    "const u64 swizzle = u64(1) << 62;\n";
static const char from_shared[] =
    "const u64 a = u64(smem + %d >> 4) | u64(1) << 16 | u64(%d >> 4) << 32 | swizzle;\n"
    "const u64 b = u64(smem + %d >> 4) | u64(1) << 16 | u64(%d >> 4) << 32 | swizzle;\n"
    "wgmma_fence();\n"
    "for (int k = 0; k < 4; ++k) wgmma_ss(c, a + 2 * k, b + 2 * k, %d || k > 0);\n";
static const char across[] =
    "const u64 a = u64(smem + %d >> 4) | u64(1) << 16 | u64(%d >> 4) << 32 | swizzle;\n"
    "const u64 b = u64(smem + %d >> 4) | u64(%d >> 4) << 16 | u64(%d >> 4) << 32 | swizzle;\n"
    "wgmma_fence();\n"
    "for (int k = 0; k < 4; ++k) wgmma_ss_across(c, a + 2 * k, b + (2048 >> 4) * k, %d || k > "
    "0);\n";
static const char both_across[] =
    "const u64 a = u64(smem + %d >> 4) | u64(1) << 16 | u64(%d >> 4) << 32 | swizzle;\n"
    "const u64 b = u64(smem + %d >> 4) | u64(%d >> 4) << 16 | u64(%d >> 4) << 32 | swizzle;\n"
    "wgmma_fence();\n"
    "for (int k = 0; k < 4; ++k)\n"
    "  wgmma_ss_both_across(c, a + (2 * %d >> 4) * k, b + (2048 >> 4) * k, %d || k > 0);\n";
static const char from_registers[] =
    "unsigned a[4][4];\n"
    "for (int i = 0; i < 16; ++i) a[i / 4][i %% 4] = mine[%d + i];\n"
    "const u64 b = u64(smem + %d >> 4) | u64(%d >> 4) << 16 | u64(%d >> 4) << 32 | swizzle;\n"
    "wgmma_fence();\n"
    "for (int k = 0; k < 4; ++k) wgmma_rs_across(c, a[k], b + (2048 >> 4) * k, %d || k > 0);\n";
static const char storing[] =
    "wgmma_commit();\n"
    "wgmma_wait<0>();\n"
    "hold(c);\n"
    "for (int i = 0; i < %d; ++i) out[thread * %d + i] = __float_as_uint(c[i]);";

static void put(struct product *p, unsigned byte, uint16_t bits) {
  memcpy((char *)p->in + byte, &bits, sizeof bits);
}

/* A fragments of wgmma: registers 0 .. 3 of k step k. */
static void put_in_register(struct product *p, int row, int k, uint16_t bits) {
  const int lane = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
  const int i = k / 16 * 4 + k % 16 / 8 * 2 + row % 16 / 8;
  const int words = p->columns / 2 + 16;
  uint32_t *const word = &p->in[IMAGE_WORDS + lane * words + p->columns / 2 + i];
  *word = k % 2 ? (*word & 0xFFFFu) | (uint32_t)bits << 16 : (*word & 0xFFFF0000u) | bits;
}

static void fill(struct product *p) {
  for (size_t w = 0; w < ROOM(p->in); w++) p->in[w] = random_word();
  for (int row = 0; row < ROWS; row++)
    for (int k = 0; k < DEPTH; k++) {
      const uint16_t bits = hopper_element(p->dtype);
      p->a[row][k] = number_of(p->dtype, bits);
      if (p->a_in_registers)
        put_in_register(p, row, k, bits);
      else
        put(p, A_AT + (p->a_across ? mn_major(row, k, 0, A_STRIDE) : k_major(row, k, A_STRIDE)),
            bits);
    }
  for (int column = 0; column < p->columns; column++)
    for (int k = 0; k < DEPTH; k++) {
      const uint16_t bits = hopper_element(p->dtype);
      p->b[k][column] = number_of(p->dtype, bits);
      put(p,
          B_AT + (p->b_across ? mn_major(column, k, B_LEADING, B_STRIDE)
                              : k_major(column, k, B_STRIDE)),
          bits);
    }
  for (int lane = 0; lane < GROUP; lane++)
    for (int i = 0; i < p->columns / 2; i++)
      p->in[IMAGE_WORDS + lane * (p->columns / 2 + 16) + i] =
          bits_of((float)(below(4001) - 2000) / 64);
}

static void run_product(struct product *p) {
  char body[2048];
  const int registers = p->columns / 2;
  int length = snprintf(body, sizeof body, loading, IMAGE_WORDS, registers, IMAGE_WORDS,
                        registers + 16, registers);
  if (p->a_in_registers)
    length += snprintf(body + length, sizeof body - (size_t)length, from_registers, registers, B_AT,
                       B_LEADING, B_STRIDE, p->accumulate);
  else if (p->a_across)
    length += snprintf(body + length, sizeof body - (size_t)length, both_across, A_AT, A_STRIDE,
                       B_AT, B_LEADING, B_STRIDE, A_STRIDE, p->accumulate);
  else if (p->b_across)
    length += snprintf(body + length, sizeof body - (size_t)length, across, A_AT, A_STRIDE, B_AT,
                       B_LEADING, B_STRIDE, p->accumulate);
  else
    length += snprintf(body + length, sizeof body - (size_t)length, from_shared, A_AT, A_STRIDE,
                       B_AT, B_STRIDE, p->accumulate);
  (void)snprintf(body + length, sizeof body - (size_t)length, storing, registers, registers);
  hopper_run(p->dtype, body, GROUP, NULL, 0, p->in,
             IMAGE_WORDS + (size_t)GROUP * (size_t)(registers + 16), p->out,
             (size_t)GROUP * (size_t)registers);
}

static void check_product(const struct product *p) {
  for (int lane = 0; lane < GROUP; lane++)
    for (int i = 0; i < p->columns / 2; i++) { /* D fragments of the manual */
      const int row = lane / 32 * 16 + lane % 32 / 4 + (i % 4 >= 2 ? 8 : 0);
      const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      const float before = float_of(p->in[IMAGE_WORDS + lane * (p->columns / 2 + 16) + i]);
      double sum = p->accumulate ? (double)before : 0, size = fabs(sum);
      for (int k = 0; k < DEPTH; k++) {
        sum += p->a[row][k] * p->b[k][column];
        size += fabs(p->a[row][k] * p->b[k][column]);
      }
      const double got = (double)float_of(p->out[lane * p->columns / 2 + i]);
      ck_assert_msg(fabs(got - sum) <= size * DEPTH * 0x1p-24, /* each sum is rounded once */
                    "n %d, row %d, column %d: %.9g, not %.9g "
                    "(FATUNE_TEST_SEED=%llu)",
                    p->columns, row, column, got, sum, (unsigned long long)random_seed);
    }
}

static const struct {
  int columns;
  enum ft_dtype dtype;
  bool a_in_registers, b_across, accumulate, a_across;
} products[] = {
    {64, FT_BF16, false, false, false, false},  {80, FT_FP16, false, false, true, false},
    {176, FT_BF16, false, false, false, false}, {256, FT_BF16, false, false, true, false},
    {8, FT_FP16, false, false, false, false},   {64, FT_BF16, true, true, true, false},
    {80, FT_BF16, true, true, false, false},    {176, FT_FP16, true, true, true, false},
    {256, FT_FP16, true, true, false, false},   {24, FT_BF16, true, true, true, false},
    {64, FT_BF16, false, true, true, false},    {80, FT_FP16, false, true, false, false},
    {256, FT_BF16, false, true, true, false},   {24, FT_FP16, false, true, false, false},
    {64, FT_BF16, false, true, false, true},    {80, FT_FP16, false, true, true, true},
    {16, FT_BF16, false, true, true, true},
};

START_TEST(wgmma_multiplies_as_the_manual_says) {
  struct product *const p = calloc(1, sizeof *p);
  ck_assert_ptr_nonnull(p);
  p->columns = products[_i].columns;
  p->dtype = products[_i].dtype;
  p->a_in_registers = products[_i].a_in_registers;
  p->a_across = products[_i].a_across;
  p->b_across = products[_i].b_across;
  p->accumulate = products[_i].accumulate;
  fill(p);
  run_product(p);
  check_product(p);
  free(p);
}
END_TEST

Suite *make_emulator_wgmma_suite(void) {
  Suite *const suite = suite_create("emulator_wgmma");
  TCase *const tests = tcase_create("wgmma");
  tcase_add_loop_test(tests, wgmma_multiplies_as_the_manual_says, 0, (int)ROOM(products));
  suite_add_tcase(suite, tests);
  return suite;
}
