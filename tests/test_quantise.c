/* test_quantise.c: fatune_quantise: a tensor as e4m3 with descales.
 * in -> out: random tensors on emulated GPUs -> descales and bytes beside float64; bad arguments ->
 * what is wrong with them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/families/quantise.h"
#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/quantise_lab.h"
#include "tests/suites.h"
#include "tuner/verify/halves.h"

enum { BATCH = 2, HEADS = 3, ROWS_MOST = 6400, DIM_MOST = 256, SEED = 77 };
enum {
  BATCH_HEADS = BATCH * HEADS,
  BLOCKS_MOST = (ROWS_MOST + 63) / 64,
  ELEMENTS = BATCH_HEADS * ROWS_MOST * DIM_MOST
};

static struct {
  _Alignas(16) uint16_t x[ELEMENTS];
  _Alignas(16) uint8_t out[ELEMENTS];
  float descale[BATCH_HEADS * BLOCKS_MOST];
} memory;

static int rows; /* of the tensor at hand */
static bool side_by_side;

/* x is [batch, rows, heads, dim], out is [batch, heads, rows, dim]; x too, side by side. */
static int64_t place_in_x(int batch_head, int row, int dim) {
  if (side_by_side) return ((int64_t)batch_head * rows + row) * dim;
  return ((int64_t)(batch_head / HEADS * rows + row) * HEADS + batch_head % HEADS) * dim;
}

/* One number of head 1 is large; head 2 is all zeros. */
static fatune_quantise_arguments random_tensor(enum ft_dtype dtype, int dim, int rotate) {
  for (int n = 0; n < ELEMENTS; n++) memory.x[n] = ft_to_dtype(dtype, (below(2001) - 1000) / 500.0);
  memory.x[place_in_x(1, rows / 2, dim) + 3] = ft_to_dtype(dtype, -90);
  for (int row = 0; row < rows; row++)
    memset(&memory.x[place_in_x(2, row, dim)], 0, (size_t)dim * sizeof(uint16_t));
  memset(memory.out, 0xEE, sizeof memory.out);
  memset(memory.descale, 0xFF, sizeof memory.descale);
  fatune_quantise_arguments arguments = FATUNE_QUANTISE_ARGUMENTS_INIT;
  arguments.dtype = dtype == FT_BF16 ? FATUNE_BF16 : FATUNE_FP16;
  arguments.head_dim = dim;
  arguments.batch = BATCH;
  arguments.heads = HEADS;
  arguments.seqlen = rows;
  arguments.x = (fatune_tensor){memory.x, (int64_t)rows * HEADS * dim, (int64_t)HEADS * dim, dim};
  arguments.out =
      (fatune_tensor){memory.out, (int64_t)HEADS * rows * dim, dim, (int64_t)rows * dim};
  if (side_by_side) {
    arguments.x = arguments.out;
    arguments.x.data = memory.x;
  }
  arguments.descale = memory.descale;
  arguments.rotate = rotate;
  arguments.seed = SEED;
  return arguments;
}

/* of_block: rows that a descale is of. */
static void expect_quantised(enum ft_dtype dtype, int dim, bool rotate, int of_block) {
  static double y[ROWS_MOST][DIM_MOST];
  const int blocks = (rows + of_block - 1) / of_block;
  for (int n = 0; n < BATCH_HEADS * blocks; n++) {
    const int batch_head = n / blocks, first = n % blocks * of_block;
    const int end = first + of_block < rows ? first + of_block : rows;
    double largest = 0;
    for (int row = first; row < end; row++) {
      const uint16_t *const x = &memory.x[place_in_x(batch_head, row, dim)];
      quantise_row(y[row], dtype, x, dim, rotate, SEED);
      const double weight = rotate && of_block == rows ? quantise_weight(row, rows) : 1;
      largest = fmax(largest, weight * quantise_size(dtype, x, dim, rotate));
    }
    const double descale = (double)memory.descale[n];
    ck_assert_double_eq_tol(descale, quantise_descale(largest, dim, rotate), 1e-5 * descale);
    for (int row = first; row < end; row++)
      for (int c = 0; c < dim; c++) {
        const uint8_t byte = memory.out[((int64_t)batch_head * rows + row) * dim + c];
        const double should = y[row][c], is = (double)ft_from_e4m3(byte) * descale;
        ck_assert_msg(quantise_is_near(is, should, descale), "head %d row %d column %d: %g, not %g",
                      batch_head, row, c, is, should);
      }
  }
  for (int n = BATCH_HEADS * blocks; n < BATCH_HEADS * BLOCKS_MOST; n++)
    ck_assert_uint_eq(bits_of(memory.descale[n]), 0xFFFFFFFF);
}

