/* test_emulator_backward_bugs.c: planted bugs of mma_backward and of parts that all backward
 * families share.
 * in -> out: as tests/backward_bugs.h. */
#include "tests/backward_bugs.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"

static const struct backward_bug faults[] = {
    {.name = "sums that nobody has zeroed",
     .file = SUMS,
     .piece = "store_global_16(reinterpret_cast<element *>(gSum + 4 * i), zeros);",
     .other = "",
     .words = {"fatune_kernel, line ", "updates ", "never written"}},
    {.name = "counters that nobody has zeroed",
     .request = "backward bf16 d64 nq200 nk250 hq2 deterministic",
     .config = ORDERED,
     .file = TICKETS,
     .piece = "if (threadIdx.x < DQ_SUMS * ADDERS) {",
     .other = "if (false) {",
     .words = {"fatune_kernel, line ", "never written"}},
    {.name = "rows of O and LSE past the end",
     .file = PREPARE,
     .piece = "exists = row < BLOCK_M && i < sequence.nq;",
     .other = "exists = row < BLOCK_M && i <= sequence.nq;",
     .words = {"fatune_prepare, line ", "reads ", "past the end of "}},
    {.name = "rows of dQ past the end",
     .file = "parts/rows_of_dq.cu.in",
     .piece = "params.sequence.nq - q0, threadIdx.x",
     .other = "params.sequence.nq - q0 + 1, threadIdx.x",
     .words = {"fatune_convert, line ", "writes 16 bytes ", "past the end of dQ (rows 0 to 199)"}},
    {.name = "rows of dK past the end",
     .file = ENDING,
     .piece = "rows = params.sequence.nk - keys.k0;",
     .other = "rows = params.sequence.nk - keys.k0 + 1;",
     .words = {"fatune_kernel, line ", "writes 16 bytes ", "(rows 0 to 249)"}},
    {.name = "dS read before it is there",
     .file = "parts/backward_step.cu.in",
     .piece = "__syncthreads();         // dS is there",
     .other = "// dS is there",
     .words = {"fatune_kernel, line ", "reads shared memory at offset ", NULL}},
    {.name = "K and V overwritten too early",
     .file = ENDING,
     .piece = "  __syncthreads();  // K and V are no longer needed\n",
     .other = "\n",
     .words = {"fatune_kernel, line ", "writes shared memory at offset ", "(race)"}},
    {.name = "a ticket that never comes",
     .request = "backward bf16 d64 nq200 nk250 hq2 deterministic",
     .config = ORDERED,
     .file = TICKETS,
     .piece = "while (load_acquire(counter_of(params, sum)) != ticket) {",
     .other = "while (load_acquire(counter_of(params, sum)) != ticket + 1) {",
     .words = {"fatune_kernel", "FATUNE_EMULATOR_STEPS", NULL}},
    {.name = "the first ticket of a tile that only others see",
     .request = "backward bf16 d64 nq200 nk250 hq2 window@60,0 deterministic",
     .config = ORDERED,
     .file = KEY_TILE,
     .piece =
         "return key_tiles_seen<BLOCK_N>(sequence, visibility, q_tile * BLOCK_M, last_row).begin;",
     .other = "return 0;",
     .words = {"fatune_kernel", "FATUNE_EMULATOR_STEPS", NULL}},
    {.name = "the first ticket of a tile where others begin later",
     .request = "backward bf16 d64 nq200 nk250 hq2 deterministic",
     .config = ORDERED,
     .file = KEY_TILE,
     .piece = "int((next * schedule.k_tiles + schedule.q_tiles - 1) / schedule.q_tiles) : 0;",
     .other = "int(next * schedule.k_tiles / schedule.q_tiles) : 0;",
     .words = {"fatune_kernel", "FATUNE_EMULATOR_STEPS", NULL}},
    {.name = "tiles behind the last one added to the sum of those before",
     .request = "backward bf16 d64 nq200 nk250 hq2 deterministic",
     .config = ORDERED,
     .file = SUMS,
     .piece = "tile * 2 + (step.q0 < keys.begin) : tile;",
     .other = "tile * 2 : tile;",
     .words = {"fatune_kernel", "FATUNE_EMULATOR_STEPS", NULL}},
};

START_TEST(faults_are_caught) {
  backward_bug_faults(&faults[EMULATOR_CHOOSE(_i, faults)]);
}
END_TEST

