/* test_emulator_ragged.c: sequences of different lengths, packed, on an emulated H200.
 * in -> out: request, config -> every row against float64, rows that none uses untouched; bugs in
 * what tells sequences apart, each of which must be seen. */
#include <stdlib.h>

#include "tests/emulator_lab.h"
#include "tests/suites.h"

#define MMA "mma_forward block_m=64 block_n=32 warps=4 stages=2 ctas_per_sm=1"
#define BACK(dq, more)                                                                             \
  "mma_backward block_m=32 block_n=32 warps=4 column_warps=1 query_parts=1 ctas_per_sm=1 "         \
  "dq_mode=" #dq more
#define BACK_WGMMA(m, n, more)                                                                     \
  "wgmma_backward block_m=" #m " block_n=" #n " q_stages=2 do_stages=2 ds_stages=2" more
#define BACK_ROLES                                                                                 \
  "wgmma_backward_roles block_m=64 block_n=128 q_stages=2 do_stages=1 ds_stages=1 dq_stages=2"
#define WGMMA(more) "wgmma_forward block_m=128 block_n=64 stages=3 q_stages=1 lazy_rescale=1" more

/* Empty sequences, one of one row, and lengths beside the ends of tiles come with every seed. */
static const struct {
  const char *request, *config;
} runs[] = {
    {"bf16 d64 hq2 b8 nq900 causal ragged", WGMMA("")},
    {"fp16 d64 dv40 hq4 hkv2 b5 nq500 nk700 causal ragged sinks dropout",
     WGMMA(" direct_store=1 overlap_tiles=1")},
    {"bf16 d40 b5 nq300 nk500 causal=top-left window@90,-1 ragged", WGMMA(" ascending_keys=1")},
    {"bf16 d128 hq2 b70 nq600 ragged", WGMMA(" direct_store=1")},
    {"fp16 d72 hq3 b5 nq400 nk300 window=top-left@50,20 ragged dropout sinks", MMA},
    {"bf16 d16 b9 nq700 causal ragged", MMA " overlap_qk=1"},
    {"bf16 d16 hq40 hkv8 b4 nq90 causal ragged", WGMMA("")}, /* two sections of heads */
    {"backward bf16 d64 hq2 b8 nq500 causal ragged", BACK(0, " stages=2 deferred_dq=1")},
    {"backward fp16 d48 dv24 hq4 hkv2 b5 nq200 nk300 window=top-left@50,20 ragged sinks dropout",
     BACK(2, " stages=1")},
    {"backward bf16 d32 hq3 b6 nq250 nk200 causal=top-left window@60,-1 ragged deterministic",
     BACK(1, " stages=1")},
    {"backward bf16 d32 hq4 hkv2 b12 nq300 ragged deterministic sinks",
     BACK(1, " stages=2 deferred_dq=1")}, /* two sums of dQ */
    {"backward bf16 d128 hq4 hkv2 b8 nq600 causal ragged sinks dropout",
     BACK_WGMMA(64, 128, " pacing=1")},
    {"backward fp16 d24 dv40 hq36 hkv18 b6 nq300 nk400 window=top-left@50,20 ragged",
     BACK_WGMMA(128, 64, " direct_store=1 persistent=1")}, /* more than one tile of a block */
    {"backward bf16 d64 hq4 hkv2 b9 nq400 nk500 ragged deterministic",
     BACK_WGMMA(64, 64, "")}, /* two sums of dQ */
    {"backward bf16 d40 hq2 b12 nq700 causal ragged deterministic sinks",
     BACK_WGMMA(64, 128, " pacing=2")},
    {"backward fp16 d64 hq2 b6 nq500 causal=top-left window@60,-1 ragged",
     "wgmma_backward block_m=64 block_n=192 q_stages=3 do_stages=3 ds_stages=2 loads_beside_dq=1 "
     "early_scores=1"},
    {"backward bf16 d192 dv128 hq4 hkv2 b6 nq400 causal ragged sinks", BACK_ROLES},
    {"backward fp16 d136 hq2 b6 nq300 nk500 ragged deterministic dropout", BACK_ROLES},
};

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  emulator_row_by_row(runs[number].request, (enum ft_layout)(number % 3), 0, runs[number].config);
}
END_TEST

#define CAUSAL "bf16 d64 hq2 b6 nq500 nk600 causal ragged"

