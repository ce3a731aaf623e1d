/* test_key_parts.c: into how many parts walks are divided.
 * in -> out: work tiles of random launches -> parts; lengths of runs -> bytes of workspace. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "generator/families/mma_forward.h"
#include "generator/families/wgmma_forward.h"
#include "generator/space.h"
#include "generator/stream.h"
#include "tests/generator_cases.h"
#include "tests/launch_lab.h"
#include "tests/suites.h"

static struct ft_walks random_walks(void) {
  return (struct ft_walks){.tiles = random_int(1, 3000),
                           .steps = random_int(0, 2000),
                           .rows = random_int(1, 100000),
                           .blocks_per_sm = random_int(1, 4),
                           .block_m = 64,
                           .block_n = 64,
                           .head_dim = 128,
                           .head_dim_v = 128,
                           .mma_flops_per_clk = 4096};
}

START_TEST(parts_are_balanced_and_bounded) {
  const struct ft_arch h200 = known_gpu("h200");
  int divided = 0;
  seed_cases();
  for (int n = 0; n < 3000; n++) {
    const struct ft_walks walks = random_walks();
    const int64_t slots = h200.sm_count * walks.blocks_per_sm;
    const struct ft_key_parts parts = ft_key_parts_of(&walks, &h200);
    ck_assert_int_ge(parts.most, 1);
    ck_assert_int_ge(parts.most * parts.steps, walks.steps);
    ck_assert(parts.most == 1 || (parts.most - 1) * parts.steps < walks.steps);
    divided += parts.most > 1;
    if (parts.most == 1) continue;
    ck_assert(ft_key_parts_pay(walks.tiles, slots));
    ck_assert_int_le(parts.most * walks.tiles, ft_key_parts_most(&walks, &h200));
  }
  ck_assert_int_gt(divided, 100);
}
END_TEST

/* A few tiles with many keys fill the GPU; many tiles are left alone. */
START_TEST(a_gpu_is_filled) {
  const struct ft_arch h200 = known_gpu("h200");
  struct ft_walks walks = {.tiles = 8,
                           .steps = 512,
                           .rows = 32,
                           .blocks_per_sm = 1,
                           .block_m = 64,
                           .block_n = 128,
                           .head_dim = 128,
                           .head_dim_v = 128,
                           .mma_flops_per_clk = 4096};
  const struct ft_key_parts decode = ft_key_parts_of(&walks, &h200);
  ck_assert_int_ge(decode.most * walks.tiles, 120);
  walks.tiles = 4096;
  ck_assert_int_eq(ft_key_parts_of(&walks, &h200).most, 1);
  walks.tiles = 8;
  walks.steps = 1; /* nothing to divide */
  ck_assert_int_eq(ft_key_parts_of(&walks, &h200).most, 1);
}
END_TEST

/* ---- rows of a block mask ---- */

enum { ROWS_MOST = 300 };

static int compare_counts(const void *a, const void *b) {
  return *(const int32_t *)b - *(const int32_t *)a;
}

/* Rows of which a few may be much longer than the others. */
static struct ft_mask_rows random_rows(int32_t counts[ROWS_MOST]) {
  struct ft_mask_rows rows = {.counts = counts,
                              .rows = random_int(1, ROWS_MOST),
                              .tiles = random_int(1, 4),
                              .steps_of_a_block = random_int(1, 4),
                              .heads = random_int(1, 60)};
  const int usual = random_int(0, 20);
  for (int64_t n = 0; n < rows.rows; n++)
    counts[n] = random_int(0, 15) == 0 ? random_int(0, 900) : random_int(0, usual);
  qsort(counts, (size_t)rows.rows, sizeof *counts, compare_counts);
  return rows;
}

/* Of the walks those that are longer than a part are divided, and none that the workspace has no
 * room for. */
