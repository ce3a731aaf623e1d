/* test_emulator_ops.c: what threads do together on the emulated device: shared memory, ldmatrix,
 * shuffles, votes, asynchronous copies, atomics, indices; and what it finds fault with.
 * in -> out: small kernels -> words, against the formulas of the PTX manual; messages. */
#include <stdlib.h>
#include <string.h>

#include "tests/emulator_kernel.h"
#include "tests/suites.h"

#define ROOM(array) (sizeof(array) / sizeof *(array))

static void fill(uint32_t *words, size_t count) {
  for (size_t i = 0; i < count; i++) words[i] = random_word();
}

static void expect_word(const char *what, int lane, uint32_t got, uint32_t expected) {
  ck_assert_msg(got == expected, "%s, lane %d: %#x, not %#x (FATUNE_TEST_SEED=%llu)", what, lane,
                got, expected, (unsigned long long)random_seed);
}

/* ---- indices ---- */

START_TEST(every_thread_knows_where_it_is) {
  enum { GRID = 5, THREADS = 96 };
  uint32_t in[1] = {0}, out[GRID * THREADS * 4];
  struct small_kernel kernel;
  small_kernel_open(&kernel, "a100", FT_BF16,
                    "unsigned *const mine = out + (blockIdx.x * blockDim.x + threadIdx.x) * 4;\n"
                    "mine[0] = threadIdx.x, mine[1] = blockIdx.x, mine[2] = blockDim.x;\n"
                    "mine[3] = gridDim.x + threadIdx.y + threadIdx.z + blockIdx.y + blockIdx.z;");
  const int status = small_kernel_launch(&kernel, GRID, THREADS, in, 1, out, ROOM(out));
  ck_assert_msg(status == FT_OK, "%s", ft_detail());
  for (uint32_t n = 0; n < GRID * THREADS; n++) {
    ck_assert_uint_eq(out[4 * n], n % THREADS);
    ck_assert_uint_eq(out[4 * n + 1], n / THREADS);
    ck_assert_uint_eq(out[4 * n + 2], THREADS);
    ck_assert_uint_eq(out[4 * n + 3], GRID);
  }
  small_kernel_close(&kernel);
}
END_TEST

/* ---- ldmatrix ---- */

/* Rows lie in shared memory in any order; in[256 + i] says where row i % 8 of matrix i / 8 is. */
#define LOAD_MATRICES                                                                              \
  "for (int i = 0; i < 4; ++i) store_shared_4(smem + in[256 + lane] * 16 + i * 4, in[lane * 4 + "  \
  "i]);\n"                                                                                         \
  "__syncwarp();\n"                                                                                \
  "unsigned r[4];\n"

static void fill_matrices(uint32_t in[288], uint16_t matrices[4][8][8]) {
  fill(in, 256);
  for (uint32_t i = 0; i < 32; i++) in[256 + i] = i;
  for (int i = 31; i > 0; i--) {
    const int other = below(i + 1);
    const uint32_t kept = in[256 + i];
    in[256 + i] = in[256 + other];
    in[256 + other] = kept;
  }
  for (int n = 0; n < 256; n++)
    matrices[n / 64][n / 8 % 8][n % 8] = (uint16_t)(in[n / 2] >> 16 * (n % 2));
}

START_TEST(ldmatrix_deals_rows_as_the_manual_says) {
  uint32_t in[288], out[128];
  uint16_t m[4][8][8];
  fill_matrices(in, m);
  small_kernel_run(LOAD_MATRICES "ldmatrix_x4(r, smem + in[256 + lane] * 16);\n"
                                 "for (int i = 0; i < 4; ++i) out[lane * 4 + i] = r[i];",
                   in, ROOM(in), out, ROOM(out));
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++)
      expect_word("ldmatrix", lane, out[lane * 4 + i],
                  m[i][lane / 4][lane % 4 * 2] | (uint32_t)m[i][lane / 4][lane % 4 * 2 + 1] << 16);
}
END_TEST

START_TEST(ldmatrix_transposes) {
  uint32_t in[288], out[128];
  uint16_t m[4][8][8];
  fill_matrices(in, m);
  small_kernel_run(LOAD_MATRICES "ldmatrix_x4_trans(r, smem + in[256 + lane] * 16);\n"
                                 "for (int i = 0; i < 4; ++i) out[lane * 4 + i] = r[i];",
                   in, ROOM(in), out, ROOM(out));
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++)
      expect_word("ldmatrix.trans", lane, out[lane * 4 + i],
                  m[i][lane % 4 * 2][lane / 4] | (uint32_t)m[i][lane % 4 * 2 + 1][lane / 4] << 16);
}
END_TEST

