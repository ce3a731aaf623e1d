/* test_emulator_hopper_bugs.c: a pipeline of TMA, mbarriers and wgmma on the emulated device, right
 * as it stands, and bugs planted into it, each caught with its place.
 * in -> out: an edit of the pipeline -> the fault, in words, with its line. */
#include "tests/emulator_lab.h"
#include "tests/pipeline_lab.h"
#include "tests/suites.h"

/* O = (Q Y^T) Y over the rows of Y in tiles of 64: a producer warpgroup and two consumers, two
 * stages; the first product of a tile runs beside the second of the tile before. */
static const char pipeline[] =
    "constexpr int TILES = 9;\n"
    "const unsigned q_full = smem, full = smem + 16, empty = smem + 32;\n"
    "const unsigned q = smem + 1024, y = q + 128 * 128;\n"
    "if (thread == 0) {\n"
    "  mbarrier_init(q_full, 1);\n"
    "  for (int s = 0; s < 2; ++s) mbarrier_init(full + 8 * s, 1), mbarrier_init(empty + 8 * s, "
    "2);\n"
    "  mbarrier_init_fence();\n"
    "}\n"
    "__syncthreads();\n"
    "if (thread < 128) {\n"
    "  registers_release<24>();\n"
    "  if (thread != 0) return;\n"
    "  mbarrier_arrive_expect(q_full, 128 * 128);\n"
    "  tma_load(q, maps[0], q_full, 0, 0, 1, 0);\n"
    "  for (int t = 0; t < TILES; ++t) {\n"
    "    mbarrier_wait(empty + 8 * (t % 2), (t / 2 & 1) ^ 1);\n"
    "    mbarrier_arrive_expect(full + 8 * (t % 2), 64 * 128);\n"
    "    tma_load(y + t % 2 * 8192, maps[1], full + 8 * (t % 2), 0, 64 * t, 0, 1);\n"
    "  }\n"
    "  return;\n"
    "}\n"
    "registers_claim<240>();\n"
    "const int me = thread / 128 - 1;\n"
    "const bool first = thread % 128 == 0;\n"
    "const auto along = [](unsigned at) {\n"
    "  return u64(at >> 4) | u64(1) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;\n"
    "};\n"
    "float rS[8][4], rO[8][4];\n"
    "unsigned rP[4][4];\n"
    "for (int i = 0; i < 32; ++i) rO[i / 4][i % 4] = 0.f;\n"
    "mbarrier_wait(q_full, 0);\n"
    "for (int t = 0; t < TILES; ++t) {\n"
    "  const unsigned tile = y + t % 2 * 8192;\n"
    "  mbarrier_wait(full + 8 * (t % 2), t / 2 & 1);\n"
    "  wgmma_fence();\n"
    "  for (int k = 0; k < 4; ++k) {\n"
    "    wgmma_ss(rS, along(q + me * 8192) + 2 * k, along(tile) + 2 * k, k > 0);\n"
    "  }\n"
    "  wgmma_commit();\n"
    "  wgmma_wait<1>();\n"
    "  if (t > 0 && first) mbarrier_arrive(empty + 8 * ((t - 1) % 2));\n"
    "  wgmma_wait<0>();\n"
    "  hold(rS);\n"
    "  for (int i = 0; i < 16; ++i) {\n"
    "    const int n = i / 4 * 2 + i % 4 / 2, j = i % 2 * 2;\n"
    "    rP[i / 4][i % 4] = pack(rS[n][j], rS[n][j + 1]);\n"
    "  }\n"
    "  wgmma_fence();\n"
    "  for (int k = 0; k < 4; ++k) wgmma_rs_across(rO, rP[k], along(tile) + 128 * k);\n"
    "  wgmma_commit();\n"
    "}\n"
    "wgmma_wait<0>();\n"
    "for (int i = 0; i < 4; ++i) {\n"
    "  const int row = warp % 4 * 16 + lane % 16, chunk = 2 * i + lane / 16;\n"
    "  const unsigned r[4] = {pack(rO[2 * i][0], rO[2 * i][1]), pack(rO[2 * i][2], rO[2 * i][3]),\n"
    "                         pack(rO[2 * i + 1][0], rO[2 * i + 1][1]),\n"
    "                         pack(rO[2 * i + 1][2], rO[2 * i + 1][3])};\n"
    "  stmatrix_x4(q + me * 8192 + row * 128 + ((chunk ^ row & 7) * 16), r);\n"
    "}\n"
    "async_proxy_fence();\n"
    "barrier_sync(1 + me, 128);\n"
    "if (first) {\n"
    "  tma_store(maps[2], q + me * 8192, 0, 64 * me, 2, 0);\n"
    "  tma_store_commit();\n"
    "  tma_store_wait_read<0>();\n"
    "  store_shared_4(q + me * 8192, 0);\n"
    "}";