static const struct {
  const char *file, *piece, *other, *request, *config;
} bugs[] = {
    /* TMA takes rows of the next sequence, and overwrites its rows of O. */
    {"parts/rows_of_sequences.cu.in",
     "tma_load_5d(to, map, barrier, column, BEYOND - length + row, head, first + length, BEYOND);",
     "tma_load_5d(to, map, barrier, column, BEYOND / 2 + row, head, first + BEYOND / 2, BEYOND);",
     CAUSAL, WGMMA("")},
    {"parts/rows_of_sequences.cu.in",
     "tma_store_5d(map, from, column, BEYOND - length + row, head, first + length, BEYOND);",
     "tma_store_5d(map, from, column, BEYOND / 2 + row, head, first + BEYOND / 2, BEYOND);", CAUSAL,
     WGMMA("")},
    {"parts/sequence_ragged.cu.in", "own.visibility.last_diagonal = place.last_diagonal;", "",
     CAUSAL, WGMMA("")},
    {"parts/sequence_ragged.cu.in", "own.sequence.nq = place.nq;", "", CAUSAL, MMA},
    {"parts/sequence_ragged.cu.in", "if (own.lse) own.lse += place.first_q;", "", CAUSAL,
     WGMMA("")},
    {"parts/sequence_ragged.cu.in", "i) * params.ragged.rows_q + query",
     "i) * params.sequence.nq + query", CAUSAL, MMA},
    {"parts/sequence_search.cu.in", "pack_bits) / ROWS + sequence", "pack_bits) / ROWS",
     "bf16 d64 b30 nq400 causal ragged", MMA},
    {"parts/sequence_search.cu.in", "ragged.used_k ? ragged.used_k[low] :", "", CAUSAL, MMA},
    {"parts/work_list.cu.in", "beyond[thread] -= own;", "", CAUSAL, WGMMA("")},
    {"parts/sequence_diagonals.cu.in", "ragged.bottom_right.last + shift",
     "0ll + ragged.bottom_right.last", CAUSAL, MMA},
    {"parts/sequence_diagonals.cu.in",
     "max((long long)ragged.top_left.first, ragged.bottom_right.first + shift)",
     "ragged.top_left.first", "bf16 d64 b6 nq500 nk600 window@90,20 ragged", MMA},
    {"parts/sequence_diagonals.cu.in", "(long long)ragged.top_left.last,", "nk,",
     "bf16 d64 b6 nq500 nk600 causal=top-left ragged", WGMMA("")},
    {"parts/schedule_ragged.cu.in", "cursor.round * gridDim.x + (",
     "cursor.round * (gridDim.x + 1) + (", "bf16 d64 hq3 b6 nq900 causal ragged", WGMMA("")},
    {"parts/schedule_ragged.cu.in", "tiles - left + number", "number",
     "bf16 d16 hq20 b4 nq300 causal ragged", WGMMA("")},
    {"parts/query_tiles_ragged.cu.in", "place.first_q / BLOCK_M + batch", "place.first_q / BLOCK_M",
     "backward bf16 d32 b30 nq400 causal ragged", BACK(0, " stages=1")},
    {"parts/query_tiles_ragged.cu.in", "if (own.dlse) own.dlse += place.first_q;", "",
     "backward bf16 d32 b5 nq200 ragged", BACK(0, " stages=1")},
    {"parts/query_tiles_ragged.cu.in", "own.dk.data += (long long)place.first_k",
     "own.dk.data += 0", "backward bf16 d32 b5 nq200 ragged", BACK(0, " stages=1")},
    {"parts/sink_gradient.cu.in", "entries = query_blocks(params) / (q_tiles * heads);",
     "entries = params.sequence.batch;", "backward bf16 d32 b5 nq200 ragged sinks",
     BACK(0, " stages=1")},
    /* Tiles of different walks are in the order of their lengths, so one waits for one behind it.
     */
    {"parts/work_list.cu.in", "return min((entry.nk - entry.row + BLOCK_N - 1) / BLOCK_N",
     "return min(entry.row / BLOCK_N", "backward bf16 d32 b5 nq400 causal ragged deterministic",
     BACK(1, " stages=1")},
    /* What lies behind a sequence in memory is the next one's. */
    {"parts/tile_rows_ragged.cu.in", "{keys.place.first_q, keys.place.nq}",
     "{keys.place.first_q, keys.place.nq + 64}", "backward bf16 d64 b6 nq500 causal ragged sinks",
     BACK_WGMMA(64, 64, "")},
    {"parts/tile_rows_ragged.cu.in", "{keys.place.first_k, keys.place.nk}",
     "{keys.place.first_k, keys.place.nk + 64}", "backward bf16 d136 b6 nq400 ragged", BACK_ROLES},
    {"parts/block_tiles_one.cu.in", "Loader loader = begin_loads(own, keys);",
     "Loader loader = begin_loads(params.rest, keys);", "backward bf16 d64 b6 nq500 causal ragged",
     BACK_WGMMA(64, 64, "")},
    {"parts/backward_adders.cu.in", "at_place(all, keys.place)", "all",
     "backward bf16 d64 b6 nq500 causal ragged deterministic", BACK_WGMMA(64, 64, "")},
};

/* Not every seed has the lengths that show a bug. */
START_TEST(bugs_are_seen) {
  enum { TRIES = 12 };
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  const struct planted planted =
      emulator_plant(bugs[number].file, bugs[number].piece, bugs[number].other);
  setenv("FATUNE_EMULATOR_STEPS", "100000000", 1); /* one waits for what never comes */
  struct ft_problem_options options =
      emulator_options(bugs[number].request, FT_LAYOUT_PADDED, emulator_seed());
  options.want_dlse = options.request.pass == FT_BACKWARD;
  ck_assert_msg(emulator_sees(&planted, &options, bugs[number].config, TRIES), "'%s' is not seen",
                bugs[number].other);
  emulator_unplant(&planted);
}
END_TEST

/* No planted bug: where all key tiles count as equally long, the order of their numbers is what
 * lets each wait for those before it. */
START_TEST(equally_long_tiles_stay_in_order) {
  const struct planted planted = emulator_plant(
      "parts/work_list.cu.in",
      "return min((entry.nk - entry.row + BLOCK_N - 1) / BLOCK_N, LIST_LENGTHS - 1);", "return 1;");
  const struct ft_problem_options options = emulator_options(
      "backward bf16 d16 b12 nq700 causal ragged deterministic", FT_LAYOUT_BSHD, emulator_seed());
  struct emulator_run run;
  emulator_run_alone(&run, planted.folder, &options, BACK(1, " stages=1"));
  emulator_expect_right("equally long", &run);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
}
END_TEST

Suite *make_emulator_ragged_suite(void) {
  Suite *const suite = suite_create("emulator_ragged");
  TCase *const tests = tcase_create("ragged");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_test(tests, equally_long_tiles_stay_in_order);
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