/* ---- shuffles, votes, reductions ---- */

START_TEST(shuffles_exchange_lanes) {
  static const unsigned masks[] = {1, 2, 4, 8, 16, 31, 0, 21};
  uint32_t in[32], out[8 * 32];
  fill(in, ROOM(in));
  small_kernel_run("const int masks[] = {1, 2, 4, 8, 16, 31, 0, 21};\n"
                   "for (int i = 0; i < 8; ++i)\n"
                   "  out[i * 32 + lane] = __shfl_xor_sync(0xffffffffu, in[lane], masks[i]);\n"
                   "const float x = __shfl_xor_sync(0xffffffffu, float(lane), 3);\n"
                   "if (x != float(lane ^ 3)) out[lane] = 0;",
                   in, ROOM(in), out, ROOM(out));
  for (unsigned i = 0; i < 8; i++)
    for (unsigned lane = 0; lane < 32; lane++)
      expect_word("shuffle", (int)lane, out[i * 32 + lane], in[lane ^ masks[i]]);
}
END_TEST

/* Votes over the bits of in[0 .. 31]: bit b of every word, for b of 8. */
START_TEST(votes_ask_all_lanes) {
  uint32_t in[32], out[4 * 32];
  fill(in, ROOM(in));
  for (int lane = 0; lane < 32; lane++) in[lane] = (in[lane] | 0x1u) & ~0x2u; /* all, none */
  in[below(32)] &= ~0x4u, in[below(32)] |= 0x8u;
  small_kernel_run("unsigned any = 0, all = 0;\n"
                   "for (int bit = 0; bit < 8; ++bit) {\n"
                   "  any |= (__any_sync(0xffffffffu, in[lane] >> bit & 1) != 0) << bit;\n"
                   "  all |= (__all_sync(0xffffffffu, in[lane] >> bit & 1) != 0) << bit;\n"
                   "}\n"
                   "out[lane] = any, out[32 + lane] = all, out[64 + lane] = uniform(in[lane]);\n"
                   "out[96 + lane] = uniform(1u << lane);",
                   in, ROOM(in), out, ROOM(out));
  uint32_t any = 0, all = 0xFFFFFFFFu;
  for (int lane = 0; lane < 32; lane++) any |= in[lane], all &= in[lane];
  for (int lane = 0; lane < 32; lane++) {
    expect_word("any", lane, out[lane], any & 0xFF);
    expect_word("all", lane, out[32 + lane], all & 0xFF);
    expect_word("redux.or", lane, out[64 + lane], any);
    expect_word("redux.or", lane, out[96 + lane], 0xFFFFFFFFu);
  }
}
END_TEST

/* ---- shared memory among warps ---- */

START_TEST(barriers_carry_data_between_warps) {
  enum { THREADS = 256 };
  uint32_t in[THREADS], out[THREADS];
  struct small_kernel kernel;
  fill(in, ROOM(in));
  small_kernel_open(&kernel, "a100", FT_BF16,
                    "unsigned *const array = reinterpret_cast<unsigned *>(shared);\n"
                    "array[threadIdx.x] = in[threadIdx.x];\n"
                    "__syncthreads();\n"
                    "const unsigned other = array[blockDim.x - 1 - threadIdx.x];\n"
                    "__syncthreads();\n"
                    "store_shared_4(smem + threadIdx.x * 4, other);\n"
                    "__syncthreads();\n"
                    "if (threadIdx.x % 4 != 0) return;\n"
                    "unsigned r[4];\n"
                    "load_shared_16(r, smem + threadIdx.x * 4);\n"
                    "store_global_16(reinterpret_cast<element *>(out + threadIdx.x), r);");
  const int status = small_kernel_launch(&kernel, 1, THREADS, in, ROOM(in), out, ROOM(out));
  ck_assert_msg(status == FT_OK, "%s", ft_detail());
  for (int t = 0; t < THREADS; t++) expect_word("thread", t, out[t], in[THREADS - 1 - t]);
  small_kernel_close(&kernel);
}
END_TEST

START_TEST(the_next_block_finds_nothing_in_shared_memory) {
  uint32_t in[32] = {0}, out[64];
  struct small_kernel kernel;
  small_kernel_open(&kernel, "a100", FT_BF16,
                    "unsigned r[4] = {0, 0, 0, 0};\n"
                    "if (blockIdx.x == 0) store_shared_4(smem + lane * 4, 1);\n"
                    "__syncthreads();\n"
                    "if (lane % 4 == 0) load_shared_16(r, smem + lane * 4);\n"
                    "out[blockIdx.x * 32 + lane] = r[0];");
  ck_assert_int_eq(small_kernel_launch(&kernel, 2, 32, in, ROOM(in), out, ROOM(out)), FT_E_DEVICE);
  ck_assert_msg(strstr(ft_detail(),
                       "block 1, warp 0, lane 0: reads shared memory at offset 0, which "
                       "was never written") != NULL,
                "%s", ft_detail());
  small_kernel_close(&kernel);
}
END_TEST

