/* test_emulator_score_tile.c: scores that read 16-bit floats of each query and key by way of shared
 * memory (score_in_smem), copied by each warp and by TMA.
 * in -> out: score functions, requests, configs -> every row against float64, whether tiles are
 * copied or, beyond ends and at odd addresses, not; bugs planted into the copies -> all seen. */
#include <string.h>

#include "tests/emulator_lab.h"
#include "tests/suites.h"

#define CONFIG(m, n, q, more)                                                                      \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=2 q_stages=" #q                              \
  " integer_max=1 lazy_rescale=1 score_in_smem=1 " more
#define ROWS(m, n, q, more)                                                                        \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=2 q_stages=" #q                              \
  " integer_max=1 lazy_rescale=1 score_in_smem=2 " more
#define TURNS         CONFIG(128, 64, 2, "overlap_tiles=1 pingpong=1")
#define ROWS_IN_TURNS ROWS(128, 64, 2, "overlap_tiles=1 pingpong=1")
#define EACH          CONFIG(128, 80, 1, "")

static const char dense[] = "local bias = tensor('bias', 'bf16', batch, heads, nq, nk)\n"
                            "score = s + 4 * bias(b, h, i, j)";
static const char halves[] = "local bias = tensor('bias', 'fp16', heads, nq // 2 + 1, nk + 8)\n"
                             "score = s + 4 * bias(h, i // 2, j + 8)";
static const char hidden[] = "local bias = tensor('bias', 'bf16', heads, nq, nk)\n"
                             "score = s - 3 * bias(h, i, j)\nvisible = (i + j) % 7 ~= 0";
static const char capped[] = "local bias = tensor('bias', 'bf16', heads, nq, nk)\n"
                             "score = 9 * tanh((s + 4 * bias(h, i, j)) / 9) - 0.1 * abs(i - j)";
static const char two[] = "local a, c = tensor('a', 'fp16', nq, nk), tensor('c', 'bf16', nq, nk)\n"
                          "score = s + 3 * a(i, j) - 3 * c(i, j)";
static const char short_rows[] = "local bias = tensor('bias', 'bf16', heads, nq, 200)\n"
                                 "score = s + 4 * bias(h, i, j)";

static const char few_rows[] = "local bias = tensor('bias', 'bf16', heads, 150, nk)\n"
                               "score = s + 4 * bias(h, i, j)";
static const char shifted[] = "local bias = tensor('bias', 'fp16', nq, batch, nk + 8, kv_heads)\n"
                              "score = s + 4 * bias(i, b, j + 8, kv)";
/* The first of several extents alone may be one that all share, which TMA cannot read as rows. */
static const char before[] = "local bias = tensor('bias', 'bf16', heads, nq, nk)\n"
                             "score = s + 4 * bias(h, i, j - 8)";
/* Steps reach beyond the last key, and what is divided is not left out by a compiler. */
static const char besides[] =
    "local step, bias = scalar('step', 'int'), tensor('bias', 'bf16', heads, nq, nk)\n"
    "local document = tensor('document', 'uint8', nk)\n"
    "score = s + where(document(j) // step == 0, bias(h, i, j), 0)";

