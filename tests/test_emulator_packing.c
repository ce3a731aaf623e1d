/* test_emulator_packing.c: query heads that share the rows of tiles (pack_gqa).
 * in -> out: five-dimensional tensor maps -> boxes, against their formula; requests -> every row
 * against float64; bugs planted into what knows of packing -> all seen. */
#include <stdio.h>
#include <string.h>

#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/tensor_map.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"

#define CONFIG(m, n, q, more)                                                                      \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=2 q_stages=" #q " " more " pack_gqa=1"
#define STAGED CONFIG(128, 64, 2, "overlap_tiles=1 pingpong=1 lazy_rescale=1")
#define DIRECT CONFIG(64, 128, 1, "overlap_tiles=1 integer_max=1 direct_store=1")

#define CLUSTER CONFIG(64, 64, 1, "direct_store=1") " split_keys=8"
#define SPLIT   CONFIG(64, 64, 1, "direct_store=1") " split_keys=1"
#define FEW(more)                                                                                  \
  "mma_forward block_m=16 block_n=64 warps=4 stages=2 key_warps=4 pack_gqa=1 ctas_per_sm=1" more

/* ---- boxes ---- */

enum { FLOAT16 = 6, RANK = 5 };

static const uint64_t extents[RANK] = {72, 4, 13, 3, 2};
static const uint64_t strides[RANK - 1] = {160, 2080, 640, 32768}; /* bytes */
static const unsigned box_extents[RANK] = {64, 4, 16, 1, 1};
static const int at[RANK] = {64, 0, 3, 2, 1};

static void make_map(uint64_t opaque[16], uint64_t address) {
  const unsigned steps[RANK] = {1, 1, 1, 1, 1};
  ck_assert_int_eq(ft_emulator_tensor_map_encode(opaque, FLOAT16, RANK, (void *)(uintptr_t)address,
                                                 extents, strides, box_extents, steps, 0,
                                                 FT_SWIZZLE_128B, 0, 0),
                   0);
}

START_TEST(boxes_have_five_dimensions) {
  _Alignas(64) uint64_t opaque[16];
  const uint64_t address = 1 << 20;
  const uint32_t shared = 4096;
  struct fe_place place = {.rank = RANK};
  struct ft_box box;
  char what[256];
  make_map(opaque, address);
  memcpy(place.index, at, sizeof at);
  ck_assert_ptr_null(ft_box_make(&box, opaque, shared, &place, what));
  ck_assert_int_eq(box.rows, 64);
  for (int row = 0; row < 64; row++) { /* the members of a pack first, then queries */
    const struct ft_box_row got = ft_box_row(&box, row);
    const uint64_t member = (uint64_t)row % 4, query = 3 + (uint64_t)row / 4;
    ck_assert_uint_eq(got.shared, shared + 128 * (uint32_t)row);
    ck_assert_int_eq(got.end, query < 13 ? 16 : 0); /* 8 of the columns are left */
    if (query < 13)
      ck_assert_uint_eq(got.global, address + 128 + member * 160 + query * 2080 + 2 * 640 + 32768);
  }
}
END_TEST

START_TEST(coordinates_are_as_many_as_dimensions) {
  _Alignas(64) uint64_t opaque[16];
  const struct fe_place four = {4, {0}};
  struct ft_box box;
  char what[256];
  make_map(opaque, 1 << 20);
  const char *const fault = ft_box_make(&box, opaque, 4096, &four, what);
  ck_assert_str_eq(fault, "takes 4 coordinates, but the tensor map has rank 5");
}
END_TEST

/* ---- runs ---- */

