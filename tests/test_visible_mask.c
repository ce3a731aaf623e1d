/* test_visible_mask.c: block masks that a mask function makes, on emulated GPUs.
 * in -> out: score functions, sizes -> lists beside what the interpreter says of each element; bad
 * options -> what is wrong with them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/score/interpret.h"
#include "generator/score/registry.h"
#include "runtime/mask.h"
#include "runtime/scores.h"
#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/score_lab.h"
#include "tests/slow_tests.h"
#include "tests/suites.h"
#include "tuner/verify/problem_score.h"

enum { OFF, PARTIAL, FULL };

/* What a mask was made of. */
struct scene {
  fatune_session *session;
  struct ft_request request;
  struct ft_problem_score score;
  fatune_visible_options options;
  fatune_mask *mask;
  int status; /* of the last update */
};

static void open_scene(struct scene *scene, fatune_session *session, const char *name,
                       const char *text, const char *request) {
  *scene = (struct scene){.session = session};
  ck_assert_msg(ft_request_parse(&scene->request, request) == FT_OK, "%s", ft_detail());
  ck_assert_msg(fatune_score_add(&scene->request.score, session, name, text) == FT_OK, "%s",
                ft_detail());
  ck_assert_int_eq(ft_problem_score_make(&scene->score, session, &scene->request, emulator_seed()),
                   FT_OK);
  scene->options = (fatune_visible_options)FATUNE_VISIBLE_OPTIONS_INIT;
  scene->options.score = scene->request.score;
  scene->options.mask_rows = scene->request.mask_rows;
  scene->options.mask_cols = scene->request.mask_cols;
  scene->options.batch = scene->request.batch;
  scene->options.heads_q = scene->request.heads_q;
  scene->options.heads_kv = scene->request.heads_kv;
  scene->options.seqlen_q = scene->request.seqlen_q;
  scene->options.seqlen_k = scene->request.seqlen_k;
}

static void make(struct scene *scene) {
  ck_assert_msg(fatune_visible_mask(&scene->mask, scene->session, &scene->options) == FATUNE_OK,
                "%s", fatune_detail());
  scene->status = fatune_mask_update(scene->mask, scene->score.captured, scene->score.count, NULL);
}

static void close_scene(struct scene *scene) {
  fatune_mask_free(scene->mask);
  ft_problem_score_free(&scene->score, scene->session);
}

/* ---- the truth ---- */

/* What the block of a head is, element by element. */
static int truth(struct scene *scene, struct ft_interpreter *interpreter, int b, int h, int64_t row,
                 int64_t col) {
  const struct ft_request *const r = &scene->request;
  struct ft_score_inputs *const inputs = &scene->score.inputs;
  const int kv_head = h / (r->heads_q / r->heads_kv);
  bool seen = false, hidden = false;
  inputs->symbols[FT_SYMBOL_B] = b;
  inputs->symbols[FT_SYMBOL_H] = h;
  inputs->symbols[FT_SYMBOL_KV] = kv_head;
  for (int64_t i = row * r->mask_rows; i < (row + 1) * r->mask_rows && i < r->seqlen_q; i++) {
    for (int64_t j = col * r->mask_cols; j < (col + 1) * r->mask_cols && j < r->seqlen_k; j++) {
      inputs->symbols[FT_SYMBOL_I] = (double)i;
      inputs->symbols[FT_SYMBOL_J] = (double)j;
      ft_interpret(interpreter, inputs);
      if (ft_interpreter_value(interpreter, scene->score.known->score.visible) != 0)
        seen = true;
      else
        hidden = true;
    }
  }
  return !seen ? OFF : hidden ? PARTIAL : FULL;
}

/* ---- the lists; memory of an emulated GPU is this process's ---- */

static const void *at(cu_address address) {
  return (const void *)(uintptr_t)address;
}

/* A list has the blocks of `states`, each `step` from the next, in ascending order, those that are
 * full marked. */
