/* test_emulator_hopper.c: what the emulated device does of Hopper but wgmma: TMA, copies and
 * additions of bytes side by side, mbarriers, stmatrix, named barriers, setmaxnreg.
 * in -> out: random tensors and words -> copies, phases, turns, against the formulas of the PTX
 * manual. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/hopper_kernel.h"
#include "tests/suites.h"

#define ROOM(array) (sizeof(array) / sizeof *(array))
#define SEED        "(FATUNE_TEST_SEED=%llu)"

enum { GROUP = 128 };

/* ---- TMA ---- */

enum { BOXES = 12, BOX_ROWS = 24, BOX_BYTES = BOX_ROWS * 128 };

/* One thread asks for all boxes, all read what has landed: words of 16 bytes as they lie. */
static const char load_boxes[] =
    "const unsigned full = smem;\n"
    "if (thread == 0) {\n"
    "  mbarrier_init(full, 1);\n"
    "  mbarrier_init_fence();\n"
    "}\n"
    "__syncthreads();\n"
    "if (thread == 0) {\n"
    "  mbarrier_arrive_expect(full, 12 * 24 * 128);\n"
    "  for (int i = 0; i < 12; ++i)\n"
    "    tma_load(smem + 1024 + i * 24 * 128, maps[0], full, int(in[4 * i]), int(in[4 * i + 1]),\n"
    "             int(in[4 * i + 2]), int(in[4 * i + 3]));\n"
    "}\n"
    "mbarrier_wait(full, 0);\n"
    "for (int at = 16 * thread; at < 12 * 24 * 128; at += 16 * 64) {\n"
    "  unsigned r[4];\n"
    "  load_shared_16(r, smem + 1024 + at);\n"
    "  for (int i = 0; i < 4; ++i) out[at / 4 + i] = r[i];\n"
    "}";

/* Boxes inside, over every edge, and beside the tensor altogether. */
static void choose_boxes(int32_t boxes[BOXES][4], const struct hopper_tensor *tensor) {
  for (int box = 0; box < BOXES; box++) {
    boxes[box][0] = below(3) * PANEL_COLUMNS;
    boxes[box][1] = below((int)tensor->extents[1] + 2 * BOX_ROWS) - BOX_ROWS;
    boxes[box][2] = below((int)tensor->extents[2]);
    boxes[box][3] = below((int)tensor->extents[3]);
  }
  boxes[0][0] = -PANEL_COLUMNS / 2 - 3;
  boxes[1][2] = (int32_t)tensor->extents[2];
  boxes[2][3] = -1;
  boxes[3][1] = (int32_t)tensor->extents[1];
}

/* Chunk c of row r lies at c ^ r % 8; rows are counted from a multiple of 1024 bytes. */
static size_t element_in_box(int box, int row, int column) {
  const unsigned byte = (unsigned)(1024 + box * BOX_BYTES + row * 128 + column * 2);
  return (hopper_swizzled(byte) - 1024) / 2;
}

START_TEST(tma_loads_boxes_and_zeros) {
  struct hopper_tensor tensor = {.name = "X", .extents = {72, 45, 3, 2}, .box_rows = BOX_ROWS};
  int32_t boxes[BOXES][4];
  uint16_t out[BOXES * BOX_BYTES / 2];
  hopper_tensor_make(&tensor, FT_BF16, 8);
  choose_boxes(boxes, &tensor);
  hopper_run(FT_BF16, load_boxes, 64, &tensor, 1, boxes, BOXES * 4, out, ROOM(out) / 2);
  for (int n = 0; n < BOXES * BOX_BYTES / 2; n++) {
    const int box = n / (BOX_BYTES / 2), row = n / 64 % BOX_ROWS, column = n % 64;
    const uint16_t expected = hopper_at(&tensor, boxes[box][0] + column, boxes[box][1] + row,
                                        boxes[box][2], boxes[box][3]);
    const uint16_t got = out[element_in_box(box, row, column)];
    ck_assert_msg(got == expected, "box %d (%d, %d, %d, %d), row %d, column %d: %#x, not %#x " SEED,
                  box, boxes[box][0], boxes[box][1], boxes[box][2], boxes[box][3], row, column, got,
                  expected, (unsigned long long)random_seed);
  }
  free(tensor.host);
}
END_TEST

