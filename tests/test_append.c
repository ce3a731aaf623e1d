/* test_append.c: fatune_append: new rows of K and V behind those there are.
 * in -> out: random rows, lengths, page tables on emulated GPUs -> every row of the caches beside a
 * plain copy, all else untouched; bad arguments -> what is wrong with them. */
#include <stdlib.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"

enum { BATCH = 4, HEADS = 2, MOST = 40, PAGE = 8, COLUMNS = 8, PAGES = BATCH * COLUMNS + 3 };
enum { DIM_MOST = 256, NEW = BATCH * MOST * HEADS * DIM_MOST };
enum { CACHE = PAGES * PAGE * HEADS * DIM_MOST };

static struct {
  _Alignas(16) uint16_t new_rows[2][NEW], cache[2][CACHE];
  int32_t starts_q[BATCH + 1], starts_k[BATCH + 1], used_q[BATCH], lengths[BATCH];
  int32_t table[BATCH][COLUMNS];
} memory;
static uint16_t expected[2][CACHE];

/* ---- a call as it should be ---- */

static const struct {
  const char *gpu, *request;
  int rows; /* new ones of a batch entry, or of all; 0: random */
} runs[] = {
    {"h200", "bf16 d128 hq4 hkv2 b4 nq1 nk64 pages=8", 1},
    {"h200", "fp16 d80 dv40 hq2 hkv2 b4 nq5 nk64 pages=8 causal", 5},
    {"rtx4090", "bf16 d64 hq2 hkv2 b4 nq33 nk64 pages=8 ragged causal", 0},
    {"h200", "bf16 d256 hq2 hkv2 b4 nq33 nk200 ragged", 0},
    {"h200", "fp16 d16 hq2 hkv2 b4 nq3 nk50", 3},
    {"h200", "e4m3 d32 hq2 hkv2 b4 nq3 nk50", 3},
    {"a100", "bf16 d48 hq4 hkv2 b4 nq1 nk64 pages=8 kv=e4m3", 1},
};

static bool asks_for(int run, const char *word) {
  return strstr(runs[run].request, word) != NULL;
}

static int number_after(int run, const char *word) {
  const char *const found = strstr(runs[run].request, word);
  return found ? (int)strtol(found + strlen(word), NULL, 10) : 0;
}

/* Where row j of a batch entry lies in a cache. */
static int64_t cache_place(int run, int batch, int j, int dim) {
  if (asks_for(run, "pages"))
    return ((int64_t)memory.table[batch][j / PAGE] * PAGE + j % PAGE) * HEADS * dim;
  const int first = asks_for(run, "ragged") ? memory.starts_k[batch] : batch * 50;
  return (int64_t)(first + j) * HEADS * dim;
}

static void draw(int run) {
  const bool ragged = asks_for(run, "ragged"), paged = asks_for(run, "pages");
  for (int n = 0; n < 2; n++) {
    for (int i = 0; i < NEW; i++) memory.new_rows[n][i] = (uint16_t)random_word();
    memset(memory.cache[n], 0xEE, sizeof memory.cache[n]);
  }
  int32_t numbers[PAGES];
  for (int i = 0; i < PAGES; i++) numbers[i] = i;
  for (int i = 0; i < BATCH * COLUMNS; i++) {
    const int other = i + below(PAGES - i);
    memory.table[i / COLUMNS][i % COLUMNS] = numbers[other];
    numbers[other] = numbers[i];
  }
  memory.starts_q[0] = memory.starts_k[0] = 0;
  for (int b = 0; b < BATCH; b++) {
    memory.used_q[b] = runs[run].rows ? runs[run].rows : below(9);
    memory.starts_q[b + 1] =
        memory.starts_q[b] + memory.used_q[b] + (ragged ? below(2) * (b < 1) : 0);
    memory.starts_k[b + 1] = memory.starts_k[b] + below(50);
    const int room =
        paged || !ragged ? PAGE * COLUMNS : memory.starts_k[b + 1] - memory.starts_k[b];
    memory.lengths[b] = below(room + 1); /* of some the new rows do not all fit before */
  }
}

static void expect_copied(int run) {
  const bool ragged = asks_for(run, "ragged"), paged = asks_for(run, "pages");
  const int bytes = asks_for(run, "e4m3") ? 1 : 2, d = number_after(run, " d");
  const int dims[2] = {d, asks_for(run, " dv") ? number_after(run, " dv") : d};
  memset(expected, 0xEE, sizeof expected);
  for (int n = 0; n < 2; n++)
    for (int b = 0; b < BATCH; b++)
      for (int i = 0; i < memory.used_q[b]; i++) {
        const int length = ragged || paged ? memory.lengths[b] : 50;
        const int j = length - memory.used_q[b] + i;
        const int64_t row = ragged ? memory.starts_q[b] + i : b * runs[run].rows + i;
        const size_t of_row = (size_t)HEADS * (size_t)dims[n] * (size_t)bytes;
        if (j >= 0)
          memcpy((char *)expected[n] + cache_place(run, b, j, dims[n]) * bytes,
                 (char *)memory.new_rows[n] + (size_t)row * of_row, of_row);
      }
  ck_assert(memcmp(expected, memory.cache, sizeof expected) == 0);
}