/* ---- asynchronous copies ---- */

#define AT "smem + lane * 16, reinterpret_cast<element *>(in + lane * 4)"

static void expect_rows(const uint32_t *out, const uint32_t *expected) {
  for (int n = 0; n < 128; n++) expect_word("copied word", n, out[n], expected[n]);
}

#define READ_BACK                                                                                  \
  "unsigned r[4];\n"                                                                               \
  "load_shared_16(r, smem + lane * 16);\n"                                                         \
  "for (int i = 0; i < 4; ++i) out[lane * 4 + i] = r[i];"

START_TEST(a_copy_is_there_behind_its_wait) {
  uint32_t in[128], out[128], expected[128];
  fill(in, ROOM(in));
  memcpy(expected, in, sizeof in);
  for (int n = 64; n < 128; n++) expected[n] = 0;
  small_kernel_run("copy_16(" AT ", lane < 16);\n"
                   "commit_copies();\n"
                   "wait_copies<0>();\n" READ_BACK,
                   in, ROOM(in), out, ROOM(out));
  expect_rows(out, expected);
}
END_TEST

/* The source changes between copy and wait: the latest that may happen is what happens. */
START_TEST(a_copy_is_as_late_as_its_wait) {
  uint32_t in[128], out[128], expected[128];
  fill(in, ROOM(in));
  for (int n = 0; n < 128; n++) expected[n] = (uint32_t)n;
  small_kernel_run("copy_16(" AT ", true);\n"
                   "commit_copies();\n"
                   "for (int i = 0; i < 4; ++i) in[lane * 4 + i] = lane * 4 + i;\n"
                   "wait_copies<0>();\n" READ_BACK,
                   in, ROOM(in), out, ROOM(out));
  expect_rows(out, expected);
}
END_TEST

/* Three groups, of which a wait leaves two, one, none under way: the source counts time. */
START_TEST(groups_arrive_in_order) {
  uint32_t in[128], out[3 * 32];
  fill(in, ROOM(in));
  small_kernel_run("for (int group = 0; group < 3; ++group) {\n"
                   "  copy_16(smem + group * 512 + lane * 16, reinterpret_cast<element *>(in + "
                   "lane * 4), true);\n"
                   "  commit_copies();\n"
                   "}\n"
                   "in[lane * 4] = 0; wait_copies<2>();\n"
                   "in[lane * 4] = 1; wait_copies<1>();\n"
                   "in[lane * 4] = 2; wait_copies<0>();\n"
                   "for (int group = 0; group < 3; ++group) {\n"
                   "  unsigned r[4];\n"
                   "  load_shared_16(r, smem + group * 512 + lane * 16);\n"
                   "  out[group * 32 + lane] = r[0];\n"
                   "}",
                   in, ROOM(in), out, ROOM(out));
  for (uint32_t n = 0; n < 96; n++) expect_word("group", (int)n, out[n], n / 32);
}
END_TEST

START_TEST(sm_75_copies_at_once) {
  uint32_t in[128], out[128], expected[128];
  struct small_kernel kernel;
  fill(in, ROOM(in));
  memcpy(expected, in, sizeof in);
  for (int n = 0; n < 128; n += 8) memset(expected + n, 0, 16);
  small_kernel_open(&kernel, "t4", FT_FP16, "copy_16(" AT ", lane % 2 == 1);\n" READ_BACK);
  const int status = small_kernel_launch(&kernel, 1, 32, in, ROOM(in), out, ROOM(out));
  ck_assert_msg(status == FT_OK, "%s", ft_detail());
  expect_rows(out, expected);
  small_kernel_close(&kernel);
}
END_TEST

START_TEST(sm_75_has_no_reduction) {
  uint32_t in[32], out[32];
  struct small_kernel kernel;
  fill(in, ROOM(in));
  small_kernel_open(&kernel, "t4", FT_FP16, "out[lane] = uniform(in[lane]);");
  ck_assert_int_eq(small_kernel_launch(&kernel, 1, 32, in, ROOM(in), out, ROOM(out)), FT_OK);
  for (int lane = 0; lane < 32; lane++) expect_word("uniform", lane, out[lane], in[lane]);
  small_kernel_close(&kernel);
}
END_TEST

