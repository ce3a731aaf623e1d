/* test_launch.c: the checks and the arithmetic of one run.
 * in -> out: arguments -> device struct and grid; every bad argument -> its name, value and what is
 * allowed. */
#include <limits.h>
#include <math.h>

#include "generator/emit.h"
#include "generator/families/mma_forward.h"
#include "generator/families/wgmma_forward.h"
#include "generator/status.h"
#include "generator/schedule.h"
#include "runtime/launch_families.h"
#include "runtime/mask.h"
#include "tests/launch_lab.h"
#include "tests/suites.h"

/* batch 2, 8 query heads on 2 kv heads, 300 queries, 700 keys, d 64, dv 48, [batch, seq, head,
 * dim]. */
static void set_up(void) {
  request = (struct ft_request){.dtype = FT_BF16,
                                .head_dim = 64,
                                .head_dim_v = 48,
                                .heads_q = 8,
                                .heads_kv = 2,
                                .batch = 2,
                                .seqlen_q = 300,
                                .seqlen_k = 700,
                                .mask_density = 1,
                                .mask_longest = 1};
  config = FT_CONFIG(mma_forward, .block_m = 128, .block_n = 64, .warps = 4, .stages = 2);
  arch = (struct ft_arch){.sm = 90, .sm_count = 132, .l2_bytes = 50 << 20};
  const fatune_arguments empty = FATUNE_ARGUMENTS_INIT;
  good = empty;
  good.q = (fatune_tensor){at(0x10000000), 300 * 8 * 64, 8 * 64, 64};
  good.k = (fatune_tensor){at(0x20000000), 700 * 2 * 64, 2 * 64, 64};
  good.v = (fatune_tensor){at(0x30000000), 700 * 2 * 48, 2 * 48, 48};
  good.o = (fatune_tensor){at(0x40000000), 300 * 8 * 48, 8 * 48, 48};
  good.lse = at(0x50000000);
}

/* Those of the last prepare. */
static const struct ft_forward_params *params(void) {
  return config.family == &ft_wgmma_forward_family ? &launch.argument.tiled_forward.rest
                                                   : &launch.argument.forward;
}

START_TEST(good_arguments_become_params) {
  ck_assert_status(prepare(&good), FT_OK);
  const struct ft_forward_params *const p = params();
  ck_assert_uint_eq(launch.kernels[launch.family->main].grid, 3 * 2 * 8);
  ck_assert_uint_eq(p->q.data, 0x10000000);
  ck_assert_uint_eq(p->k.data, 0x20000000);
  ck_assert_uint_eq(p->v.data, 0x30000000);
  ck_assert_uint_eq(p->o.data, 0x40000000);
  ck_assert_uint_eq(p->lse, 0x50000000);
  ck_assert_int_eq(p->q.stride.batch, 300 * 8 * 64);
  ck_assert_int_eq(p->q.stride.row, 8 * 64);
  ck_assert_int_eq(p->q.stride.head, 64);
  ck_assert_int_eq(p->v.stride.row, 2 * 48);
  ck_assert_int_eq(p->o.stride.head, 48);
  ck_assert_int_eq(p->sequence.nq, 300);
  ck_assert_int_eq(p->sequence.nk, 700);
  ck_assert_int_eq(p->sequence.heads_q, 8);
  ck_assert_int_eq(p->sequence.group, 4);
  ck_assert_int_eq(p->sequence.batch, 2);
  ck_assert_int_eq(p->schedule.q_tiles, 3);
  ck_assert_int_eq(p->schedule.l2_section_heads, 1);
  ck_assert_float_eq(p->softmax.scale, 0.125f);
  ck_assert_float_eq_tol(p->softmax.scale_log2, 0.125f * 1.442695041f, 1e-7f);
  ck_assert_uint_eq(p->dropout.threshold, 0);
  ck_assert_float_eq(p->dropout.rescale, 1);
  ck_assert_uint_eq(p->visibility.rows.lists | p->visibility.rows.blocks | p->dropout.seed |
                        p->dropout.seed_address,
                    0);
}
END_TEST

