/* test_emulator_cluster_bugs.c: a pipeline of wgmma whose tiles come by multicast to the blocks of
 * a cluster, right as it stands, and bugs planted into it, each caught with its place. in -> out:
 * an edit of the pipeline -> the fault, in words, with its line. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/emulator_lab.h"
#include "tests/pipeline_lab.h"
#include "tests/suites.h"

/* O = (Q Y^T) Y over the rows of Y in tiles of 64: each block has 128 rows of Q and loads its part
 * of every tile for all blocks; its two consumers give a stage back to all producers. */
static const char pipeline[] =
    "constexpr int BLOCKS = 2;\n"
    "constexpr int TILES = 7, PART = 64 / BLOCKS;\n"
    "const unsigned q_full = smem, full = smem + 16, empty = smem + 32;\n"
    "const unsigned q = smem + 1024, y = q + 128 * 128;\n"
    "const int rank = cluster_rank();\n"
    "if (thread == 0) {\n"
    "  mbarrier_init(q_full, 1);\n"
    "  for (int s = 0; s < 2; ++s) {\n"
    "    mbarrier_init(full + 8 * s, 1);\n"
    "    mbarrier_init(empty + 8 * s, 2 * BLOCKS);\n"
    "  }\n"
    "  mbarrier_init_fence();\n"
    "}\n"
    "cluster_sync(); // all barriers are there\n"
    "const int me = thread / 128 - 1, own = thread % 128;\n"
    "if (me < 0) {\n"
    "  registers_release<24>();\n"
    "  if (thread == 0) {\n"
    "    mbarrier_arrive_expect(q_full, 128 * 128);\n"
    "    for (int i = 0; i < 128; i += PART)\n"
    "      tma_load(q + 128 * i, maps[0], q_full, 0, 128 * rank + i, 1, 0);\n"
    "  }\n"
    "  for (int t = 0; t < TILES && thread == 0; ++t) {\n"
    "    mbarrier_wait(empty + 8 * (t % 2), (t / 2 & 1) ^ 1);\n"
    "    mbarrier_arrive_expect(full + 8 * (t % 2), 64 * 128);\n"
    "    tma_load_multicast(y + t % 2 * 8192 + rank * PART * 128, maps[1], full + 8 * (t % 2), 0,\n"
    "                       64 * t + rank * PART, 0, 1, (1u << BLOCKS) - 1);\n"
    "  }\n"
    "} else {\n"
    "  registers_claim<240>();\n"
    "  const auto along = [](unsigned at) {\n"
    "    return u64(at >> 4) | u64(1) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;\n"
    "  };\n"
    "  float rS[8][4], rO[8][4];\n"
    "  unsigned rP[4][4];\n"
    "  for (int i = 0; i < 32; ++i) rO[i / 4][i % 4] = 0.f;\n"
    "  mbarrier_wait(q_full, 0);\n"
    "  for (int t = 0; t < TILES; ++t) {\n"
    "    const unsigned tile = y + t % 2 * 8192;\n"
    "    mbarrier_wait(full + 8 * (t % 2), t / 2 & 1);\n"
    "    wgmma_fence();\n"
    "    for (int k = 0; k < 4; ++k)\n"
    "      wgmma_ss(rS, along(q + me * 8192) + 2 * k, along(tile) + 2 * k, k > 0);\n"
    "    wgmma_commit();\n"
    "    wgmma_wait<0>();\n"
    "    hold(rS);\n"
    "    for (int i = 0; i < 16; ++i) {\n"
    "      const int n = i / 4 * 2 + i % 4 / 2, j = i % 2 * 2;\n"
    "      rP[i / 4][i % 4] = pack(rS[n][j], rS[n][j + 1]);\n"
    "    }\n"
    "    wgmma_fence();\n"
    "    for (int k = 0; k < 4; ++k) wgmma_rs_across(rO, rP[k], along(tile) + 128 * k);\n"
    "    wgmma_commit();\n"
    "    wgmma_wait<0>();\n"
    "    hold(rO);\n"
    "    if (own < BLOCKS) mbarrier_arrive_at(empty + 8 * (t % 2), own);\n"
    "  }\n"
    "  for (int i = 0; i < 4; ++i) {\n"
    "    const int row = warp % 4 * 16 + lane % 16, chunk = 2 * i + lane / 16;\n"
    "    const unsigned r[4] = {pack(rO[2 * i][0], rO[2 * i][1]), pack(rO[2 * i][2], rO[2 * "
    "i][3]),\n"
    "                           pack(rO[2 * i + 1][0], rO[2 * i + 1][1]),\n"
    "                           pack(rO[2 * i + 1][2], rO[2 * i + 1][3])};\n"
    "    stmatrix_x4(q + me * 8192 + row * 128 + ((chunk ^ row & 7) * 16), r);\n"
    "  }\n"
    "  async_proxy_fence();\n"
    "  barrier_sync(1 + me, 128);\n"
    "  if (own == 0) {\n"
    "    for (int i = 0; i < 64; i += PART)\n"
    "      tma_store(maps[2], q + me * 8192 + 128 * i, 0, 128 * rank + 64 * me + i, 2, 0);\n"
    "    tma_store_commit();\n"
    "    tma_store_wait_read<0>();\n"
    "  }\n"
    "}\n"
    "cluster_sync(); // nobody needs this block any more\n";