START_TEST(the_longest_rows_are_divided) {
  const struct ft_arch h200 = known_gpu("h200");
  int32_t counts[ROWS_MOST];
  int divided = 0, whole = 0;
  seed_cases();
  for (int n = 0; n < 2000; n++) {
    const struct ft_mask_rows rows = random_rows(counts);
    struct ft_walks walks = random_walks();
    walks.tiles = rows.heads * rows.rows * rows.tiles;
    walks.steps = rows.steps_of_a_block * random_int(counts[0], 1000);
    const int64_t longest = counts[0] * rows.steps_of_a_block;
    const struct ft_key_parts parts = ft_key_parts_of_rows(&rows, &walks, &h200);
    whole += parts.most == 1;
    if (parts.most == 1) {
      ck_assert_int_eq(parts.ranks, 0);
      continue;
    }
    divided++;
    ck_assert_int_ge(parts.most * parts.steps, longest);
    ck_assert_int_lt((parts.most - 1) * parts.steps, longest);
    ck_assert_int_eq(parts.ranks % rows.tiles, 0);
    for (int64_t row = 0; row < rows.rows; row++)
      ck_assert_int_eq(counts[row] * rows.steps_of_a_block > parts.steps,
                       row < parts.ranks / rows.tiles);
    ck_assert_int_le(rows.heads * parts.ranks * parts.most, ft_key_parts_most(&walks, &h200));
  }
  ck_assert_int_gt(divided, 100);
  ck_assert_int_gt(whole, 100);
}
END_TEST

/* Longformer's mask of 128 x 128 blocks at 16384 tokens: three diagonals and a global block. Its
 * one long row has parts; the rows of a random mask have none. */
START_TEST(a_global_row_is_divided) {
  const struct ft_arch h200 = known_gpu("h200");
  static const struct { int head_dim, heads, parts; } cases[] = {{64, 32, 8}, {128, 16, 8}};
  int32_t counts[128] = {128};
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    for (int row = 1; row < 128; row++) counts[row] = 4;
    const struct ft_mask_rows rows = {
        .counts = counts, .rows = 128, .tiles = 1, .steps_of_a_block = 1, .heads = cases[n].heads};
    struct ft_walks walks = {.tiles = 128 * cases[n].heads,
                             .steps = 128,
                             .rows = 16384 * cases[n].heads,
                             .blocks_per_sm = 1,
                             .block_m = 128,
                             .block_n = 128,
                             .head_dim = cases[n].head_dim,
                             .head_dim_v = cases[n].head_dim,
                             .mma_flops_per_clk = 4096};
    struct ft_key_parts parts = ft_key_parts_of_rows(&rows, &walks, &h200);
    ck_assert_int_eq(parts.most, cases[n].parts);
    ck_assert_int_eq(parts.ranks, 1);
    for (int row = 0; row < 128; row++) counts[row] = 22 - row / 8;
    parts = ft_key_parts_of_rows(&rows, &walks, &h200);
    ck_assert_int_eq(parts.most, 1);
    counts[0] = 128;
  }
}
END_TEST

/* The same mask by the hints of a request. */
START_TEST(hints_say_the_rows) {
  const struct ft_request uneven = known_request("d64 hq32 nq16384 mask=128x128@0.0388,25");
  const struct ft_request one_row = known_request("d64 hq6 nq100 mask=128x128@0.5,9");
  struct ft_walks walks = {.block_m = 64, .block_n = 64};
  const struct ft_mask_rows rows = ft_mask_rows_of_request(&uneven, &walks, 2);
  ck_assert(rows.rows == 128 && rows.tiles == 4 && rows.steps_of_a_block == 2 && rows.heads == 16);
  ck_assert(rows.first == 124 &&
            rows.others == 4); /* 0.0388 * 128 * 25; (128 * 4.97 - 124) / 127 */
  const struct ft_mask_rows alone = ft_mask_rows_of_request(&one_row, &walks, 1);
  ck_assert(alone.rows == 1 && alone.first == 1 && alone.others == 0);
}
END_TEST

/* As copy_tile.cu.in has threads side by side: 8 chunks of d64 by 8 threads, 10 of d80 by 2, 9 of
 * d72 are padded to 10, 12 of d96 by 4, 16 of d128 by 16. */
