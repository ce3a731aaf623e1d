/* test_emulator_longest.c: a block mask some of whose rows have many more blocks than others, on an
 * emulated H200.
 * in -> out: random masks of such rows -> every row against float64, the same bits twice, and right
 * without a workspace; bugs in what divides their walks and puts the parts together, each of which
 * must be seen. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"

enum { NQ = 300, NK = 6000, DIM = 64, HEADS = 2, SIDE = 64, ROWS = 5, COLS = 94 };
static_assert(ROWS == (NQ + SIDE - 1) / SIDE && COLS == (NK + SIDE - 1) / SIDE, "blocks that fit");

#define OF_ROWS(rows, more)                                                                        \
  "wgmma_forward block_m=" #rows " block_n=64 stages=2 q_stages=1 direct_store=1 "                 \
  "split_keys=1" more
#define CONFIG(more) OF_ROWS(64, more)

/* The emulated GPU has four multiprocessors. group: query heads that share K and V; by_head: each
 * head has a mask of its own; side: query rows of a block; second: blocks in a hundred of the
 * second longest row. */
struct variant {
  const char *request, *config;
  int heads, group, side, second;
  bool by_head, causal;
};

static const struct variant variants[] = {
    {"fp16 d64 nq300 mask=64x64", CONFIG(" overlap_tiles=1"), 2, 2, SIDE, 8, true, false},
    {"fp16 d64 nq300 mask=64x64", CONFIG(" pack_gqa=1"), 2, 2, SIDE, 8, false, false},
    {"fp16 d64 nq300 causal mask=64x64", CONFIG(""), 1, 1, SIDE, 40, true, true},
    {"fp16 d64 nq300 mask=128x64", OF_ROWS(128, ""), 2, 1, 128, 8, true,
     false}, /* two warpgroups */
};

static _Alignas(16) uint16_t q[HEADS * NQ * DIM], keys[HEADS * NK * DIM], values[HEADS * NK * DIM];
static uint8_t blocks[HEADS * ROWS * COLS];
static _Alignas(256) unsigned char lent[1 << 20];

struct results {
  _Alignas(16) uint16_t o[HEADS * NQ * DIM];
  float lse[HEADS * NQ];
};

static double fp16(uint16_t bits) {
  return ldexp((bits & 0x3ff) + ((bits & 0x7c00) ? 1024 : 0), ((bits >> 10 & 31) ?: 1) - 25) *
         (bits & 0x8000 ? -1 : 1);
}

/* Between -1 and 1. */
static uint16_t random_element(void) {
  return (uint16_t)(below(0x3c00) | below(2) << 15);
}

/* Rows of blocks. */
static int rows_of(const struct variant *variant) {
  return (NQ + variant->side - 1) / variant->side;
}

/* Of each head one row with all blocks, one with fewer, one without any, and the others with a few.
 * The values of a block of keys are near each other, so that no part is like another. */
static void make_inputs(const struct variant *variant) {
  const int percents[ROWS] = {100, variant->second, 0, 3, 3};
  for (int i = 0; i < HEADS * NQ * DIM; i++) q[i] = random_element();
  for (int i = 0; i < HEADS * NK * DIM; i++) keys[i] = random_element();
  for (int i = 0; i < HEADS * NK; i++)
    for (int c = 0; c < DIM; c++)
      values[i * DIM + c] = (uint16_t)((i % NK / SIDE % 7 * 2 + 40) * 256 + below(256));
  for (int head = 0; head < HEADS; head++)
    for (int row = 0, rows = rows_of(variant), first = below(rows); row < rows; row++)
      for (int col = 0; col < COLS; col++)
        blocks[(head * rows + row) * COLS + col] = below(100) < percents[(first + row) % rows];
}

static int run(fatune_session *session, const struct variant *variant, fatune_plan *plan,
               bool with_workspace, struct results *results) {
  fatune_mask *mask;
  fatune_mask_options options = FATUNE_MASK_OPTIONS_INIT;
  options.blocks = blocks;
  options.batch = 1;
  options.mask_rows = variant->side;
  options.mask_cols = SIDE;
  options.heads = variant->by_head ? variant->heads : 1;
  options.seqlen_q = NQ;
  options.seqlen_k = NK;
  ck_assert_msg(fatune_mask_make(&mask, session, &options, NULL) == FATUNE_OK, "%s",
                fatune_detail());
  fatune_arguments arguments = FATUNE_ARGUMENTS_INIT;
  arguments.q = (fatune_tensor){q, HEADS * NQ * DIM, DIM, NQ * DIM};
  arguments.k = (fatune_tensor){keys, HEADS * NK * DIM, DIM, NK * DIM};
  arguments.v = (fatune_tensor){values, HEADS * NK * DIM, DIM, NK * DIM};
  arguments.o = (fatune_tensor){results->o, HEADS * NQ * DIM, DIM, NQ * DIM};
  arguments.lse = results->lse;
  arguments.batch = 1;
  arguments.heads_q = variant->heads;
  arguments.heads_kv = variant->heads / variant->group;
  arguments.seqlen_q = NQ;
  arguments.seqlen_k = NK;
  arguments.mask = mask;
  arguments.workspace = with_workspace ? lent : NULL;
  size_t bytes, beyond = 0;
  ck_assert_int_eq(fatune_plan_workspace_for(plan, &arguments, &bytes), FATUNE_OK);
  ck_assert_uint_le(bytes, sizeof lent);
  memset(results, 0xff, sizeof *results);
  memset(lent, 0xff, sizeof lent);
  const int status = fatune_plan_run(plan, &arguments, NULL);
  for (size_t i = bytes; i < sizeof lent; i++) beyond += lent[i] != 0xff;
  ck_assert_uint_eq(beyond, 0);
  fatune_mask_free(mask);
  return status;
}