static const struct {
  const char *request, *config;
} runs[] = {
    {"bf16 d128 hq8 hkv2 nq5 nk700 causal", STAGED},
    {"fp16 d64 dv40 hq16 hkv1 b2 nq17 nk115 causal=top-left", STAGED},
    {"bf16 d40 hq4 hkv2 b2 nq229 nk63 causal", DIRECT},
    {"bf16 d64 hq64 hkv1 b2 nq3 nk130", DIRECT},
    {"fp16 d256 hq16 hkv2 nq1 nk229", CONFIG(64, 64, 1, "overlap_tiles=1 direct_store=1")},
    {"bf16 d64 hq6 hkv1 nq70 nk115 causal", STAGED}, /* pairs of three heads' */
    {"bf16 d64 hq6 hkv2 nq70 nk115 causal", STAGED}, /* nothing to pack */
    /* Groups that are no powers of two, whose queries have rows of no head. */
    {"bf16 d64 hq10 hkv2 b2 nq3 nk300 causal sinks", STAGED},
    {"fp16 d40 hq21 hkv3 nq5 nk229 dropout", DIRECT},
    {"bf16 d64 hq33 hkv1 b2 nq1 nk300 sinks", DIRECT},
    {"bf16 o=fp32 d64 hq10 hkv2 nq2 nk300", DIRECT},
    {"bf16 d64 hq12 hkv2 b2 nq2 nk700", CLUSTER},
    {"bf16 d64 hq14 hkv2 nq2 nk9000 causal", SPLIT},
    {"bf16 d64 hq14 hkv2 b9 nq1 nk700 pages=16 sinks", SPLIT},
    {"bf16 d64 hq10 hkv2 b9 nq1 nk700 pages=16 sinks", FEW(" split_keys=1")},
    {"bf16 d64 hq14 hkv2 b2 nq2 nk700 kv=e4m3 causal", FEW("")},
    {"fp16 d64 hq6 hkv2 nq3 nk9000 dropout sinks", FEW(" split_keys=1")},
    {"bf16 d64 hq12 hkv2 nq2 nk700 window@300,0", FEW(" split_keys=4")},
    {"bf16 d128 hq8 hkv1 b2 nq60 nk300",
     CONFIG(192, 80, 1, "overlap_tiles=1 direct_store=1 multicast=1")},
    {"bf16 d64 hq8 hkv2 nq100 nk300 causal", CONFIG(128, 64, 1, "lpt=1")},
    {"bf16 d64 hq8 hkv2 b2 nq90 nk300 causal dropout", STAGED},
    {"fp16 d40 hq6 hkv1 nq75 nk240 dropout mask=64x80@0.5", CONFIG(64, 80, 1, "direct_store=1")},
    {"bf16 d64 hq16 hkv2 b2 nq200 nk400 causal mask=128x128@0.4", STAGED},
};

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  struct ft_problem_options options =
      emulator_options(runs[number].request, (enum ft_layout)(number % 3), emulator_seed());
  options.want_lse = true;
  options.broadcast_mask = number % 2 == 1; /* else nothing is packed under a mask */
  struct emulator_run run;
  emulator_run_alone(&run, NULL, &options, runs[number].config);
  emulator_expect_right(runs[number].request, &run);
  emulator_run_free(&run);
}
END_TEST

/* ---- bugs ---- */

/* None leaves the tensors, where only a sanitizer would see it. */
static const struct {
  const char *file, *piece, *other, *config;
} bugs[] = {
    {"parts/rows_of_heads.cu.in", "return i & ((1 << pack_bits_of(sequence)) - 1);", "return 0;",
     STAGED},
    {"parts/rows_of_heads.cu.in", "return i >> pack_bits_of(sequence);",
     "return i >> pack_bits_of(sequence) & ~1;", DIRECT},
    {"parts/sequence_rows.cu.in", "query_of(sequence, sequence.nq) +", "1 +", STAGED},
    {"parts/rows_of_heads.cu.in", "pack * heads_of_pack(sequence)", "pack", DIRECT},
    {"parts/visibility.cu.in", "const int query = query_of(sequence, i);", "const int query = i;",
     STAGED},
    {"parts/rows_packed.cu.in", "params.q, barrier, column, 0, query_of(params.rest.sequence, row)",
     "params.q, barrier, column, 0, row", STAGED},
    {"parts/rows_packed.cu.in", "params.o, from, column, 0, query_of(params.rest.sequence, row)",
     "params.o, from, column, 0, row", STAGED},
    {"parts/store_o_staged.cu.in", "work.q0 + consumer * 64", "work.q0", STAGED},
};

