/* test_emulator_cluster.c: what the emulated device does of clusters: multicast, arrivals at other
 * blocks, the barrier of the cluster.
 * in -> out: random tensors and words -> what each block sees of the others, and what a launch
 * refuses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/text.h"
#include "tests/hopper_kernel.h"
#include "tests/suites.h"

#define SEED "(FATUNE_TEST_SEED=%llu)"

enum { BLOCKS_MOST = 4, CLUSTERS = 2 };

/* A kernel in clusters of so many blocks, which its body sees as BLOCKS. */
static void open_clusters(struct small_kernel *kernel, int blocks, const char *body) {
  char clusters[64];
  struct ft_text text = FT_TEXT_INIT;
  (void)snprintf(clusters, sizeof clusters, "__cluster_dims__(%d, 1, 1)", blocks);
  ft_text_add(&text, "constexpr int BLOCKS = %d;\n%s", blocks, body);
  ck_assert_int_eq(ft_text_status(&text), FT_OK);
  hopper_open_clusters(kernel, FT_BF16, clusters, text.data);
  ft_text_free(&text);
}

static void run(int blocks, const char *body, unsigned grid, unsigned threads,
                struct hopper_tensor *tensor, const void *in, size_t in_count, void *out,
                size_t out_count) {
  struct small_kernel kernel;
  open_clusters(&kernel, blocks, body);
  const int status =
      hopper_launch(&kernel, grid, threads, tensor, tensor ? 1 : 0, in, in_count, out, out_count);
  ck_assert_msg(status == FT_OK, "%d blocks: %s " SEED, blocks, ft_detail(),
                (unsigned long long)random_seed);
  small_kernel_close(&kernel);
}

static const int sizes[] = {1, 2, 4};

/* ---- multicast ---- */

enum { TILES = 5, ROWS = 64, TILE_WORDS = ROWS * 128 / 4 };

/* Each block loads a part of every tile for all; two warps read all of it and give the stage back
 * to every block. */
static const char multicast[] =
    "const unsigned full = smem, empty = smem + 16, tiles = smem + 1024;\n"
    "const unsigned rank = cluster_rank();\n"
    "if (thread == 0) {\n"
    "  for (int s = 0; s < 2; ++s) {\n"
    "    mbarrier_init(full + 8 * s, 1);\n"
    "    mbarrier_init(empty + 8 * s, 2 * BLOCKS);\n"
    "  }\n"
    "  mbarrier_init_fence();\n"
    "}\n"
    "cluster_sync();\n"
    "for (int t = 0; t < 5 && warp == 0; ++t) {\n"
    "  const int part = 64 / BLOCKS * rank;\n"
    "  if (lane == 0) {\n"
    "    mbarrier_wait(empty + 8 * (t % 2), t / 2 & 1 ^ 1);\n"
    "    mbarrier_arrive_expect(full + 8 * (t % 2), 64 * 128);\n"
    "    tma_load_multicast(tiles + t % 2 * 8192 + part * 128, maps[0], full + 8 * (t % 2), 0,\n"
    "                       64 * t + part, 1, blockIdx.x / BLOCKS, (1u << BLOCKS) - 1);\n"
    "  }\n"
    "}\n"
    "for (int t = 0; t < 5 && warp != 0; ++t) {\n"
    "  mbarrier_wait(full + 8 * (t % 2), t / 2 & 1);\n"
    "  for (int at = 16 * (thread - 32); at < 64 * 128; at += 16 * 64) {\n"
    "    unsigned r[4];\n"
    "    load_shared_16(r, tiles + t % 2 * 8192 + at);\n"
    "    for (int i = 0; i < 4; ++i) out[(blockIdx.x * 5 + t) * 2048 + at / 4 + i] = r[i];\n"
    "  }\n"
    "  __syncwarp();\n"
    "  if (lane < BLOCKS) mbarrier_arrive_at(empty + 8 * (t % 2), lane);\n"
    "}\n"
    "cluster_sync();";