/* Each thread writes, one of them stores. Boxes do not overlap. */
static const char store_boxes[] =
    "for (int at = 4 * thread; at < 4 * 24 * 128; at += 4 * 64)\n"
    "  store_shared_4(smem + 1024 + at, in[16 + at / 4]);\n"
    "async_proxy_fence();\n"
    "__syncthreads();\n"
    "if (thread != 33) return;\n"
    "for (int i = 0; i < 4; ++i) {\n"
    "  tma_store(maps[0], smem + 1024 + i * 24 * 128, int(in[4 * i]), int(in[4 * i + 1]),\n"
    "            int(in[4 * i + 2]), int(in[4 * i + 3]));\n"
    "  tma_store_commit();\n"
    "}\n"
    "tma_store_wait_read<2>();\n"
    "tma_store_wait<0>();\n"
    "out[0] = 1;";

START_TEST(tma_stores_what_is_in_the_tensor) {
  struct hopper_tensor tensor = {
      .name = "X", .extents = {72, 45, 3, 2}, .box_rows = BOX_ROWS, .writable = true};
  int32_t boxes[4][4] = {{0, 30, 1, 0}, {64, 40, 2, 1}, {0, -7, 1, 1}, {-30, 8, 0, 0}};
  uint32_t in[16 + 4 * BOX_BYTES / 4], out[1];
  uint16_t image[4 * BOX_BYTES / 2];
  hopper_tensor_make(&tensor, FT_BF16, 8);
  boxes[0][1] += below(14);
  for (size_t w = 0; w < ROOM(in); w++) in[w] = random_word();
  memcpy(in, boxes, sizeof boxes);
  memcpy(image, in + 16, sizeof image);
  struct hopper_tensor expected = tensor;
  const size_t size = hopper_tensor_size(&tensor);
  expected.host = malloc(size * sizeof *expected.host);
  ck_assert_ptr_nonnull(expected.host);
  memcpy(expected.host, tensor.host, size * sizeof *expected.host);
  for (int n = 0; n < 4 * BOX_BYTES / 2; n++) {
    const int box = n / (BOX_BYTES / 2), row = n / 64 % BOX_ROWS, column = n % 64;
    const int64_t c = boxes[box][0] + column, r = boxes[box][1] + row;
    if (c < 0 || c >= 72 || r < 0 || r >= 45) continue;
    expected.host[(uint64_t)c + (uint64_t)r * tensor.strides[1] +
                  (uint64_t)boxes[box][2] * tensor.strides[2] +
                  (uint64_t)boxes[box][3] * tensor.strides[3]] =
        image[element_in_box(box, row, column)];
  }
  hopper_run(FT_BF16, store_boxes, 64, &tensor, 1, in, ROOM(in), out, 1);
  for (size_t i = 0; i < size; i++)
    ck_assert_msg(tensor.host[i] == expected.host[i], "element %zu: %#x, not %#x " SEED, i,
                  tensor.host[i], expected.host[i], (unsigned long long)random_seed);
  free(expected.host);
  free(tensor.host);
}
END_TEST

/* What changes between a load and its wait is loaded; a store is not there before its wait, which
 * leaves the youngest groups alone. */