/* 4 heads of 300 queries as one of 1200 rows; where a run's group is odd, each for itself. */
START_TEST(packed_heads_are_heads_of_more_rows) {
  const struct ft_config plain = config;
  config = FT_CONFIG(wgmma_forward, .block_m = 128, .pack_gqa = 1);
  ck_assert_status(prepare(&good), FT_OK);
  const struct ft_forward_params *const p = params();
  ck_assert_int_eq(p->sequence.pack_code, 2);
  ck_assert_int_eq(p->sequence.nq, 1200);
  ck_assert_int_eq(p->sequence.heads_q, 2);
  ck_assert_int_eq(p->sequence.group, 1);
  ck_assert_int_eq(p->schedule.q_tiles, 10);
  ck_assert_int_eq(p->q.stride.head, 64);
  fatune_arguments other = good;
  other.heads_q = 6;
  ck_assert_status(prepare(&other), FT_OK);
  ck_assert_int_eq(p->sequence.pack_code, 0);
  ck_assert_int_eq(p->sequence.nq, 300);
  ck_assert_int_eq(p->sequence.heads_q, 6);
  ck_assert_int_eq(p->sequence.group, 3);
  /* Of few queries all heads of a group; one of four rows is of none. */
  other.seqlen_q = 32;
  ck_assert_status(prepare(&other), FT_OK);
  ck_assert_int_eq(p->sequence.pack_code, 2 | 1 << 8);
  ck_assert_int_eq(p->sequence.nq, 128);
  ck_assert_int_eq(p->sequence.heads_q, 2);
  ck_assert_int_eq(p->sequence.group, 1);
  ck_assert_int_eq(p->schedule.q_tiles, 1);
  config = plain;
}
END_TEST

START_TEST(a_run_may_differ_from_its_request) {
  fatune_arguments other = good;
  other.batch = 1;
  other.heads_q = other.heads_kv = 1;
  other.seqlen_q = 1;
  other.seqlen_k = INT32_MAX;
  other.k.stride_seq = other.v.stride_seq = 0; /* one key for all: a broadcast input */
  other.lse = NULL;
  other.scale = 3;
  ck_assert_status(prepare(&other), FT_OK);
  ck_assert_uint_eq(launch.kernels[launch.family->main].grid, 1);
  ck_assert_int_eq(params()->sequence.nk, INT32_MAX);
  ck_assert_int_eq(params()->q.stride.batch, 0); /* extents of 1 */
  ck_assert_float_eq(params()->softmax.scale, 3);
  ck_assert_uint_eq(params()->lse, 0);
}
END_TEST

START_TEST(strides_of_extents_of_one_are_ignored) {
  fatune_arguments odd = good;
  odd.batch = 1;
  odd.q.stride_batch = odd.k.stride_batch = odd.v.stride_batch = 3;
  odd.o.stride_batch = -7;
  ck_assert_status(prepare(&odd), FT_OK);
  ck_assert_int_eq(params()->o.stride.batch, 0);
}
END_TEST

START_TEST(other_layouts_are_accepted) {
  fatune_arguments bhsd = good;
  bhsd.o = (fatune_tensor){at(0x40000000), 8 * 300 * 48, 48, 300 * 48};
  ck_assert_status(prepare(&bhsd), FT_OK);
  fatune_arguments sbhd = good;
  sbhd.o = (fatune_tensor){at(0x40000000), 8 * 48, 2 * 8 * 48, 48};
  ck_assert_status(prepare(&sbhd), FT_OK);
  fatune_arguments padded = good;
  padded.o = (fatune_tensor){at(0x40000000), 300 * 8 * 56 + 64, 8 * 56, 56};
  ck_assert_status(prepare(&padded), FT_OK);
}
END_TEST