/* Whether query i of the head and its results are as float64 has them. */
static bool row_is_right(const struct variant *variant, const struct results *results, int head,
                         int i) {
  const uint8_t *const kept =
      blocks + ((variant->by_head ? head : 0) * rows_of(variant) + i / variant->side) * COLS;
  const uint16_t *const k = keys + (ptrdiff_t)(head / variant->group) * NK * DIM;
  const uint16_t *const v = values + (ptrdiff_t)(head / variant->group) * NK * DIM;
  const int end = variant->causal ? i + NK - NQ + 1 : NK;
  double sum = 0, o[DIM] = {0}, rq[DIM];
  for (int c = 0; c < DIM; c++) rq[c] = fp16(q[(head * NQ + i) * DIM + c]) / 8;
  for (int j = 0; j < end; j++) {
    if (!kept[j / SIDE]) continue;
    double score = 0;
    for (int c = 0; c < DIM; c++) score += rq[c] * fp16(k[j * DIM + c]);
    sum += exp(score);
    for (int c = 0; c < DIM; c++) o[c] += exp(score) * fp16(v[j * DIM + c]);
  }
  const float lse = results->lse[head * NQ + i];
  if (sum == 0 ? lse != -HUGE_VALF : !(fabs(lse - log(sum)) < 1e-3)) return false;
  for (int c = 0; c < DIM; c++) {
    const double wanted = sum == 0 ? 0 : o[c] / sum;
    if (!(fabs(fp16(results->o[(head * NQ + i) * DIM + c]) - wanted) < 2e-3)) return false;
  }
  return true;
}

static int wrong_rows(const struct variant *variant, const struct results *results) {
  int wrong = 0;
  for (int head = 0; head < variant->heads; head++)
    for (int i = 0; i < NQ; i++) wrong += !row_is_right(variant, results, head, i);
  return wrong;
}

static struct results first, again;

START_TEST(every_row_is_right) {
  const struct variant *const variant = &variants[EMULATOR_CHOOSE(_i, variants)];
  random_seed = emulator_seed();
  make_inputs(variant);
  fatune_session *const session = emulator_open("h200", NULL);
  fatune_plan *const plan = emulator_plan(session, variant->request, variant->config);
  ck_assert_msg(run(session, variant, plan, true, &first) == FATUNE_OK, "%s", fatune_detail());
  ck_assert_uint_ne(lent[0], 0xff); /* the LSE of a part is there */
  ck_assert_int_eq(wrong_rows(variant, &first), 0);
  ck_assert_msg(run(session, variant, plan, true, &again) == FATUNE_OK, "%s", fatune_detail());
  ck_assert_mem_eq(&first, &again, sizeof first);
  ck_assert_msg(run(session, variant, plan, false, &again) == FATUNE_OK, "%s", fatune_detail());
  ck_assert_int_eq(wrong_rows(variant, &again), 0);
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

/* ---- bugs ---- */

static const struct {
  const char *file, *piece, *other;
} bugs[] = {
    {"parts/key_parts.cu.in", "part.first_row + i % BLOCK_M", "i % BLOCK_M"},
    {"parts/key_parts.cu.in", "is_whole(part) ? lse_index(params, batch, head, i) : part",
     "false ? 0 : part"},
    {"parts/schedule_longest.cu.in", "all_heads(params) - divided_tiles(params);",
     "all_heads(params) - 1;"},
    {"parts/schedule_longest.cu.in", "parts.first_row + i % BLOCK_M", "i % BLOCK_M"},
    {"parts/schedule_longest.cu.in", "number * params.parts.rows + parts", "parts"},
    {"parts/schedule_longest.cu.in", "first_rank + rest / heads", "rest / heads"},
    {"parts/schedule_longest.cu.in", "of_all % divided,", "0,"},
    {"parts/schedule_longest.cu.in", "? cursor.place + 1", "? cursor.place"},
};

START_TEST(bugs_are_seen) {
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  const struct planted planted =
      emulator_plant(bugs[number].file, bugs[number].piece, bugs[number].other);
  const struct variant *const variant = &variants[0];
  random_seed = emulator_seed();
  make_inputs(variant);
  fatune_session *const session = emulator_open("h200", planted.folder);
  fatune_plan *const plan = emulator_plan(session, variant->request, variant->config);
  const int status = run(session, variant, plan, true, &first);
  ck_assert_msg(status != FATUNE_OK || wrong_rows(variant, &first) > 0, "'%s' is not seen",
                bugs[number].other);
  fatune_plan_free(plan);
  fatune_session_close(session);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
}
END_TEST

Suite *make_emulator_longest_suite(void) {
  Suite *const suite = suite_create("emulator_longest");
  TCase *const tests = tcase_create("longest");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(variants));
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