START_TEST(tma_is_as_late_as_its_wait) {
  struct hopper_tensor tensor = {
      .name = "X", .extents = {64, 2, 1, 1}, .box_rows = 1, .writable = true};
  uint32_t in[3] = {random_word(), random_word(), random_word()}, out[6];
  hopper_tensor_make(&tensor, FT_BF16, 0);
  uint32_t before[2];
  for (int row = 0; row < 2; row++)
    memcpy(&before[row], tensor.host + 64 * row, sizeof before[row]);
  hopper_run(FT_BF16,
             "if (thread != 0) return;\n"
             "unsigned *const x = *reinterpret_cast<unsigned *const *>(&maps[0].opaque[1]);\n"
             "unsigned r[4];\n"
             "mbarrier_init(smem, 1);\n"
             "mbarrier_init_fence();\n"
             "mbarrier_arrive_expect(smem, 256);\n"
             "for (int row = 0; row < 2; ++row)\n"
             "  tma_load(smem + 1024 + 128 * row, maps[0], smem, 0, row, 0, 0);\n"
             "out[0] = *x;\n"
             "*x = in[0];\n"
             "mbarrier_wait(smem, 0);\n"
             "load_shared_16(r, smem + 1024);\n"
             "out[1] = r[0];\n"
             "store_shared_4(smem + 1024, in[1]);\n"
             "store_shared_4(smem + 1152 + 16, in[2]);\n" /* chunk 0 of row 1 */
             "async_proxy_fence();\n"
             "for (int row = 0; row < 2; ++row) {\n"
             "  tma_store(maps[0], smem + 1024 + 128 * row, 0, row, 0, 0);\n"
             "  tma_store_commit();\n"
             "}\n"
             "tma_store_wait<2>();\n"
             "out[2] = *x;\n"
             "tma_store_wait<1>();\n"
             "out[3] = *x, out[4] = x[32];\n"
             "tma_store_wait<0>();\n"
             "out[5] = x[32];",
             32, &tensor, 1, in, ROOM(in), out, ROOM(out));
  const uint32_t expected[] = {before[0], in[0], in[0], in[1], before[1], in[2]};
  for (size_t i = 0; i < ROOM(out); i++)
    ck_assert_msg(out[i] == expected[i], "word %zu: %#x, not %#x " SEED, i, out[i], expected[i],
                  (unsigned long long)random_seed);
  free(tensor.host);
}
END_TEST

/* ---- bytes side by side ---- */

/* 64 numbers are loaded, and added twice to those that are in `out`; numbers are small and whole,
 * sums are exact. */
static const char add_lines[] =
    "if (thread < 64) out[thread] = in[thread];\n"
    "if (thread == 0) {\n"
    "  mbarrier_init(smem, 1);\n"
    "  mbarrier_init_fence();\n"
    "}\n"
    "__syncthreads();\n"
    "if (thread != 0) return;\n"
    "float *const sums = reinterpret_cast<float *>(out);\n"
    "mbarrier_arrive_expect(smem, 256);\n"
    "bulk_load(smem + 1024, reinterpret_cast<const float *>(in + 64), 256, smem);\n"
    "mbarrier_wait(smem, 0);\n"
    "for (int i = 0; i < 2; ++i) {\n"
    "  bulk_add(sums + 16 * i, smem + 1024, 256 - 64 * i);\n"
    "  tma_store_commit();\n"
    "}\n"
    "tma_store_wait<2>();\n"
    "out[64] = out[0];\n"
    "tma_store_wait_read<1>();\n"
    "out[65] = out[0], out[66] = out[63];\n"
    "tma_store_wait<0>();";

static void make_numbers(uint32_t in[128]) {
  for (int i = 0; i < 128; i++) in[i] = bits_of((float)(below(2001) - 1000));
}

START_TEST(lines_are_loaded_and_added) {
  uint32_t in[128], out[67];
  make_numbers(in);
  hopper_run(FT_BF16, add_lines, 64, NULL, 0, in, ROOM(in), out, ROOM(out));
  for (int i = 0; i < 64; i++) {
    const float twice = i < 16 ? 0 : float_of(in[64 + i - 16]);
    const float expected = float_of(in[i]) + float_of(in[64 + i]) + twice;
    ck_assert_msg(float_of(out[i]) == expected, "number %d: %g, not %g " SEED, i,
                  (double)float_of(out[i]), (double)expected, (unsigned long long)random_seed);
  }
  ck_assert_uint_eq(out[64], in[0]); /* not before the wait, and the oldest first */
  ck_assert(float_of(out[65]) == float_of(in[0]) + float_of(in[64]));
  ck_assert(float_of(out[66]) == float_of(in[63]) + float_of(in[127]));
}
END_TEST

