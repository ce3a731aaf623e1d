/* test_emulator_numbers.c: what the emulated primitives compute, against arithmetic of this file.
 * in -> out: random and awkward operands -> products, conversions, powers, within what the PTX
 * manual says of them. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulator_kernel.h"
#include "tests/suites.h"
#include "tuner/verify/halves.h"

#define ROOM(array) (sizeof(array) / sizeof *(array))

/* ---- products: m16n8k16, fragments by the formulas of the PTX manual ---- */

static const struct {
  const char *gpu;
  enum ft_dtype dtype;
} kinds[] = {{"a100", FT_BF16}, {"h200", FT_FP16}, {"t4", FT_FP16}};

static const char multiply[] =
    "const unsigned *const of_lane = in + (blockIdx.x * 32 + lane) * 10;\n"
    "unsigned a[4];\n"
    "float c[4];\n"
    "for (int i = 0; i < 4; ++i) a[i] = of_lane[i], c[i] = __uint_as_float(of_lane[6 + i]);\n"
    "mma_m16n8k16(c, a, of_lane[4], of_lane[5]);\n"
    "for (int i = 0; i < 4; ++i) out[(blockIdx.x * 32 + lane) * 4 + i] = __float_as_uint(c[i]);";

struct product {
  uint16_t a[16][16], b[16][8];
  float c[16][8];
};

static int row_of_a(int lane, int i) { /* i: of the 8 elements that a lane holds */
  return i < 2 || (4 <= i && i < 6) ? lane >> 2 : (lane >> 2) + 8;
}

static int column_of_a(int lane, int i) {
  return lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8);
}

static int row_of_b(int lane, int i) {
  return lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8);
}

static int row_of_c(int lane, int i) {
  return (lane >> 2) + (i < 2 ? 0 : 8);
}

static int column_of_c(int lane, int i) {
  return lane % 4 * 2 + (i & 1);
}

static void scatter(const struct product *p, uint32_t words[320]) {
  for (int lane = 0; lane < 32; lane++) {
    uint32_t *const of_lane = words + 10 * lane;
    memset(of_lane, 0, 10 * sizeof *of_lane);
    for (int i = 0; i < 8; i++)
      of_lane[i / 2] |= (uint32_t)p->a[row_of_a(lane, i)][column_of_a(lane, i)] << 16 * (i % 2);
    for (int i = 0; i < 4; i++)
      of_lane[4 + i / 2] |= (uint32_t)p->b[row_of_b(lane, i)][lane >> 2] << 16 * (i % 2);
    for (int i = 0; i < 4; i++)
      of_lane[6 + i] = bits_of(p->c[row_of_c(lane, i)][column_of_c(lane, i)]);
  }
}

enum { PRODUCTS = 64 };

/* compare(product, row, column, what came out) for all of them. */
static void run_products(int kind, const struct product *products,
                         void (*compare)(enum ft_dtype dtype, const struct product *p, int row,
                                         int column, float result)) {
  static uint32_t in[PRODUCTS * 320], out[PRODUCTS * 128];
  struct small_kernel kernel;
  for (int n = 0; n < PRODUCTS; n++) scatter(&products[n], in + (size_t)n * 320);
  small_kernel_open(&kernel, kinds[kind].gpu, kinds[kind].dtype, multiply);
  const int status = small_kernel_launch(&kernel, PRODUCTS, 32, in, ROOM(in), out, ROOM(out));
  ck_assert_msg(status == FT_OK, "%s", ft_detail());
  small_kernel_close(&kernel);
  for (int n = 0; n < PRODUCTS; n++)
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < 4; i++)
        compare(kinds[kind].dtype, &products[n], row_of_c(lane, i), column_of_c(lane, i),
                float_of(out[n * 128 + lane * 4 + i]));
}

static double exact_sum(enum ft_dtype dtype, const struct product *p, int row, int column,
                        double *size) {
  double sum = p->c[row][column];
  *size = fabs(sum);
  for (int k = 0; k < 16; k++) {
    const double term = number_of(dtype, p->a[row][k]) * number_of(dtype, p->b[k][column]);
    sum += term;
    *size += fabs(term);
  }
  return sum;
}