/* ---- atomics ---- */

START_TEST(atomics_of_all_blocks_add_up) {
  enum { GRID = 7, THREADS = 64, ALL = GRID * THREADS };
  uint32_t in[ALL], out[5 + ALL];
  struct small_kernel kernel;
  fill(in, ROOM(in));
  small_kernel_open(&kernel, "a100", FT_BF16,
                    "const unsigned n = blockIdx.x * blockDim.x + threadIdx.x;\n"
                    "if (n == 0) out[0] = out[1] = out[3] = out[4] = 0, out[2] = 0xffffffffu;\n"
                    "atomicAdd(&out[0], in[n]);\n"
                    "atomicMax(&out[1], in[n]), atomicMin(&out[2], in[n]);\n"
                    "atomicAdd(reinterpret_cast<float *>(&out[3]), 1.5f);\n"
                    "out[5 + n] = atomicExch(&out[4], n + 1);");
  const int status = small_kernel_launch(&kernel, GRID, THREADS, in, ROOM(in), out, ROOM(out));
  ck_assert_msg(status == FT_OK, "%s", ft_detail());
  uint32_t sum = 0, most = 0, least = 0xFFFFFFFFu;
  bool taken[ALL + 1] = {false};
  for (int n = 0; n < ALL; n++) {
    sum += in[n];
    most = in[n] > most ? in[n] : most;
    least = in[n] < least ? in[n] : least;
    ck_assert(out[5 + n] <= ALL && !taken[out[5 + n]]); /* each is exchanged for once */
    taken[out[5 + n]] = true;
  }
  expect_word("sum", 0, out[0], sum);
  expect_word("most", 0, out[1], most);
  expect_word("least", 0, out[2], least);
  ck_assert_float_eq(float_of(out[3]), 1.5F * ALL);
  small_kernel_close(&kernel);
}
END_TEST

/* The words are set by plain stores, which a library under AddressSanitizer does not see. */
START_TEST(atomics_of_a_block_add_up_in_shared_memory) {
  enum { THREADS = 64 };
  uint32_t in[THREADS], out[2], sums[2] = {0, 0};
  struct small_kernel kernel;
  fill(in, ROOM(in));
  small_kernel_open(&kernel, "a100", FT_BF16,
                    "const unsigned n = threadIdx.x;\n"
                    "unsigned *const sums = reinterpret_cast<unsigned *>(shared);\n"
                    "if (n < 2) sums[n] = 0;\n"
                    "__syncthreads();\n"
                    "atomicAdd(&sums[n % 2], in[n]);\n"
                    "__syncthreads();\n"
                    "if (n < 2) out[n] = sums[n];");
  const int status = small_kernel_launch(&kernel, 1, THREADS, in, ROOM(in), out, ROOM(out));
  ck_assert_msg(status == FT_OK, "%s", ft_detail());
  for (int n = 0; n < THREADS; n++) sums[n % 2] += in[n];
  for (int n = 0; n < 2; n++) expect_word("sum", n, out[n], sums[n]);
  small_kernel_close(&kernel);
}
END_TEST

/* ---- faults ---- */