/* Q has more rows than O. */
static struct pipeline_tensors make_tensors(int blocks) {
  enum { TILES = 7 };
  const uint64_t rows = (uint64_t)blocks * 128;
  const unsigned part = (unsigned)(PIPELINE_TILE / blocks);
  return pipeline_make(rows, PIPELINE_TILE * TILES - 23, rows - 19,
                       (const unsigned[]){part, part, part});
}

START_TEST(a_pipeline_computes_what_it_should) {
  const int blocks = 1 << _i;
  char constant[64], clusters[64];
  (void)snprintf(constant, sizeof constant, "constexpr int BLOCKS = %d;", blocks);
  (void)snprintf(clusters, sizeof clusters, "__cluster_dims__(%d, 1, 1)", blocks);
  struct pipeline_tensors tensors = make_tensors(blocks);
  char *const body = hopper_edited(pipeline, "constexpr int BLOCKS = 2;", constant);
  const int status = pipeline_launch(&tensors, clusters, 2 * (unsigned)blocks, body);
  ck_assert_msg(status == FT_OK, "%s", ft_detail());
  pipeline_check(&tensors);
  free(body);
  pipeline_free(&tensors);
}
END_TEST

/* ---- bugs ---- */

#define FENCE     "  mbarrier_init_fence();\n}\n"
#define FIRST     "cluster_sync(); // all barriers are there\n"
#define LAST      "cluster_sync(); // nobody needs this block any more\n"
#define EXPECT    "mbarrier_arrive_expect(full + 8 * (t % 2), 64 * 128);\n"
#define MULTICAST "tma_load_multicast("
#define MASK      "(1u << BLOCKS) - 1"
#define GIVE_BACK "    if (own < BLOCKS) mbarrier_arrive_at(empty + 8 * (t % 2), own);\n"
#define WAIT      "    wgmma_wait<0>();\n    hold(rO);\n"