static void check_tile(const uint32_t *words, const struct hopper_tensor *tensor, int block,
                       int tile, int batch) {
  uint16_t elements[2 * TILE_WORDS];
  memcpy(elements, words, sizeof elements);
  for (int row = 0; row < ROWS; row++)
    for (int column = 0; column < PANEL_COLUMNS; column++) {
      const int chunk = column / 8 ^ row % 8;
      const uint16_t got = elements[row * 64 + chunk * 8 + column % 8];
      const uint16_t expected = hopper_at(tensor, column, ROWS * tile + row, 1, batch);
      ck_assert_msg(got == expected, "block %d, tile %d, row %d, column %d: %#x, not %#x " SEED,
                    block, tile, row, column, got, expected, (unsigned long long)random_seed);
    }
}

START_TEST(a_tile_goes_to_all_blocks) {
  const int blocks = sizes[_i], grid = CLUSTERS * blocks;
  struct hopper_tensor tensor = {.name = "X",
                                 .extents = {64, TILES * ROWS - 21, 2, CLUSTERS},
                                 .box_rows = (unsigned)(ROWS / blocks)};
  static uint32_t out[CLUSTERS * BLOCKS_MOST * TILES * TILE_WORDS];
  const uint32_t in[1] = {0};
  hopper_tensor_make(&tensor, FT_BF16, 8);
  run(blocks, multicast, (unsigned)grid, 96, &tensor, in, 1, out,
      (size_t)grid * TILES * TILE_WORDS);
  for (int n = 0; n < grid * TILES; n++)
    check_tile(out + n * TILE_WORDS, &tensor, n / TILES, n % TILES, n / TILES / blocks);
  free(tensor.host);
}
END_TEST

/* ---- arrivals, barriers ---- */

/* A word goes round, from block to block; each waits for its own barrier, the next one arrives. */
START_TEST(arrivals_reach_other_blocks) {
  enum { ROUNDS = 6 };
  const int blocks = sizes[_i];
  const uint32_t in[1] = {random_word()};
  uint32_t out[CLUSTERS], expected = in[0];
  run(blocks,
      "if (thread == 0) mbarrier_init(smem, 1);\n"
      "cluster_sync();\n"
      "const unsigned rank = cluster_rank();\n"
      "unsigned *const word = out + blockIdx.x / BLOCKS;\n"
      "if (thread == 0) {\n"
      "  if (rank == 0) *word = in[0], mbarrier_arrive_at(smem, 0);\n"
      "  for (int round = 0; round < 6; ++round) {\n"
      "    mbarrier_wait(smem, round & 1);\n"
      "    *word = *word * 3 + rank;\n"
      "    if (rank < BLOCKS - 1 || round < 5) mbarrier_arrive_at(smem, (rank + 1) % BLOCKS);\n"
      "  }\n"
      "}\n"
      "cluster_sync();",
      (unsigned)(CLUSTERS * blocks), 32, NULL, in, 1, out, CLUSTERS);
  for (uint32_t turn = 0; turn < (uint32_t)(ROUNDS * blocks); turn++)
    expected = expected * 3 + turn % (uint32_t)blocks;
  for (int n = 0; n < CLUSTERS; n++) ck_assert_uint_eq(out[n], expected);
}
END_TEST

/* Each block reads what its neighbour has written before the barrier; a warp that has ended is not
 * waited for. Shared memory, by pointer, is each block's own. */