/* Sums of small integers are exact, whatever the order. */
static void expect_exact(enum ft_dtype dtype, const struct product *p, int row, int column,
                         float result) {
  double size;
  const double expected = exact_sum(dtype, p, row, column, &size);
  ck_assert_msg((double)result == expected, "[%d][%d] is %g, not %g (FATUNE_TEST_SEED=%llu)", row,
                column, (double)result, expected, (unsigned long long)random_seed);
}

START_TEST(products_of_integers_are_exact) {
  static struct product products[PRODUCTS];
  const enum ft_dtype dtype = kinds[_i].dtype;
  for (int n = 0; n < PRODUCTS; n++) {
    for (int row = 0; row < 16; row++) {
      for (int k = 0; k < 16; k++) products[n].a[row][k] = ft_to_dtype(dtype, below(129) - 64);
      for (int column = 0; column < 8; column++) {
        products[n].b[row][column] = ft_to_dtype(dtype, below(129) - 64);
        products[n].c[row][column] = (float)(below(20001) - 10000);
      }
    }
  }
  run_products(_i, products, expect_exact);
}
END_TEST

/* 17 terms, each sum rounded to fp32. What is below the smallest fp32 number may vanish. */
static void expect_close(enum ft_dtype dtype, const struct product *p, int row, int column,
                         float result) {
  double size;
  const double expected = exact_sum(dtype, p, row, column, &size);
  const double bound = 17 * (0x1p-24 * size * 1.0001 + 0x1p-149);
  ck_assert_msg(fabs((double)result - expected) <= bound,
                "[%d][%d] is %.9g, not %.9g within %g (FATUNE_TEST_SEED=%llu)", row, column,
                (double)result, expected, bound, (unsigned long long)random_seed);
}

/* Everything finite: numbers of all sizes whose products fit fp32, denormals, zeros. */
static uint16_t any_number(enum ft_dtype dtype) {
  const uint16_t sign = (uint16_t)(below(2) << 15);
  switch (below(8)) {
  case 0: return sign;
  case 1: return (uint16_t)(sign | below(dtype == FT_FP16 ? 1 << 10 : 1 << 7)); /* denormal */
  case 2:
  case 3: return (uint16_t)(sign | below(dtype == FT_FP16 ? 0x7C00 : 0x5D00));
  default: return ft_to_dtype(dtype, 4 * (below(1 << 20) * 0x1p-20 - 0.5));
  }
}

static struct product any_product(enum ft_dtype dtype) {
  struct product p;
  for (int row = 0; row < 16; row++) {
    for (int k = 0; k < 16; k++) p.a[row][k] = any_number(dtype);
    for (int column = 0; column < 8; column++) {
      p.b[row][column] = any_number(dtype);
      p.c[row][column] = (float)ldexp(below(1 << 20) - (1 << 19), below(40) - 40);
    }
  }
  return p;
}

START_TEST(products_are_those_of_fp32_sums) {
  static struct product products[PRODUCTS];
  for (int n = 0; n < PRODUCTS; n++) products[n] = any_product(kinds[_i].dtype);
  run_products(_i, products, expect_close);
}
END_TEST

/* What Clang fills unwritten registers with are numbers as well: one register of A and one of B
 * hold them (PTX manual: two numbers that lie side by side along k). */
START_TEST(products_take_a_register_of_fill_for_its_numbers) {
  enum { FILL = 0xAAAA };
  static struct product products[PRODUCTS];
  for (int n = 0; n < PRODUCTS; n++) {
    products[n] = any_product(kinds[_i].dtype);
    uint16_t *const pair = &products[n].a[below(16)][2 * below(8)];
    const int k = 2 * below(8), column = below(8);
    pair[0] = pair[1] = products[n].b[k][column] = products[n].b[k + 1][column] = FILL;
  }
  run_products(_i, products, expect_close);
}
END_TEST

