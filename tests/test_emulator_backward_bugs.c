/* test_emulator_backward_bugs.c: bugs planted into copies of the backward's templates, each caught.
 * in -> out: an edit of a template -> the fault of a run, with the kernel it was in, or a wrong
 * result with the gradients that are wrong. The same request runs through without the edit. */
#include <stdlib.h>

#include "tests/backward_bugs.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"

struct bug {
  const char *name, *request, *config; /* NULL: what most have */
  const char *file, *piece, *other;    /* in this file the one becomes the other */
  const char *words[3];                /* of the fault, or of the explanation */
  const char *score;                   /* a built-in one, or NULL */
  int gradients;                       /* of what it captures: ft_request.score_gradients */
};

static const char *request_of(const struct bug *bug) {
  return bug->request ? bug->request : "backward bf16 d64 nq200 nk250 hq2";
}

static void run_with(struct emulator_run *run, const struct bug *bug, const char *folder) {
  struct ft_problem_options options = {
      .layout = FT_LAYOUT_PADDED, .seed = emulator_seed(), .want_lse = true, .want_dlse = true};
  fatune_session *const session = emulator_open("h200", folder);
  ck_assert_int_eq(ft_request_parse(&options.request, request_of(bug)), FT_OK);
  if (bug->score != NULL) {
    ck_assert_int_eq(fatune_score_add(&options.request.score, session, bug->score, NULL), FT_OK);
    options.request.score_gradients = bug->gradients;
  }
  emulator_run(run, session, &options, bug->config ? bug->config : ATOMIC);
  fatune_session_close(session);
}

/* ---- faults ---- */

