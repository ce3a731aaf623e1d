/* test_emulator_split.c: walks that are divided into parts, on an emulated H200.
 * in -> out: request, config -> every row against float64; bugs in what makes parts and puts them
 * together, each of which must be seen; the same run twice and without a workspace. */
#include <math.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"
#include "tuner/verify/problem.h"

#define MMA "mma_forward block_m=64 block_n=32 warps=4 stages=2 split_keys=1 ctas_per_sm=1"
#define WGMMA(more)                                                                                \
  "wgmma_forward block_m=64 block_n=64 stages=2 q_stages=1 direct_store=1 split_keys=1" more
/* Parts that the blocks of a cluster put together. */
#define SHARED(warps, more)                                                                        \
  "mma_forward block_m=16 block_n=64 warps=" #warps " stages=2 key_warps=" #warps more             \
  " ctas_per_sm=1"
#define CLUSTER(more) "wgmma_forward block_m=64 block_n=64 stages=2 q_stages=1 direct_store=1" more

static const struct {
  const char *request, *config;
} runs[] = {
    {"bf16 d128 hq8 hkv2 nq1 nk1000 causal", WGMMA(" pack_gqa=1")},
    {"fp16 d64 dv40 hq2 nq33 nk700 sinks dropout", WGMMA("")},
    {"bf16 d40 nq200 nk500 causal=top-left", WGMMA(" overlap_tiles=1")},
    {"bf16 d40 nq60 nk700 causal window@500,0", WGMMA(" overlap_tiles=1")},
    {"bf16 d64 nq130 nk700 window@200,30 mask=64x64@0.5", WGMMA("")},
    {"fp16 d16 dv256 hq2 nq3 nk300 causal dropout", MMA},
    {"bf16 d72 nq70 nk700 window=top-left@100,300", MMA},
    {"fp16 d64 nq70 nk600 causal mask=64x64@0.3", MMA},
    {"bf16 d64 nq600 nk70 causal sinks", MMA}, /* rows that see no key */
    {"bf16 d128 hq8 hkv2 nq1 nk1000 causal", CLUSTER(" pack_gqa=1 split_keys=16")},
    {"fp16 d64 dv40 hq2 nq33 nk700 sinks dropout", CLUSTER(" split_keys=4")},
    {"bf16 d64 nq130 nk700 window@200,30 mask=64x64@0.5", CLUSTER(" split_keys=8")},
    {"fp16 d256 hq8 hkv2 nq5 nk500", CLUSTER(" pack_gqa=1 split_keys=4")},
    {"e4m3 d64 hq2 b2 nq70 nk300 causal sinks", CLUSTER(" split_keys=2")},
    {"bf16 d40 hq8 hkv2 b2 nq3 nk700 causal pages=16", CLUSTER(" pack_gqa=1 split_keys=8")},
    {"bf16 d64 nq300 nk70 causal", CLUSTER(" split_keys=4")}, /* parts without a step */
    {"bf16 d128 hq8 hkv2 nq1 nk1000 causal", SHARED(4, " pack_gqa=1 split_keys=16")},
    {"fp16 d64 dv40 hq4 hkv2 nq11 nk700 sinks dropout", SHARED(2, " pack_gqa=1 split_keys=4")},
    {"bf16 d72 hq4 hkv2 nq5 nk9000 window@8500,30", SHARED(4, " pack_gqa=1 split_keys=1")},
    {"bf16 d64 nq130 nk700 causal mask=64x64@0.5", SHARED(4, " split_keys=8")},
    {"fp16 d256 hq8 hkv2 nq5 nk500 sinks", SHARED(1, " pack_gqa=1")},
    {"bf16 d40 hq8 hkv2 b2 nq3 nk700 causal pages=16", SHARED(4, " pack_gqa=1 split_keys=8")},
    {"fp32 d40 nq30 nk300 causal", SHARED(4, " split_keys=2")},
    {"bf16 d64 nq300 nk70 causal sinks", SHARED(2, "")}, /* rows that see no key */
};

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  emulator_row_by_row(runs[number].request, (enum ft_layout)(number % 3), 0, runs[number].config);
}
END_TEST

/* ---- bugs ---- */

#define ONE_TILE "bf16 d64 nq50 nk1170 causal" /* 37 steps by MMA, 19 by WGMMA: uneven parts */
#define SHORTER  "bf16 d64 nq128 nk128 causal" /* of two tiles one has no second part */