START_TEST(rows_are_loaded_in_pieces) {
  static const struct {
    const char *request;
    int piece;
    double cost;
  } cases[] = {{"d64 nq1", 128, 1},     {"d72 nq1", 32, 2},         {"d80 nq1", 32, 2},
               {"d96 nq1", 64, 1},      {"d128 nq1", 256, 1},       {"d128 dv80 nq1", 32, 2},
               {"fp32 d80 nq1", 64, 1}, {"kv=e4m3 d80 nq1", 16, 4}, {"kv=e4m3 d128 nq1", 128, 1}};
  const struct ft_arch h200 = known_gpu("h200");
  const struct ft_config of =
      known_config("mma_forward block_m=16 block_n=64 warps=4 stages=2 key_warps=4 ctas_per_sm=1");
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    const struct ft_request asked = known_request(cases[n].request);
    const struct ft_budget of_it = ft_budget_of(&asked, &of, &h200);
    const int piece = ft_mma_forward_piece(&asked, &of_it);
    ck_assert_msg(piece == cases[n].piece, "%s: %d", cases[n].request, piece);
    ck_assert_double_eq(ft_piece_cost(piece), cases[n].cost);
  }
}
END_TEST

/* ---- equal shares of all steps ---- */

/* Every step is in one share. A block begins a walk that others end at most once, and ends one at
 * most that others began; and the parts of a walk are those of neighbours. */
START_TEST(shares_cut_walks_into_few_parts) {
  enum { WALKS_MOST = 400 };
  seed_cases();
  for (int n = 0; n < 500; n++) {
    const int64_t walks = random_int(1, WALKS_MOST), blocks = random_int(1, 200);
    int64_t steps[WALKS_MOST], all = 0, longest = 0;
    const int most = random_int(0, 3) == 0 ? 2000 : random_int(1, 40);
    for (int64_t i = 0; i < walks; i++) {
      steps[i] = random_int(1, random_int(0, 9) == 0 ? 5 * most : most);
      all += steps[i];
      if (steps[i] > longest) longest = steps[i];
    }
    const int64_t share = ft_stream_share(all, longest, blocks);
    ck_assert_int_ge(share * blocks, all);
    ck_assert_int_le(share, (all + blocks - 1) / blocks * 17 / 16);
    int begun[200] = {0}, ended[200] = {0};
    for (int64_t i = 0, before = 0; i < walks; before += steps[i++]) {
      const struct ft_stream_parts parts = ft_stream_parts_of(before, steps[i], share);
      ck_assert_int_ge(parts.count, 1);
      ck_assert_int_le(parts.first_block + parts.count, blocks);
      ck_assert_int_eq(before / share, parts.first_block);
      ck_assert_int_eq((before + steps[i] - 1) / share, parts.first_block + parts.count - 1);
      if (parts.count == 1) continue;
      begun[parts.first_block]++;
      for (int64_t part = 1; part < parts.count; part++) ended[parts.first_block + part]++;
    }
    for (int64_t block = 0; block < blocks; block++) {
      ck_assert_int_le(begun[block], 1);
      ck_assert_int_le(ended[block], 1);
    }
  }
}
END_TEST

/* Walks that are alike stay whole where that costs little. */
START_TEST(walks_that_are_alike_stay_whole) {
  static const struct {
    int walks, steps, share;
  } cases[] = {{128, 64, 64}, {512, 32, 128}, {256, 256, 512}, {8, 512, 32}, {200, 64, 97}};
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    const int64_t all = (int64_t)cases[n].walks * cases[n].steps;
    const int64_t share = ft_stream_share(all, cases[n].steps, 132);
    ck_assert_msg(share == cases[n].share, "%d walks of %d: %d", cases[n].walks, cases[n].steps,
                  (int)share);
  }
}
END_TEST

static size_t workspace_of(const fatune_arguments *arguments) {
  size_t bytes;
  set_plan();
  ck_assert_status(ft_launch_workspace(&plan, arguments, &bytes), FT_OK);
  return bytes;
}

static fatune_arguments random_run(void) {
  fatune_arguments run = FATUNE_ARGUMENTS_INIT;
  run.heads_kv = random_int(1, 6);
  run.heads_q = run.heads_kv * random_int(1, 9);
  run.batch = random_int(1, 30);
  run.seqlen_q = random_int(1, 3) == 1 ? random_int(1, 2000) : random_int(1, 9);
  run.seqlen_k = random_int(1, 20000);
  const int64_t d = request.head_dim;
  run.q = run.o = (fatune_tensor){NULL, run.seqlen_q * run.heads_q * d, run.heads_q * d, d};
  run.k = run.v = (fatune_tensor){NULL, run.seqlen_k * run.heads_kv * d, run.heads_kv * d, d};
  fatune_tensor *const tensors[] = {&run.q, &run.k, &run.v, &run.o};
  for (uintptr_t n = 0; n < 4; n++) tensors[n]->data = at(0x10000000 * (n + 1));
  run.workspace = at(0xb0000000);
  return run;
}