static struct pipeline_tensors make_tensors(void) {
  enum { Q_ROWS = 128, TILES = 9, O_ROWS = 100 };
  static const unsigned box_rows[] = {Q_ROWS, PIPELINE_TILE, PIPELINE_TILE};
  return pipeline_make(Q_ROWS, PIPELINE_TILE * TILES - 23, O_ROWS, box_rows);
}

START_TEST(a_pipeline_computes_what_it_should) {
  struct pipeline_tensors tensors = make_tensors();
  const int status = pipeline_launch(&tensors, "", 2, pipeline);
  ck_assert_msg(status == FT_OK, "%s", ft_detail());
  pipeline_check(&tensors);
  pipeline_free(&tensors);
}
END_TEST

/* ---- bugs ---- */

#define FULL_WAIT  "  mbarrier_wait(full + 8 * (t % 2), t / 2 & 1);\n"
#define EMPTY_WAIT "    mbarrier_wait(empty + 8 * (t % 2), (t / 2 & 1) ^ 1);\n"
#define EXPECT     "    mbarrier_arrive_expect(full + 8 * (t % 2), 64 * 128);\n"
#define GIVE_BACK                                                                                  \
  "  wgmma_wait<1>();\n"                                                                           \
  "  if (t > 0 && first) mbarrier_arrive(empty + 8 * ((t - 1) % 2));\n"
#define FIRST   "    wgmma_ss(rS, along(q + me * 8192) + 2 * k, along(tile) + 2 * k, k > 0);\n"
#define SECOND  "  for (int k = 0; k < 4; ++k) wgmma_rs_across(rO, rP[k], along(tile) + 128 * k);\n"
#define LOAD    "    tma_load(y + t % 2 * 8192, maps[1], full + 8 * (t % 2), 0, 64 * t, 0, 1);\n"
#define STORING "async_proxy_fence();\nbarrier_sync(1 + me, 128);\n"
#define STORE   "  tma_store_commit();\n  tma_store_wait_read<0>();\n"

