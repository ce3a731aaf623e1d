/* test_emulator_consumer.c: what wgmma's consumers may do in several ways: P by way of shared
 * memory, turns, tiles one by one although the next Q could come early.
 * in -> out: requests of several tiles for each block -> every row against float64; bugs planted
 * into what the ways differ in -> each caught, in words. */
#include "tests/emulator_lab.h"
#include "tests/suites.h"

#define CONFIG(m, n, s, q, more)                                                                   \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=" #s " q_stages=" #q " " more                \
  " lazy_rescale=1"
#define P_STAGED CONFIG(192, 160, 2, 2, "overlap_tiles=1 pingpong=1 p_in_smem=1")
#define P_DIRECT CONFIG(256, 96, 3, 1, "overlap_tiles=1 integer_max=1 direct_store=1 p_in_smem=1")
#define P_EACH   CONFIG(192, 112, 2, 1, "p_in_smem=1")
#define P_DEEP   CONFIG(192, 64, 2, 1, "overlap_tiles=1 pingpong=1 direct_store=1 p_in_smem=1")

#define TURNS    CONFIG(192, 64, 3, 2, "overlap_tiles=1 pingpong=2")
#define EACH     CONFIG(192, 64, 2, 1, "direct_store=1")
#define TURNS_UP CONFIG(256, 64, 4, 1, "overlap_tiles=1 pingpong=2 direct_store=1 ascending_keys=1")

/* ---- runs ---- */

static const struct {
  const char *request, *config;
} runs[] = {
    /* P in whole panels of 64 keys and in parts of them */
    {"bf16 d64 hq4 hkv2 b2 nq500 nk700", P_STAGED},
    {"fp16 d64 dv40 hq3 nq500 nk333 causal", P_STAGED},
    {"bf16 d64 hq6 hkv2 nq700 nk350 causal=top-left", P_DIRECT},
    {"bf16 d16 hq3 nq300 nk500 causal",
     CONFIG(256, 112, 3, 1,
            "overlap_tiles=1 pingpong=1 direct_store=1 ascending_keys=1 p_in_smem=1")},
    {"bf16 d128 hq3 nq400 nk300 dropout", P_EACH},
    {"fp16 d120 hq3 nq500 nk700 causal dropout", P_EACH},
    {"bf16 d128 hq3 nq576 nk448 causal mask=192x112@0.5", P_EACH},
    {"bf16 d128 hq3 nq500 nk333",
     CONFIG(192, 128, 2, 1, "overlap_tiles=1 pingpong=1 direct_store=1 multicast=1 p_in_smem=1")},
    {"bf16 d128 hq8 hkv2 nq150 nk333 causal",
     CONFIG(192, 128, 2, 1, "overlap_tiles=1 direct_store=1 pack_gqa=1 p_in_smem=1")},
    {"fp16 d192 dv184 hq3 nq400 nk300", P_DEEP},
    {"bf16 d32 dv192 hq3 nq400 nk300 causal",
     CONFIG(192, 64, 3, 1, "overlap_tiles=1 pingpong=1 direct_store=1 p_in_smem=1")},
    /* turns by softmax, warpgroups with and without steps to skip, tiles of one step and of many */
    {"bf16 d64 hq4 nq1100 nk900 causal", TURNS},
    {"bf16 d64 hq4 nq900 nk60", TURNS},
    {"fp16 d128 hq4 nq900 nk1100 causal", CONFIG(128, 128, 2, 2, "overlap_tiles=1 pingpong=2")},
    {"bf16 d64 hq4 nq1100 nk900 causal=top-left", TURNS_UP},
    {"bf16 d64 hq4 nq900 nk1100 causal", TURNS_UP},
    {"bf16 d64 hq4 nq900 nk500 causal", CONFIG(256, 64, 2, 1, "pingpong=2 lpt=1")},
    {"bf16 d128 hq4 nq900 nk500 causal dropout",
     CONFIG(192, 80, 2, 1, "pingpong=2 ascending_keys=1")},
    {"bf16 d64 hq3 nq1024 nk1024 causal mask=256x128@0.4",
     CONFIG(256, 64, 3, 2, "overlap_tiles=1 pingpong=2")},
    {"bf16 d128 hq5 nq700 nk600",
     CONFIG(192, 96, 2, 1, "overlap_tiles=1 pingpong=2 direct_store=1 multicast=1")},
    {"bf16 d64 hq4 nq1100 nk900 causal", CONFIG(256, 64, 2, 2, "pingpong=1")},
    {"bf16 d64 hq4 nq900 nk1100 causal", CONFIG(192, 128, 2, 1, "direct_store=1 ascending_keys=1")},
    {"bf16 d128 hq5 nq700 nk600", CONFIG(128, 80, 2, 2, "pingpong=2 multicast=1")},
    {"bf16 d64 hq4 nq900 nk500 causal", CONFIG(128, 64, 2, 2, "direct_store=1")},
    {"bf16 d64 hq8 hkv1 b2 nq150 nk300 causal",
     CONFIG(256, 96, 3, 1, "overlap_tiles=1 pingpong=2 direct_store=1 pack_gqa=1 p_in_smem=1")},
};

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  emulator_row_by_row(runs[number].request, (enum ft_layout)(number % 3), 0, runs[number].config);
}
END_TEST