static const struct {
  const char *file, *piece, *other, *request, *config;
} bugs[] = {
    {"parts/key_parts.cu.in", "least + (part.number < longer)", "least", ONE_TILE, MMA},
    {"parts/key_parts.cu.in", "+ min(part.number, longer)", "", ONE_TILE, MMA},
    {"parts/key_parts.cu.in", "part.number >= part.count", "false", SHORTER, WGMMA("")},
    {"parts/key_parts.cu.in", "(part.number * params.parts.rows + row)", "row", ONE_TILE, MMA},
    {"parts/key_walk.cu.in", "keys.first_tile + begin", "keys.first_tile", ONE_TILE, MMA},
    {"parts/key_walk.cu.in", "HIDES_FIRST_KEYS || DIVIDED", "HIDES_FIRST_KEYS", ONE_TILE,
     WGMMA("")},
    {"parts/merge_parts.cu.in", "rO[c][n] += weight *", "rO[c][n] +=", ONE_TILE, MMA},
    {"parts/merge_parts.cu.in", "most + lg2(weights) * LN_2", "lg2(weights) * LN_2", ONE_TILE,
     WGMMA("")},
    {"parts/merge_parts.cu.in", ": 0.f) * add_sink", ": 0.f) + 0 * add_sink", ONE_TILE " sinks",
     MMA},
    {"parts/epilogue_mma.cu.in", "if (is_whole(tile.part)) end.n", "end.n", ONE_TILE " sinks", MMA},
    {"parts/merge_parts.cu.in", "first + ahead < count, loaded.lse", "true, loaded.lse", ONE_TILE,
     MMA},
    {"parts/announce.cu.in", "DIVIDED ? max(full.begin - share.first_tile, 0) :", "",
     "bf16 d64 nq50 nk470 window@400,30", WGMMA("")},
    {"parts/schedule_split.cu.in", "* params.parts.most", "", ONE_TILE, WGMMA("")},
    {"parts/key_parts_cluster.cu.in", "least + (part.number < longer)", "least", ONE_TILE,
     CLUSTER(" split_keys=8")},
    {"parts/key_parts_cluster.cu.in", "+ min(part.number, longer)", "", ONE_TILE,
     CLUSTER(" split_keys=8")},
    {"parts/merge_four.cu.in", "four.o[n] += weight *", "four.o[n] +=", ONE_TILE,
     CLUSTER(" split_keys=4")},
    {"parts/merge_four.cu.in", "const float shrunk = add_sink(four.lse, params, head);",
     "const float shrunk = 1.f;", ONE_TILE " sinks", CLUSTER(" split_keys=4")},
    {"parts/merge_four.cu.in", "most + lg2(weights) * LN_OF_2", "lg2(weights) * LN_OF_2", ONE_TILE,
     CLUSTER(" split_keys=4")},
    {"parts/merge_cluster.cu.in", "cluster_sync();  // all parts are there", "__syncthreads();",
     ONE_TILE, CLUSTER(" split_keys=4")},
    {"parts/merge_cluster.cu.in", "cluster_meet();  // nobody reads", "// nobody reads", ONE_TILE,
     CLUSTER(" split_keys=4")},
    {"parts/merge_cluster.cu.in", "+ column) * 4, rank);", ") * 4, rank);", ONE_TILE,
     CLUSTER(" split_keys=4")},
    {"parts/mma_loop_staged.cu.in", "step) + rows.own_keys;", "step);", ONE_TILE, SHARED(4, "")},
    {"parts/mma_tile.cu.in", "SMEM_V + own_keys * V_STRIDE", "SMEM_V", ONE_TILE, SHARED(4, "")},
    {"parts/merge_four.cu.in", "four.o[n] += weight *", "four.o[n] +=", ONE_TILE, SHARED(4, "")},
    {"parts/merge_four.cu.in", "four.o[n] *= shrunk;", ";", ONE_TILE " sinks", SHARED(4, "")},
    {"parts/epilogue_shared_rows.cu.in", "__syncthreads();  // K and V", "// K and V", ONE_TILE,
     SHARED(4, "")},
    {"parts/epilogue_shared_rows.cu.in", "column + 2, four.o[2], four.o[3]",
     "column + 2, four.o[0], four.o[1]", "bf16 d64 nq7 nk9000", SHARED(4, " split_keys=1")},
    {"parts/copy_queries.cu.in", "valid = i < sequence.nq && ",
     "valid = ", "bf16 d64 hq4 hkv2 nq3 nk100", SHARED(4, " pack_gqa=1")},
    {"parts/schedule_cluster.cu.in", "tile.part.number = blockIdx.x % PARTS;",
     "tile.part.number = 0;", ONE_TILE, CLUSTER(" split_keys=4")},
};