static const struct pipeline_bug bugs[] = {
    /* the pipeline */
    {.name = "missing wait for the tile",
     .piece = FULL_WAIT,
     .other = "\n",
     .at = "wgmma_ss(rS",
     .words = {"reads shared memory at offset ", "to which the TMA load of line "}},
    {.name = "wrong parity for the tile",
     .piece = "t / 2 & 1);",
     .other = "t / 2 & 1 ^ 1);",
     .at = "wgmma_ss(rS",
     .words = {"reads shared memory at offset 17408", NULL}},
    {.name = "wrong parity for the stage",
     .piece = "(t / 2 & 1) ^ 1);",
     .other = "t / 2 & 1);",
     .at = "mbarrier_wait(empty",
     .words = {"waits for phase 0 of the mbarrier at offset 32, 2 arrivals and 0 bytes missing",
               "warp 4, lane 0 and 255 more: in line "}},
    {.name = "missing wait for the stage",
     .piece = EMPTY_WAIT,
     .other = "\n",
     .at = EXPECT,
     .words = {"arrives once more than the 1 arrivals of phase 0 of the mbarrier at offset 16",
               "which still waits for bytes"}},
    {.name = "a tile loaded over another that is under way",
     .piece = LOAD,
     .other = LOAD "tma_load(y + t % 2 * 8192, maps[1], q_full, 0, 64 * t, 0, 1);\n",
     .at = "tma_load(y + t % 2 * 8192, maps[1], q_full",
     .words = {"writes shared memory at offset 17408, to which the TMA load of line ",
               "(to the mbarrier at offset 16) is still under way"}},
    {.name = "a consumer that does not give the stage back",
     .piece = "if (t > 0 && first)",
     .other = "if (t > 0 && first && me == 0)",
     .at = "mbarrier_wait(empty",
     .words = {"waits for phase 0 of the mbarrier at offset 32, 1 arrival and 0 bytes missing",
               "more: in line "}},
    {.name = "stage given back before it was read",
     .piece = GIVE_BACK,
     .other = "  if (t > 0 && first) mbarrier_arrive(empty + 8 * ((t - 1) % 2));\n",
     .at = LOAD,
     .words = {"writes shared memory at offset ", "which the wgmma of warpgroup "}},
    {.name = "expecting more bytes than come",
     .piece = EXPECT,
     .other = "    mbarrier_arrive_expect(full + 8 * (t % 2), 64 * 128 + 16);\n",
     .at = EMPTY_WAIT,
     .words = {"warp 4, lane 0 and 255 more: in line ",
               "waits for phase 0 of the mbarrier at offset 16, 0 arrivals and 16 bytes missing"}},
    {.name = "expecting fewer bytes than come",
     .piece = EXPECT,
     .other = "    mbarrier_arrive_expect(full + 8 * (t % 2), 64 * 128 - 16);\n",
     .at = LOAD,
     .words = {"loads 16 bytes more than the 8176 that phase 0 of the mbarrier at offset 16 ",
               "expects"}},
    {.name = "an arrival too many",
     .piece = EXPECT,
     .other = EXPECT "mbarrier_arrive(full + 8 * (t % 2));\n",
     .at = "mbarrier_arrive(full",
     .words = {"arrives once more than the 1 arrivals of phase 0", NULL}},
    {.name = "a phase that nobody waits for",
     .piece = "  mbarrier_init_fence();\n",
     .other = "  mbarrier_init_fence();\n  mbarrier_arrive(full);\n",
     .at = EXPECT,
     .words = {"arrives in phase 1 of the mbarrier at offset 16",
               "and nobody has waited for the one before"}},
    {.name = "no load at all",
     .piece = LOAD,
     .other = "\n",
     .at = EMPTY_WAIT,
     .words = {"mbarrier at offset 16, 0 arrivals and 8192 bytes missing", NULL}},
    {.name = "a load that nobody waits for",
     .piece = "  return;\n}\nregisters",
     .other = "  mbarrier_arrive_expect(q_full, 8192);\n"
              "  tma_load(y + 16384, maps[1], q_full, 0, 0, 0, 0);\n  return;\n}\nregisters",
     .at = "tma_load(y + 16384",
     .words =
         {"begins a TMA load that is still under way as the block ends: nobody waits for phase "
          "1 of the mbarrier at offset 0",
          NULL}},
    {.name = "a map that reaches beyond its tensor",
     .rows_beyond = 40,
     .piece = "constexpr int TILES = 9;",
     .other = "constexpr int TILES = 9;",
     .at = LOAD,
     .words = {"reads 2 bytes", "right past the end of "}},
    {.name = "no tensor map",
     .piece = "maps[1], full",
     .other = "maps[3], full",
     .at = "tma_load(y + t",
     .words = {"takes a tensor map that cuTensorMapEncodeTiled has not made", NULL}},
    /* mbarriers */
    {.name = "no mbarrier",
     .piece = "  mbarrier_init(q_full, 1);\n",
     .other = "\n",
     .at = "mbarrier_wait(q_full",
     .words = {"uses an mbarrier at offset 0, where none was made", NULL}},
    {.name = "mbarriers without fence",
     .piece = "  mbarrier_init_fence();\n",
     .other = "\n",
     .at = "tma_load(q,",
     .words = {"has TMA use the mbarrier at offset 0, which no fence", NULL}},
    {.name = "mbarriers without __syncthreads",
     .piece = "__syncthreads();\n",
     .other = "\n",
     .at = "mbarrier_wait(q_full, 0)",
     .words = {"uses the mbarrier at offset 0, which warp 0, lane 0 makes in line ", "(race)"}},
    {.name = "an mbarrier overwritten",
     .piece = "const unsigned q = smem + 1024, y",
     .other = "const unsigned q = smem, y",
     .at = "tma_load(q,",
     .words = {"writes shared memory at offset 0, where the mbarrier of line ", NULL}},
    /* wgmma */
    {.name = "missing wgmma.fence",
     .piece = "  wgmma_fence();\n" SECOND,
     .other = "\n" SECOND,
     .at = "wgmma_rs_across(rO",
     .words = {"wgmma.fence is missing", NULL}},
    {.name = "missing wait for the first product",
     .piece = "  wgmma_wait<0>();\n  hold(rS);\n",
     .other = "\n",
     .at = "rP[i / 4][i % 4] = pack",
     .words = {"reads an accumulator of a wgmma that is under way", NULL},
     .plain = true},
    {.name = "wait for the first product one group too short",
     .piece = "  wgmma_wait<0>();\n  hold(rS);\n",
     .other = "  if (t == 0) wgmma_wait<0>();\n  wgmma_wait<1>();\n  hold(rS);\n",
     .at = "rP[i / 4][i % 4] = pack",
     .words = {"reads an accumulator of a wgmma that is under way", NULL},
     .plain = true},
    {.name = "tile written one wait too soon",
     .piece = GIVE_BACK,
     .other = "  wgmma_wait<1>();\n"
              "  if (t > 0 && first) mbarrier_arrive(empty + 8 * ((t - 1) % 2));\n"
              "  if (t == 4 && first) store_shared_4(tile, 0);\n",
     .at = "store_shared_4(tile",
     .words =
         {"writes shared memory at offset 17408, which the wgmma of warpgroup 1 reads in line ",
          "no wait for that orders the two (race)"}},
    {.name = "missing wait for the last product",
     .piece = "wgmma_wait<0>();\nfor",
     .other = "\nfor",
     .at = "const unsigned r[4]",
     .words = {"reads an accumulator of a wgmma that is under way", NULL},
     .plain = true},
    {.name = "missing commit",
     .piece = SECOND "  wgmma_commit();\n",
     .other = SECOND "\n",
     .at = LOAD,
     .words =
         {"writes shared memory at offset 17408, which the wgmma of warpgroup 1 reads in line ",
          "no wait for that orders the two (race)"}},
    {.name = "a product that nobody waits for",
     .piece = "wgmma_wait<0>();\nfor",
     .other = "return;\nfor",
     .at = "wgmma_rs_across(rO",
     .words = {"begins a wgmma that is still under way as the block ends", NULL}},
    {.name = "accumulator written too early",
     .piece = SECOND,
     .other = SECOND "  if (t == 3 && thread == 201) rO[1][2] = 0.f;\n",
     .at = "wgmma_wait<1>()",
     .words = {"warp 6, lane 9: finds accumulator c[6] of the wgmma of line ",
               "written while it was under way"}},
    {.name = "operand changed too early",
     .piece = SECOND,
     .other = SECOND "  if (t == 3 && thread == 201) rP[1][2] ^= 1;\n",
     .at = "wgmma_wait<1>()",
     .words = {"warp 6, lane 9: finds operand a[2] of the wgmma of line ",
               "changed while it was under way"}},
    {.name = "wrong stride in the descriptor",
     .piece = "u64(1024 >> 4) << 32",
     .other = "u64(2048 >> 4) << 32",
     .at = "wgmma_ss(rS",
     .words = {"multiplies by an A that is no tile: 8 rows and 0 columns from its begin stands Q[",
               ", not Q["}},
    {.name = "columns that do not belong together",
     .piece = "along(tile) + 2 * k, k > 0",
     .other = "along(tile) + 2 * (k ^ 1), k > 0",
     .at = "wgmma_ss(rS",
     .words = {"multiplies columns that do not belong together: from Q[", "and from Y["}},
    {.name = "no swizzle in the descriptor",
     .piece = "| u64(1) << 62",
     .other = "| u64(0) << 62",
     .at = "wgmma_ss(rS",
     .words = {"has A with swizzle 0 and base offset 0", NULL}},
    {.name = "a warp that does not come to a product",
     .piece = FIRST,
     .other = "    if (warp != 6)\n" FIRST,
     .at = "  wgmma_commit();\n  wgmma_wait<1>",
     .words = {"is for the whole warpgroup, but warp ", "is at wgmma.mma_async in line "}},
    {.name = "a lane that does not come to a wait",
     .piece = "  wgmma_wait<0>();\n  hold(rS);\n",
     .other = "  if (thread == 201) return;\n  wgmma_wait<0>();\n  hold(rS);\n",
     .at = "  wgmma_wait<0>();\n  hold(rS)",
     .words = {"waits at wgmma.wait_group for its warpgroup, but warp 6, lane 9 has ended", NULL}},
    /* stores */
    {.name = "missing proxy fence",
     .piece = STORING,
     .other = "\nbarrier_sync(1 + me, 128);\n",
     .at = "tma_store(maps",
     .words = {"by the asynchronous proxy, shared memory at offset 1024, which warp 4, lane 0",
               "no fence.proxy.async is between the two"}},
    {.name = "proxy fence of one thread before the barrier",
     .piece = STORING,
     .other = "if (first) async_proxy_fence();\nbarrier_sync(1 + me, 128);\n",
     .at = "tma_store(maps",
     .words = {"by the asynchronous proxy, shared memory at offset ", NULL}},
    {.name = "written behind the proxy fence",
     .piece = STORING,
     .other = "async_proxy_fence();\nif (thread == 140) store_shared_4(q + 12 * 128 + 4 * 16, 0);\n"
              "barrier_sync(1 + me, 128);\n",
     .at = "tma_store(maps",
     .words = {"shared memory at offset 2624, which warp 4, lane 12 writes by an ordinary store",
               "no fence.proxy.async is between the two"}},
    {.name = "written by an ordinary store before a load",
     .piece = EXPECT,
     .other = EXPECT "store_shared_4(y + t % 2 * 8192, 0);\n",
     .at = LOAD,
     .words =
         {"writes, by the asynchronous proxy, shared memory at offset 17408, which warp 0, lane "
          "0 writes by an ordinary store",
          NULL}},
    {.name = "missing barrier before the store",
     .piece = STORING,
     .other = "async_proxy_fence();\n\n",
     .at = "tma_store(maps",
     .words = {"reads shared memory at offset ", "nothing orders the two (race)"}},
    {.name = "store not waited for",
     .piece = STORE,
     .other = "  tma_store_commit();\n\n",
     .at = "  store_shared_4(q + me",
     .words = {"writes shared memory at offset 1024, which the TMA store of warp 4, lane 0 reads",
               "no wait for that orders the two (race)"}},
    {.name = "store not committed",
     .piece = STORE,
     .other = "\n  tma_store_wait_read<0>();\n",
     .at = "  store_shared_4(q + me",
     .words = {"which the TMA store of warp 4, lane 0 reads in line ", NULL}},
    {.name = "store to an input",
     .piece = "tma_store(maps[2], q + me * 8192, 0, 64 * me, 2, 0);",
     .other = "tma_store(maps[1], q + me * 8192, 0, 64 * me, 0, 0);",
     .at = "tma_store(maps",
     .words = {"writes 2 bytes to Y[batch 0, row 0, head 0, column 0], an input", NULL}},
    /* threads together */
    {.name = "more registers than there are",
     .piece = "registers_claim<240>",
     .other = "registers_claim<248>",
     .at = "registers_claim<",
     .words = {"waits for 248 registers a thread, 16 more than the block has left", NULL}},
    {.name = "fewer registers claimed",
     .piece = "registers_claim<240>",
     .other = "registers_claim<160>",
     .at = "registers_claim<",
     .words = {"asks for more, 160 registers a thread, but has 168", NULL}},
    {.name = "named barrier for more threads than come",
     .piece = "barrier_sync(1 + me, 128)",
     .other = "barrier_sync(1 + me, 160)",
     .at = "barrier_sync(1 + me",
     .words = {"waits at barrier 1 for 160 threads, of which 128 have come", NULL}},
    {.name = "named barrier come to twice",
     .piece = STORING,
     .other = "async_proxy_fence();\nbarrier_arrive(1 + me, 128);\nbarrier_sync(1 + me, 128);\n",
     .at = "barrier_sync(1 + me",
     .words = {"comes to barrier 1 once more before the others", NULL}},
};

START_TEST(a_bug_is_caught_with_its_place) {
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  struct pipeline_tensors tensors = make_tensors();
  pipeline_catch(&tensors, "", 1, pipeline, &bugs[number]);
  pipeline_free(&tensors);
}
END_TEST

Suite *make_emulator_hopper_bugs_suite(void) {
  Suite *const suite = suite_create("emulator_hopper_bugs");
  TCase *const tests = tcase_create("bugs");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, a_pipeline_computes_what_it_should);
  tcase_add_loop_test(tests, a_bug_is_caught_with_its_place, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
