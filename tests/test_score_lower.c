/* test_score_lower.c: mask functions as kernels compute them, beside the functions themselves.
 * in -> out: texts, all queries and keys of a few sizes -> the same keys are seen. */
#include <check.h>
#include <string.h>

#include "generator/score/cuda.h"
#include "generator/score/interpret.h"
#include "generator/score/lower.h"
#include "generator/score/score.h"
#include "generator/status.h"
#include "tests/suites.h"

enum { QUERIES = 14, KEYS = 23 };

static void read_score(struct ft_score *score, const char *text) {
  ck_assert_msg(ft_score_read(score, "lowered", text, strlen(text)) == FT_OK, "%s: %s", text,
                ft_detail());
}

static bool has_distance(const struct ft_expression *expression, int root) {
  const struct ft_node *const node = ft_node(expression, root);
  if (node->operation == FT_OP_ABS) return true;
  for (int i = 0; i < node->operand_count; ++i)
    if (has_distance(expression, node->operands[i])) return true;
  return false;
}

/* ---- distances of queries and keys ---- */

static const struct {
  const char *text;
  bool is_interval; /* no distance is left to be computed for each query and key */
} distances[] = {
    {"visible = abs(i - j) <= 3", true},
    {"visible = abs(j - i) < 3", true},
    {"visible = 3 > abs(i // 4 - j // 4)", true},
    {"visible = abs(i % 5 - j % 5) <= 2 and abs(j // 5 - i // 5) <= 1", true},
    {"visible = abs(i + nk - nq - j) <= scalar('reach', 'int')", true},
    {"visible = abs(i - j) < scalar('reach', 'int')", true},
    {"visible = abs(2 * i - 3 * j + 4) <= i", false},
    {"visible = abs(2 * i - 3 * j) <= i", true},
    {"visible = not (abs(i - j) <= 4)", true},
    {"visible = abs(i - j) <= j", false},
    {"visible = abs(i - j) > 4", true},
    {"visible = abs(i - j) >= scalar('reach', 'int')", true},
    {"visible = abs(i - 6) <= 3", false},
    {"visible = abs(i - j) <= 2.5", false},
    {"visible = abs(scalar('reach', 'int') * i - j) <= 3", false},
};

static const int reaches[] = {INT32_MIN, -2, -1, 0, 1, 5, 1 << 30, INT32_MAX};

static void compare_at(const struct ft_score *score, struct ft_interpreter *interpreter,
                       struct ft_score_inputs *inputs, int lowered, const char *text) {
  for (int i = 0; i < QUERIES; ++i) {
    for (int j = 0; j < KEYS; ++j) {
      inputs->symbols[FT_SYMBOL_I] = i;
      inputs->symbols[FT_SYMBOL_J] = j;
      ft_interpret(interpreter, inputs);
      const double stated = ft_interpreter_value(interpreter, score->visible);
      ck_assert_msg(ft_interpreter_value(interpreter, lowered) == stated,
                    "%s: query %d, key %d, reach %.0f: not %.0f", text, i, j, inputs->scalars[0],
                    stated);
    }
  }
}

START_TEST(distances_see_the_same) {
  struct ft_score score;
  struct ft_interpreter interpreter;
  const char *const text = distances[_i].text;
  read_score(&score, text);
  int lowered = score.visible;
  ck_assert_int_eq(ft_score_lower(&score.expression, &lowered, 1), FT_OK);
  ck_assert_msg(has_distance(&score.expression, lowered) != distances[_i].is_interval, "%s", text);
  const int roots[] = {score.visible, lowered};
  ck_assert_int_eq(ft_interpreter_open(&interpreter, &score, roots, 2), FT_OK);
  struct ft_score_inputs inputs = {.symbols = {[FT_SYMBOL_NQ] = QUERIES, [FT_SYMBOL_NK] = KEYS}};
  const size_t count = score.scalar_count == 0 ? 1 : sizeof reaches / sizeof reaches[0];
  for (size_t r = 0; r < count; ++r) {
    inputs.scalars[0] = reaches[r];
    /* |reach i - j| must fit into 32 bits: else it has no value that could be the same. */
    if (!distances[_i].is_interval && reaches[r] > 5) continue;
    if (!distances[_i].is_interval && reaches[r] < -2) continue;
    compare_at(&score, &interpreter, &inputs, lowered, text);
  }
  ft_interpreter_close(&interpreter);
  ft_score_free(&score);
}
END_TEST

/* ---- parts of keys ---- */

static const struct {
  const char *text, *has;
} parts[] = {
    {"visible = i // 64 == j // 64", "quotient_of<64>(key)"},
    {"visible = i % 12 <= j % 12", "remainder_of<12>(key)"},
    {"visible = i // 8 <= (j + 1) // 8", "((j + 1) / 8)"},
    {"visible = i <= j // scalar('width', 'int')", "floor_divided(j, score.width_)"},
};

START_TEST(keys_are_divided_by_step) {
  struct ft_score score;
  struct ft_text text = FT_TEXT_INIT;
  read_score(&score, parts[_i].text);
  ck_assert_int_eq(ft_score_emit(&score, NULL, NULL, &text), FT_OK);
  ck_assert_msg(strstr(text.data, parts[_i].has) != NULL, "%s\n%s", parts[_i].text, text.data);
  ft_text_free(&text);
  ft_score_free(&score);
}
END_TEST

Suite *make_score_lower_suite(void) {
  Suite *const suite = suite_create("score_lower");
  TCase *const all = tcase_create("lowered");
  tcase_add_loop_test(all, distances_see_the_same, 0, sizeof distances / sizeof distances[0]);
  tcase_add_loop_test(all, keys_are_divided_by_step, 0, sizeof parts / sizeof parts[0]);
  suite_add_tcase(suite, all);
  return suite;
}