static const struct {
  const char *name, *piece, *other, *words;
} line_bugs[] = {
    {"no multiple of 16", "256 - 64 * i);", "256 - 60 * i);",
     "copies 196 bytes between shared address "},
    {"an address of 8", "(in + 64), 256", "(in + 66), 256", "allowed: multiples of 16"},
    {"fewer bytes expected", "expect(smem, 256)", "expect(smem, 240)",
     "loads 16 bytes more than the 240 that phase 0 "},
    {"not waited for", "mbarrier_wait(smem, 0);\n", "", "to which the TMA load of line "},
    {"added beyond the end", "sums + 16 * i,", "sums + 80 * i,",
     "past the end of an allocation of 268 bytes"},
    {"no proxy fence", "for (int i = 0; i < 2; ++i) {\n",
     "store_shared_4(smem + 1024, 0);\n"
     "for (int i = 0; i < 2; ++i) {\n",
     "no fence.proxy.async is between the two"},
    {"written before it was read", "out[64] = out[0]", "store_shared_4(smem + 1024, 0)",
     "no wait for that orders the two (race)"},
};

START_TEST(bugs_of_lines_are_caught) {
  uint32_t in[128], out[67];
  make_numbers(in);
  char *const body = hopper_edited(add_lines, line_bugs[_i].piece, line_bugs[_i].other);
  struct small_kernel kernel;
  hopper_open(&kernel, FT_BF16, body);
  const int status = hopper_launch(&kernel, 1, 64, NULL, 0, in, ROOM(in), out, ROOM(out));
  ck_assert_msg(status != FT_OK && strstr(ft_detail(), line_bugs[_i].words), "%s: %s",
                line_bugs[_i].name, status == FT_OK ? "not caught" : ft_detail());
  small_kernel_close(&kernel);
  free(body);
}
END_TEST

/* ---- tensor maps ---- */

struct map_arguments {
  int type;
  unsigned rank;
  uint64_t address;
  uint64_t extents[5], strides[4];
  unsigned box[5], steps[5];
  int interleave, swizzle, promotion, fill;
};

static cu_result encode(const struct ft_driver *driver, const struct map_arguments *a, void *map) {
  return driver->tensor_map_encode(map, a->type, a->rank, (void *)(uintptr_t)a->address, a->extents,
                                   a->strides, a->box, a->steps, a->interleave, a->swizzle,
                                   a->promotion, a->fill);
}

/* CUDA driver API, cuTensorMapEncodeTiled; CUresult 1 is an invalid value, 801 what is right, but
 * not emulated. */
START_TEST(tensor_maps_obey_the_documentation) {
  enum { INVALID = 1, NOT_SUPPORTED = 801 };
  const struct map_arguments right = {.type = 9,
                                      .rank = 4,
                                      .address = 4096 + 16,
                                      .extents = {72, UINT64_C(1) << 32, 1, 7},
                                      .strides = {144, 16, (UINT64_C(1) << 40) - 16},
                                      .box = {64, 256, 1, 1},
                                      .steps = {1, 1, 1, 1},
                                      .swizzle = 3};
  struct map_arguments wrong[18];
  for (size_t n = 0; n < ROOM(wrong); n++) wrong[n] = right;
  wrong[0].rank = 0, wrong[1].rank = 6;
  wrong[2].address += 8;
  wrong[3].extents[2] = 0, wrong[4].extents[1]++;
  wrong[5].strides[1] = 24, wrong[6].strides[2] += 16;
  wrong[7].box[1] = 257, wrong[8].box[3] = 0, wrong[9].box[0] = 60, wrong[10].box[0] = 72;
  wrong[11].promotion = 4, wrong[12].promotion = -1;
  wrong[13].type = 7, wrong[14].swizzle = 2, wrong[15].steps[1] = 2; /* not emulated */
  wrong[16].interleave = 1, wrong[17].fill = 1;
  _Alignas(64) unsigned char map[192];
  fatune_session *const session = emulator_open("h200", NULL);
  const struct ft_driver *const driver = &session->driver;
  ck_assert_int_eq(encode(driver, &right, map), 0);
  ck_assert_int_eq(encode(driver, &right, map + 32), INVALID);
  ck_assert_int_eq(encode(driver, &right, NULL), INVALID);
  for (size_t n = 0; n < ROOM(wrong); n++) {
    const cu_result result = encode(driver, &wrong[n], map + 64);
    ck_assert_msg(result == (n < 13 ? INVALID : NOT_SUPPORTED), "arguments %zu: %d", n, result);
  }
  fatune_session_close(session);
}
END_TEST