static const struct {
  const char *text, *request, *config;
} runs[] = {
    {dense, "bf16 d64 hq2 b2 nq200 nk264", TURNS},
    {dense, "fp16 d64 hq2 nq200 nk260", TURNS}, /* rows at odd addresses */
    {dense, "bf16 d128 hq2 nq70 nk400 causal", CONFIG(128, 128, 2, "overlap_tiles=1 pingpong=1")},
    {dense, "bf16 d64 hq2 nq300 nk384", CONFIG(192, 96, 1, "overlap_tiles=1 direct_store=1")},
    {dense, "bf16 d64 hq2 nq300 nk400 window", CONFIG(256, 64, 1, "pingpong=2 direct_store=1")},
    {dense, "bf16 d64 hq4 hkv2 nq100 nk264", CONFIG(128, 64, 2, "pack_gqa=1")},
    {dense, "bf16 d64 hq2 nq200 nk264 mask=128x64@0.6", TURNS},
    {dense, "bf16 d64 hq2 b3 nq200 nk264 ragged", TURNS},
    {dense, "bf16 d64 hq2 b2 nq40 nk264 pages=16", EACH},
    {dense, "bf16 d64 hq2 nq64 nk520", CONFIG(64, 64, 1, "direct_store=1 split_keys=1")},
    {dense, "bf16 d64 hq2 nq200 nk240", CONFIG(128, 80, 2, "ascending_keys=1")},
    {halves, "fp16 d64 hq2 nq200 nk264", EACH},
    {halves, "bf16 d40 hq2 nq200 nk352", CONFIG(128, 176, 1, "overlap_tiles=1 direct_store=1")},
    {hidden, "bf16 d64 hq2 nq200 nk264", TURNS},
    {hidden, "bf16 d64 hq2 nq200 nk264 mask=128x64@0.6", CONFIG(128, 64, 1, "pingpong=1")},
    {capped, "bf16 d64 hq2 nq200 nk264 causal", TURNS},
    {two, "bf16 d64 hq2 nq200 nk264", TURNS},
    {short_rows, "bf16 d64 hq2 nq200 nk264", TURNS},
    {besides, "bf16 d64 hq2 nq31 nk72", TURNS},
    {besides, "fp16 d64 hq2 nq31 nk72", ROWS_IN_TURNS},
    {dense, "bf16 d64 hq2 b2 nq200 nk264", ROWS_IN_TURNS},
    {dense, "fp16 d64 hq2 nq200 nk260", ROWS_IN_TURNS},
    {dense, "bf16 d128 hq2 b3 nq70 nk400 causal", ROWS(128, 128, 2, "overlap_tiles=1 pingpong=1")},
    {dense, "bf16 d64 hq4 hkv2 nq300 nk400 window", ROWS(256, 64, 1, "pingpong=2 direct_store=1")},
    {dense, "bf16 d64 hq2 nq200 nk264 mask=128x64@0.6", ROWS_IN_TURNS},
    {dense, "bf16 d64 hq2 b3 nq200 nk264 ragged", ROWS_IN_TURNS},
    {dense, "bf16 d64 hq2 b2 nq40 nk264 pages=16", ROWS(128, 64, 1, "")},
    {dense, "bf16 d64 hq2 nq64 nk520", ROWS(64, 64, 1, "direct_store=1 split_keys=1")},
    {dense, "bf16 d64 hq2 nq200 nk512", ROWS(64, 192, 1, "direct_store=1 multicast=1")},
    {dense, "bf16 d64 hq2 nq200 nk240", ROWS(128, 64, 2, "ascending_keys=1")},
    {halves, "fp16 d64 hq2 nq200 nk264", ROWS(128, 64, 1, "")},
    {hidden, "bf16 d64 hq2 nq200 nk264", ROWS_IN_TURNS},
    {capped, "bf16 d64 hq2 nq200 nk264 causal", ROWS_IN_TURNS},
    {two, "bf16 d64 hq2 nq200 nk264", ROWS_IN_TURNS},
    {short_rows, "bf16 d64 hq2 nq200 nk264", ROWS_IN_TURNS},
    {few_rows, "bf16 d64 hq2 nq200 nk264", ROWS_IN_TURNS},
    {shifted, "fp16 d64 hq2 b2 nq200 nk264", ROWS_IN_TURNS},
    {before, "bf16 d64 hq2 b2 nq200 nk264", ROWS_IN_TURNS},
};

static void run_tile(struct emulator_run *run, const char *templates, const char *text,
                     const char *request, const char *config) {
  emulator_run_scored(run, templates, "some", text,
                      emulator_options(request, FT_LAYOUT_BHSD, emulator_seed()), config);
}

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  struct emulator_run run;
  run_tile(&run, NULL, runs[number].text, runs[number].request, runs[number].config);
  emulator_expect_right(runs[number].request, &run);
  emulator_run_free(&run);
}
END_TEST

/* ---- bugs ---- */