START_TEST(the_causal_shift_follows_the_alignment) {
  request.causal = FT_CAUSAL_BOTTOM_RIGHT;
  ck_assert_status(prepare(&good), FT_OK);
  ck_assert_int_eq(params()->visibility.last_diagonal, 400);
  request.causal = FT_CAUSAL_TOP_LEFT;
  ck_assert_status(prepare(&good), FT_OK);
  ck_assert_int_eq(params()->visibility.last_diagonal, 0);
  request.causal = FT_CAUSAL_BOTTOM_RIGHT;
  fatune_arguments extreme = good;
  extreme.batch = extreme.heads_q = extreme.heads_kv = 1;
  extreme.seqlen_q = INT32_MAX;
  extreme.seqlen_k = 1;
  ck_assert_status(prepare(&extreme), FT_OK);
  ck_assert_int_eq(params()->visibility.last_diagonal, 1 - INT32_MAX);
}
END_TEST

START_TEST(a_window_is_an_argument_of_the_run) {
  fatune_arguments with = good;
  with.window_left = 100;
  ck_assert_status(prepare(&with), FT_E_ARGUMENT);
  ck_assert_detail("arguments.window_left is 100; allowed: -1, the plan's request has no window");
  request.window = FT_WINDOW_BOTTOM_RIGHT;
  ck_assert_status(prepare(&with), FT_OK);
  ck_assert_int_eq(params()->visibility.first_diagonal, 400 - 100);
  with.window_right = 30;
  ck_assert_status(prepare(&with), FT_OK);
  ck_assert_int_eq(params()->visibility.last_diagonal, 400 + 30);
  request.window = FT_WINDOW_TOP_LEFT;
  ck_assert_status(prepare(&with), FT_OK);
  ck_assert_int_eq(params()->visibility.first_diagonal, -100);
  ck_assert_int_eq(params()->visibility.last_diagonal, 30);
  request.causal = FT_CAUSAL_TOP_LEFT;
  ck_assert_status(prepare(&with), FT_OK);
  ck_assert_int_eq(params()->visibility.last_diagonal, 0);
  with.window_right = -2;
  ck_assert_status(prepare(&with), FT_E_ARGUMENT);
  ck_assert_detail("arguments.window_right is -2; allowed: -1, or 0 .. 2^31 - 1");
  with.window_right = INT64_MAX;
  ck_assert_status(prepare(&with), FT_E_ARGUMENT);
  ck_assert_detail("arguments.window_right is 9223372036854775807");
  with.window_right = INT32_MAX;
  ck_assert_status(prepare(&with), FT_OK);
  with.seqlen_q = INT32_MAX;
  ck_assert_status(prepare(&with), FT_E_ARGUMENT);
  ck_assert_detail("arguments.seqlen_q and seqlen_k are 2147483647 and 700; allowed with a window");
}
END_TEST

START_TEST(sections_fill_half_of_l2) {
  request.causal = FT_CAUSAL_BOTTOM_RIGHT;
  const int64_t kv = 700 * (64 + 48) * 2;
  arch.l2_bytes = 2 * kv * 3 + 1; /* three kv heads, each of four query heads */
  ck_assert_status(prepare(&good), FT_OK);
  ck_assert_int_eq(params()->schedule.l2_section_heads, 12);
  arch.l2_bytes = 1; /* at least one group */
  ck_assert_status(prepare(&good), FT_OK);
  ck_assert_int_eq(params()->schedule.l2_section_heads, 4);
  arch.l2_bytes = INT64_MAX; /* at most all */
  ck_assert_status(prepare(&good), FT_OK);
  ck_assert_int_eq(params()->schedule.l2_section_heads, 16);
}
END_TEST

