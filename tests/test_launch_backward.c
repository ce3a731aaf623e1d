/* test_launch_backward.c: the checks and the arithmetic of one backward run.
 * in -> out: arguments -> device struct, grids, workspace; every bad argument -> its name, value
 * and what is allowed. */
#include "generator/families/mma_backward.h"
#include "generator/families/mma_forward.h"
#include "generator/status.h"
#include "runtime/families/backward.h"
#include "runtime/mask.h"
#include "tests/launch_lab.h"
#include "tests/suites.h"

/* batch 2, 8 query heads on 2 kv heads, 300 queries, 700 keys, d 72, dv 48, [batch, seq, head,
 * dim]. */
static void set_up(void) {
  request = (struct ft_request){.pass = FT_BACKWARD,
                                .dtype = FT_BF16,
                                .head_dim = 72,
                                .head_dim_v = 48,
                                .heads_q = 8,
                                .heads_kv = 2,
                                .batch = 2,
                                .seqlen_q = 300,
                                .seqlen_k = 700,
                                .mask_density = 1,
                                .mask_longest = 1};
  ck_assert_status(
      ft_config_parse(&config, "mma_backward block_m=64 block_n=128 warps=8 stages=2 "
                               "column_warps=1 query_parts=1 kv_in_regs=0 deferred_dq=0 dq_mode=0 "
                               "ctas_per_sm=1"),
      FT_OK);
  arch = (struct ft_arch){.sm = 90,
                          .sm_count = 132,
                          .l2_bytes = 50 << 20,
                          .regs_per_sm = 65536,
                          .smem_per_block = 227 << 10};
  const fatune_arguments empty = FATUNE_ARGUMENTS_INIT;
  const fatune_tensor of_q = {NULL, 300 * 8 * 72, 8 * 72, 72};
  const fatune_tensor of_k = {NULL, 700 * 2 * 72, 2 * 72, 72};
  const fatune_tensor of_v = {NULL, 700 * 2 * 48, 2 * 48, 48};
  const fatune_tensor of_o = {NULL, 300 * 8 * 48, 8 * 48, 48};
  good = empty;
  good.q = good.dq = of_q;
  good.k = good.dk = of_k;
  good.v = good.dv = of_v;
  good.o = good.dout = of_o;
  fatune_tensor *const tensors[] = {&good.q,    &good.k,  &good.v,  &good.o,
                                    &good.dout, &good.dq, &good.dk, &good.dv};
  for (uintptr_t n = 0; n < 8; n++) tensors[n]->data = at(0x10000000 * (n + 1));
  good.lse = at(0xa0000000);
  good.workspace = at(0xb0000000);
}

/* Bytes of workspace of a run; NULL: of the request. */
static int workspace(const fatune_arguments *arguments, size_t *bytes) {
  set_plan();
  return ft_launch_workspace(&plan, arguments, bytes);
}

static void set_dq(int way) {
  struct ft_mma_backward_knobs knobs = *ft_mma_backward_knobs(&config);
  knobs.dq_mode = way;
  config = ft_config_make(&ft_mma_backward_family, &knobs);
}

/* ---- what becomes of them ---- */