/* ---- stmatrix ---- */

/* Each matrix, 8 rows of 16 bytes anywhere in shared memory, by lane and word; in: where the rows
 * lie, then four registers of each lane. */
static void store_matrices(const char *store, uint32_t in[32 + 128], uint32_t out[128]) {
  char body[512];
  for (uint32_t i = 0; i < 32 + 128; i++) in[i] = i < 32 ? i : random_word();
  for (int i = 31; i > 0; i--) { /* rows lie anywhere */
    const int other = below(i + 1);
    const uint32_t kept = in[i];
    in[i] = in[other];
    in[other] = kept;
  }
  (void)snprintf(body, sizeof body,
                 "unsigned r[4];\n"
                 "for (int i = 0; i < 4; ++i) r[i] = in[32 + 4 * lane + i];\n"
                 "%s(smem + 16 * in[lane], r);\n"
                 "__syncwarp();\n"
                 "unsigned row[4];\n"
                 "load_shared_16(row, smem + 16 * in[lane]);\n"
                 "for (int i = 0; i < 4; ++i) out[4 * lane + i] = row[i];",
                 store);
  hopper_run(FT_BF16, body, 32, NULL, 0, in, 32 + 128, out, 128);
}

START_TEST(stmatrix_deals_rows_as_the_manual_says) {
  uint32_t in[32 + 128], out[128];
  store_matrices("stmatrix_x4", in, out);
  for (int n = 0; n < 128; n++) { /* row n / 4 % 8 of matrix n / 32, elements 2 (n % 4), + 1 */
    const int lane = n / 4 % 8 * 4 + n % 4, matrix = n / 32;
    ck_assert_msg(out[n] == in[32 + 4 * lane + matrix], "row %d, pair %d: %#x " SEED, n / 4, n % 4,
                  out[n], (unsigned long long)random_seed);
  }
}
END_TEST

START_TEST(stmatrix_trans_deals_columns_as_the_manual_says) {
  uint32_t in[32 + 128], out[128];
  store_matrices("stmatrix_x4_trans", in, out);
  for (int n = 0; n < 256; n++) { /* element n % 8 of row n / 8 % 8 of matrix n / 64, as stored */
    const int row = n % 8, column = n / 8 % 8; /* of the fragment */
    const uint32_t pair = in[32 + 4 * (row * 4 + column / 2) + n / 64];
    ck_assert_msg((out[n / 2] >> 16 * (n % 2) & 0xFFFFu) == (pair >> 16 * (column % 2) & 0xFFFFu),
                  "element %d: %#x " SEED, n, out[n / 2], (unsigned long long)random_seed);
  }
}
END_TEST

/* ---- mbarriers, named barriers ---- */

/* Three warps write a word each and arrive, a fourth reads them: round after round, two barriers.
 */