/* 16 tiles for each of 128 heads, of which half of L2 holds 25. */
START_TEST(tiles_that_differ_are_dealt_evenly) {
  struct ft_shares shares = {.tiles = 16,
                             .heads = 128,
                             .blocks = 132,
                             .rows = 256,
                             .keys = 64,
                             .visibility = {4096, 4096, -4096, 0}};
  request.causal = FT_CAUSAL_BOTTOM_RIGHT;
  request.head_dim_v = 64;
  config = FT_CONFIG(wgmma_forward, .block_m = 256, .block_n = 64, .lpt = 1);
  fatune_arguments large = good;
  large.batch = 4;
  large.heads_q = large.heads_kv = 32;
  large.seqlen_q = large.seqlen_k = 4096;
  fatune_tensor *const tensors[] = {&large.q, &large.k, &large.v, &large.o};
  for (int i = 0; i < 4; i++)
    *tensors[i] = (fatune_tensor){at(0x10000000u * (unsigned)(i + 1)), 4096 * 32 * 64, 32 * 64, 64};
  large.lse = NULL;
  ck_assert_status(prepare(&large), FT_OK);
  ck_assert_int_eq(params()->schedule.l2_section_heads, 25);
  ck_assert_double_gt(ft_shares_unevenness(&shares, 25), 1.015);
  config = FT_CONFIG(wgmma_forward, .block_m = 256, .block_n = 64);
  ck_assert_status(prepare(&large), FT_OK);
  ck_assert_int_ge(params()->schedule.remainder_heads, 12);
  ck_assert_int_le(params()->schedule.remainder_heads, 37);
  ck_assert_double_lt(ft_shares_unevenness(&shares, params()->schedule.remainder_heads), 1.004);
  arch.l2_bytes = 1; /* none to choose from */
  ck_assert_status(prepare(&large), FT_OK);
  ck_assert_int_eq(params()->schedule.remainder_heads, 1);
}
END_TEST

START_TEST(spare_multiprocessors_get_no_block) {
  config = FT_CONFIG(wgmma_forward, .block_m = 128, .block_n = 64);
  fatune_arguments large = good;
  large.batch = 16;
  static const int spare[] = {0, 1, 32, 130, 131, INT_MAX}, blocks[] = {132, 131, 100, 2, 2, 2};
  for (size_t i = 0; i < sizeof spare / sizeof *spare; i++) {
    large.spare_multiprocessors = spare[i];
    ck_assert_status(prepare(&large), FT_OK);
    ck_assert_uint_eq(launch.kernels[launch.family->main].grid, (unsigned)blocks[i]);
  }
  BAD(spare_multiprocessors, -1, "arguments.spare_multiprocessors is -1", "0 or more");
}
END_TEST

START_TEST(dropout_is_rounded_to_14_bits) {
  static const struct {
    float p;
    unsigned threshold;
    double rescale;
  } cases[] = {{0, 0, 1},
               {1, 16384, 0},
               {0.5f, 8192, 2},
               {0.1f, 1638, 16384.0 / (16384 - 1638)},
               {1e-9f, 0, 1},
               {0.99999f, 16384, 0},
               {0.9998f, 16381, 16384.0 / 3}};
  request.dropout = true;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fatune_arguments a = good;
    a.dropout = cases[i].p;
    a.seed = UINT64_C(0x123456789abcdef0);
    a.offset = 7;
    ck_assert_status(prepare(&a), FT_OK);
    ck_assert_uint_eq(params()->dropout.threshold, cases[i].threshold);
    ck_assert_float_eq(params()->dropout.rescale, (float)cases[i].rescale);
    ck_assert_uint_eq(params()->dropout.seed, UINT64_C(0x123456789abcdef0));
    ck_assert_uint_eq(params()->dropout.offset, 7);
  }
  BAD(dropout, -0.1f, "arguments.dropout is -0.1", "0 .. 1");
  BAD(dropout, 1.5f, "arguments.dropout is 1.5", "0 .. 1");
  BAD(dropout, NAN, "arguments.dropout is", "0 .. 1");
  BAD(seed_device, at(0x1004), "arguments.seed_device is 0x1004", "multiple of 8");
  BAD(offset_device, at(0x1004), "arguments.offset_device is 0x1004", "multiple of 8");
}
END_TEST