static const struct pipeline_bug bugs[] = {
    /* who is there */
    {.name = "barriers of the other block not waited for",
     .piece = FIRST,
     .other = "__syncthreads();\n",
     .at = MULTICAST,
     .words = {"block 0 (rank 0 of its cluster), warp 0, lane 0: uses an mbarrier at offset 16 of "
               "block 1, where none was made"}},
    {.name = "a barrier made behind cluster_sync",
     .piece = FIRST,
     .other = FIRST "if (thread == 0 && rank == 1) mbarrier_init(smem + 64, 1);\n"
                    "if (thread == 0 && rank == 0) mbarrier_arrive_at(smem + 64, 1);\n",
     .at = "mbarrier_arrive_at(smem + 64",
     .words = {"block 0 (rank 0 of its cluster), warp 0, lane 0: uses the mbarrier at offset 64 of "
               "block 1, which block 1, warp 0, lane 0 makes in line ",
               "nothing orders the two (race)"}},
    {.name = "no fence for the barriers",
     .piece = FENCE,
     .other = "}\n",
     .at = "tma_load(q",
     .words = {"has TMA use the mbarrier at offset 0, which no fence"}},
    {.name = "a fence for the barriers behind cluster_sync",
     .piece = FENCE FIRST,
     .other = "}\n" FIRST "if (thread == 0) mbarrier_init_fence();\n",
     .at = MULTICAST,
     .words = {"has TMA use the mbarrier at offset 16 of block 0, which no fence"}},
    {.name = "no cluster_sync at the end",
     .piece = LAST,
     .other = "\n",
     .at = "mbarrier_arrive_at(",
     .words = {"block 1 (rank 1 of its cluster), warp ",
               "arrives at an mbarrier of block 0 (rank 0 of its cluster), which may have ended by "
               "then: no cluster_sync keeps it"}},
    {.name = "one block does not wait at the end",
     .piece = LAST,
     .other = "if (rank == 0) cluster_sync();\n",
     .at = "mbarrier_arrive_at(",
     .words = {"block 0 (rank 0 of its cluster), warp ",
               "arrives at an mbarrier of block 1 (rank 1 of its cluster), which may have ended by "
               "then: no cluster_sync keeps it"}},
    {.name = "lanes that miss the last cluster_sync",
     .piece = "  registers_release<24>();\n",
     .other = "  registers_release<24>();\n  if (thread != 0) return;\n",
     .at = LAST,
     .words = {"waits at barrier.cluster for its warp, but lane 1 has ended"}},
    /* the pipeline */
    {.name = "stage given back to the own block only",
     .piece = GIVE_BACK,
     .other = "    if (own == 0) mbarrier_arrive(empty + 8 * (t % 2));\n",
     .at = "mbarrier_wait(empty",
     .words = {"waits for phase 0 of the mbarrier at offset 32, 2 arrivals and 0 bytes missing",
               "; block 1, warp 0, lane 0: in line ", "; block 1, warp 4, lane 0 and 255 more"}},
    {.name = "the other block's consumers not waited for",
     .piece = "mbarrier_init(empty + 8 * s, 2 * BLOCKS);",
     .other = "mbarrier_init(empty + 8 * s, BLOCKS);",
     .at = MULTICAST,
     .words = {"by multicast, in block ", "writes shared memory at offset 17408", "(race)"}},
    {.name = "stage given back before it was read",
     .piece = WAIT GIVE_BACK,
     .other = GIVE_BACK WAIT,
     .at = MULTICAST,
     .words = {"which the wgmma of block ", "no wait for that orders the two (race)"}},
    {.name = "stage given back to the other block before it was read",
     .piece = WAIT GIVE_BACK,
     .other = "    if (own == 1 - rank) mbarrier_arrive_at(empty + 8 * (t % 2), own);\n" WAIT
              "    if (own == rank) mbarrier_arrive_at(empty + 8 * (t % 2), own);\n",
     .at = MULTICAST,
     .words = {"by multicast, in block ", "which the wgmma of block ",
               "no wait for that orders the two (race)"}},
    {.name = "an arrival too many",
     .piece = GIVE_BACK,
     .other = "    if (own < BLOCKS && t == 2) mbarrier_arrive_at(empty + 8, own);\n" GIVE_BACK,
     .at = "mbarrier_arrive_at(empty + 8, own)",
     .words = {"arrives in phase 2 of the mbarrier at offset 40 of block 0",
               "and nobody has waited for the one before"}},
    {.name = "no wait for the stage",
     .piece = "    mbarrier_wait(empty + 8 * (t % 2), (t / 2 & 1) ^ 1);\n",
     .other = "\n",
     .at = EXPECT,
     .words = {"arrives once more than the 1 arrivals of phase 0 of the mbarrier at offset 16"}},
    {.name = "expecting the own part only",
     .piece = EXPECT,
     .other = "mbarrier_arrive_expect(full + 8 * (t % 2), PART * 128);\n",
     .at = "wgmma_ss(rS",
     .words = {"reads shared memory at offset ", "which was never written"}},
    {.name = "written by an ordinary store before the other block's load",
     .piece = GIVE_BACK,
     .other = "    barrier_sync(3, 256);\n"
              "    if (thread == 128) store_shared_4(tile + (1 - rank) * PART * 128, 0);\n"
              "    barrier_sync(3, 256);\n" GIVE_BACK,
     .at = MULTICAST,
     .words = {"by multicast, in block ",
               "writes, by the asynchronous proxy, shared memory at offset "}},
    /* masks and ranks */
    {.name = "multicast to the own block only",
     .piece = MASK,
     .other = "1u << rank",
     .at = "mbarrier_wait(empty",
     .words =
         {"waits for phase 0 of the mbarrier at offset 16, 0 arrivals and 4096 bytes missing"}},
    {.name = "multicast beyond the cluster",
     .piece = MASK,
     .other = "5",
     .at = MULTICAST,
     .words = {"multicasts to blocks 0x5, a bit for each; allowed in its cluster of 2: 1 to 0x3"}},
    {.name = "multicast to nobody",
     .piece = MASK,
     .other = "0",
     .at = MULTICAST,
     .words = {"multicasts to blocks 0x0"}},
    {.name = "arrival beyond the cluster",
     .piece = GIVE_BACK,
     .other = "    if (own <= BLOCKS) mbarrier_arrive_at(empty + 8 * (t % 2), own);\n",
     .at = "mbarrier_arrive_at(",
     .words = {"reaches for rank 2 of its cluster, which has 2 blocks"}},
    {.name = "arrival where there is no barrier",
     .piece = "mbarrier_arrive_at(empty + 8 * (t % 2), own)",
     .other = "mbarrier_arrive_at(empty + 8 * (t % 2) + 16 * (1 - rank), 1)",
     .at = "mbarrier_arrive_at(",
     .words = {"uses an mbarrier at offset ", " of block 1, where none was made"}},
    {.name = "blocks of different length",
     .piece = "t < TILES && thread == 0",
     .other = "t < TILES - rank && thread == 0",
     .at = "mbarrier_wait(full",
     .words = {"4096 bytes missing", "is at barrier.cluster in line "}},
    {.name = "a block that leaves",
     .piece = FIRST,
     .other = FIRST "if (rank == 1) return;\n",
     .at = MULTICAST,
     .words = {"reaches for shared memory of block 1 (rank 1 of its cluster), which has ended"}},
    {.name = "a tile that nobody waits for in the other block",
     .piece = "for (int t = 0; t < TILES; ++t) {\n    const unsigned tile",
     .other = "for (int t = 0; t < TILES - rank; ++t) {\n    const unsigned tile",
     .at = MULTICAST,
     .words = {"begins a TMA load that is still under way as ", "the mbarrier at offset 16"}},
};

START_TEST(a_bug_is_caught_with_its_place) {
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  struct pipeline_tensors tensors = make_tensors(2);
  pipeline_catch(&tensors, "__cluster_dims__(2, 1, 1)", 4, pipeline, &bugs[number]);
  pipeline_free(&tensors);
}
END_TEST

Suite *make_emulator_cluster_bugs_suite(void) {
  Suite *const suite = suite_create("emulator_cluster_bugs");
  TCase *const tests = tcase_create("bugs");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, a_pipeline_computes_what_it_should, 0, 3);
  tcase_add_loop_test(tests, a_bug_is_caught_with_its_place, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