/* Of rows of no head. */
static const struct {
  const char *request, *file, *piece, *other, *config;
} empty_rows[] = {
    {"hq10 hkv2 nq3 nk300", "parts/rows_of_heads.cu.in", "place_in_pack(sequence, i) <", "0 <",
     DIRECT},
    {"hq10 hkv2 nq3 nk300 sinks", "parts/rows_of_heads.cu.in", ", heads_of_pack(sequence) - 1)",
     ", 1 << 24)", STAGED},
    {"hq10 hkv2 nq3 nk300", "parts/rows_of_heads.cu.in", "pack * heads_of_pack(sequence)",
     "(pack << pack_bits_of(sequence))", DIRECT},
    {"hq10 hkv2 nq3 nk300", "parts/sequence_rows.cu.in", "return heads_of_pack(sequence) * query",
     "return (1 << pack_bits_of(sequence)) * query", DIRECT},
    {"hq10 hkv2 b9 nq1 nk700 pages=16", "parts/merge_parts.cu.in",
     " && is_of_head(params.sequence, i)", "", SPLIT},
    {"hq10 hkv2 nq1 nk9000", "parts/epilogue_shared_rows.cu.in",
     "if (!is_of_head(params.sequence, tile.q0 + row)) return;", "", FEW(" split_keys=1")},
    {"hq10 hkv2 b2 nq1 nk300", "parts/merge_four.cu.in", "if (!is_of_head(sequence, i)) return;",
     "", FEW("")},
};

/* Who stores last where two store is not the same in each run. */
START_TEST(bugs_of_empty_rows_are_seen) {
  enum { TRIES = 12 };
  const size_t number = EMULATOR_CHOOSE(_i, empty_rows);
  const struct planted planted =
      emulator_plant(empty_rows[number].file, empty_rows[number].piece, empty_rows[number].other);
  char request[128];
  (void)snprintf(request, sizeof request, "bf16 d64 %s", empty_rows[number].request);
  struct ft_problem_options options = emulator_options(request, FT_LAYOUT_PADDED, emulator_seed());
  options.want_lse = true;
  ck_assert_msg(emulator_sees(&planted, &options, empty_rows[number].config, TRIES),
                "'%s' is not seen", empty_rows[number].other);
  emulator_unplant(&planted);
}
END_TEST

/* Of rows that are dropped, and of blocks, each by itself. */
static const struct {
  const char *request, *file, *piece, *other;
} dropped[] = {
    {"dropout", "parts/dropout_rows_packed.cu.in", "query / 32 * 8 + query % 8",
     "i / 32 * 8 + i % 8"},
    {"dropout", "parts/dropout_rows_packed.cu.in", "query / 8 % 2", "i / 8 % 2"},
    {"dropout", "parts/dropout_rows_packed.cu.in", "query / 16 % 2", "i / 16 % 2"},
    {"dropout", "parts/dropout_rows_packed.cu.in", "head_of(sequence, pack, i)", "pack"},
    {"mask=64x64@0.5", "parts/key_walk_blocks.cu.in", "MASK_ROWS / BLOCK_M << pack_bits",
     "MASK_ROWS / BLOCK_M"},
};

START_TEST(bugs_of_dropout_and_masks_are_seen) {
  const size_t number = EMULATOR_CHOOSE(_i, dropped);
  const struct planted planted =
      emulator_plant(dropped[number].file, dropped[number].piece, dropped[number].other);
  char request[128];
  (void)snprintf(request, sizeof request, "bf16 d64 hq8 hkv2 nq140 nk200 %s",
                 dropped[number].request);
  struct ft_problem_options options = emulator_options(request, FT_LAYOUT_PADDED, emulator_seed());
  options.broadcast_mask = true;
  ck_assert_msg(emulator_sees(&planted, &options, CONFIG(64, 64, 1, "direct_store=1"), 1),
                "'%s' is not seen", dropped[number].other);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(bugs_are_seen) {
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  const struct planted planted =
      emulator_plant(bugs[number].file, bugs[number].piece, bugs[number].other);
  const struct ft_problem_options options =
      emulator_options("bf16 d64 hq8 hkv2 nq50 nk70 causal", FT_LAYOUT_PADDED, emulator_seed());
  ck_assert_msg(emulator_sees(&planted, &options, bugs[number].config, 1), "'%s' is not seen",
                bugs[number].other);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
  EMULATOR_EXPECT_PIECES(dropped);
  EMULATOR_EXPECT_PIECES(empty_rows);
}
END_TEST

Suite *make_emulator_packing_suite(void) {
  Suite *const suite = suite_create("emulator_packing");
  TCase *const tests = tcase_create("packing");
  tcase_set_timeout(tests, 300);
  tcase_add_test(tests, boxes_have_five_dimensions);
  tcase_add_test(tests, coordinates_are_as_many_as_dimensions);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  tcase_add_loop_test(tests, bugs_of_empty_rows_are_seen, 0, EMULATOR_RUNS(empty_rows));
  tcase_add_loop_test(tests, bugs_of_dropout_and_masks_are_seen, 0, EMULATOR_RUNS(dropped));
  suite_add_tcase(suite, tests);
  return suite;
}
