/* test_emulator_cluster_copy.c: copies from the shared memory of a block to that of another one of
 * its cluster, and bugs planted into a kernel that exchanges tiles by them, each caught with its
 * place. in -> out: random words -> what the other block has read; an edit of the kernel -> the
 * fault, in words, with its line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hopper_kernel.h"
#include "tests/suites.h"

enum { BLOCKS = 2, CLUSTERS = 2, STEPS = 5, TILE_WORDS = 128, THREADS = 64 };
enum { GRID = CLUSTERS * BLOCKS, WORDS = GRID * STEPS * TILE_WORDS };

/* Warp 0 of each block writes a tile a step and sends it to the other block, whose warp 1 reads it
 * and says so to the sender. */
static const char exchange[] =
    "const unsigned full = smem, empty = smem + 8, own = smem + 1024, other = smem + 4096;\n"
    "const unsigned rank = cluster_rank();\n"
    "if (thread == 0) {\n"
    "  mbarrier_init(full, 1);\n"
    "  mbarrier_init(empty, 1);\n"
    "  mbarrier_init_fence();\n"
    "}\n"
    "cluster_sync(); // all barriers are there\n"
    "for (int t = 0; t < 5; ++t) {\n"
    "  const int step = (blockIdx.x * 5 + t) * 128 + lane;\n"
    "  if (warp == 0) {\n"
    "    mbarrier_wait(empty, t & 1 ^ 1); // the tile before has been read\n"
    "    for (int i = 0; i < 128; i += 32) store_shared_4(own + (lane + i) * 4, in[step + i]);\n"
    "    async_proxy_fence();\n"
    "    __syncwarp();\n"
    "    if (lane == 0) copy_to_block(other, own, 512, full, rank ^ 1);\n"
    "  } else {\n"
    "    if (lane == 0) mbarrier_arrive_expect(full, 512);\n"
    "    __syncwarp();\n"
    "    mbarrier_wait(full, t & 1); // the tile is there\n"
    "    unsigned r[4];\n"
    "    load_shared_16(r, other + lane * 16);\n"
    "    for (int i = 0; i < 4; ++i) out[(blockIdx.x * 5 + t) * 128 + lane * 4 + i] = r[i];\n"
    "    __syncwarp();\n"
    "    if (lane == 0) mbarrier_arrive_at(empty, rank ^ 1);\n"
    "  }\n"
    "}\n"
    "cluster_sync(); // nobody needs this block any more\n";

static int launch(const char *body, const uint32_t in[WORDS], uint32_t out[WORDS]) {
  struct small_kernel kernel;
  hopper_open_clusters(&kernel, FT_BF16, "__cluster_dims__(2, 1, 1)", body);
  const int status = hopper_launch(&kernel, GRID, THREADS, NULL, 0, in, WORDS, out, WORDS);
  small_kernel_close(&kernel);
  return status;
}

static void make_words(uint32_t in[WORDS]) {
  for (int n = 0; n < WORDS; n++) in[n] = random_word();
}

START_TEST(tiles_come_to_the_other_block) {
  enum { BLOCK_WORDS = STEPS * TILE_WORDS };
  static uint32_t in[WORDS], out[WORDS];
  make_words(in);
  const int status = launch(exchange, in, out);
  ck_assert_msg(status == FT_OK, "%s", ft_detail());
  for (int block = 0; block < GRID; block++)
    ck_assert_mem_eq(&out[block * BLOCK_WORDS], &in[(block ^ 1) * BLOCK_WORDS],
                     BLOCK_WORDS * sizeof *in);
}
END_TEST

/* ---- bugs ---- */

#define FENCE     "    async_proxy_fence();\n"
#define COPY      "copy_to_block(other, own, 512, full, rank ^ 1);"
#define SENT      "    mbarrier_wait(empty, t & 1 ^ 1); // the tile before has been read\n"
#define GIVE_BACK "    if (lane == 0) mbarrier_arrive_at(empty, rank ^ 1);\n"
#define ARRIVED   "    mbarrier_wait(full, t & 1); // the tile is there\n"
#define LAST      "cluster_sync(); // nobody needs this block any more\n"