START_TEST(bad_tensors_are_named) {
#define BAD_TENSOR(t, dim)                                                                         \
  BAD(t.data, NULL, "arguments." #t ".data is NULL", "device address");                            \
  BAD(t.data, at(0x40000008), "arguments." #t ".data is 0x40000008", "multiple of 16");            \
  BAD(t.stride_batch, 12, "arguments." #t ".stride_batch is 12", "multiple of 8");                 \
  BAD(t.stride_seq, 12, "arguments." #t ".stride_seq is 12", "multiple of 8");                     \
  BAD(t.stride_head, 12, "arguments." #t ".stride_head is 12", "multiple of 8");                   \
  BAD(t.stride_seq, -512, "arguments." #t ".stride_seq is -512", ">= 0");                          \
  BAD(t.stride_head, (dim)-8, "less than a row", "allowed: >= ");                                  \
  BAD(t.stride_batch, INT64_MAX / 8 * 8, "arguments." #t " reaches past", "address space");        \
  BAD(t.stride_seq, INT64_C(1) << 31, "stride_seq is 2147483648", "at most 2^31 - 1");             \
  BAD(t.stride_head, INT64_MAX / 8 * 8, "arguments." #t " reaches past", "address space");         \
  BAD(t.data, at(UINTPTR_MAX - 15), "arguments." #t " reaches past", "address space")
  BAD_TENSOR(q, 64);
  BAD_TENSOR(k, 64);
  BAD_TENSOR(v, 48);
  BAD_TENSOR(o, 48);
#undef BAD_TENSOR
  BAD(lse, at(0x50000002), "arguments.lse is 0x50000002", "multiple of 4");
}
END_TEST

START_TEST(outputs_must_not_overlap) {
  BAD(o.stride_batch, 0, "arguments.o.stride_batch is 0", "overlap");
  BAD(o.stride_seq, 0, "arguments.o.stride_seq is 0", "overlap");
  BAD(o.stride_head, 0, "arguments.o.stride_head is 0", "overlap");
  BAD(o.stride_seq, 8 * 48 - 8, "arguments.o overlaps itself", "376");
  BAD(o.stride_batch, 300 * 8 * 48 - 8, "arguments.o overlaps itself", "115200");
  BAD(o.data, good.q.data, "arguments.o.data", "must not share");
  BAD(o.data, good.k.data, "arguments.o.data", "must not share");
  BAD(o.data, good.v.data, "arguments.o.data", "must not share");
  BAD(lse, good.o.data, "arguments.lse", "must not share");
}
END_TEST

START_TEST(bad_extents_are_named) {
  const int64_t too_many = INT64_C(1) << 31;
  BAD(batch, -1, "arguments.batch is -1", "1 .. 2^31 - 1");
  BAD(batch, too_many, "arguments.batch is 2147483648", "1 .. 2^31 - 1");
  BAD(seqlen_q, -1, "arguments.seqlen_q is -1", "1 .. 2^31 - 1");
  BAD(seqlen_q, too_many, "arguments.seqlen_q is 2147483648", "1 .. 2^31 - 1");
  BAD(seqlen_k, -3, "arguments.seqlen_k is -3", "1 .. 2^31 - 1");
  BAD(heads_q, -8, "arguments.heads_q is -8", "1 .. 2^31 - 1");
  BAD(heads_kv, -2, "arguments.heads_kv is -2", "1 .. 2^31 - 1");
  BAD(heads_q, 7, "arguments.heads_q is 7", "a multiple of heads_kv, 2");
  BAD(heads_kv, 16, "arguments.heads_q is 8", "a multiple of heads_kv, 16");
  BAD(batch, INT32_MAX, "2147483647", "2^31 - 1 blocks"); /* x 8 heads x 3 tiles */
  fatune_arguments bad = good;
  bad.batch = bad.seqlen_q = INT32_MAX;
  bad.heads_q = bad.heads_kv = INT32_MAX;
  expect_bad(&bad, "2147483647", "2^31 - 1 blocks");
  bad = good;
  bad.size = 8;
  expect_bad(&bad, "arguments.size is 8", "_INIT");
  ck_assert_status(prepare(NULL), FT_E_ARGUMENT);
  ck_assert_detail("arguments is NULL");
}
END_TEST

START_TEST(bad_numbers_are_named) {
  BAD(scale, -1, "arguments.scale is -1", "> 0 and finite");
  BAD(scale, NAN, "arguments.scale is", "> 0 and finite");
  BAD(scale, INFINITY, "arguments.scale is inf", "> 0 and finite");
  BAD(scale, 3e38f, "arguments.scale is 3e+38", "> 0 and finite");
  BAD(dropout, 0.5f, "arguments.dropout is 0.5", "the plan's request has no dropout");
}
END_TEST

START_TEST(sinks_are_where_the_request_has_them) {
  BAD(sinks, at(0x70000000), "arguments.sinks is 0x70000000", "the request has no sinks");
  request.sinks = true;
  ck_assert_int_eq(prepare(&good), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "a device address, the request has sinks"));
  good.sinks = at(0x70000000);
  ck_assert_status(prepare(&good), FT_OK);
  ck_assert_uint_eq(params()->sinks, 0x70000000);
  BAD(sinks, at(0x70000002), "arguments.sinks is 0x70000002", "a multiple of 4");
  BAD(dsinks, at(0x70000000), "arguments.dsinks is 0x70000000", "no gradient of them");
}
END_TEST

/* Nine sequences in the rows of Q and K. */
START_TEST(ragged_runs_have_lengths) {
  request.ragged = true;
  request.batch = 9;
  fatune_arguments arguments = good;
  arguments.cu_seqlens_q = at(0x60000000);
  arguments.cu_seqlens_k = at(0x61000000);
  arguments.workspace = at(0x70000000);
  good = arguments;
  ck_assert_status(prepare(&good), FT_OK);
  const struct ft_arg_ragged *const ragged = &params()->ragged;
  const int numbers = 300 / 128 + 9; /* each sequence may have a tile that is not full */
  ck_assert_int_eq(ragged->numbers, numbers);
  ck_assert_uint_eq(launch.kernels[0].grid, 1);
  ck_assert_uint_eq(launch.kernels[launch.family->main].grid, (unsigned)numbers * 8);
  ck_assert_uint_eq(ragged->entries, 0x70000000);
  ck_assert_int_eq(params()->schedule.l2_section_heads, 8); /* all */
  ck_assert_uint_eq(ragged->used_q | ragged->used_k, 0);
  ck_assert_int_eq(params()->q.stride.batch, 0);
  size_t bytes;
  ck_assert_status(ft_launch_workspace(&plan, &good, &bytes), FT_OK);
  ck_assert_uint_eq(bytes, 256 + 512); /* 11 tiles of 32 bytes, in units of 256 */
  BAD(workspace, NULL, "arguments.workspace is (nil)", "the plan's request is ragged");
  BAD(cu_seqlens_q, NULL, "arguments.cu_seqlens_q is (nil)", "a device address");
  BAD(cu_seqlens_k, at(0x61000002), "arguments.cu_seqlens_k is 0x61000002", "a multiple of 4");
  BAD(seqlen_k, (1 << 30) + 1, "seqlen_k 1073741825", "at most 2^30");
  request.ragged = false;
  request.batch = 2;
  fatune_arguments dense = good;
  dense.cu_seqlens_q = dense.cu_seqlens_k = NULL;
  good = dense;
  BAD(seqused_k, at(0x60000000), "arguments.seqused_k is 0x60000000", "not ragged");
}
END_TEST

START_TEST(masks_must_fit) {
  struct fatune_mask mask = {.lists = 0x60000000,
                             .blocks = 0x60001000,
                             .rows = 128,
                             .cols = 64,
                             .batch = 2,
                             .heads = 8,
                             .seqlen_q = 300,
                             .seqlen_k = 700,
                             .row_blocks = 3,
                             .col_blocks = 11};
  BAD(mask, &mask, "arguments.mask is 0x", "allowed: NULL");
  request.mask_rows = 128;
  request.mask_cols = 64;
  ck_assert_status(prepare(&good), FT_E_ARGUMENT);
  ck_assert_detail("arguments.mask is NULL");
  good.mask = &mask;
  ck_assert_status(prepare(&good), FT_OK);
  ck_assert_uint_eq(params()->visibility.rows.lists, 0x60000000);
  ck_assert_uint_eq(params()->visibility.rows.blocks, 0x60001000);
  ck_assert_int_eq(params()->visibility.rows.batch_lists, 24);
  ck_assert_int_eq(params()->visibility.rows.head_lists, 3);

  struct fatune_mask other = mask;
  other.batch = 1;
  BAD(batch, 3, "arguments.mask is for a batch of 2", "allowed: 1, or 3");
  good.mask = &other;
  ck_assert_status(prepare(&good), FT_OK);
  ck_assert_int_eq(params()->visibility.rows.batch_lists, 0);
  ck_assert_int_eq(params()->visibility.rows.head_lists, 3);
  other.heads = 1;
  ck_assert_status(prepare(&good), FT_OK);
  ck_assert_int_eq(params()->visibility.rows.head_lists, 0);
  other = mask;
  other.heads = 1;
  ck_assert_status(prepare(&good), FT_OK);
  ck_assert_int_eq(params()->visibility.rows.batch_lists, 3);

#define BAD_MASK(field, value, name)                                                               \
  other = mask;                                                                                    \
  other.field = value;                                                                             \
  ck_assert_status(prepare(&good), FT_E_ARGUMENT);                                                 \
  ck_assert_detail(name)
  BAD_MASK(rows, 64, "64x64; the plan's are 128x64");
  BAD_MASK(cols, 128, "128x128; the plan's are 128x64");
  BAD_MASK(batch, 3, "allowed: 1, or 2");
  BAD_MASK(heads, 2, "2 query heads; allowed: 1, or 8");
  BAD_MASK(seqlen_q, 301, "301x700; the run's are 300x700");
  BAD_MASK(seqlen_k, 699, "300x699; the run's are 300x700");
#undef BAD_MASK
}
END_TEST

START_TEST(every_family_has_a_launch) {
  const struct ft_family *family;
  for (int i = 0; (family = ft_family_at(i)); i++) {
    const struct ft_launch_family *const own = ft_launch_family_of(family);
    ck_assert_msg(own != NULL, "%s has none", family->name);
    ck_assert_ptr_eq(own->family, family);
    ck_assert(own->kernel_count >= 1 && own->kernel_count <= FT_KERNELS_MOST);
    ck_assert_str_eq(own->entries[own->main], FT_ENTRY);
  }
  ck_assert_ptr_null(ft_launch_family_of(NULL));
}
END_TEST

Suite *make_launch_suite(void) {
  Suite *const suite = suite_create("launch");
  TCase *const tests = tcase_create("prepare");
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_add_test(tests, good_arguments_become_params);
  tcase_add_test(tests, every_family_has_a_launch);
  tcase_add_test(tests, packed_heads_are_heads_of_more_rows);
  tcase_add_test(tests, a_run_may_differ_from_its_request);
  tcase_add_test(tests, strides_of_extents_of_one_are_ignored);
  tcase_add_test(tests, other_layouts_are_accepted);
  tcase_add_test(tests, the_causal_shift_follows_the_alignment);
  tcase_add_test(tests, a_window_is_an_argument_of_the_run);
  tcase_add_test(tests, sections_fill_half_of_l2);
  tcase_add_test(tests, tiles_that_differ_are_dealt_evenly);
  tcase_add_test(tests, spare_multiprocessors_get_no_block);
  tcase_add_test(tests, dropout_is_rounded_to_14_bits);
  tcase_add_test(tests, bad_tensors_are_named);
  tcase_add_test(tests, outputs_must_not_overlap);
  tcase_add_test(tests, bad_extents_are_named);
  tcase_add_test(tests, bad_numbers_are_named);
  tcase_add_test(tests, sinks_are_where_the_request_has_them);
  tcase_add_test(tests, ragged_runs_have_lengths);
  tcase_add_test(tests, masks_must_fit);
  suite_add_tcase(suite, tests);
  return suite;
}