static bool is_list(const struct ft_mask_list *list, const int32_t *blocks, const int *states,
                    int64_t length, int64_t step) {
  int32_t found = 0;
  for (int64_t n = 0; n < length; n++) {
    const int state = states[n * step];
    if (state == OFF) continue;
    if (found == list->count) return false;
    const uint32_t entry = (uint32_t)blocks[list->start + found++];
    if (entry != ((uint32_t)n | (state == FULL ? 0x80000000u : 0))) return false;
  }
  return found == list->count;
}

static bool is_before(const struct ft_mask_list *lists, int32_t a, int32_t b) {
  const int32_t of_a = lists[a].count, of_b = lists[b].count;
  return of_a > of_b || (of_a == of_b && a < b);
}

/* The lists of one head. Rows are in the order of their length, each there once. */
static bool are_lists(const struct fatune_mask *mask, int64_t set, const int *states) {
  const int64_t rows = mask->row_blocks, cols = mask->col_blocks;
  const struct ft_mask_list *const row_lists =
      (const struct ft_mask_list *)at(mask->lists) + set * rows;
  const struct ft_mask_list *const column_lists =
      (const struct ft_mask_list *)at(mask->column_lists) + set * cols;
  for (int64_t n = 0; n < rows; n++) {
    const struct ft_mask_list *const list = &row_lists[n];
    const bool in_order = n == 0 || list[-1].count > list->count ||
                          (list[-1].count == list->count && list[-1].block < list->block);
    if (!in_order || list->block < 0 || list->block >= rows) return false;
    if (!is_list(list, at(mask->blocks), states + list->block * cols, cols, 1)) return false;
  }
  const int32_t *const order = (const int32_t *)at(mask->column_order) + set * cols;
  for (int64_t n = 0; n < cols; n++) {
    const bool in_order = n == 0 || is_before(column_lists, order[n - 1], order[n]);
    if (!in_order || order[n] < 0 || order[n] >= cols || column_lists[n].block != n ||
        !is_list(&column_lists[n], at(mask->column_blocks), states + n, rows, cols))
      return false;
  }
  return true;
}

/* Whether all lists are as they should be. */
static bool is_right(struct scene *scene) {
  const struct fatune_mask *const mask = scene->mask;
  struct ft_interpreter interpreter;
  const int root = scene->score.known->score.visible;
  if (scene->status != FATUNE_OK) return false;
  int *const states = malloc((size_t)(mask->row_blocks * mask->col_blocks) * sizeof *states);
  ck_assert(states != NULL);
  ck_assert_int_eq(ft_interpreter_open(&interpreter, &scene->score.known->score, &root, 1), FT_OK);
  bool right = true;
  for (int64_t set = 0; right && set < mask->batch * mask->heads; set++) {
    for (int64_t n = 0; n < mask->row_blocks * mask->col_blocks; n++)
      states[n] = truth(scene, &interpreter, (int)(set / mask->heads), (int)(set % mask->heads),
                        n / mask->col_blocks, n % mask->col_blocks);
    right = are_lists(mask, set, states);
  }
  ft_interpreter_close(&interpreter);
  free(states);
  return right;
}

/* ---- what must be right ---- */

static void expect_right(const char *gpu, const char *name, const char *text, const char *request) {
  fatune_session *const session = emulator_open(gpu, NULL);
  struct scene scene;
  open_scene(&scene, session, name, text, request);
  make(&scene);
  ck_assert_msg(scene.status == FATUNE_OK, "%s: %s", name, fatune_detail());
  ck_assert_msg(is_right(&scene), "%s, %s, seed %llu: the lists are wrong", name, request,
                (unsigned long long)emulator_seed());
  ck_assert(fatune_mask_density(scene.mask) == -1);
  ck_assert_int_eq(fatune_mask_longest(scene.mask, FATUNE_FORWARD), 1);
  close_scene(&scene);
  fatune_session_close(session);
}

static const char *const builtins[][3] = {{"t4", "documents", "fp16 d64 b2 nq100 nk150 mask=16x32"},
                                          {"h200", "prefix_lm", "d64 b2 nq100 nk300 mask=48x16"},
                                          {"a100", "neighbourhood", "d64 nq130 mask=32x64"},
                                          {"h200", "dilated", "d64 nq70 nk90 mask=16x48"},
                                          {"a100", "block_causal", "d64 nq130 nk70 mask=64x16"},
                                          {"h200", "mask", "d64 hq2 hkv1 b2 nq50 nk70 mask=16x16"}};

