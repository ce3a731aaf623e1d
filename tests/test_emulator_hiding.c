/* test_emulator_hiding.c: mask functions that read of each key, by wgmma, at addresses that differ
 * by constants and, beyond ends and with other strides, not.
 * in -> out: mask functions, requests, configs -> every row against float64; bugs planted -> all
 * seen. */
#include "tests/emulator_lab.h"
#include "tests/suites.h"

#define CONFIG(m, n, more)                                                                         \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=2 q_stages=2"                                \
  " integer_max=1 lazy_rescale=1 " more
#define TURNS CONFIG(128, 64, "overlap_tiles=1 pingpong=1")

static const char same[] = "local of = tensor('of', 'int32', nk)\n"
                           "visible = of(i) % 3 == of(j) % 3 or j == i";
static const char shifted[] = "local of = tensor('of', 'uint8', heads, nk + 4)\n"
                              "visible = of(h, j + 4) % 2 == 0 or j <= i";
static const char reversed[] = "local of = tensor('of', 'fp32', batch, nk)\n"
                               "visible = of(b, nk - 1 - j) > 0";
static const char short_rows[] = "local of = tensor('of', 'int32', 200)\nvisible = of(j) % 4 ~= 1";
static const char both[] = "local of, row = tensor('of', 'int32', nk), tensor('row', 'bool', nq)\n"
                           "visible = of(j) % 3 ~= 0 or row(i)";
/* All but the first are true of whole steps, by their first key or their last. */
static const char ways[] =
    "local of = tensor('of', 'uint8', nk)\n"
    "visible = of(j) % 3 ~= 0 and j <= i + 60 and i - 90 < j and not (2 * j > 3 * i + 100)";
/* Rows of most warps are alike in what the first condition takes of them: the number of their fifty
 * modulo 3. That has to differ from one fifty to the next whatever the tensor holds, or a bug of
 * rows that are not alike would go unseen now and then. */
static const char alike[] = "local of = tensor('of', 'int32', nk)\n"
                            "local fifty = of(i // 50) - of(i // 50) % 3 + i // 50\n"
                            "visible = fifty % 3 ~= of(j) % 3 and j <= i + 60 and i - 90 < j";

static const struct {
  const char *text, *request, *config;
} runs[] = {
    {same, "bf16 d64 hq2 b2 nq200 nk264", TURNS},
    {same, "fp16 d128 hq2 nq200 nk200 causal", CONFIG(128, 128, "")},
    {same, "bf16 d64 hq2 nq200 nk264 mask=128x64@0.6", TURNS},
    {same, "bf16 d64 hq2 b3 nq200 nk264 ragged", TURNS},
    {same, "bf16 d64 hq4 hkv2 nq100 nk264", CONFIG(128, 64, "pack_gqa=1")}, /* the other form */
    {shifted, "bf16 d64 hq3 nq200 nk264 dropout", TURNS},
    {shifted, "e4m3 d64 hq2 nq200 nk264", CONFIG(128, 64, "overlap_tiles=1 direct_store=1")},
    {reversed, "fp16 d64 hq2 b2 nq200 nk264", CONFIG(192, 64, "overlap_tiles=1")},
    {short_rows, "bf16 d64 hq2 nq200 nk264", TURNS},
    {ways, "bf16 d64 hq2 nq300 nk264", TURNS},
    {ways, "fp16 d64 hq2 nq300 nk264 mask=128x64@0.6", CONFIG(128, 64, "")},
    {both, "bf16 d64 hq2 nq70 nk264 window", CONFIG(64, 96, "overlap_tiles=1")},
    {alike, "bf16 d64 hq2 nq300 nk264", TURNS},
    {alike, "fp16 d64 hq2 nq300 nk264 mask=128x64@0.6", CONFIG(128, 64, "")},
    {alike, "bf16 d64 hq2 nq200 nk400", CONFIG(64, 192, "direct_store=1")},
};

static void run_hiding(struct emulator_run *run, const char *templates, const char *text,
                       const char *request, const char *config) {
  emulator_run_scored(run, templates, "some", text,
                      emulator_options(request, FT_LAYOUT_BHSD, emulator_seed()), config);
}

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  struct emulator_run run;
  run_hiding(&run, NULL, runs[number].text, runs[number].request, runs[number].config);
  emulator_expect_right(runs[number].text, &run);
  emulator_run_free(&run);
}
END_TEST

#define HIDING "parts/wgmma_exponents_hiding.cu.in"

static const struct {
  bool is_fault; /* of the kernel; else the result is wrong */
  const char *name, *text, *request, *file, *piece, *other;
} bugs[] = {
    {true, "the key for its neighbour", same, "bf16 d64 hq2 nq200 nk256", HIDING,
     "own_key + delta, float(own_key)", "own_key + delta + 1, float(own_key)"},
    {false, "the upper row for the lower one", same, "bf16 d64 hq2 nq200 nk256", HIDING,
     "&row = consumer.score.rows[0][h]", "&row = consumer.score.rows[0][0]"},
    {true, "the first key of a step for the last", short_rows, "bf16 d64 hq2 nq200 nk256", HIDING,
     "key < BLOCK_N; key += BLOCK_N - 1", "key < 1; key += BLOCK_N - 1"},
    {false, "partial blocks for whole ones", same, "bf16 d64 hq2 nq200 nk256 mask=128x64@0.9",
     HIDING, "MARKS_BLOCKS && step.sees_whole", "MARKS_BLOCKS"},
    {false, "the first key of a step for the last, of what holds", alike,
     "bf16 d64 hq2 nq300 nk264", HIDING, "last_key = first_key + BLOCK_N - 1",
     "last_key = first_key"},
    {false, "one row of two for both", alike, "bf16 d64 hq2 nq300 nk264", HIDING,
     "holds_of_keys(score, head, scored.rows[0][0], first, last) &", "true &"},
    {false, "rows for alike that are not", alike, "bf16 d64 hq2 nq300 nk264", HIDING,
     "seen.are_known = rows_are_alike(scored.rows[0][0], scored.rows[0][1])",
     "seen.are_known = true"},
    {false, "a key's neighbour for it, of those that all rows see", alike,
     "bf16 d64 hq2 nq300 nk264", HIDING, "t * 2 + lane % 2", "t * 2 + 1 - lane % 2"},
    {false, "some keys for all", alike, "bf16 d64 hq2 nq300 nk264", HIDING,
     "seen.all = all == 0xffffffffu", "seen.all = true"},
};

START_TEST(bugs_are_seen) {
  const struct planted planted = emulator_plant(bugs[_i].file, bugs[_i].piece, bugs[_i].other);
  struct emulator_run run;
  run_hiding(&run, planted.folder, bugs[_i].text, bugs[_i].request, TURNS);
  emulator_expect_caught(bugs[_i].name, &run, bugs[_i].is_fault);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

Suite *make_emulator_hiding_suite(void) {
  Suite *const suite = suite_create("emulator_hiding");
  TCase *const tests = tcase_create("hiding");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_loop_test(tests, bugs_are_seen, 0, (int)EMULATOR_COUNT(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