#define TILE      "parts/score_tile.cu.in"
#define BY_ROWS   "parts/score_tile_rows.cu.in"
#define EXPONENTS "parts/score_tile_exponents.cu.in"
#define WHOLE     "bf16 d64 hq2 nq200 nk256"

static const struct {
  bool is_fault; /* of the kernel; else the result is wrong */
  const char *name, *text, *request, *file, *piece, *other;
} bugs[] = {
    {true, "a tile is read before it has come", dense, WHOLE, TILE, "  wait_copies<0>();\n", ""},
    {false, "a row for the one eight below", dense, WHOLE, TILE, "tile_chunk(h * 8 + lane / 4",
     "tile_chunk((1 - h) * 8 + lane / 4"},
    {false, "a chunk for its neighbour", dense, WHOLE, TILE, "rows[h] + chunk * 8",
     "rows[h] + (chunk ^ 1) * 8"},
    {false, "one column tile for two", dense, WHOLE, TILE, "n + lane / 16", "n"},
    {false, "the second of a pair for the first", dense, WHOLE, EXPONENTS, "i == 0 ? pair",
     "i == 1 ? pair"},
    {false, "the tile of this step for the next", dense, WHOLE, "parts/consumer_steps.cu.in",
     "AnnouncedStep after = step_of(consumer, work, left - 1)",
     "AnnouncedStep after = step_of(consumer, work, left)"},
    {false, "a first step without its tile", dense, "bf16 d64 hq2 b4 nq128 nk256",
     "parts/consume_overlap.cu.in",
     "    ask_for_tile(consumer, at_place(params, work.place), step);\n", ""},
    {true, "warps share a tile", dense, WHOLE, TILE, "(consumer * 4 + warp)", "(consumer * 4)"},
    {true, "rows at odd addresses", dense, "bf16 d64 hq2 nq200 nk260", TILE,
     "(reinterpret_cast<u64>(rows[h]) % 16 == 0)", "true"},
    {true, "keys beyond the end of a row", short_rows, WHOLE, TILE,
     " & is_inside(score, head, row, last)", ""},
    {false, "nothing is hidden", hidden, WHOLE, EXPONENTS, "  if (hides) {\n",
     "  if (!HIDES_KEYS) {\n"},
    {true, "rows are read before they have come", dense, WHOLE, BY_ROWS,
     "  mbarrier_wait(tile_full(consumer, warp), tile.parity);\n", ""},
    {false, "rows of another head", dense, WHOLE, BY_ROWS, "tile_place_1(", "tile_place_0("},
    {false, "rows of the warp before", dense, WHOLE, BY_ROWS, "tile.row = first_row",
     "tile.row = first_row - 16"},
    {false, "rows beyond the tensor", few_rows, WHOLE, BY_ROWS,
     " && min(first_row + 15, params.sequence.nq - 1) <= last_tile_row(params.score)", ""},
    {false, "keys beyond the tensor", short_rows, WHOLE, BY_ROWS,
     " & is_inside(score, head, row, last)", ""},
    {false, "the known tile of this step for the next", dense, WHOLE, "parts/consumer_steps.cu.in",
     "step_of(consumer, work, left_then)", "step_of(consumer, work, left_then + 1)"},
    {false, "a known tile of one step for all steps", before, WHOLE, "parts/consumer_steps.cu.in",
     "consumer.tile.is_there & can_be", "consumer.tile.is_there"},
};

START_TEST(bugs_are_seen) {
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  const struct planted planted =
      emulator_plant(bugs[number].file, bugs[number].piece, bugs[number].other);
  struct emulator_run run;
  /* Tiles are known to be there only where TMA loads them. */
  const bool by_rows =
      strcmp(bugs[number].file, BY_ROWS) == 0 || strstr(bugs[number].name, "known");
  run_tile(&run, planted.folder, bugs[number].text, bugs[number].request,
           by_rows ? ROWS_IN_TURNS : TURNS);
  emulator_expect_caught(bugs[number].name, &run, bugs[number].is_fault);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
}
END_TEST

Suite *make_emulator_score_tile_suite(void) {
  Suite *const suite = suite_create("emulator_score_tile");
  TCase *const tests = tcase_create("tiles");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