static const struct {
  const char *name, *piece, *other; /* the one becomes the other */
  const char *at;                   /* what stands in the line of the fault */
  const char *words[2];
} bugs[] = {
    {"a tile sent without a proxy fence",
     FENCE,
     "",
     "copy_to_block(",
     {"by the asynchronous proxy, shared memory at offset 1024",
      "no fence.proxy.async is between the two"}},
    {"a tile written again while it is sent",
     SENT,
     "    __syncwarp();\n",
     "store_shared_4(",
     {"which the TMA load to the mbarrier at offset 0 of block ", "(race)"}},
    {"a tile read before it is there",
     ARRIVED,
     "",
     "load_shared_16(",
     {"reads shared memory at offset 4", "which was never written"}},
    {"a tile sent over one that is read",
     "    __syncwarp();\n" GIVE_BACK,
     GIVE_BACK,
     "copy_to_block(",
     {"in block ", "writes shared memory at offset 4"}},
    {"fewer bytes than are expected",
     COPY,
     "copy_to_block(other, own, 496, full, rank ^ 1);",
     "mbarrier_wait(full",
     {"waits for phase 0 of the mbarrier at offset 0", "16 bytes missing"}},
    {"more bytes than are expected",
     COPY,
     "copy_to_block(other, own - 16, 528, full, rank ^ 1);",
     "copy_to_block(",
     {"reads shared memory at offset 1008, which was never written", NULL}},
    {"a copy of its own barrier's bytes",
     COPY,
     "copy_to_block(other, own, 512, full + 16, rank ^ 1);",
     "copy_to_block(",
     {"uses an mbarrier at offset 16 of block ", "where none was made"}},
    {"a copy beyond the cluster",
     COPY,
     "copy_to_block(other, own, 512, full, rank + 1);",
     "copy_to_block(",
     {"reaches for rank 2 of its cluster, which has 2 blocks", NULL}},
    {"a copy that is not of whole chunks",
     COPY,
     "copy_to_block(other, own, 504, full, rank ^ 1);",
     "copy_to_block(",
     {"copies 504 bytes between shared address ", "multiples of 16"}},
    {"a block that ends while its tile is sent",
     LAST,
     "if (rank == 1) cluster_sync();\n",
     "copy_to_block(",
     {"block 1 (rank 1 of its cluster), warp 0, lane 0: arrives at an mbarrier of block 0",
      "which may have ended by then: no cluster_sync keeps it"}},
};

START_TEST(a_bug_is_caught_with_its_place) {
  static uint32_t in[WORDS], out[WORDS];
  char *const edited = hopper_edited(exchange, bugs[_i].piece, bugs[_i].other);
  make_words(in);
  const int status = launch(edited, in, out);
  ck_assert_msg(status == FT_E_DEVICE, "%s: status %d", bugs[_i].name, status);
  hopper_expect_fault(bugs[_i].name, edited, bugs[_i].at, bugs[_i].words, 2);
  free(edited);
}
END_TEST

START_TEST(a_block_that_ends_before_its_tile_is_read_is_named) {
  static uint32_t in[WORDS], out[WORDS];
  make_words(in);
  const int status = launch("if (thread == 0) {\n"
                            "  mbarrier_init(smem, 1);\n"
                            "  mbarrier_init_fence();\n"
                            "}\n"
                            "cluster_sync();\n"
                            "if (thread == 0 && cluster_rank() == 1) {\n"
                            "  for (int i = 0; i < 4; ++i) store_shared_4(smem + 64 + i * 4, 1);\n"
                            "  async_proxy_fence();\n"
                            "  copy_to_block(smem + 128, smem + 64, 16, smem, 0);\n"
                            "} else if (thread == 0) {\n"
                            "  mbarrier_arrive_expect(smem, 16);\n"
                            "  mbarrier_wait(smem, 0);\n"
                            "}\n",
                            in, out);
  ck_assert_int_eq(status, FT_E_DEVICE);
  ck_assert_msg(strstr(ft_detail(), "block 1 (rank 1 of its cluster), warp 0, lane 0: begins a "
                                    "copy to block 0 that is still under way as its own block "
                                    "ends: no cluster_sync keeps it") != NULL,
                "%s", ft_detail());
}
END_TEST

Suite *make_emulator_cluster_copy_suite(void) {
  Suite *const suite = suite_create("emulator_cluster_copy");
  TCase *const tests = tcase_create("copies");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, tiles_come_to_the_other_block);
  tcase_add_test(tests, a_block_that_ends_before_its_tile_is_read_is_named);
  tcase_add_loop_test(tests, a_bug_is_caught_with_its_place, 0, (int)(sizeof bugs / sizeof *bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