START_TEST(the_barrier_is_for_all_of_the_cluster) {
  enum { ROUNDS = 5 };
  const int blocks = sizes[_i], grid = CLUSTERS * blocks;
  uint32_t in[CLUSTERS * BLOCKS_MOST], out[2 * CLUSTERS * BLOCKS_MOST];
  uint32_t now[CLUSTERS * BLOCKS_MOST] = {0};
  for (int n = 0; n < grid; n++) now[n] = in[n] = random_word();
  run(blocks,
      "const int rank = cluster_rank(), first = blockIdx.x - rank;\n"
      "unsigned *const mine = reinterpret_cast<unsigned *>(shared);\n"
      "if (warp == 1) return;\n"
      "unsigned value = in[blockIdx.x];\n"
      "if (thread == 0) mine[7] = value;\n"
      "for (int round = 0; round < 5; ++round) {\n"
      "  if (thread == 0) out[blockIdx.x] = value;\n"
      "  cluster_sync();\n"
      "  const unsigned other = out[first + (rank + 1) % BLOCKS];\n"
      "  value = 5 * value + other;\n"
      "  if (warp == 0) cluster_sync();\n"
      "  else cluster_sync();\n"
      "}\n"
      "if (thread == 0) out[blockIdx.x] = value, out[gridDim.x + blockIdx.x] = mine[7];\n",
      (unsigned)grid, 96, NULL, in, (size_t)grid, out, 2 * (size_t)grid);
  for (int round = 0; round < ROUNDS; round++) {
    uint32_t before[CLUSTERS * BLOCKS_MOST];
    memcpy(before, now, sizeof before);
    for (int n = 0; n < grid; n++)
      now[n] = 5 * before[n] + before[n / blocks * blocks + (n + 1) % blocks];
  }
  for (int n = 0; n < grid; n++) {
    ck_assert_uint_eq(out[n], now[n]);
    ck_assert_uint_eq(out[grid + n], in[n]);
  }
}
END_TEST

/* ---- launches ---- */

START_TEST(a_grid_is_whole_clusters) {
  const uint32_t in[1] = {0};
  uint32_t out[8];
  struct small_kernel kernel;
  open_clusters(&kernel, 4, "if (thread == 0) out[blockIdx.x] = cluster_rank();");
  ck_assert_int_ne(hopper_launch(&kernel, 6, 32, NULL, 0, in, 1, out, 8), FT_OK);
  ck_assert_msg(strstr(ft_detail(), "the grid is 6 blocks; allowed for a kernel with clusters of 4 "
                                    "(__cluster_dims__): multiples of 4") != NULL,
                "%s", ft_detail());
  ck_assert_int_eq(hopper_launch(&kernel, 8, 32, NULL, 0, in, 1, out, 8), FT_OK);
  for (uint32_t n = 0; n < 8; n++) ck_assert_uint_eq(out[n], n % 4);
  small_kernel_close(&kernel);
}
END_TEST

START_TEST(a_block_that_does_not_end_is_named) {
  const uint32_t in[1] = {0};
  uint32_t out[1];
  struct small_kernel kernel;
  open_clusters(&kernel, 2,
                "volatile unsigned *const seen = out;\n"
                "while (blockIdx.x == 3 && *seen != 1) ;\n"
                "cluster_sync();");
  setenv("FATUNE_EMULATOR_STEPS", "100000", 1);
  ck_assert_int_eq(hopper_launch(&kernel, 4, 32, NULL, 0, in, 1, out, 1), FT_E_DEVICE);
  ck_assert_msg(strstr(ft_detail(),
                       "block 3 (rank 1 of its cluster), warp 0, lane 0: does not end: "
                       "the block has taken 100000 steps") != NULL,
                "%s", ft_detail());
  small_kernel_close(&kernel);
}
END_TEST

Suite *make_emulator_cluster_suite(void) {
  Suite *const suite = suite_create("emulator_cluster");
  TCase *const tests = tcase_create("cluster");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, a_tile_goes_to_all_blocks, 0, 3);
  tcase_add_loop_test(tests, arrivals_reach_other_blocks, 0, 3);
  tcase_add_loop_test(tests, the_barrier_is_for_all_of_the_cluster, 0, 3);
  tcase_add_test(tests, a_grid_is_whole_clusters);
  tcase_add_test(tests, a_block_that_does_not_end_is_named);
  suite_add_tcase(suite, tests);
  return suite;
}