/* What a run writes of the workspace. */
static size_t used(const struct ft_forward_params *params) {
  const size_t rows = (size_t)params->parts.rows * (size_t)params->parts.most;
  if (params->parts.most == 1) return 0;
  ck_assert_uint_ge(params->parts.o, params->parts.lse + rows * 4);
  return params->parts.o + rows * (size_t)request.head_dim_v * 4 - 0xb0000000;
}

static fatune_arguments random_paged_run(void) {
  enum { PAGE = 16 };
  fatune_arguments run = random_run();
  const int64_t columns = (run.seqlen_k + PAGE - 1) / PAGE, row = run.heads_kv * request.head_dim;
  run.k.stride_batch = run.v.stride_batch = PAGE * row;
  run.page_table = (fatune_page_table){at(0x90000000), columns, 1, columns, run.batch * columns};
  run.seqused_k = at(0xa0000000);
  return run;
}

/* Asserts that `run` needs no more workspace than a run at least as large as both, and prepares it.
 * Its parts stay within what it asked for. Returns how many parts there are. */
static int prepare_within(const fatune_arguments *run, const fatune_arguments *other,
                          const struct ft_forward_params *params) {
  fatune_arguments larger = *run;
  if (other->batch > larger.batch) larger.batch = other->batch;
  if (other->heads_q > larger.heads_q) larger.heads_q = other->heads_q;
  if (other->seqlen_q > larger.seqlen_q) larger.seqlen_q = other->seqlen_q;
  if (other->seqlen_k > larger.seqlen_k) larger.seqlen_k = other->seqlen_k;
  larger.heads_kv = 1;
  fatune_arguments told = *run;
  told.workspace_size = workspace_of(run);
  ck_assert_uint_le(told.workspace_size, workspace_of(&larger));
  ck_assert_status(prepare(&told), FT_OK);
  ck_assert_uint_le(used(params), told.workspace_size);
  return params->parts.most;
}

static void prepare_without_workspace(const fatune_arguments *run,
                                      const struct ft_forward_params *params) {
  fatune_arguments without = *run;
  without.workspace = NULL;
  ck_assert_status(prepare(&without), FT_OK);
  ck_assert_int_eq(params->parts.most, 1);
  ck_assert_uint_eq(launch.kernels[launch.family->main + 1].grid, 0);
}

/* Blocks have shares of the steps: one of wgmma a multiprocessor, of mma as many as are resident
 * with the most registers that the compiler may take. */
START_TEST(the_workspace_suffices_for_shares) {
  static const struct {
    const char *config;
    unsigned blocks;
  } cases[] = {
      {"wgmma_forward block_m=64 block_n=64 stages=2 q_stages=1 direct_store=1 pack_gqa=1 "
       "split_keys=1",
       132},
      {"mma_forward block_m=16 block_n=64 warps=4 stages=2 key_warps=4 pack_gqa=1 split_keys=1 "
       "ctas_per_sm=1",
       2 * 132},
      {"mma_forward block_m=64 block_n=32 warps=4 stages=2 split_keys=1 ctas_per_sm=3", 3 * 132}};
  ck_assert_status(ft_config_parse(&config, cases[_i].config), FT_OK);
  ck_assert_status(ft_request_parse(&request, "forward bf16 d64 nq100 causal pages=16"), FT_OK);
  arch = known_gpu("h200");
  seed_cases();
  const struct ft_forward_params *const params =
      _i ? &launch.argument.forward : &launch.argument.tiled_forward.rest;
  for (int n = 0; n < 1000; n++) {
    const fatune_arguments run = random_paged_run(), other = random_paged_run();
    const int most = prepare_within(&run, &other, params);
    const struct ft_launch_kernel *const kernels = &launch.kernels[launch.family->main];
    ck_assert_uint_le(kernels[0].grid, cases[_i].blocks);
    ck_assert_int_eq(most, kernels[0].grid);
    ck_assert_int_eq(kernels[1].grid > 0, most > 1);
    ck_assert(kernels[1].grid == 0 || kernels[1].early);
    const unsigned grid = kernels[0].grid;
    prepare_without_workspace(&run, params);
    ck_assert_uint_eq(kernels[0].grid, grid);
  }
  good = random_paged_run();
  good.batch = 200;
  good.page_table.columns = 1 << 26;
  BAD(seqlen_k, 1 << 30, "steps of ", "2^31 - 1 steps in all");
  BAD(page_table.stride_batch, INT64_MAX / 4, "page_table reaches past the address space",
      "over 200 batch entries");
  BAD(page_table.stride_page, INT64_MAX / 4, "page_table reaches past the address space",
      "67108864 columns");
}
END_TEST