START_TEST(good_arguments_become_params) {
  ck_assert_status(prepare(&good), FT_OK);
  const struct ft_backward_params *const p = &launch.argument.scored_backward.rest;
  const uint64_t addresses[] = {p->q.data,    p->k.data,  p->v.data,  p->o.data,
                                p->dout.data, p->dq.data, p->dk.data, p->dv.data};
  for (uint64_t n = 0; n < 8; n++) ck_assert_uint_eq(addresses[n], 0x10000000 * (n + 1));
  ck_assert_uint_eq(p->lse, 0xa0000000);
  ck_assert_uint_eq(p->dlse, 0);
  const struct ft_stride *const strides[] = {&p->q.stride,  &p->k.stride,    &p->v.stride,
                                             &p->o.stride,  &p->dout.stride, &p->dq.stride,
                                             &p->dk.stride, &p->dv.stride};
  const int rows[] = {8 * 72, 2 * 72, 2 * 48, 8 * 48, 8 * 48, 8 * 72, 2 * 72, 2 * 48};
  for (int n = 0; n < 8; n++) ck_assert_int_eq(strides[n]->row, rows[n]);
  ck_assert_int_eq(p->sequence.nq, 300);
  ck_assert_int_eq(p->sequence.nk, 700);
  ck_assert_int_eq(p->sequence.heads_q, 8);
  ck_assert_int_eq(p->sequence.heads_kv, 2);
  ck_assert_int_eq(p->sequence.group, 4);
  ck_assert_int_eq(p->sequence.batch, 2);
  ck_assert_int_eq(p->schedule.q_tiles, 5);
  ck_assert_int_eq(p->schedule.k_tiles, 6);
  ck_assert_int_eq(p->schedule.l2_section_heads, 1);
  ck_assert_uint_eq(launch.kernels[FT_BACKWARD_LIST].grid, 0);
  ck_assert_uint_eq(launch.kernels[FT_BACKWARD_PREPARE].grid, 5 * 2 * 8);
  ck_assert_uint_eq(launch.kernels[FT_BACKWARD_MAIN].grid, 6 * 2 * 2);
  ck_assert_float_eq(p->dropout.rescale, 1);
  ck_assert_uint_eq(p->visibility.columns.lists | p->visibility.columns.blocks |
                        p->visibility.rows.lists | p->visibility.rows.blocks,
                    0);
}
END_TEST

START_TEST(strides_are_not_mixed_up) {
  fatune_arguments other = good;
  other.dout = (fatune_tensor){good.dout.data, 300 * 8 * 48, 48, 300 * 48};
  other.dq = (fatune_tensor){good.dq.data, 300 * 8 * 72, 72, 300 * 72};
  other.dlse = at(0xc0000004);
  ck_assert_status(prepare(&other), FT_OK);
  ck_assert_int_eq(launch.argument.scored_backward.rest.dout.stride.head, 300 * 48);
  ck_assert_int_eq(launch.argument.scored_backward.rest.dq.stride.head, 300 * 72);
  ck_assert_int_eq(launch.argument.scored_backward.rest.o.stride.head, 48);
  ck_assert_int_eq(launch.argument.scored_backward.rest.q.stride.head, 72);
  ck_assert_uint_eq(launch.argument.scored_backward.rest.dlse, 0xc0000004);
}
END_TEST

/* 80 tiles of 64 rows, d 72 padded to 80; a counter for each sum of a tile and each of 8 warps. */
START_TEST(the_workspace_has_what_the_config_needs) {
  enum {
    TILES = 80,
    SUMS = TILES * 64 * 80 * 4,
    STATS = TILES * 64 * 2 * 4,
    TURNS = TILES * 8 * 4
  };
  const uint64_t begin = 0xb0000000;
  const struct {
    int dq;
    enum ft_causal causal;
    uint64_t sum, stats, counters;
    size_t bytes;
  } cases[] = {
      {0, FT_CAUSAL_NONE, begin, begin + SUMS, 0, SUMS + STATS},
      {0, FT_CAUSAL_TOP_LEFT, begin, begin + SUMS, 0, SUMS + STATS},
      {1, FT_CAUSAL_TOP_LEFT, begin, begin + SUMS, begin + SUMS + STATS, SUMS + STATS + TURNS},
      {1, FT_CAUSAL_NONE, begin, begin + 2 * SUMS, begin + 2 * SUMS + STATS,
       2 * SUMS + STATS + 2 * TURNS},
      {2, FT_CAUSAL_NONE, 0, begin, 0, STATS}};
  for (int n = 0; n < 5; n++) {
    size_t bytes;
    set_dq(cases[n].dq);
    request.causal = cases[n].causal;
    ck_assert_status(prepare(&good), FT_OK);
    ck_assert_uint_eq(launch.argument.scored_backward.rest.dq_sum, cases[n].sum);
    ck_assert_uint_eq(launch.argument.scored_backward.rest.row_stats, cases[n].stats);
    ck_assert_uint_eq(launch.argument.scored_backward.rest.counters, cases[n].counters);
    ck_assert_status(workspace(NULL, &bytes), FT_OK);
    ck_assert_uint_eq(bytes, cases[n].bytes);
  }
}
END_TEST