/* ---- bugs ---- */

#define CONSUMER "parts/consumer_steps.cu.in"
#define P_STORED "parts/p_in_smem.cu.in"
#define LINES                                                                                      \
  "  //@ if by_lines then\n  if constexpr (BY_LINES) pack_lines(consumer);\n  else\n  //@ end\n"

static const struct emulator_bug bugs[] = {
    {.name = "P without proxy fence",
     .file = P_STORED,
     .piece = "  async_proxy_fence();\n",
     .other = "",
     .words = "no fence.proxy.async is between the two"},
    {.name = "P that other warps may not have stored",
     .file = P_STORED,
     .piece = "  barrier_sync(FIRST_OWN_BARRIER + consumer.number, 128);\n",
     .other = "",
     .words = "nothing orders the two (race)"},
    {.name = "P stored while the last product reads it",
     .file = CONSUMER,
     .piece =
         "  wgmma_wait<0>();\n  hold(consumer.rO);\n  release_v(consumer, consumer.ring);\n" LINES
         "  pack_p(consumer, step.key);\n",
     .other = LINES "  pack_p(consumer, step.key);\n  wgmma_wait<0>();\n  hold(consumer.rO);\n"
                    "  release_v(consumer, consumer.ring);\n",
     .words = "which the wgmma of warpgroup "},
    {.name = "P of another warpgroup",
     .file = P_STORED,
     .piece = "depth_along_rows(shared_address(shared) + SMEM_P + consumer.number * P_TILE)",
     .other = "depth_along_rows(shared_address(shared) + SMEM_P)",
     .words = "reads"},
    {.name = "P in rows that are not swizzled",
     .file = P_STORED,
     .piece = "sP + row * 128 + (chunk ^ row % 8) * 16",
     .other = "sP + row * 128 + chunk * 16",
     .words = "never written"},
    {.name = "exchanged quarters of a fragment of P",
     .file = P_STORED,
     .piece = "  stmatrix_x4(sP + row * 128 + (chunk ^ row % 8) * 16, rP);",
     .other = "  const unsigned r[4] = {rP[0], rP[2], rP[1], rP[3]};\n"
              "  stmatrix_x4(sP + row * 128 + (chunk ^ row % 8) * 16, r);"},
    {.name = "P in another panel",
     .file = P_STORED,
     .piece = "p + by_bytes(k / 4 * 64 * 128 + k % 4 * 32)",
     .other = "p + by_bytes((k / 4 ^ 1) * 64 * 128 + k % 4 * 32)",
     .words = "reads shared memory at offset "},
    {.name = "tiles of P that overlap those of V",
     .file = "parts/pipeline.cu.in",
     .piece = "SMEM_P = $(smem_p), SMEM_V_ROWS = $(smem_v_rows);\n"
              "static_assert(SMEM_Q + Q_STAGES * Q_STAGE == SMEM_K && SMEM_K + STAGES * K_TILE == "
              "SMEM_V &&\n"
              "              SMEM_V + STAGES * V_TILE == SMEM_P && (!TRANSPOSES_V || SMEM_P == "
              "SMEM_V_ROWS), \"stages as budgeted\");\n",
     .other = "SMEM_P = $(smem_p) - V_TILE, SMEM_V_ROWS = $(smem_v_rows);\n",
     .words = "shared memory at offset "},
    {.name = "no turn at the steps that a warpgroup skips",
     .config = TURNS,
     .file = CONSUMER,
     .piece = "      wait_turn(consumer);\n      pass_turn(consumer);\n",
     .other = "",
     .words = "barrier "},
    {.name = "steps given back for warps that still wait for them",
     .config = EACH,
     .file = CONSUMER,
     .piece = "    barrier_sync(FIRST_OWN_BARRIER + consumer.number, 128);\n    release_k",
     .other = "    release_k",
     .words = "waits for "},
    {.name = "a turn that is not passed on",
     .config = TURNS,
     .file = CONSUMER,
     .piece = "    pass_turn(consumer, zero_after(consumer.row_sum));\n",
     .other = "",
     .words = "waits at barrier 1 for 256 threads, of which 128 have come"},
    {.name = "no first turn",
     .config = TURNS,
     .file = "wgmma_forward.cu.in",
     .piece = "consumer.number == CONSUMERS - 1) pass_turn(consumer);",
     .other = "consumer.number == CONSUMERS) pass_turn(consumer);",
     .words = "waits at barrier 1 for 256 threads, of which 128 have come"},
};

START_TEST(bugs_are_seen) {
  const struct ft_problem_options options =
      emulator_options("bf16 d64 hq3 nq500 nk700 causal", FT_LAYOUT_PADDED, emulator_seed());
  emulator_catch(&bugs[EMULATOR_CHOOSE(_i, bugs)], &options, P_STAGED);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
}
END_TEST

Suite *make_emulator_consumer_suite(void) {
  Suite *const suite = suite_create("emulator_consumer");
  TCase *const tests = tcase_create("consumer");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