static void expect_infinity_in_row_3(enum ft_dtype dtype, const struct product *p, int row,
                                     int column, float result) {
  (void)dtype;
  if (row != 3)
    ck_assert(isfinite(result));
  else if (p->b[5][column] == 0)
    ck_assert(isnan(result));
  else
    ck_assert(isinf(result) && (result < 0) == (p->b[5][column] >> 15 == 1));
}

START_TEST(infinities_go_where_they_belong) {
  static struct product products[PRODUCTS];
  const enum ft_dtype dtype = kinds[_i].dtype;
  for (int n = 0; n < PRODUCTS; n++) {
    for (int row = 0; row < 16; row++) {
      for (int k = 0; k < 16; k++) products[n].a[row][k] = ft_to_dtype(dtype, below(9) - 4);
      for (int column = 0; column < 8; column++)
        products[n].b[row][column] = ft_to_dtype(dtype, below(3) - 1);
    }
    products[n].a[3][5] = dtype == FT_FP16 ? 0x7C00 : 0x7F80;
  }
  run_products(_i, products, expect_infinity_in_row_3);
}
END_TEST

/* ---- pack: round to nearest even ---- */

/* The nearest of all patterns, found by search; infinity stands where the next number would. */
static uint16_t nearest(enum ft_dtype dtype, float value) {
  const int infinity = dtype == FT_FP16 ? 0x7C00 : 0x7F80;
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  const double size = fabs((double)value);
  if (isnan(value)) return 0x7FFF;
  if (isinf(value)) return (uint16_t)(sign | infinity);
  const double beyond = 2 * number_of(dtype, (uint16_t)(infinity - (infinity & -infinity)));
  int low = 0, high = infinity; /* number(low) <= size < number(high) */
  if (size >= beyond) return (uint16_t)(sign | infinity);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (number_of(dtype, (uint16_t)middle) <= size)
      low = middle;
    else
      high = middle;
  }
  const double under = number_of(dtype, (uint16_t)low);
  const double over = high == infinity ? beyond : number_of(dtype, (uint16_t)high);
  if (size - under == over - size) return (uint16_t)(sign | (low % 2 == 0 ? low : high));
  return (uint16_t)(sign | (size - under < over - size ? low : high));
}

/* Every number of the format, every middle between two and its neighbours in fp32, both signs, and
 * any patterns. */
static size_t awkward_floats(enum ft_dtype dtype, uint32_t *floats, size_t room) {
  const int infinity = dtype == FT_FP16 ? 0x7C00 : 0x7F80;
  const float largest = (float)number_of(dtype, (uint16_t)(infinity - 1));
  size_t count = 0;
  for (int bits = 0; bits < infinity; bits++) {
    const float here = (float)number_of(dtype, (uint16_t)bits);
    const float step = bits + 1 < infinity
                           ? (float)number_of(dtype, (uint16_t)(bits + 1)) - here
                           : largest - (float)number_of(dtype, (uint16_t)(bits - 1));
    const float middle = here + step / 2;
    const float values[4] = {here, middle, nextafterf(middle, 0), nextafterf(middle, INFINITY)};
    for (int i = 0; i < 8; i++) floats[count++] = bits_of(i < 4 ? values[i] : -values[i - 4]);
  }
  while (count < room - 8) floats[count++] = random_word();
  const float last[8] = {INFINITY, -INFINITY, NAN, -NAN, FLT_MAX, -FLT_MAX, FLT_MIN, -0.F};
  for (int i = 0; i < 8; i++) floats[count++] = bits_of(last[i]);
  return count;
}