static int section_on(int multiprocessors, size_t l2_bytes) {
  arch.sm_count = multiprocessors;
  arch.l2_bytes = (int64_t)l2_bytes;
  ck_assert_status(prepare(&good), FT_OK);
  return launch.argument.scored_backward.rest.schedule.l2_section_heads;
}

/* Nine sequences: each may have a tile that is not full, of 64 queries and of 128 keys. */
START_TEST(a_ragged_run_has_a_list_of_key_tiles) {
  enum { Q_TILES = 300 / 64 + 9, K_TILES = 700 / 128 + 9, WORDS = 64 * 80 + 64 * 2 };
  size_t bytes;
  request.ragged = true;
  request.batch = 9;
  good.cu_seqlens_q = at(0xc0000000);
  good.cu_seqlens_k = at(0xd0000000);
  ck_assert_status(prepare(&good), FT_OK);
  const struct ft_backward_params *const p = &launch.argument.scored_backward.rest;
  ck_assert_uint_eq(launch.kernels[FT_BACKWARD_LIST].grid, 1);
  ck_assert_uint_eq(launch.kernels[FT_BACKWARD_PREPARE].grid, Q_TILES * 8);
  ck_assert_uint_eq(launch.kernels[FT_BACKWARD_MAIN].grid, K_TILES * 2);
  ck_assert_uint_eq(launch.kernels[FT_BACKWARD_CONVERT].grid, Q_TILES * 8);
  ck_assert_int_eq(p->ragged.numbers, K_TILES);
  ck_assert_int_eq(p->ragged.numbers_q, Q_TILES);
  ck_assert_int_eq(p->sequence.batch, 9);
  ck_assert_int_eq(p->q.stride.batch, 0);
  ck_assert_uint_eq(p->ragged.entries, 0xb0000000 + Q_TILES * 8 * WORDS * 4);
  ck_assert_status(workspace(&good, &bytes), FT_OK);
  ck_assert_uint_eq(bytes, Q_TILES * 8 * WORDS * 4 + 256 + 512); /* 14 tiles of 32 bytes */
  ck_assert_int_eq(section_on(1, 1), 2); /* two heads run together even so */
  request.ragged = false;
  request.batch = 2;
}
END_TEST

START_TEST(a_workspace_that_is_too_small_is_refused) {
  size_t bytes;
  ck_assert_status(workspace(&good, &bytes), FT_OK);
  fatune_arguments told = good;
  told.workspace_size = bytes;
  ck_assert_status(prepare(&told), FT_OK);
  BAD(workspace_size, bytes - 1, "arguments.workspace_size is ", "which this run needs");
  BAD(workspace_size, 1, "arguments.workspace_size is 1;", "at least ");
  told.batch = 4;
  ck_assert_status(prepare(&told), FT_E_ARGUMENT);
  ck_assert_detail("arguments.workspace_size is ");
  told.workspace_size = 0; /* not told */
  ck_assert_status(prepare(&told), FT_OK);
}
END_TEST

START_TEST(the_workspace_grows_with_the_rows_alone) {
  size_t of_request, twice, more_keys;
  fatune_arguments other = good;
  ck_assert_status(workspace(&good, &of_request), FT_OK);
  other.batch = 4;
  ck_assert_status(workspace(&other, &twice), FT_OK);
  ck_assert_uint_eq(twice, 2 * of_request);
  other.batch = 2;
  other.seqlen_k = 100000;
  ck_assert_status(workspace(&other, &more_keys), FT_OK);
  ck_assert_uint_eq(more_keys, of_request);
  ck_assert_uint_le(of_request, (size_t)2 * 8 * 320 * 4 * (72 + 11)); /* as fatune.h says */
  set_dq(1);
  ck_assert_status(workspace(&good, &of_request), FT_OK);
  ck_assert_uint_le(of_request, (size_t)2 * 8 * 320 * 8 * (72 + 10));
  config = FT_CONFIG(mma_forward, .block_m = 64, .block_n = 64, .warps = 4, .stages = 2);
  request.pass = FT_FORWARD;
  ck_assert_status(workspace(&good, &of_request), FT_OK);
  ck_assert_uint_eq(of_request, 0);
}
END_TEST