static const struct backward_bug wrong_results[] = {
    {.name = "no gradient of LSE",
     .file = PREPARE,
     .piece = "float delta = exists && chunk == 0 && params.dlse ? -params.dlse[number] : 0.f;",
     .other = "float delta = 0.f;",
     .words = {"of 400 rows checked are wrong, batch 0, head 0 to 1, row ",
               "of 500 rows checked are wrong, batch 0, head 0 to 1, key ", "dV: none of 500"}},
    {.name = "the mask of another head",
     .request = "backward bf16 d64 nq200 nk250 hq4 hkv2 mask=64x64@0.5",
     .config = "mma_backward block_m=64 block_n=64 warps=8 stages=2 column_warps=1 query_parts=1 "
               "kv_in_regs=1 deferred_dq=0 dq_mode=0 ctas_per_sm=1",
     .file = "parts/query_walk_blocks.cu.in",
     .piece = "head * columns.head_lists",
     .other = "(head ^ 1) * columns.head_lists",
     .words = {"dQ: ", "dK: ", "dV: "}},
    {.name = "the scale forgotten",
     .file = ENDING,
     .piece = "SMEM_K, rSum, params.softmax.scale, warp);",
     .other = "SMEM_K, rSum, 1.f, warp);",
     .words = {"dQ: none of 400", "dV: none of 500",
               "of 500 rows checked are wrong, batch 0, head 0 to 1, key "}},
    {.name = "one of two sums forgotten",
     .request = "backward bf16 d64 nq200 nk250 hq2 deterministic",
     .config = ORDERED,
     .file = SUMS,
     .piece = "rdQ[half][i] += rOther[i];",
     .other = "rdQ[half][i] += 0.f;",
     .words = {"dQ: ", "dK: none of 500", "dV: none of 500"}},
    {.name = "a causal tile lost",
     .request = "backward bf16 d64 nq200 nk250 hq2 causal",
     .file = "parts/query_walk.cu.in",
     .piece = "tiles.begin * BLOCK_M;",
     .other = "(tiles.begin + 1) * BLOCK_M;",
     .words = {"dQ: ", "dK: ", "dV: "}},
    {.name = "a diagonal too few",
     .request = "backward bf16 d64 nq200 nk250 hq2 causal",
     .file = "parts/visibility.cu.in",
     .piece = "of_key = HIDES_LAST_KEYS ? seen.begin - first_query",
     .other = "of_key = HIDES_LAST_KEYS ? seen.begin + 1 - first_query",
     .words = {"dQ: ", "dK: ", "dV: "}},
};

START_TEST(wrong_results_are_told) {
  backward_bug_is_wrong(&wrong_results[EMULATOR_CHOOSE(_i, wrong_results)]);
}
END_TEST

static const struct backward_bug none[] = {
    {.name = "atomic adds"},
    {.name = "ordered adds",
     .request = "backward bf16 d64 nq200 nk250 hq2 deterministic",
     .config = ORDERED},
    {.name = "ordered adds, causal",
     .request = "backward bf16 d64 nq200 nk250 hq2 causal deterministic",
     .config = ORDERED},
    {.name = "ordered adds, keys that nobody sees",
     .request = "backward bf16 d64 nq130 nk450 hq2 causal=top-left deterministic",
     .config = ORDERED},
    {.name = "ordered adds, queries that see nothing",
     .request = "backward bf16 d64 nq450 nk130 hq2 causal deterministic",
     .config = ORDERED},
};

START_TEST(unedited_templates_are_right) {
  backward_bug_absent(&none[_i]);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(faults);
  EMULATOR_EXPECT_PIECES(wrong_results);
}
END_TEST

Suite *make_emulator_backward_bugs_suite(void) {
  Suite *const suite = suite_create("emulator_backward_bugs");
  TCase *const tests = tcase_create("bugs");
  tcase_set_timeout(tests, 120);
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, faults_are_caught, 0, EMULATOR_RUNS(faults));
  tcase_add_loop_test(tests, wrong_results_are_told, 0, EMULATOR_RUNS(wrong_results));
  tcase_add_loop_test(tests, unedited_templates_are_right, 0, (int)EMULATOR_COUNT(none));
  suite_add_tcase(suite, tests);
  return suite;
}