START_TEST(builtin_masks_are_right) {
  const size_t number = EMULATOR_CHOOSE(_i, builtins);
  expect_right(builtins[number][0], builtins[number][1], NULL, builtins[number][2]);
}
END_TEST

/* Each operation that has a range, of integers of either sign, beside what has none. */
static const char *const texts[] = {
    "visible = i * (j - 40) // 7 <= (i - j) * 3 and not (abs(j - 33) % 5 == 9)",
    "visible = where(i - j > 20, max(i, j) < 64, min(-i, 3 - j) % 40 >= 5) or j == i",
    "visible = (j - 30) // -3 <= i - 20 and (i + 5) // 16 * 16 ~= j % 32",
    "visible = where(j < 3, j, 0) * i * i * 40000 < i or j % (i - 10) == 0 or i // (j - 20) > 3",
    "visible = h % 2 == 0 and (i + 7 * h) // 16 == j // 16 or b == 1 and float(j) < 0.5 * i",
    "visible = i % 2 == 0",
    "visible = i < nq and j < nk and (i + j) % 2 + (i + j + 1) % 2 == 1",
    "visible = (i - 50) // (j - 40) >= 1",
    "visible = nq > j and kv == 0"};

START_TEST(texts_are_right) {
  expect_right(_i % 2 ? "h200" : "t4", "text", texts[EMULATOR_CHOOSE(_i, texts)],
               "fp16 d64 hq4 hkv2 b2 nq83 nk101 mask=16x32");
}
END_TEST

enum { RANDOM = 2 };

static bool hides_keys(const char *text) {
  struct ft_score_registry registry = {0};
  struct ft_template_files files = {0};
  const struct ft_known_score *known;
  int64_t number;
  ck_assert_msg(ft_registry_add(&registry, &files, "random", text, &number) == FT_OK, "%s",
                ft_detail());
  ck_assert_int_eq(ft_registry_find(&registry, &files, number, &known), FT_OK);
  const bool hides = known->has_visible;
  ft_registry_close(&registry);
  return hides;
}

START_TEST(random_masks_are_right) {
  struct ft_text text = FT_TEXT_INIT;
  uint64_t seed = emulator_seed() + (uint64_t)_i;
  do { /* One in 25 is true of every key, whatever their numbers. */
    ft_text_clear(&text);
    lab_random_score(seed, &text);
    seed += RANDOM;
  } while (!hides_keys(text.data));
  const char *const visible = strstr(text.data, "\nscore = ");
  ck_assert(visible != NULL);
  expect_right(_i % 2 ? "h200" : "a100", "random", text.data,
               _i % 3 ? "d64 hq6 hkv3 nq40 nk70 mask=16x32"
                      : "d64 hq2 hkv1 b2 nq70 nk40 mask=32x16");
  ft_text_free(&text);
}
END_TEST

/* Lists are made anew by each update, in memory that is lent, for all heads at once where the
 * caller says so. */
START_TEST(updates_replace_lists) {
  static _Alignas(256) uint8_t memory[1 << 16];
  fatune_session *const session = emulator_open("h200", NULL);
  struct scene scene;
  size_t bytes;
  open_scene(&scene, session, "documents", NULL, "d64 hq2 hkv1 b3 nq64 nk80 mask=16x16");
  scene.options.same_for_batch = 1;
  ck_assert_int_eq(fatune_visible_memory_size(session, &scene.options, &bytes), FATUNE_OK);
  ck_assert_uint_le(bytes, sizeof memory);
  memset(memory, 0xEE, sizeof memory);
  scene.options.memory = memory;
  make(&scene);
  ck_assert_msg(is_right(&scene), "%s", fatune_detail());
  ck_assert_int_eq(scene.mask->batch, 1);
  for (size_t n = bytes; n < sizeof memory; n++) ck_assert_uint_eq(memory[n], 0xEE);
  int32_t *const documents = (int32_t *)(uintptr_t)scene.score.captured[0].data;
  for (int n = 0; n < 80; n++)
    documents[n] = ((int32_t *)scene.score.host[0])[n] = n / 30; /* ft_captured's own copy */
  scene.status = fatune_mask_update(scene.mask, scene.score.captured, scene.score.count, NULL);
  ck_assert_msg(is_right(&scene), "%s", fatune_detail());
  close_scene(&scene);
  fatune_session_close(session);
}
END_TEST