static const struct {
  const char *body;
  int line;
  const char *words;
} faults[] = {
    {"__syncwarp();\nif (lane != 7) __syncwarp();", 2,
     "waits at __syncwarp for its warp, but lane 7 has ended"},
    {"if (lane < 9) __syncwarp();\nelse out[lane] = __any_sync(0xffffffffu, 1);", 2,
     "a vote is for the whole warp, but lane 0 is at __syncwarp in line "},
    {"out[lane] = __shfl_xor_sync(0x0000ffffu, 1, 1);", 1,
     "names a part of the warp; only the mask 0xffffffff is emulated"},
    {"out[lane] = __shfl_xor_sync(0xffffffffu, 1, 32);", 1, "shuffles beyond the warp"},
    {"unsigned a[4];\nfloat c[4] = {};\nmma_m16n8k16(c, a, lane, lane);\nout[lane] = c[0] > 0;", 3,
     "uses operand a[0] of a product, a register that was never written"},
    {"unsigned a[4] = {}, b[2];\nfloat c[4] = {};\nmma_m16n8k16(c, a, b[0], b[1]);\n"
     "out[lane] = c[0] > 0;",
     3, "uses operand b[0] of a product, a register that was never written"},
    {"store_shared_4(smem + lane * 4 + 2, 1);", 1, "at offset 2, which is no multiple of 4"},
    {"store_shared_4(smem - 4, 1);", 1,
     "writes 4 bytes of shared memory at offset -4; the block has "},
    {"store_shared_4(smem + 4 * (lane / 2), lane);", 1,
     "writes shared memory at offset 0, which warp 0, lane 0 writes in line "},
    {"unsigned r[4];\nstore_shared_4(smem + 4 * lane, lane);\n"
     "load_shared_16(r, smem + lane / 4 * 16);\nout[lane] = r[0];",
     3, "reads shared memory at offset "},
    {"unsigned r[4];\nstore_shared_4(smem + 4 * lane, lane);\n__syncwarp();\n"
     "if (lane == 0) load_shared_16(r, smem + 16);\nif (lane == 5) store_shared_4(smem + 20, 1);",
     5, "writes shared memory at offset "},
    {"unsigned r[4];\nldmatrix_x4(r, smem + 16 * lane + 8);", 2, "which is no multiple of 16"},
    {"copy_16(smem + 16 * lane, reinterpret_cast<element *>(in + 1), true);", 1, "reads 16 bytes"},
    {"copy_16(smem, reinterpret_cast<element *>(in), lane == 3);", 1, "still under way"},
    {"copy_16(" AT ", true);\ncommit_copies();\nwait_copies<1>();\nunsigned r[4];\n"
     "load_shared_16(r, smem + lane * 16);\nout[lane] = r[0];",
     5, "still under way: no wait orders it"},
    {"copy_16(" AT ", true);\nwait_copies<0>();\nunsigned r[4];\n"
     "load_shared_16(r, smem + lane * 16);\nout[lane] = r[0];",
     4, "still under way: no wait orders it"},
    {"const unsigned r[4] = {1, 2, 3, 4};\n"
     "store_global_16(reinterpret_cast<element *>(out + 1022), r);",
     2, "writes 16 bytes"},
};

START_TEST(faults_name_their_line) {
  small_kernel_fault(faults[_i].body, faults[_i].line, faults[_i].words);
}
END_TEST

/* What only the hooks in plain loads and stores see. */
static const struct {
  const char *body;
  int line;
  const char *words;
} plain_faults[] = {
    {"shared[8 * lane] = 1;\n__syncwarp();\nout[lane] = shared[8 * lane + 2];", 3,
     "which was never written"},
    {"out[1024 + lane] = 1;", 1, "writes 4 bytes"},
    {"int sum = 0;\nfor (int i = 0; i < 2000; ++i)\n  sum += in[i];\nout[lane] = sum;", 3,
     "reads 4 bytes"},
    {"out[lane] = *reinterpret_cast<unsigned *>(reinterpret_cast<char *>(in) + 2);", 1,
     "reads 4 bytes"},
    {"shared[2 * (lane / 2)] = lane;", 1, "writes shared memory at offset 0, which warp 0, lane 0"},
    {"unsigned r[4];\nif (lane > in[0] + 32) load_shared_16(r, smem);\nout[lane] = r[in[0]];", 3,
     "reads a variable that was never written"},
};

START_TEST(plain_faults_name_their_line) {
  setenv("FATUNE_EMULATOR_HOOKS", "1", 1);
  small_kernel_fault(plain_faults[_i].body, plain_faults[_i].line, plain_faults[_i].words);
}
END_TEST

Suite *make_emulator_ops_suite(void) {
  Suite *const suite = suite_create("emulator_ops");
  TCase *const tests = tcase_create("ops");
  tcase_add_test(tests, every_thread_knows_where_it_is);
  tcase_add_test(tests, ldmatrix_deals_rows_as_the_manual_says);
  tcase_add_test(tests, ldmatrix_transposes);
  tcase_add_test(tests, shuffles_exchange_lanes);
  tcase_add_test(tests, votes_ask_all_lanes);
  tcase_add_test(tests, barriers_carry_data_between_warps);
  tcase_add_test(tests, the_next_block_finds_nothing_in_shared_memory);
  tcase_add_test(tests, a_copy_is_there_behind_its_wait);
  tcase_add_test(tests, a_copy_is_as_late_as_its_wait);
  tcase_add_test(tests, groups_arrive_in_order);
  tcase_add_test(tests, sm_75_copies_at_once);
  tcase_add_test(tests, sm_75_has_no_reduction);
  tcase_add_test(tests, atomics_of_all_blocks_add_up);
  tcase_add_test(tests, atomics_of_a_block_add_up_in_shared_memory);
  tcase_add_loop_test(tests, faults_name_their_line, 0, (int)ROOM(faults));
  tcase_add_loop_test(tests, plain_faults_name_their_line, 0, (int)ROOM(plain_faults));
  suite_add_tcase(suite, tests);
  return suite;
}
