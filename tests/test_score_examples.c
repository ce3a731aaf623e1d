/* test_score_examples.c: the page of built-in score functions with their pictures.
 * in -> out: built-in functions, values for what they capture -> pictures by the interpreter ->
 * generator/score/EXAMPLES.md, which must be the same. FATUNE_GOLDEN_UPDATE=1 writes it anew. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/lua_host.h"
#include "generator/score/builtin.h"
#include "generator/score/interpret.h"
#include "generator/status.h"
#include "runtime/fatune.h"
#include "tests/suites.h"
#include "tuner/verify/halves.h"

#define PAGE FATUNE_TESTS_DIR "/../generator/score/EXAMPLES.md"

enum { N = 24, ELEMENTS = N * N }; /* queries and keys; at most so many elements of a tensor */

static const char heading[] =
    "# Built-in score functions, with pictures\n\n"
    "Each is `--score NAME` of the program and `score=\"NAME\"` in Python; the text is what a file "
    "of "
    "one's own would have.\nPictures have 24 queries from top to bottom and 24 keys from left to "
    "right: `.` a key that is hidden, `#` one that is\nseen. Where scores are changed, a digit "
    "is the key's weight in the softmax, 9 for the largest of its row, if all scores are 0\nbefore "
    "(`softcap`: if they rise by a half from key to key, and are 0 at the query's own place). The "
    "tests make this page.\n";

/* ---- values ---- */

static const struct {
  const char *of, *name; /* of NULL: whatever function captures it */
  double value;
} scalars[] = {{NULL, "block", 8}, {NULL, "step", 3},    {"dilated", "reach", 2},
               {NULL, "reach", 1}, {NULL, "height", 4},  {NULL, "width", 6},
               {NULL, "cap", 2.5}, {NULL, "buckets", 8}, {NULL, "distance", 16}};

static double scalar_of(const char *function, const char *name) {
  for (size_t n = 0; n < sizeof scalars / sizeof *scalars; n++)
    if (strcmp(scalars[n].name, name) == 0 &&
        (!scalars[n].of || strcmp(scalars[n].of, function) == 0))
      return scalars[n].value;
  ck_abort_msg("%s captures '%s', of which the page has no value", function, name);
  return 0;
}

/* Queries 0 to 9 are one document, the others a second, causal one. The second also sees the first
 * three keys of the first. */
static const fatune_rectangle rectangles[] = {
    {0, 10, 0, 10, 0}, {10, N, 10, N, 1}, {10, N, 0, 3, 0}};
static int32_t bounds[N][8];

/* The element of a tensor of one row, or of one for each query. */
static double element_of(const char *function, const char *name, int row, int column) {
  if (strcmp(name, "slope") == 0) return 0.25;
  if (strcmp(name, "prefix") == 0) return 8;
  if (strcmp(name, "document") == 0) return column < 7 ? 0 : column < 16 ? 1 : 2;
  if (strcmp(name, "low") == 0) return column < 12 ? 0 : 8;
  if (strcmp(name, "high") == 0) return column - column % 4 + 4;
  if (strcmp(name, "bounds") == 0) return bounds[row][column];
  if (strcmp(name, "mask") == 0) return (row + 2 * column) % 5 != 0;
  if (strcmp(function, "relative") == 0) return -abs(column - (N - 1)) / 8.0;
  if (strncmp(function, "t5", 2) == 0) return -column / 4.0;
  if (strcmp(name, "bias") == 0) return cos((row - 2 * column) / 4.0);
  ck_abort_msg("%s captures '%s', of which the page has no values", function, name);
  return 0;
}

static void store(void *to, int at, enum ft_captured_dtype dtype, double value) {
  switch (dtype) {
  case FT_CAPTURED_FP32: ((float *)to)[at] = (float)value; break;
  case FT_CAPTURED_FP16: ((uint16_t *)to)[at] = ft_to_dtype(FT_FP16, value); break;
  case FT_CAPTURED_BF16: ((uint16_t *)to)[at] = ft_to_dtype(FT_BF16, value); break;
  case FT_CAPTURED_INT32: ((int32_t *)to)[at] = (int32_t)value; break;
  case FT_CAPTURED_BOOL: ((uint8_t *)to)[at] = value != 0; break;
  default: ck_abort_msg("a dtype that no built-in function has");
  }
}

/* Batch entries and heads share a tensor's elements. */
static void fill(struct ft_score_inputs *inputs, const struct ft_score *score,
                 const char *function) {
  static _Alignas(8) char memory[FT_SCORE_TENSORS][ELEMENTS * sizeof(float)];
  for (int i = 0; i < score->scalar_count; i++)
    inputs->scalars[i] = scalar_of(function, score->scalars[i].name);
  for (int i = 0; i < score->tensor_count; i++) {
    const struct ft_score_tensor *const tensor = &score->tensors[i];
    struct ft_captured *const captured = &inputs->tensors[i];
    captured->data = memory[i];
    for (int dim = 0; dim < tensor->dims; dim++)
      captured->extents[dim] =
          (int64_t)ft_score_size(&score->expression, tensor->extents[dim], inputs);
    const int last = tensor->dims - 1;
    const int64_t columns = captured->extents[last];
    const int64_t rows = last >= 2 ? captured->extents[last - 1] : 1;
    ck_assert_int_le(rows * columns, ELEMENTS);
    captured->strides[last] = 1;
    if (last >= 2) captured->strides[last - 1] = columns;
    for (int at = 0; at < rows * columns; at++)
      store(memory[i], at, tensor->dtype,
            element_of(function, tensor->name, at / (int)columns, at % (int)columns));
  }
}