static fatune_arguments arguments_of(int run, fatune_tensor new_rows[2]) {
  const bool ragged = asks_for(run, "ragged"), paged = asks_for(run, "pages");
  const int d = number_after(run, " d"), dv = asks_for(run, " dv") ? number_after(run, " dv") : d;
  const int dims[2] = {d, dv};
  fatune_arguments arguments = FATUNE_ARGUMENTS_INIT;
  fatune_tensor *const caches[2] = {&arguments.k, &arguments.v};
  for (int n = 0; n < 2; n++) {
    const int64_t row = (int64_t)HEADS * dims[n];
    new_rows[n] = (fatune_tensor){memory.new_rows[n], row * runs[run].rows, row, dims[n]};
    *caches[n] = (fatune_tensor){memory.cache[n], row * (paged ? PAGE : 50), row, dims[n]};
  }
  arguments.cu_seqlens_q = ragged ? memory.starts_q : NULL;
  arguments.seqused_q = ragged ? memory.used_q : NULL;
  arguments.cu_seqlens_k = ragged && !paged ? memory.starts_k : NULL;
  arguments.seqused_k = ragged || paged ? memory.lengths : NULL;
  if (paged)
    arguments.page_table = (fatune_page_table){memory.table[0], COLUMNS, 1, COLUMNS, PAGES};
  return arguments;
}

START_TEST(rows_become_the_last_keys) {
  random_seed = emulator_seed();
  draw(_i);
  fatune_tensor new_rows[2];
  const fatune_arguments arguments = arguments_of(_i, new_rows);
  fatune_session *const session = emulator_open(runs[_i].gpu, NULL);
  fatune_plan *const plan = emulator_plan(session, runs[_i].request, NULL);
  ck_assert_msg(fatune_append(plan, &arguments, &new_rows[0], &new_rows[1], NULL) == FATUNE_OK,
                "%s", fatune_detail());
  expect_copied(_i);
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

START_TEST(bad_arguments_are_named) {
  random_seed = emulator_seed();
  draw(0);
  fatune_tensor new_rows[2];
  const fatune_arguments good = arguments_of(0, new_rows);
  fatune_session *const session = emulator_open("h200", NULL);
  fatune_plan *const plan = emulator_plan(session, runs[0].request, NULL);
  fatune_arguments bad;
#define BAD(change, words)                                                                         \
  bad = good;                                                                                      \
  change;                                                                                          \
  ck_assert_int_eq(fatune_append(plan, &bad, &new_rows[0], &new_rows[1], NULL),                    \
                   FATUNE_E_ARGUMENT);                                                             \
  ck_assert_msg(strstr(fatune_detail(), words) != NULL, "'%s' lacks '%s'", fatune_detail(), words)
  BAD(bad.k.data = NULL, "arguments.k.data is NULL");
  BAD(bad.v = bad.k, "arguments.k and .v must not share memory");
  BAD(bad.k.stride_batch = 0, "arguments.k.stride_batch is 0");
  BAD(bad.seqused_k = NULL, "arguments.seqused_k is (nil)");
  BAD(bad.page_table.data = NULL, "arguments.page_table.data is (nil)");
  BAD(bad.page_table.pages = 0, "arguments.page_table.pages is 0; allowed: 1 .. 2147483647");
  BAD(bad.page_table.columns = 7, "arguments.seqlen_k is 64; allowed: at most page_table.columns");
  memory.lengths[2] = 65;
  BAD(, "seqused_k[2] is 65");
  memory.lengths[2] = 64;
  memory.table[2][7] = PAGES;
  BAD(, "in column 7 of batch entry 2");
#undef BAD
  ck_assert_int_eq(fatune_append(NULL, &good, &new_rows[0], &new_rows[1], NULL), FATUNE_E_ARGUMENT);
  ck_assert_int_eq(fatune_append(plan, &good, &new_rows[0], NULL, NULL), FATUNE_E_ARGUMENT);
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

Suite *make_append_suite(void) {
  Suite *const suite = suite_create("append");
  TCase *const tests = tcase_create("append");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, rows_become_the_last_keys, 0, (int)EMULATOR_COUNT(runs));
  tcase_add_test(tests, bad_arguments_are_named);
  suite_add_tcase(suite, tests);
  return suite;
}