START_TEST(pack_rounds_to_nearest_even) {
  enum { FLOATS = 1 << 18 };
  const enum ft_dtype dtype = kinds[_i].dtype;
  uint32_t *const in = malloc((FLOATS + FLOATS / 2) * sizeof *in), *const out = in + FLOATS;
  struct small_kernel kernel;
  ck_assert_ptr_nonnull(in);
  const size_t count = awkward_floats(dtype, in, FLOATS);
  ck_assert_uint_eq(count, FLOATS);
  small_kernel_open(&kernel, kinds[_i].gpu, dtype,
                    "for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < 131072;\n"
                    "     i += gridDim.x * blockDim.x)\n"
                    "  out[i] = pack(__uint_as_float(in[2 * i]), __uint_as_float(in[2 * i + 1]));");
  const int status = small_kernel_launch(&kernel, 4, 128, in, FLOATS, out, FLOATS / 2);
  ck_assert_msg(status == FT_OK, "%s", ft_detail());
  for (int i = 0; i < FLOATS; i++) {
    const unsigned got = out[i / 2] >> 16 * (i % 2) & 0xFFFF;
    const unsigned expected = nearest(dtype, float_of(in[i]));
    ck_assert_msg(got == expected, "%a (%#x) becomes %#x, not %#x (FATUNE_TEST_SEED=%llu)",
                  (double)float_of(in[i]), in[i], got, expected, (unsigned long long)random_seed);
  }
  small_kernel_close(&kernel);
  free(in);
}
END_TEST

/* ---- halves_ge ---- */

START_TEST(halves_compare_as_fp16) {
  enum { PAIRS = 8192 };
  static uint32_t in[2 * PAIRS], out[PAIRS];
  static const uint16_t special[] = {0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x0001, 0x8001, 0x3FFF};
  for (size_t i = 0; i < ROOM(in); i++) {
    in[i] = random_word();
    if (below(4) == 0) in[i] = (in[i] & 0xFFFF0000u) | special[below((int)ROOM(special))];
    if (below(4) == 0)
      in[i] = (in[i] & 0xFFFF) | (uint32_t)special[below((int)ROOM(special))] << 16;
    if (i % 2 == 1 && below(8) == 0) in[i] = in[i - 1];
  }
  small_kernel_run(
      "for (int i = lane; i < 8192; i += 32) out[i] = halves_ge(in[2 * i], in[2 * i + 1]);", in,
      ROOM(in), out, ROOM(out));
  for (int i = 0; i < PAIRS; i++) {
    for (int half = 0; half < 2; half++) {
      const double a = number_of(FT_FP16, (uint16_t)(in[2 * i] >> 16 * half));
      const double b = number_of(FT_FP16, (uint16_t)(in[2 * i + 1] >> 16 * half));
      ck_assert_msg((out[i] >> 16 * half & 0xFFFF) == (a >= b ? 0xFFFF : 0),
                    "%g >= %g gives %#x (FATUNE_TEST_SEED=%llu)", a, b, out[i],
                    (unsigned long long)random_seed);
    }
  }
}
END_TEST

/* ---- ex2, lg2: within 2^-22, denormals are zero ---- */

enum { POWERS = 16384 };

static void fill_powers(uint32_t in[POWERS], float least, float most) {
  static const float special[] = {0.F,       -0.F,       INFINITY, -INFINITY, NAN,     0x1p-126F,
                                  0x1p-127F, -0x1p-127F, FLT_MAX,  -FLT_MAX,  -126.5F, 127.99F};
  for (int i = 0; i < POWERS; i++)
    in[i] = bits_of(least + (most - least) * (float)(random_word() >> 8) * 0x1p-24F);
  for (size_t i = 0; i < ROOM(special); i++) in[i] = bits_of(special[i]);
  for (int i = 64; i < 1024; i++) in[i] = random_word();
}

static double flushed(double x) {
  return fabs(x) < 0x1p-126 ? copysign(0, x) : x;
}

static void expect_near(const char *name, float x, float got, double expected, double bound) {
  const bool same = isnan(expected) ? isnan(got) : (double)got == expected;
  const bool near = fabs((double)got - expected) <= bound;
  const bool flush = got == 0 && fabs(expected) < 0x1p-126 * (1 + 0x1p-20);
  ck_assert_msg(same || near || flush, "%s(%a) is %a, not %a (FATUNE_TEST_SEED=%llu)", name,
                (double)x, (double)got, expected, (unsigned long long)random_seed);
  ck_assert_msg(isnan(got) || fabs((double)flushed(got)) == fabs((double)got), "%s(%a) is denormal",
                name, (double)x);
}