/* A sink may be too small to show, so a bug has several problems to be seen in. */
START_TEST(bugs_are_seen) {
  enum { TRIES = 12 };
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  const struct planted planted =
      emulator_plant(bugs[number].file, bugs[number].piece, bugs[number].other);
  const struct ft_problem_options options =
      emulator_options(bugs[number].request, FT_LAYOUT_PADDED, emulator_seed());
  ck_assert_msg(emulator_sees(&planted, &options, bugs[number].config, TRIES), "'%s' is not seen",
                bugs[number].other);
  emulator_unplant(&planted);
}
END_TEST

/* More parts than are loaded at once. */
START_TEST(parts_are_merged_in_rounds) {
  const struct planted planted =
      emulator_plant("parts/merge_parts.cu.in", "HEAD_DIM_V <= 128 ? 16 : 8;", "2;");
  const struct ft_problem_options options =
      emulator_options(ONE_TILE, FT_LAYOUT_BSHD, emulator_seed());
  struct emulator_run run;
  emulator_run_alone(&run, planted.folder, &options, MMA);
  emulator_expect_right("two at once", &run);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

/* ---- the workspace ---- */

enum { NQ = 3, NK = 1000, DIM = 64, ELEMENTS = NQ * DIM };

static uint16_t q[ELEMENTS], keys[NK * DIM], values[NK * DIM];
static _Alignas(256) unsigned char lent[1 << 22];

static void run(fatune_plan *plan, void *workspace, uint16_t *o, float *lse) {
  fatune_arguments arguments = FATUNE_ARGUMENTS_INIT;
  arguments.q = (fatune_tensor){q, ELEMENTS, DIM, DIM};
  arguments.k = (fatune_tensor){keys, NK * DIM, DIM, DIM};
  arguments.v = (fatune_tensor){values, NK * DIM, DIM, DIM};
  arguments.o = (fatune_tensor){o, ELEMENTS, DIM, DIM};
  arguments.lse = lse;
  arguments.workspace = workspace;
  ck_assert_msg(fatune_plan_run(plan, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
}

static double fp16(uint16_t bits) {
  return ldexp((bits & 0x3ff) + ((bits & 0x7c00) ? 1024 : 0), ((bits >> 10 & 31) ?: 1) - 25) *
         (bits & 0x8000 ? -1 : 1);
}

/* The same bits twice with a workspace; without one nothing is divided, and the sums differ by
 * rounding. */
START_TEST(without_a_workspace_nothing_is_divided) {
  static _Alignas(16) uint16_t first[ELEMENTS], again[ELEMENTS], whole[ELEMENTS];
  static float lse[NQ], lse_again[NQ], lse_whole[NQ];
  random_seed = emulator_seed();
  for (int i = 0; i < ELEMENTS; i++) q[i] = (uint16_t)(0x3000 + below(0x0c00));
  for (int i = 0; i < NK * DIM; i++) keys[i] = (uint16_t)(0x3000 + below(0x0c00));
  for (int i = 0; i < NK * DIM; i++) values[i] = (uint16_t)(0x3000 + below(0x0c00));
  fatune_session *const session = emulator_open("h200", NULL);
  fatune_plan *const plan = emulator_plan(session, "fp16 d64 nq3 nk1000", _i ? MMA : WGMMA(""));
  size_t bytes;
  ck_assert_int_eq(fatune_plan_workspace_size(plan, &bytes), FATUNE_OK);
  ck_assert_uint_gt(bytes, 0);
  ck_assert_uint_le(bytes, sizeof lent);
  memset(lent, 0xff, sizeof lent);
  run(plan, lent, first, lse);
  ck_assert_uint_ne(lent[0], 0xff); /* the LSE of a part is there */
  for (size_t i = bytes; i < sizeof lent; i++) ck_assert_uint_eq(lent[i], 0xff);
  run(plan, lent, again, lse_again);
  ck_assert_mem_eq(first, again, sizeof first);
  ck_assert_mem_eq(lse, lse_again, sizeof lse);
  run(plan, NULL, whole, lse_whole);
  for (int i = 0; i < NQ; i++) ck_assert_double_eq_tol(lse_whole[i], lse[i], 1e-5);
  for (int i = 0; i < ELEMENTS; i++)
    ck_assert_double_eq_tol(fp16(whole[i]), fp16(first[i]), 2e-3 * (1 + fp16(first[i])));
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
}
END_TEST

Suite *make_emulator_split_suite(void) {
  Suite *const suite = suite_create("emulator_split");
  TCase *const tests = tcase_create("split");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  tcase_add_test(tests, parts_are_merged_in_rounds);
  tcase_add_loop_test(tests, without_a_workspace_nothing_is_divided, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}