START_TEST(mbarriers_carry_data_phase_by_phase) {
  enum { ROUNDS = 7 };
  uint32_t in[ROUNDS * 96], out[ROUNDS * 96];
  for (size_t i = 0; i < ROOM(in); i++) in[i] = random_word();
  hopper_run(FT_BF16,
             "const unsigned full = smem, empty = smem + 8;\n"
             "if (thread == 64) mbarrier_init(full, 96), mbarrier_init(empty, 1);\n"
             "__syncthreads();\n"
             "for (int round = 0; round < 7; ++round) {\n"
             "  if (warp != 0) {\n"
             "    mbarrier_wait(empty, (round & 1) ^ 1);\n"
             "    store_shared_4(smem + 1024 + 4 * thread, in[96 * round + thread - 32]);\n"
             "    mbarrier_arrive(full);\n"
             "  } else {\n"
             "    mbarrier_wait(full, round & 1);\n"
             "    for (int i = 0; i < 3 && lane % 4 == 0; ++i) {\n"
             "      unsigned r[4];\n"
             "      load_shared_16(r, smem + 1024 + 4 * (32 + 32 * i + lane));\n"
             "      for (int j = 0; j < 4; ++j) out[96 * round + 32 * i + lane + j] = r[j];\n"
             "    }\n"
             "    __syncwarp();\n"
             "    if (lane == 0) mbarrier_arrive(empty);\n"
             "  }\n"
             "}",
             GROUP, NULL, 0, in, ROOM(in), out, ROOM(out));
  for (size_t i = 0; i < ROOM(in); i++) ck_assert_uint_eq(out[i], in[i]);
}
END_TEST

/* A word goes round among three warps; who has had it does not wait for the next. */
START_TEST(named_barriers_take_turns) {
  enum { ROUNDS = 5 };
  uint32_t in[1], out[1];
  in[0] = random_word();
  hopper_run(FT_BF16,
             "if (warp == 2) {\n"
             "  if (lane == 0) store_shared_4(smem, in[0]);\n"
             "  __syncwarp();\n"
             "  barrier_arrive(1, 64);\n"
             "}\n"
             "for (int round = 0; round < 5; ++round) {\n"
             "  barrier_sync(1 + warp, 64);\n"
             "  unsigned r[4];\n"
             "  if (lane == 0) {\n"
             "    for (int i = 1; i < 4 && round == 0; ++i) store_shared_4(smem + 4 * i, 0);\n"
             "    load_shared_16(r, smem);\n"
             "    store_shared_4(smem, r[0] * 3 + warp);\n"
             "  }\n"
             "  __syncwarp();\n"
             "  if (round < 4 || warp < 2) barrier_arrive(1 + (warp + 1) % 3, 64);\n"
             "}\n"
             "if (warp == 2 && lane == 0) {\n"
             "  unsigned r[4];\n"
             "  load_shared_16(r, smem);\n"
             "  out[0] = r[0];\n"
             "}",
             96, NULL, 0, in, ROOM(in), out, ROOM(out));
  uint32_t expected = in[0];
  for (uint32_t turn = 0; turn < 3 * ROUNDS; turn++) expected = expected * 3 + turn % 3;
  ck_assert_uint_eq(out[0], expected);
}
END_TEST

/* The consumers come first and wait until the last warpgroup has released what it has. */
START_TEST(registers_change_hands) {
  uint32_t in[1] = {0}, out[512];
  hopper_run(FT_BF16,
             "if (thread < 384) registers_claim<160>();\n"
             "else registers_release<32>();\n"
             "out[thread] = thread;",
             512, NULL, 0, in, 1, out, ROOM(out));
  for (uint32_t t = 0; t < 512; t++) ck_assert_uint_eq(out[t], t);
}
END_TEST

Suite *make_emulator_hopper_suite(void) {
  Suite *const suite = suite_create("emulator_hopper");
  TCase *const tests = tcase_create("hopper");
  tcase_add_test(tests, tma_loads_boxes_and_zeros);
  tcase_add_test(tests, tma_stores_what_is_in_the_tensor);
  tcase_add_test(tests, tma_is_as_late_as_its_wait);
  tcase_add_test(tests, lines_are_loaded_and_added);
  tcase_add_loop_test(tests, bugs_of_lines_are_caught, 0, (int)ROOM(line_bugs));
  tcase_add_test(tests, tensor_maps_obey_the_documentation);
  tcase_add_test(tests, stmatrix_deals_rows_as_the_manual_says);
  tcase_add_test(tests, stmatrix_trans_deals_columns_as_the_manual_says);
  tcase_add_test(tests, mbarriers_carry_data_phase_by_phase);
  tcase_add_test(tests, named_barriers_take_turns);
  tcase_add_test(tests, registers_change_hands);
  suite_add_tcase(suite, tests);
  return suite;
}