/* ---- ranges decide where they can ---- */

START_TEST(ranges_decide) {
  const struct planted planted = emulator_plant(
      "block_mask.cu.in", "return __any_sync(0xffffffffu, seen) ? FULL : OFF;", "return PARTIAL;");
  fatune_session *const session = emulator_open("h200", planted.folder);
  struct scene scene;
  open_scene(&scene, session, "text",
             "local low, high = tensor('low', 'int32', nq), tensor('high', 'int32', nq)\n"
             "visible = j >= low(i) - 3 and j < high(i) + 20 or abs(i - j) <= 16",
             "d64 nq160 nk200 mask=16x16");
  make(&scene);
  ck_assert_msg(is_right(&scene), "elements were looked at");
  close_scene(&scene);
  fatune_session_close(session);
  emulator_unplant(&planted);
}
END_TEST

/* ---- bugs ---- */

static const struct bug {
  const char *file, *piece, *other;
} bugs[] = {
    {"parts/score_ranges.cu.in", "{a.most < b.least, a.least < b.most}",
     "{a.least < b.least, a.least < b.most}"},
    {"parts/score_ranges.cu.in", "a.least - b.most, (long long)a.most - b.least",
     "a.least - b.least, (long long)a.most - b.most"},
    {"parts/score_ranges.cu.in", "a.least == b.most && a.most == b.least, ",
     "a.least == b.least, "},
    {"parts/score_ranges.cu.in", "if (b.least < 1) return", "if (b.least < -99) return"},
    {"parts/score_ranges.cu.in",
     "floor_divided(a.least, b.least) == floor_divided(a.most, b.least)", "true"},
    {"parts/score_ranges.cu.in", "{1 - a.most, 1 - a.least}", "{1 - a.least, 1 - a.most}"},
    {"parts/score_ranges.cu.in", "return {min(a.least, b.least), max(a.most, b.most)};\n}\n",
     "return a;\n}\n"},
    {"block_mask.cu.in", "min(first + MASK_COLS, params.nk)", "first + MASK_COLS - 1"},
    {"block_mask.cu.in", "min(query + n * QUERIES + lane / KEYS, params.nq - 1)",
     "query + n * QUERIES + lane / KEYS"},
    {"block_mask.cu.in", "min(key + lane % KEYS, params.nk - 1)", "key + lane % KEYS"},
    {"block_mask.cu.in", "state == FULL ? int(n | 0x80000000u) : n", "n"},
    {"block_mask.cu.in", "(1u << lane) - 1", "(2u << lane) - 1"},
    {"block_mask.cu.in", "count == own && other < line", "count == own && other > line"},
    {"block_mask.cu.in", "(long long)listed.number * params.row_blocks + row)", "row)"},
    {"block_mask.cu.in", "int(number % params.heads)", "0"},
};