static const struct {
  const char *gpu;
  enum ft_dtype dtype;
  int dim, rotate, descale_rows, rows;
} runs[] = {{"h200", FT_BF16, 128, 0, 0, 150},    {"h200", FT_BF16, 128, 1, 64, 150},
            {"h200", FT_FP16, 256, 1, 0, 150},    {"rtx4090", FT_FP16, 80, 1, 0, 150},
            {"h200", FT_BF16, 16, 1, 128, 150},   {"b200", FT_BF16, 208, 0, 0, 150},
            {"h200", FT_BF16, 64, 0, 64, 150},    {"rtx4090", FT_FP16, 96, 0, 128, 300},
            {"rtx4090", FT_BF16, 256, 1, 0, 250}, {"rtx4090", FT_BF16, 256, 0, 0, 700},
            {"rtx4090", FT_FP16, 64, 1, 0, 1},    {"h200", FT_BF16, 256, 0, 0, 700},
            {"h200", FT_FP16, 256, 1, 0, 650},    {"h200", FT_BF16, 256, 0, 0, 6300}};

START_TEST(bytes_times_descales_are_the_tensor) {
  const size_t run = EMULATOR_CHOOSE(_i, runs);
  random_seed = emulator_seed();
  rows = runs[run].rows;
  fatune_session *const session = emulator_open(runs[run].gpu, NULL);
  fatune_quantise_arguments arguments =
      random_tensor(runs[run].dtype, runs[run].dim, runs[run].rotate);
  arguments.descale_rows = runs[run].descale_rows;
  ck_assert_msg(fatune_quantise(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  expect_quantised(runs[run].dtype, runs[run].dim, runs[run].rotate,
                   runs[run].descale_rows > 0 ? runs[run].descale_rows : rows);
  fatune_session_close(session);
}
END_TEST

/* Two rows of 64 columns are one of 128 to the kernel, but for the last of an odd number. */
static const struct {
  enum ft_dtype dtype;
  int descale_rows, rows;
} pairs[] = {{FT_BF16, 64, 150},
             {FT_FP16, 128, 300},
             {FT_BF16, 64, 2},
             {FT_BF16, 128, 1500},
             {FT_BF16, 64, 149}};

static void quantise_pairs(const char *templates, size_t pair, uint64_t seed) {
  random_seed = seed;
  rows = pairs[pair].rows;
  side_by_side = true;
  fatune_session *const session = emulator_open("h200", templates);
  fatune_quantise_arguments arguments = random_tensor(pairs[pair].dtype, 64, 1);
  arguments.descale_rows = pairs[pair].descale_rows;
  ck_assert_msg(fatune_quantise(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  fatune_session_close(session);
}

START_TEST(rows_side_by_side_are_right) {
  const size_t pair = EMULATOR_CHOOSE(_i, pairs);
  quantise_pairs(NULL, pair, emulator_seed());
  expect_quantised(pairs[pair].dtype, 64, true, pairs[pair].descale_rows);
}
END_TEST

START_TEST(rows_side_by_side_have_the_same_signs) {
  static uint8_t wrong[BATCH_HEADS * 150 * 64];
  const struct planted planted =
      emulator_plant("quantise.cu.in", "\"(chunk * 32 + lane) % \" .. request.head_dim_v",
                     "\"chunk * 32 + lane\"");
  quantise_pairs(planted.folder, 0, 5);
  emulator_unplant(&planted);
  memcpy(wrong, memory.out, sizeof wrong);
  quantise_pairs(NULL, 0, 5);
  ck_assert_mem_ne(wrong, memory.out, sizeof wrong);
}
END_TEST

/* On a GPU of so few multiprocessors that each cluster takes several heads: of one task, of two and
 * more, of as many as its ring has, and of more. */
static const struct {
  int multiprocessors, dim, rotate, rows;
} in_turn[] = {{1, 64, 0, 150}, {2, 128, 1, 300},  {1, 256, 0, 250},  {4, 128, 0, 900},
               {2, 16, 1, 700}, {16, 256, 1, 750}, {8, 128, 1, 3000}, {16, 256, 0, 6300}};

START_TEST(clusters_take_heads_in_turn) {
  const size_t run = EMULATOR_CHOOSE(_i, in_turn);
  random_seed = emulator_seed();
  rows = in_turn[run].rows;
  fatune_session *const session = emulator_open("h200", NULL);
  session->device.arch.sm_count = in_turn[run].multiprocessors;
  const fatune_quantise_arguments arguments =
      random_tensor(FT_BF16, in_turn[run].dim, in_turn[run].rotate);
  ck_assert_msg(fatune_quantise(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  expect_quantised(FT_BF16, in_turn[run].dim, in_turn[run].rotate, rows);
  fatune_session_close(session);
}
END_TEST

/* Rotated heads whose descales are guessed: in one of them a row that the guess is not from has a
 * much larger number. */
START_TEST(wrong_guesses_are_mended) {
  enum { DIM = 256, LATE = 1300, HEAD = 4 };
  random_seed = emulator_seed();
  rows = 2200;
  fatune_session *const session = emulator_open("h200", NULL);
  session->device.arch.sm_count = 4;
  const fatune_quantise_arguments arguments = random_tensor(FT_BF16, DIM, 1);
  memory.x[place_in_x(HEAD, LATE, DIM) + 9] = ft_to_dtype(FT_BF16, 2000);
  ck_assert_msg(fatune_quantise(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  ck_assert(memory.descale[HEAD] > 2 * memory.descale[0]);
  expect_quantised(FT_BF16, DIM, true, rows);
  fatune_session_close(session);
}
END_TEST

/* Clusters of two blocks that take three heads each, and what one block could do too early. */
static const struct {
  const char *piece, *other, *words[2];
} too_early[] = {
    {"OWN_MESSAGE + parity * MESSAGE", "OWN_MESSAGE", {"block 1 reads in line", "(race)"}},
    {"MESSAGES + (parity * CLUSTER_MOST", "MESSAGES + (0 * CLUSTER_MOST", {"(race)", NULL}},
    {"  mbarrier_wait(barrier, head / 2 % 2);\n", "", {"reads", "never written"}},
    {"  async_proxy_fence();\n", "", {"no fence.proxy.async is between", NULL}},
    {"  barrier_sync(TOLD, 32 * HEAD_WARPS);\n",
     "  barrier_arrive(TOLD, 32 * HEAD_WARPS);\n",
     {"reads", "never written"}},
};

START_TEST(blocks_that_are_too_early_are_seen) {
  const struct planted planted =
      emulator_plant("parts/quantise_heads.cu.in", too_early[_i].piece, too_early[_i].other);
  random_seed = emulator_seed();
  rows = 900;
  fatune_session *const session = emulator_open("h200", planted.folder);
  session->device.arch.sm_count = 4;
  const fatune_quantise_arguments arguments = random_tensor(FT_BF16, 128, 0);
  ck_assert_int_ne(fatune_quantise(session, &arguments, NULL), FATUNE_OK);
  emulator_expect_words(too_early[_i].other, fatune_detail(), too_early[_i].words, 2);
  fatune_session_close(session);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(nan_stays_nan) {
  rows = 150;
  fatune_session *const session = emulator_open("h200", NULL);
  const fatune_quantise_arguments arguments = random_tensor(FT_BF16, 64, 0);
  memory.x[place_in_x(0, 9, 64) + 7] = 0x7FFF;
  ck_assert_msg(fatune_quantise(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  for (int n = 0; n < BATCH_HEADS * rows * 64; n++)
    ck_assert_int_eq((memory.out[n] & 0x7F) == 0x7F, n == 9 * 64 + 7);
  fatune_session_close(session);
}
END_TEST

/* One number of head 0 is infinite. As it is, its own byte is NaN alone; rotated, its row. Other
 * heads, or blocks of rows, are as without it. Zeros keep their signs. */
START_TEST(infinity_becomes_nan) {
  enum { DIM = 64, AT = 9 };
  static const int descale_rows[] = {0, 64, 128};
  const int rotate = _i % 2, of_block = descale_rows[_i / 2];
  rows = 150;
  fatune_session *const session = emulator_open("h200", NULL);
  fatune_quantise_arguments arguments = random_tensor(FT_BF16, DIM, rotate);
  const int blocks = of_block == 0 ? 1 : (rows + of_block - 1) / of_block;
  arguments.descale_rows = of_block;
  memory.x[place_in_x(0, AT, DIM) + 7] = _i % 3 == 0 ? 0xFF80 : 0x7F80;
  memory.x[place_in_x(2, 5, DIM)] = 0x8000;
  ck_assert_msg(fatune_quantise(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  for (int n = 0; n < BATCH_HEADS * blocks; n++)
    ck_assert_int_eq(isinf(memory.descale[n]) != 0, n == 0);
  for (int n = 0; n < BATCH_HEADS * rows * DIM; n++)
    ck_assert_int_eq((memory.out[n] & 0x7F) == 0x7F, n / DIM == AT && (rotate || n % DIM == 7));
  if (!rotate) ck_assert_int_eq(memory.out[(2 * rows + 5) * DIM], 0x80);
  fatune_session_close(session);
}
END_TEST

START_TEST(bad_arguments_are_named) {
  rows = 150;
  fatune_session *const session = emulator_open("h200", NULL);
  const fatune_quantise_arguments good = random_tensor(FT_BF16, 64, 0);
#define BAD(change, word)                                                                          \
  do {                                                                                             \
    fatune_quantise_arguments bad = good;                                                          \
    change;                                                                                        \
    ck_assert_int_eq(fatune_quantise(session, &bad, NULL), FATUNE_E_ARGUMENT);                     \
    ck_assert_msg(strstr(fatune_detail(), word) != NULL, "%s", fatune_detail());                   \
  } while (0)
  BAD(bad.size = 8, "arguments.size is 8");
  BAD(bad.dtype = FATUNE_E4M3, "arguments.dtype is e4m3");
  BAD(bad.head_dim = 72, "arguments.head_dim is 72; allowed: multiples of 16 from 16 to 256");
  BAD(bad.head_dim = 8, "arguments.head_dim is 8; allowed: multiples of 16 from 16 to 256");
  BAD(bad.head_dim = 272, "arguments.head_dim is 272; allowed: multiples of 16 from 16 to 256");
  BAD(bad.head_dim = 0, "arguments.head_dim is 0");
  BAD(bad.seqlen = 0, "seqlen_q");
  BAD(bad.x.data = NULL, "arguments.x.data is NULL");
  BAD(bad.out.stride_seq = 72, "arguments.out.stride_seq is 72; allowed: a multiple of 16");
  BAD(bad.out.stride_head = 0, "arguments.out.stride_head is 0");
  BAD(bad.out.data = bad.x.data, "must not share memory");
  BAD(bad.descale = NULL, "arguments.descale is ");
  BAD(bad.rotate = 2, "arguments.rotate is 2");
  BAD(bad.descale_rows = 32, "arguments.descale_rows is 32; allowed: 0, 64, 128");
  BAD(bad.descale_rows = -64, "arguments.descale_rows is -64");
#undef BAD
  ck_assert_int_eq(fatune_quantise(NULL, &good, NULL), FATUNE_E_ARGUMENT);
  ck_assert_int_eq(fatune_quantise(session, NULL, NULL), FATUNE_E_ARGUMENT);
  fatune_session_close(session);
  fatune_session *const old = emulator_open("a100", NULL);
  ck_assert_int_eq(fatune_quantise(old, &good, NULL), FATUNE_E_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(fatune_detail(), "e4m3 needs sm_89"));
  fatune_session_close(old);
}
END_TEST

/* Heads that fill half of the rings of a cluster; beyond 16 blocks a part of them comes twice. */
static const struct {
  const char *gpu;
  int dim, rows, heads, rotated, cluster;
} clusters[] = {
    {"h200", 128, 100, 5, 0, 1},     {"h200", 128, 1024, 8, 0, 8},
    {"h200", 128, 4096, 8, 1, 8},    {"h200", 128, 16384, 128, 1, 1},
    {"h200", 128, 16384, 8, 0, 0},   {"h200", 128, 65536, 128, 0, 0},
    {"h200", 64, 4096, 8, 0, 8},     {"h200", 64, 16384, 8, 0, 16},
    {"h200", 256, 16384, 64, 0, 16}, {"h200", 256, 16384, 64, 1, 2},
    {"h200", 256, 20480, 64, 0, 16}, {"h200", 256, 20480, 64, 1, 2},
    {"h200", 256, 32768, 64, 0, 0},  {"h200", 64, 200000, 7, 1, 16},
    {"h200", 128, 4096, 16, 0, 16},  {"h200", 128, 4096, 512, 0, 8},
    {"h200", 64, 1024, 4096, 0, 1},  {"rtx4090", 128, 1024, 8, 0, 0},
};

START_TEST(clusters_have_room_for_heads) {
  fatune_session *const session = emulator_open(clusters[_i].gpu, NULL);
  const struct ft_arch *const arch = &session->device.arch;
  struct ft_request request = {0};
  const struct ft_config config = ft_config_first(&ft_quantise_family);
  request.dtype = FT_BF16;
  request.head_dim = request.head_dim_v = clusters[_i].dim;
  const struct ft_budget budget = ft_budget_of(&request, &config, arch);
  ck_assert_int_eq(ft_quantise_cluster(ft_quantise_budget(&budget), clusters[_i].rows,
                                       clusters[_i].heads, clusters[_i].rotated, arch),
                   clusters[_i].cluster);
  fatune_session_close(session);
}
END_TEST

Suite *make_quantise_suite(void) {
  Suite *const suite = suite_create("quantise");
  TCase *const tests = tcase_create("all");
  tcase_set_timeout(tests, 240);
  tcase_add_loop_test(tests, bytes_times_descales_are_the_tensor, 0, EMULATOR_RUNS(runs));
  tcase_add_loop_test(tests, rows_side_by_side_are_right, 0, EMULATOR_RUNS(pairs));
  tcase_add_test(tests, rows_side_by_side_have_the_same_signs);
  tcase_add_loop_test(tests, clusters_take_heads_in_turn, 0, EMULATOR_RUNS(in_turn));
  tcase_add_test(tests, wrong_guesses_are_mended);
  tcase_add_loop_test(tests, blocks_that_are_too_early_are_seen, 0,
                      sizeof too_early / sizeof *too_early);
  tcase_add_loop_test(tests, clusters_have_room_for_heads, 0, sizeof clusters / sizeof *clusters);
  tcase_add_test(tests, nan_stays_nan);
  tcase_add_loop_test(tests, infinity_becomes_nan, 0, 6);
  tcase_add_test(tests, bad_arguments_are_named);
  suite_add_tcase(suite, tests);
  return suite;
}