/* Into how many parts the model expects the walks of such a run to be divided. */
static int64_t reckoned(const fatune_arguments *run, bool by_wgmma) {
  struct ft_request asked = request;
  asked.batch = run->batch, asked.heads_q = run->heads_q, asked.heads_kv = run->heads_kv;
  asked.seqlen_q = run->seqlen_q, asked.seqlen_k = run->seqlen_k;
  const struct ft_walks walks = by_wgmma ? ft_wgmma_forward_walks_of(&asked, &config, &arch)
                                         : ft_mma_forward_walks_of(&asked, &config, &arch);
  return ft_key_parts_of(&walks, &arch).most;
}

/* A launch chooses the number of parts. */
START_TEST(the_workspace_suffices_for_smaller_runs) {
  static const char *const texts[] = {
      "mma_forward block_m=64 block_n=32 warps=4 stages=2 split_keys=1 ctas_per_sm=2",
      "mma_forward block_m=16 block_n=64 warps=4 stages=2 key_warps=4 pack_gqa=1 split_keys=1 "
      "ctas_per_sm=1",
      "wgmma_forward block_m=128 block_n=64 stages=2 q_stages=1 direct_store=1 pack_gqa=1 "
      "split_keys=1"};
  ck_assert_status(ft_config_parse(&config, texts[_i]), FT_OK);
  ck_assert_status(ft_request_parse(&request, "forward bf16 d64 nq100 causal"), FT_OK);
  arch = known_gpu("h200");
  seed_cases();
  const struct ft_forward_params *const params =
      _i == 2 ? &launch.argument.tiled_forward.rest : &launch.argument.forward;
  int divided = 0;
  for (int n = 0; n < 1000; n++) {
    const fatune_arguments run = random_run(), other = random_run();
    const int most = prepare_within(&run, &other, params);
    ck_assert_int_eq(most, reckoned(&run, _i == 2));
    ck_assert_int_eq(launch.kernels[launch.family->main + 1].grid > 0, most > 1);
    divided += most > 1;
    prepare_without_workspace(&run, params);
  }
  ck_assert_int_gt(divided, 50);
  good = random_run();
  BAD(workspace, at(0xb0000080), "arguments.workspace is 0xb0000080", "multiple of 256");
  good.seqlen_q = good.batch = good.heads_kv = good.heads_q = 1;
  good.seqlen_k = 20000;
  const size_t bytes = workspace_of(&good);
  ck_assert_uint_gt(bytes, 0);
  BAD(workspace_size, bytes - 1, "arguments.workspace_size is ", "which this run needs");
  fatune_arguments whole = good;
  whole.workspace_size = 1;
  whole.workspace = NULL; /* nothing is divided */
  ck_assert_status(prepare(&whole), FT_OK);
}
END_TEST

Suite *make_key_parts_suite(void) {
  Suite *const suite = suite_create("key_parts");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, parts_are_balanced_and_bounded);
  tcase_add_test(tests, the_longest_rows_are_divided);
  tcase_add_test(tests, a_global_row_is_divided);
  tcase_add_test(tests, hints_say_the_rows);
  tcase_add_test(tests, rows_are_loaded_in_pieces);
  tcase_add_test(tests, a_gpu_is_filled);
  tcase_add_test(tests, shares_cut_walks_into_few_parts);
  tcase_add_test(tests, walks_that_are_alike_stay_whole);
  tcase_add_loop_test(tests, the_workspace_suffices_for_shares, 0, 3);
  tcase_add_loop_test(tests, the_workspace_suffices_for_smaller_runs, 0, 3);
  suite_add_tcase(suite, tests);
  return suite;
}