START_TEST(bugs_are_seen) {
  const struct bug *const bug = &bugs[EMULATOR_CHOOSE(_i, bugs)];
  const struct planted planted = emulator_plant(bug->file, bug->piece, bug->other);
  fatune_session *const session = emulator_open("h200", planted.folder);
  bool right = true;
  for (size_t n = 0; right && n < 2 * EMULATOR_COUNT(texts); n++) {
    struct scene scene;
    open_scene(&scene, session, "text", texts[n / 2],
               n % 2 ? "d64 hq4 hkv2 b2 nq83 nk101 mask=16x32" : "d64 hq2 nq104 nk88 mask=32x16");
    make(&scene);
    right = is_right(&scene);
    close_scene(&scene);
  }
  ck_assert_msg(!right, "'%s' is not seen", bug->other);
  fatune_session_close(session);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(all_bugs_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
}
END_TEST

/* ---- attention with such masks ---- */

static const struct {
  const char *gpu, *score, *request;
} runs[] = {
    {"h200", "block_causal", "forward bf16 d64 hq2 nq200 nk330 mask=64x64"},
    {"h200", "prefix_lm", "forward bf16 d64 hq2 hkv1 b2 nq150 nk270 mask=128x64 causal dropout"},
    {"a100", "documents", "forward fp16 d32 b2 nq140 nk140 mask=64x32 causal"},
    {"a100", "block_causal", "backward bf16 d64 hq2 hkv1 nq140 nk200 mask=64x64"},
    {"h200", "prefix_lm", "backward bf16 d64 hq2 b2 nq200 nk270 mask=128x128"},
    {"h200", "text", "backward fp16 d128 hq2 nq200 nk200 mask=128x128 causal"},
    {"h200", "text", "backward bf16 d136 hq2 nq200 nk270 mask=128x128"}};

/* The score is that of a text that changes scores, too. */
static const char scored[] = "score = 3 * tanh(s / 3) + 0.01 * (j - i)\nvisible = abs(i // 64 - j "
                             "// 64) <= 1 or (i + j) % 7 == 0";

START_TEST(attention_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  fatune_session *const session = emulator_open(runs[number].gpu, NULL);
  struct ft_problem_options options =
      emulator_options(runs[number].request, FT_LAYOUT_PADDED, emulator_seed());
  const bool is_text = strcmp(runs[number].score, "text") == 0;
  ck_assert_msg(fatune_score_add(&options.request.score, session, runs[number].score,
                                 is_text ? scored : NULL) == FT_OK,
                "%s", ft_detail());
  struct emulator_run run;
  emulator_run(&run, session, &options, NULL);
  emulator_expect_right(runs[number].request, &run);
  emulator_run_free(&run);
  fatune_session_close(session);
}
END_TEST

/* Blocks that are said to be full are taken as such: a bug that marks all of them is seen. */
static const struct bug marks = {"block_mask.cu.in", "state == FULL ? int(n | 0x80000000u) : n",
                                 "int(n | 0x80000000u)"};

static int marked_runs(void) {
  return tests_are_slow() ? (int)EMULATOR_COUNT(runs) : 2;
}

START_TEST(marks_are_used) {
  const size_t number = emulator_choose(_i, (size_t)marked_runs(), EMULATOR_COUNT(runs));
  const struct planted planted = emulator_plant(marks.file, marks.piece, marks.other);
  fatune_session *const session = emulator_open(runs[number].gpu, planted.folder);
  struct ft_problem_options options =
      emulator_options(runs[number].request, FT_LAYOUT_PADDED, emulator_seed());
  ck_assert_int_eq(fatune_score_add(&options.request.score, session, "text", scored), FT_OK);
  struct emulator_run run;
  emulator_run(&run, session, &options, NULL);
  emulator_expect_wrong("marks of whole blocks", &run);
  emulator_run_free(&run);
  fatune_session_close(session);
  emulator_unplant(&planted);
}
END_TEST

/* ---- what is refused ---- */

#define BAD(change, word)                                                                          \
  do {                                                                                             \
    fatune_visible_options bad = scene.options;                                                    \
    fatune_mask *mask = (fatune_mask *)(uintptr_t)1;                                               \
    change;                                                                                        \
    ck_assert_int_eq(fatune_visible_mask(&mask, session, &bad), FATUNE_E_ARGUMENT);                \
    ck_assert_msg(strstr(fatune_detail(), word) != NULL, "%s", fatune_detail());                   \
    ck_assert_ptr_null(mask);                                                                      \
  } while (0)

START_TEST(bad_options_are_named) {
  fatune_session *const session = emulator_open("h200", NULL);
  struct scene scene;
  int64_t softcap;
  open_scene(&scene, session, "documents", NULL, "d64 hq2 hkv1 b2 nq64 nk80 mask=16x16");
  ck_assert_int_eq(fatune_score_add(&softcap, session, "softcap", NULL), FT_OK);
  BAD(bad.size = 8, "options.size is 8");
  BAD(bad.score = 0, "options.score is 0");
  BAD(bad.score = softcap, "softcap.lua', which hides no key");
  BAD(bad.mask_rows = 24, "options.mask_rows is 24");
  BAD(bad.mask_cols = 0, "options.mask_cols is 0");
  BAD(bad.batch = -1, "options.batch is -1");
  BAD(bad.heads_kv = 3, "options.heads_q is 2; allowed: a multiple of heads_kv, 3");
  BAD(bad.seqlen_q = 0, "options.seqlen_q is 0");
  BAD(bad.seqlen_k = 1ll << 31, "options.seqlen_k is 2147483648");
  BAD(bad.same_for_heads = 2, "options.same_for_heads is 2");
  BAD(bad.memory = (void *)(uintptr_t)8, "options.memory is 0x8");
  BAD((bad.seqlen_q = bad.seqlen_k = 1 << 23), "more than memory can hold");
  BAD(bad.seqlen_k = (1 << 23) + 1, "options.seqlen_k is 8388609; allowed: at most 2^23");
  make(&scene);
  ck_assert_int_eq(fatune_mask_update(scene.mask, NULL, 0, NULL), FATUNE_E_ARGUMENT);
  ck_assert_msg(strstr(fatune_detail(), "lacks tensor 'document'"), "%s", fatune_detail());
  scene.score.captured[0].extents[1] = 79;
  ck_assert_int_eq(fatune_mask_update(scene.mask, scene.score.captured, 1, NULL),
                   FATUNE_E_ARGUMENT);
  ck_assert_msg(strstr(fatune_detail(), "extent 2 of 'document' is 79; allowed: 80"), "%s",
                fatune_detail());
  ck_assert_int_eq(fatune_mask_update(NULL, NULL, 0, NULL), FATUNE_E_ARGUMENT);
  close_scene(&scene);
  fatune_session_close(session);
}
END_TEST

/* Such a mask is for plans with its score. */
START_TEST(other_scores_are_refused) {
  fatune_session *const session = emulator_open("a100", NULL);
  static _Alignas(16) uint16_t memory[4][64 * 64];
  struct scene scene;
  open_scene(&scene, session, "causal", "visible = j <= i", "d64 nq64 mask=64x64");
  make(&scene);
  fatune_plan *const plan = emulator_plan(session, "fp16 d64 nq64 mask=64x64", NULL);
  fatune_arguments run = FATUNE_ARGUMENTS_INIT;
  run.q = (fatune_tensor){memory[0], 64 * 64, 64, 64};
  run.k = (fatune_tensor){memory[1], 64 * 64, 64, 64};
  run.v = (fatune_tensor){memory[2], 64 * 64, 64, 64};
  run.o = (fatune_tensor){memory[3], 64 * 64, 64, 64};
  run.mask = scene.mask;
  ck_assert_int_eq(fatune_plan_run(plan, &run, NULL), FATUNE_E_ARGUMENT);
  ck_assert_msg(strstr(fatune_detail(), "arguments.mask is made by score"), "%s", fatune_detail());
  fatune_plan_free(plan);
  close_scene(&scene);
  fatune_session_close(session);
}
END_TEST

Suite *make_visible_mask_suite(void) {
  Suite *const suite = suite_create("visible_mask");
  TCase *const tests = tcase_create("all");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, builtin_masks_are_right, 0, EMULATOR_RUNS(builtins));
  tcase_add_loop_test(tests, texts_are_right, 0, EMULATOR_RUNS(texts));
  tcase_add_loop_test(tests, random_masks_are_right, 0, RANDOM);
  tcase_add_test(tests, updates_replace_lists);
  tcase_add_test(tests, ranges_decide);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  tcase_add_test(tests, all_bugs_can_be_planted);
  tcase_add_loop_test(tests, attention_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_loop_test(tests, marks_are_used, 0, marked_runs());
  tcase_add_test(tests, bad_options_are_named);
  tcase_add_test(tests, other_scores_are_refused);
  suite_add_tcase(suite, tests);
  return suite;
}