/* ---- pictures ---- */

static void draw_row(struct ft_text *page, const double *weights, bool has_score) {
  double most = -INFINITY;
  for (int j = 0; j < N; j++) most = fmax(most, weights[j]);
  for (int j = 0; j < N; j++) {
    const char digit = (char)('0' + (int)floor(9 * exp(weights[j] - most) + 0.5));
    const char seen = has_score ? digit : '#';
    ft_text_add(page, "%s%c", j == 0 ? "    " : "", weights[j] == -INFINITY ? '.' : seen);
  }
  ft_text_add(page, "\n");
}

static void draw(struct ft_text *page, const struct ft_score *score, const char *function) {
  struct ft_score_inputs inputs = {.symbols = {[FT_SYMBOL_NQ] = N,
                                               [FT_SYMBOL_NK] = N,
                                               [FT_SYMBOL_BATCH] = 1,
                                               [FT_SYMBOL_HEADS] = 1,
                                               [FT_SYMBOL_KV_HEADS] = 1}};
  const int roots[] = {score->score, score->visible};
  const bool has_score = ft_node(&score->expression, score->score)->operation != FT_OP_SYMBOL;
  const double rise = strcmp(function, "softcap") == 0 ? 0.5 : 0;
  struct ft_interpreter interpreter;
  fill(&inputs, score, function);
  ck_assert_int_eq(ft_interpreter_open(&interpreter, score, roots, 2), FT_OK);
  for (int i = 0; i < N; i++) {
    double weights[N];
    for (int j = 0; j < N; j++) {
      inputs.symbols[FT_SYMBOL_I] = i;
      inputs.symbols[FT_SYMBOL_J] = j;
      inputs.symbols[FT_SYMBOL_S] = rise * (j - i);
      ft_interpret(&interpreter, &inputs);
      const bool seen = ft_interpreter_value(&interpreter, score->visible) != 0;
      weights[j] = seen ? ft_interpreter_value(&interpreter, score->score) : -INFINITY;
    }
    draw_row(page, weights, has_score);
  }
  ft_interpreter_close(&interpreter);
}

/* A function's text, indented; then what the picture is made with. */
static void describe(struct ft_text *page, const struct ft_template *file,
                     const struct ft_score *score, const char *function) {
  ft_text_add(page, "\n## %s\n\n", function);
  for (const char *line = file->text; *line != '\0';) {
    const size_t length = strcspn(line, "\n");
    ft_text_add(page, length > 0 ? "    " : "");
    ft_text_append(page, line, length);
    ft_text_add(page, "\n");
    line += length + (line[length] == '\n');
  }
  ft_text_add(page, "\n");
  for (int i = 0; i < score->scalar_count; i++)
    ft_text_add(page, "%s%s = %g", i == 0 ? "With " : ", ", score->scalars[i].name,
                scalar_of(function, score->scalars[i].name));
  ft_text_add(page, score->scalar_count > 0 ? ":\n\n" : "");
}

static void make_page(struct ft_text *page) {
  struct ft_lua *lua;
  char name[FT_SCORE_NAME], path[FT_SCORE_NAME + 16];
  ck_assert_int_eq(ft_lua_open(&lua, NULL), FT_OK);
  ck_assert_int_eq(fatune_rectangle_bounds(bounds[0], N, N, rectangles, 3), FATUNE_OK);
  ft_text_add(page, "%s", heading);
  for (int n = 0; ft_score_builtin_name(ft_lua_files(lua), n, name); n++) {
    struct ft_score score;
    (void)snprintf(path, sizeof path, "scores/%s.lua", name);
    const struct ft_template *const file = ft_template_files_find(ft_lua_files(lua), path);
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(ft_score_read_builtin(&score, ft_lua_files(lua), name), FT_OK);
    describe(page, file, &score, name);
    draw(page, &score, name);
    ft_score_free(&score);
  }
  ft_lua_close(lua);
}

START_TEST(page_is_as_made) {
  struct ft_text page = FT_TEXT_INIT;
  make_page(&page);
  ck_assert_int_eq(ft_text_status(&page), FT_OK);
  const bool updating = getenv("FATUNE_GOLDEN_UPDATE") != NULL;
  FILE *const file = fopen(PAGE, updating ? "w" : "r");
  ck_assert_msg(file != NULL, "%s cannot be opened", PAGE);
  if (updating) {
    ck_assert_uint_eq(fwrite(page.data, 1, page.length, file), page.length);
  } else {
    char *const there = calloc(1, page.length + 2);
    ck_assert_ptr_nonnull(there);
    const size_t length = fread(there, 1, page.length + 1, file);
    size_t same = 0;
    while (same < length && there[same] == page.data[same]) same++;
    ck_assert_msg(length == page.length && same == length,
                  "%s differs from byte %zu on: `make golden` makes it anew", PAGE, same);
    free(there);
  }
  ck_assert_int_eq(fclose(file), 0);
  ft_text_free(&page);
}
END_TEST

Suite *make_score_examples_suite(void) {
  Suite *const suite = suite_create("score_examples");
  TCase *const tests = tcase_create("page");
  tcase_add_test(tests, page_is_as_made);
  suite_add_tcase(suite, tests);
  return suite;
}