static const struct bug faults[] = {
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
    {.name = "a sum passed on before its adds are done",
     .request = "backward bf16 d136 nq200 nk250 hq2 deterministic",
     .config = ROLES,
     .file = ADDS,
     .piece = "  if (threadIdx.x % 32 == 0) tma_store_wait<0>();\n",
     .other = "",
     .words = {"fatune_kernel, line ", "makes known to other blocks what it did", "under way"}},
    {.name = "a sum that a tile keeps at its end",
     .request = "backward bf16 d136 nq200 nk250 hq2 window@60,-1 deterministic",
     .config = ROLES,
     .file = ADDS,
     .piece = "  pass_on(params, adds, ticket, -1, seen);\n",
     .other = "",
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
    {.name = "dS sent to the other block without a proxy fence",
     .request = WIDE,
     .config = ROLES,
     .file = KEYS,
     .piece = "  async_proxy_fence();\n  __syncwarp();\n",
     .other = "  __syncwarp();\n",
     .words = {"fatune_kernel, line ", "by the asynchronous proxy, shared memory at offset ",
               "no fence.proxy.async is between the two"}},
    {.name = "the other block's dS not waited for",
     .request = WIDE,
     .config = ROLES,
     .file = QUERIES,
     .piece = "  mbarrier_wait(other_ds_full(stage), parity);\n",
     .other = "",
     .words = {"fatune_kernel, line ", "reads shared memory at offset ", NULL}},
    {.name = "P written over a dS that the other block reads",
     .request = WIDE,
     .config = ROLES,
     .file = QUERIES,
     .piece = "    mbarrier_arrive_at(ds_empty(stage), cluster_rank() ^ 1);\n",
     .other = "    mbarrier_arrive(ds_empty(stage));\n",
     .words = {"fatune_kernel, line ", "shared memory at offset ", "(race)"}},
    {.name = "P not waited for",
     .request = WIDE,
     .config = ROLES,
     .file = KEYS,
     .piece = "  mbarrier_wait(p_full(place.ds_ring.stage), place.ds_ring.parity);\n",
     .other = "",
     .words = {"fatune_kernel, line ", "reads shared memory at offset ", NULL}},
    {.name = "Q given back by one of two",
     .request = WIDE,
     .config = ROLES,
     .file = "parts/roles_pipeline.cu.in",
     .piece = "mbarrier_init(q_empty(i), 8);",
     .other = "mbarrier_init(q_empty(i), 4);",
     .words = {"fatune_kernel, line ", NULL, NULL}},
    {.name = "dV staged where V is still read",
     .request = WIDE,
     .config = ROLES,
     .file = "parts/roles_end.cu.in",
     .piece = "  mbarrier_wait(kv_empty(), 0);\n",
     .other = "",
     .words = {"fatune_kernel, line ", " shared memory at offset ", "(race)"}},
    {.name = "a block that ends before the other one has sent its dS",
     .request = WIDE,
     .config = ROLES,
     .file = ROLES_MAIN,
     .piece = "  cluster_sync();            // the other block may still send to this one\n",
     .other = "",
     .words = {"fatune_kernel, line ", "no cluster_sync keeps it", NULL}},
    {.name = "a block that does not wait for the other one's barriers",
     .request = WIDE,
     .config = ROLES,
     .file = ROLES_MAIN,
     .piece = "  cluster_sync();            // the other block's barriers are there, too\n",
     .other = "  __syncthreads();\n",
     .words = {"fatune_kernel, line ", "mbarrier", NULL}},
    {.name = "dS without a proxy fence",
     .config = HOPPER,
     .file = CONSUMER,
     .piece = "rdS[k][0]);\n  async_proxy_fence();\n",
     .other = "rdS[k][0]);\n",
     .words = {"fatune_kernel, line ", "by the asynchronous proxy, shared memory at offset ",
               "no fence.proxy.async is between the two"}},
    {.name = "dS written while it is read",
     .config = HOPPER,
     .file = "parts/backward_marked_none.cu.in",
     .piece = "  mbarrier_wait(ds_empty(consumer.ds_ring.stage), consumer.ds_ring.parity);\n",
     .other = "",
     .words = {"fatune_kernel, line ", "writes shared memory at offset ", "(race)"}},
    {.name = "dK staged while dQ is made",
     .config = HOPPER,
     .file = "parts/store_sums_staged.cu.in",
     .piece = "  mbarrier_wait(k_empty(), 0);\n",
     .other = "",
     .words = {"fatune_kernel, line ", "writes shared memory at offset ", "(race)"}},
    {.name = "Q given back before the warp has read LSE",
     .config = HOPPER,
     .file = CONSUMER_WALK,
     .piece = "    begin_scores(consumer, q_next.stage);\n  }\n  load_lse_ahead(consumer, "
              "q_next.stage);",
     .other = "    begin_scores(consumer, q_next.stage);\n  }\n"
              "  load_lse_ahead(consumer, last_step ? q_next.stage : q_ring.stage);",
     .words = {"fatune_kernel, line ", "shared memory at offset ", NULL}},
    {.name = "K of the next key tile while this one's is read",
     .request = "backward bf16 d64 nq70 nk120 hq140",
     .config = HOPPER " direct_store=1 persistent=1",
     .file = "parts/block_tiles_many.cu.in",
     .piece = "wait_for_products(turn);\n    *number_of(turn) = number;\n    if",
     .other = "{}\n    *number_of(turn) = number;\n    if",
     .words = {"fatune_kernel, line ", NULL}},
    {.name = "K of the tile after the next while this one's is read",
     .request = "backward bf16 d64 nq70 nk120 hq280",
     .config = HOPPER " direct_store=1 persistent=2",
     .file = "parts/block_tiles_stream.cu.in",
     .piece = "  mbarrier_wait(next_k_empty(stage), tiles / K_STAGES % 2 ^ 1);\n",
     .other = "",
     .words = {"fatune_kernel, line ", NULL}},
    {.name = "V of the next key tile while this one's is read",
     .request = "backward bf16 d64 nq70 nk120 hq140",
     .config = HOPPER " direct_store=1 persistent=2",
     .file = "parts/block_tiles_stream.cu.in",
     .piece = "  mbarrier_wait(v_empty(), tiles % 2 ^ 1);\n",
     .other = "",
     .words = {"fatune_kernel, line ", NULL}},
    {.name = "P where dS is still read",
     .request = "backward bf16 d64 nq200 nk250 hq2 dropout",
     .config = HOPPER,
     .file = "parts/backward_marked.cu.in",
     .piece = "  mbarrier_wait(ds_empty(consumer.ds_ring.stage), consumer.ds_ring.parity);\n",
     .other = "",
     .score = "softcap",
     .words = {"fatune_kernel, line ", "writes shared memory at offset ", "(race)"}},
    {.name = "dS of dropped P written while it is read",
     .request = "backward bf16 d64 nq200 nk250 hq2 dropout",
     .config = HOPPER,
     .file = "parts/backward_marked_registers.cu.in",
     .piece = "  mbarrier_wait(ds_empty(consumer.ds_ring.stage), consumer.ds_ring.parity);\n",
     .other = "",
     .words = {"fatune_kernel, line ", "writes shared memory at offset ", "(race)"}},
    {.name = "what is kept of a step written while that of another is read",
     .request = "backward bf16 d64 nq300 nk250 hq2 dropout",
     .config = HOPPER,
     .file = "parts/backward_draws.cu.in",
     .piece = "mbarrier_wait(kept_empty(stage), ",
     .other = "if (false) mbarrier_wait(kept_empty(stage), ",
     .words = {"fatune_kernel, line ", "shared memory at offset ", "(race)"}},
    {.name = "dQ staged over what is still added",
     .config = HOPPER,
     .file = "parts/backward_adders_none.cu.in",
     .piece = "tma_store_wait_read<PIECES - 1>();",
     .other = "tma_store_wait_read<PIECES>();",
     .words = {"fatune_kernel, line ", "writes shared memory at offset ", "the TMA store of "}},
    {.name = "dQ of a step in the stage that is still added",
     .request = "backward bf16 d64 nq200 nk250 hq2 deterministic",
     .config = HOPPER,
     .file = ADDERS,
     .piece = "  if (first) mbarrier_wait(dq_empty(adds.ring.stage), adds.ring.parity);\n",
     .other = "",
     .words = {"fatune_kernel, line ", "shared memory at offset ", NULL}},
    {.name = "tiles loaded a step early",
     .config = HOPPER_BESIDE,
     .file = "parts/backward_dq_warpgroup.cu.in",
     .piece = "if (!first_step && dq.loads",
     .other = "if (dq.loads",
     .words = {"fatune_kernel, line ", "shared memory at offset ", NULL}},
    {.name = "a section that seems done while dQ is added",
     .config = HOPPER " early_dq=1",
     .file = "parts/backward_adders_none.cu.in",
     .piece = "  tma_store_wait<0>();\n  say_added",
     .other = "  say_added",
     .words = {"fatune_kernel, line ", "makes known to other blocks what it did", "under way"}},
    {.name = "a tile of dO that nobody waits for",
     .config = HOPPER,
     .file = CONSUMER_WALK,
     .piece = "  if (!last_step) mbarrier_wait(do_full(do_next.stage), do_next.parity);\n",
     .other = "",
     .words = {"fatune_kernel, line ", "reads shared memory at offset ", NULL}},
};

START_TEST(faults_are_caught) {
  const size_t number = EMULATOR_CHOOSE(_i, faults);
  const struct bug *const bug = &faults[number];
  struct emulator_run run;
  setenv("FATUNE_EMULATOR_STEPS", "3000000", 1);
  setenv("FATUNE_EMULATOR_HOOKS", "1", 1);
  const struct planted planted = emulator_plant(bug->file, bug->piece, bug->other);
  run_with(&run, bug, planted.folder);
  emulator_expect_fault(bug->name, &run);
  emulator_expect_words(bug->name, run.fault, bug->words, 3);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

/* ---- wrong results ---- */

static const struct bug wrong_results[] = {
    {.name = "dropout of other keys in the second half of the cluster's",
     .request = "backward bf16 d136 nq200 nk250 hq2 dropout",
     .config = ROLES,
     .file = VALUES,
     .piece = "  share_p(values, rP, first_key, step.q0);\n",
     .other = "  share_p(values, rP, keys.k0, step.q0);\n",
     .words = {"dQ: ", "dK: ", "dV: "}},
    {.name = "dropout drawn ahead for the step that was",
     .request = "backward bf16 d64 nq200 nk250 hq2 dropout",
     .config = HOPPER_BESIDE,
     .file = CONSUMER_WALK,
     .piece = "  draw_ahead_of(consumer, params, keys, next_step, ",
     .other = "  draw_ahead_of(consumer, params, keys, step, ",
     .words = {"dQ: ", "dK: ", "dV: "}},
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
    {.name = "a part left out of the sum",
     .request = MASKED,
     .config = DIVIDED,
     .file = "parts/part_sums.cu.in",
     .piece = "part < parts; ++part",
     .other = "part < parts - 1; ++part",
     .words = {"dQ: none of ", "dK: ", "dV: "}},
    {.name = "a step in two parts",
     .request = MASKED,
     .config = DIVIDED,
     .file = "parts/walk_parts.cu.in",
     .piece = "return int((long long)steps * (part.number + 1) / part.count);",
     .other = "return min(int((long long)steps * (part.number + 1) / part.count) + 1, steps);",
     .words = {"dQ: ", "dK: ", "dV: "}},
    {.name = "LSE for delta",
     .config = HOPPER,
     .file = "parts/backward_loads.cu.in",
     .piece = "gStats + BLOCK_M, STATISTICS",
     .other = "gStats, STATISTICS",
     .words = {"dK of batch 0 ", " is NaN or was not written", NULL}},
    {.name = "keys of the warpgroup's first warp hidden in all",
     .request = "backward bf16 d64 nq200 nk250 hq2 causal",
     .config = HOPPER_BESIDE,
     .file = CONSUMER_WALK,
     .piece = "first_key + consumer.warp * 16, step.q0,",
     .other = "first_key, step.q0,",
     .words = {"dQ: ", "dK: ", "dV: "}},
    {.name = "the other block's keys taken for this one's",
     .request = WIDE,
     .config = ROLES,
     .file = "parts/roles_loader.cu.in",
     .piece = "(first_panel + p) * 64, other,",
     .other = "(first_panel + p) * 64, own,",
     .words = {"dQ: ", "dK: none of 500", "dV: none of 500"}},
    {.name = "the columns of the first block made by both",
     .request = "backward bf16 d256 nq70 nk250",
     .config = "wgmma_backward_roles block_m=64 block_n=128 q_stages=2 do_stages=1 ds_stages=1 "
               "dq_stages=2",
     .file = QUERIES,
     .piece = "cluster_rank() * FIRST_COLUMNS);",
     .other = "0);",
     .words = {"dQ: ", "dK: none of 250", "dV: none of 250"}},
    {.name = "keys of the second block hidden by those of the first",
     .request = "backward bf16 d136 nq200 nk250 hq2 causal",
     .config = ROLES,
     .file = VALUES,
     .piece = "const int first_key = own_first_key(keys);",
     .other = "const int first_key = keys.k0;",
     .words = {"dQ: ", "dK: ", "dV: "}},
    {.name = "P for dS without the slope of the score",
     .config = HOPPER,
     .file = CONSUMER,
     .piece = "    weigh(marked, consumer.score, k);\n",
     .other = "",
     .score = "softcap",
     .words = {"dQ: ", "dK: ", "dV: none of 500"}},
    {.name = "the slope of the score at another 16 queries",
     .request = "backward bf16 d64 nq200 nk250 hq2 dropout",
     .config = HOPPER,
     .file = CONSUMER,
     .piece = "row = k * 16 + consumer.lane % 8",
     .other = "row = (k ^ 1) * 16 + consumer.lane % 8",
     .score = "softcap",
     .words = {"dQ: ", "dK: ", "dV: none of 500"}},
    {.name = "the gradient of a bias at the other block's keys",
     .request = WIDE,
     .config = ROLES,
     .file = KEYS,
     .piece = "own_first_key(tile) + place.warp * 16",
     .other = "other_first_key(tile) + place.warp * 16",
     .score = "bias_fp32",
     .gradients = 1,
     .words = {"the gradient of bias", "dK: none of 500", "dV: none of 500"}},
    {.name = "the sinks of another head",
     .request = "backward bf16 d64 nq200 nk250 hq2 sinks",
     .config = HOPPER,
     .file = "parts/sink_gradient.cu.in",
     .piece = "params.sinks[head] - lse",
     .other = "params.sinks[0] - lse",
     .words = {"the gradient of sink ", "dQ: none of 400", "dV: none of 500"}},
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
  const size_t number = EMULATOR_CHOOSE(_i, wrong_results);
  const struct bug *const bug = &wrong_results[number];
  struct emulator_run run;
  const struct planted planted = emulator_plant(bug->file, bug->piece, bug->other);
  run_with(&run, bug, planted.folder);
  emulator_expect_wrong(bug->name, &run);
  emulator_expect_words(bug->name, run.explanation.data, bug->words, 3);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(unedited_templates_are_right) {
  static const struct bug none[] = {
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
      {.name = "wgmma, keys that nobody sees",
       .request = "backward bf16 d64 nq130 nk450 hq2 causal=top-left dropout",
       .config = HOPPER},
      {.name = "wgmma, loads beside dQ", .config = HOPPER_BESIDE}};
  struct emulator_run run;
  setenv("FATUNE_EMULATOR_STEPS", "3000000", 1);
  run_with(&run, &none[_i], NULL);
  emulator_expect_right(none[_i].name, &run);
  emulator_run_free(&run);
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
  tcase_add_loop_test(tests, unedited_templates_are_right, 0, 7);
  suite_add_tcase(suite, tests);
  return suite;
}