/* ---- what is wrong with them ---- */

START_TEST(bad_workspaces_are_named) {
  BAD(workspace, NULL, "arguments.workspace is NULL", "1679360 bytes");
  BAD(workspace, at(0xb0000080), "arguments.workspace is 0xb0000080", "multiple of 256");
  BAD(batch, -1, "arguments.batch is -1", "1 .. 2^31 - 1");
  fatune_arguments bad = good;
  size_t bytes = 1;
  bad.seqlen_q = -1;
  ck_assert_status(workspace(&bad, &bytes), FT_E_ARGUMENT);
  ck_assert_uint_eq(bytes, 0);
}
END_TEST

START_TEST(bad_tensors_are_named) {
#define BAD_TENSOR(t)                                                                              \
  BAD(t.data, NULL, "arguments." #t ".data is NULL", "device address");                            \
  BAD(t.data, at(0x40000008), "arguments." #t ".data is 0x40000008", "multiple of 16");            \
  BAD(t.stride_seq, 12, "arguments." #t ".stride_seq is 12", "multiple of 8")
  BAD_TENSOR(q);
  BAD_TENSOR(k);
  BAD_TENSOR(v);
  BAD_TENSOR(o);
  BAD_TENSOR(dout);
  BAD_TENSOR(dq);
  BAD_TENSOR(dk);
  BAD_TENSOR(dv);
#undef BAD_TENSOR
  BAD(lse, NULL, "arguments.lse is NULL", "what the forward wrote");
  BAD(lse, at(0x50000002), "arguments.lse is 0x50000002", "multiple of 4");
  BAD(dlse, at(0x50000002), "arguments.dlse is 0x50000002", "multiple of 4, or NULL");
}
END_TEST

START_TEST(gradients_must_have_memory_of_their_own) {
  BAD(dq.stride_seq, 0, "arguments.dq.stride_seq is 0", "overlap");
  BAD(dk.stride_head, 0, "arguments.dk.stride_head is 0", "overlap");
  BAD(dv.stride_batch, 700 * 2 * 48 - 8, "arguments.dv overlaps itself", "67200");
  BAD(dq.data, good.q.data, "arguments.dq.data is that of q", "must not share");
  BAD(dk.data, good.dout.data, "arguments.dk.data is that of dout", "must not share");
  BAD(dv.data, good.dk.data, "arguments.dv.data is that of dk", "must not share");
  BAD(dv.data, good.lse, "arguments.dv.data is arguments.lse", "must not share");
  fatune_arguments broadcast = good; /* what is only read may overlap itself */
  broadcast.o.stride_seq = broadcast.dout.stride_head = broadcast.k.stride_batch = 0;
  ck_assert_status(prepare(&broadcast), FT_OK);
}
END_TEST

START_TEST(too_many_blocks_are_refused) {
  BAD(batch, INT32_MAX, "2147483647", "2^31 - 1 blocks");
  fatune_arguments bad = good;
  bad.seqlen_q = 1;
  bad.seqlen_k = INT32_MAX; /* 2^24 tiles for each of 256 pairs */
  bad.batch = 128;
  bad.q.stride_seq = bad.k.stride_seq = bad.v.stride_seq = 0;
  expect_bad(&bad, "batch 128 x heads_kv 2 x 16777216 tiles", "2^31 - 1 blocks");
}
END_TEST

/* ---- masks and sections ---- */

START_TEST(a_mask_brings_both_kinds_of_lists) {
  static struct fatune_mask mask;
  mask = (struct fatune_mask){.lists = 0x60000000,
                              .blocks = 0x60001000,
                              .column_lists = 0x60002000,
                              .column_blocks = 0x60003000,
                              .rows = 128,
                              .cols = 256,
                              .batch = 2,
                              .heads = 8,
                              .seqlen_q = 300,
                              .seqlen_k = 700,
                              .row_blocks = 3,
                              .col_blocks = 3};
  request.mask_rows = 128;
  request.mask_cols = 256;
  ck_assert_status(prepare(&good), FT_E_ARGUMENT);
  ck_assert_detail("arguments.mask is NULL");
  good.mask = &mask;
  ck_assert_status(prepare(&good), FT_OK);
  const struct ft_backward_params *const p = &launch.argument.scored_backward.rest;
  ck_assert_uint_eq(p->visibility.columns.lists, 0x60002000);
  ck_assert_uint_eq(p->visibility.columns.blocks, 0x60003000);
  ck_assert_uint_eq(p->visibility.rows.lists, 0x60000000);
  ck_assert_uint_eq(p->visibility.rows.blocks, 0x60001000);
  ck_assert_int_eq(p->visibility.columns.batch_lists, 8 * 3);
  ck_assert_int_eq(p->visibility.columns.head_lists, 3);
  ck_assert_int_eq(p->schedule.q_tiles, 6); /* two of each row block, */
  ck_assert_int_eq(p->schedule.k_tiles, 6); /* two of each column block */
  mask.batch = mask.heads = 1;
  ck_assert_status(prepare(&good), FT_OK);
  ck_assert_int_eq(p->visibility.columns.batch_lists | p->visibility.columns.head_lists |
                       p->visibility.rows.batch_lists | p->visibility.rows.head_lists,
                   0);
}
END_TEST

/* Of two batches of two kv heads, with six key tiles each. */
START_TEST(sections_keep_queries_in_half_of_l2) {
  const size_t head = 4 * 300 * (72 + 48) * 2; /* Q and dO of its group */
  request.causal = FT_CAUSAL_BOTTOM_RIGHT;
  ck_assert_int_eq(section_on(1, 50 << 20), 4); /* all */
  ck_assert_int_eq(launch.argument.scored_backward.rest.visibility.last_diagonal, 400);
  ck_assert_int_eq(section_on(1, 2 * 2 * head), 2);
  ck_assert_int_eq(section_on(1, 2 * 3 * head), 2); /* not 3, and then 1 */
  ck_assert_int_eq(section_on(1, 1), 1);
}
END_TEST

START_TEST(tiles_of_a_section_fill_the_gpu) {
  request.causal = FT_CAUSAL_BOTTOM_RIGHT;
  ck_assert_int_eq(section_on(2 * 6 - 1, 1), 1);
  ck_assert_int_eq(section_on(2 * 6, 1), 2);
  ck_assert_int_eq(section_on(132, 1), 4);
  set_dq(FT_DQ_ORDERED); /* four tiles of each head at a time */
  ck_assert_int_eq(section_on(2 * 4 - 1, 1), 1);
  ck_assert_int_eq(section_on(2 * 4, 1), 2);
  request.causal = FT_CAUSAL_NONE;
  ck_assert_int_eq(section_on(132, 50 << 20), 1); /* where tiles are alike, one after the other */
}
END_TEST

Suite *make_launch_backward_suite(void) {
  Suite *const suite = suite_create("launch_backward");
  TCase *const tests = tcase_create("prepare");
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_add_test(tests, good_arguments_become_params);
  tcase_add_test(tests, strides_are_not_mixed_up);
  tcase_add_test(tests, the_workspace_has_what_the_config_needs);
  tcase_add_test(tests, a_ragged_run_has_a_list_of_key_tiles);
  tcase_add_test(tests, a_workspace_that_is_too_small_is_refused);
  tcase_add_test(tests, the_workspace_grows_with_the_rows_alone);
  tcase_add_test(tests, bad_workspaces_are_named);
  tcase_add_test(tests, bad_tensors_are_named);
  tcase_add_test(tests, gradients_must_have_memory_of_their_own);
  tcase_add_test(tests, too_many_blocks_are_refused);
  tcase_add_test(tests, a_mask_brings_both_kinds_of_lists);
  tcase_add_test(tests, sections_keep_queries_in_half_of_l2);
  tcase_add_test(tests, tiles_of_a_section_fill_the_gpu);
  suite_add_tcase(suite, tests);
  return suite;
}