START_TEST(powers_of_two) {
  static uint32_t in[POWERS], out[POWERS];
  fill_powers(in, -150, 130);
  small_kernel_run("for (int i = lane; i < 16384; i += 32) out[i] = "
                   "__float_as_uint(ex2(__uint_as_float(in[i])));",
                   in, POWERS, out, POWERS);
  for (int i = 0; i < POWERS; i++) {
    const double x = flushed((double)float_of(in[i]));
    double expected = exp2(x);
    if (expected > (double)FLT_MAX) expected = INFINITY;
    expect_near("ex2", float_of(in[i]), float_of(out[i]), expected, 0x1p-22 * expected);
  }
}
END_TEST

START_TEST(logarithms_to_base_two) {
  static uint32_t in[POWERS], out[POWERS];
  fill_powers(in, 0, 3);
  small_kernel_run("for (int i = lane; i < 16384; i += 32) out[i] = "
                   "__float_as_uint(lg2(__uint_as_float(in[i])));",
                   in, POWERS, out, POWERS);
  for (int i = 0; i < POWERS; i++) {
    const double x = flushed((double)float_of(in[i]));
    const double expected = x == 0 ? -INFINITY : log2(x);
    expect_near("lg2", float_of(in[i]), float_of(out[i]), expected,
                0x1p-22 * fmax(1, fabs(expected)));
  }
}
END_TEST

/* ---- bits, maxima ---- */

START_TEST(bits_and_maxima) {
  static const char body[] = "out[lane] = __funnelshift_r(in[0], in[1], lane + 7);\n"
                             "const float x = __uint_as_float(in[2 + lane % 4]), y = "
                             "__uint_as_float(in[2 + lane / 4 % 4]);\n"
                             "out[32 + lane] = __float_as_uint(fmaxf(x, y)), out[64 + lane] = "
                             "__float_as_uint(fminf(x, y));";
  uint32_t in[6], out[96];
  const float numbers[4] = {NAN, -INFINITY, 1.5F, (float)below(1000) - 500.F};
  in[0] = random_word();
  in[1] = random_word();
  for (int i = 0; i < 4; i++) in[2 + i] = bits_of(numbers[i]);
  small_kernel_run(body, in, 6, out, 96);
  for (int lane = 0; lane < 32; lane++) {
    const uint64_t pair = (uint64_t)in[1] << 32 | in[0];
    ck_assert_uint_eq(out[lane], (uint32_t)(pair >> (lane + 7) % 32));
    const float x = numbers[lane % 4], y = numbers[lane / 4 % 4];
    if (isnan(x) && isnan(y)) continue;
    ck_assert_float_eq(float_of(out[32 + lane]), fmaxf(x, y));
    ck_assert_float_eq(float_of(out[64 + lane]), fminf(x, y));
  }
}
END_TEST

Suite *make_emulator_numbers_suite(void) {
  enum { KINDS = (int)ROOM(kinds) };
  Suite *const suite = suite_create("emulator_numbers");
  TCase *const tests = tcase_create("numbers");
  tcase_add_loop_test(tests, products_of_integers_are_exact, 0, KINDS);
  tcase_add_loop_test(tests, products_are_those_of_fp32_sums, 0, KINDS);
  tcase_add_loop_test(tests, products_take_a_register_of_fill_for_its_numbers, 0, KINDS);
  tcase_add_loop_test(tests, infinities_go_where_they_belong, 0, KINDS);
  tcase_add_loop_test(tests, pack_rounds_to_nearest_even, 0, KINDS);
  tcase_add_test(tests, halves_compare_as_fp16);
  tcase_add_test(tests, powers_of_two);
  tcase_add_test(tests, logarithms_to_base_two);
  tcase_add_test(tests, bits_and_maxima);
  suite_add_tcase(suite, tests);
  return suite;
}
