/* test_score_exponent.c: scores as exponents of 2, beside the scores themselves.
 * in -> out: seed -> random score functions: log2(e) score - max in float64, both forms of it. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/family.h"
#include "generator/score/cuda.h"
#include "generator/score/exponent.h"
#include "generator/score/lower.h"
#include "generator/score/registry.h"
#include "generator/status.h"
#include "tests/fresh_seed.h"
#include "tests/score_lab.h"
#include "tests/suites.h"

enum { SCORES = 200, PLACES = 60 };

static const double LOG2_E = 1.4426950408889634, MINUS_MAX = -3.25;

static bool is_near(double a, double b) {
  return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-8 * (1 + fabs(a));
}

/* A key of a step, whose first is that key or one before. */
static void place_exponent(uint64_t *random, struct ft_score_inputs *inputs) {
  const double j = inputs->symbols[FT_SYMBOL_J];
  const double delta = (double)(lab_random(random) % (uint64_t)(j + 1));
  inputs->symbols[FT_SYMBOL_SCALE] = 0.125;
  inputs->symbols[FT_SYMBOL_RAW] = inputs->symbols[FT_SYMBOL_S] * 8;
  inputs->symbols[FT_SYMBOL_MINUS_MAX] = MINUS_MAX;
  inputs->symbols[FT_SYMBOL_FIRST_J] = j - delta;
  inputs->symbols[FT_SYMBOL_DELTA] = delta;
}

/* On which side of the query the key is. */
static double side_at(struct ft_interpreter *interpreter, struct ft_score_inputs *inputs,
                      int first_x) {
  const double first_j = inputs->symbols[FT_SYMBOL_FIRST_J];
  inputs->symbols[FT_SYMBOL_FIRST_J] = inputs->symbols[FT_SYMBOL_J];
  ft_interpret(interpreter, inputs);
  inputs->symbols[FT_SYMBOL_FIRST_J] = first_j;
  return ft_interpreter_value(interpreter, first_x) < 0 ? -1 : 1;
}

static void compare(struct ft_score *score, uint64_t *random, struct ft_score_inputs *inputs,
                    const char *text) {
  struct ft_exponent of;
  struct ft_interpreter interpreter;
  int lowered = score->score;
  ck_assert_int_eq(ft_score_lower(&score->expression, &lowered, 1), FT_OK);
  ck_assert_int_eq(ft_score_exponent(score, lowered, &of), FT_OK);
  const int keyless[] = {of.keyless, of.sided_keyless};
  const int slopes[] = {of.key_slope, of.sided_key_slope};
  const int roots[] = {score->score, of.general, of.sided,  of.first_x, keyless[0],
                       keyless[1],   slopes[0],  slopes[1], of.key_term};
  ck_assert_int_eq(
      ft_interpreter_open(&interpreter, score, roots, (int)(sizeof roots / sizeof *roots)), FT_OK);
  for (int place = 0; place < PLACES; ++place) {
    lab_place(random, inputs);
    place_exponent(random, inputs);
    inputs->symbols[FT_SYMBOL_SIDE] = side_at(&interpreter, inputs, of.first_x);
    ft_interpret(&interpreter, inputs);
    const double expected = ft_interpreter_value(&interpreter, score->score) * LOG2_E + MINUS_MAX;
    for (int i = 0; i <= (int)of.has_sides; ++i) {
      const double exponent = ft_interpreter_value(&interpreter, i == 0 ? of.general : of.sided);
      ck_assert_msg(is_near(expected, exponent), "form %d is %.12g, not %.12g\n%s", i, exponent,
                    expected, text);
      const double of_key =
          ft_interpreter_value(&interpreter, of.key_term) +
          ft_interpreter_value(&interpreter, slopes[i]) * inputs->symbols[FT_SYMBOL_DELTA];
      const double sum = ft_interpreter_value(&interpreter, keyless[i]) + of_key;
      ck_assert_msg(is_near(expected, sum) || !isfinite(of_key),
                    "form %d is %.12g with %.12g of the key, not %.12g\n%s", i, sum, of_key,
                    expected, text);
    }
  }
  ft_interpreter_close(&interpreter);
}

START_TEST(exponents_agree_with_scores) {
  const char *const given = getenv("FATUNE_TEST_SEED");
  const uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : fresh_seed();
  uint64_t random = seed;
  struct ft_score_inputs inputs;
  lab_fill(seed, &inputs);
  for (int number = 0; number < SCORES; ++number) {
    struct ft_text text = FT_TEXT_INIT;
    struct ft_score score;
    lab_random_score(seed + (uint64_t)number * 7919, &text);
    ck_assert_msg(ft_score_read(&score, "random", text.data, text.length) == FT_OK, "%s",
                  ft_detail());
    compare(&score, &random, &inputs, text.data);
    ft_score_free(&score);
    ft_text_free(&text);
  }
}
END_TEST

/* What a text is made into, by what it says. */
static const struct {
  const char *text;
  bool has_sides, has_sigmoid, sigmoid_alone, reads_keys, adds_by_key;
} forms[] = {
    {"score = s - 0.5 * abs(i - j)", true, false, false, false, true},
    {"score = s - abs(i - j) * tensor('slope', 'fp32', heads)(h)", true, false, false, false, true},
    {"score = s + j - i", false, false, false, false, true},
    {"score = 3 - s", false, false, false, false, false},
    {"score = s + tensor('bias', 'fp32', nk)(j) - i", false, false, false, true, true},
    {"score = s - abs(2 * i - 2 * j)", false, false, false, false, false},
    {"score = 30 * tanh(s / 30)", false, true, true, false, false},
    {"score = 2 - sigmoid(s) - abs(j)", false, true, false, false, false},
    {"score = 3 * sigmoid(0.5 * s) - i", false, true, true, false, false},
    {"score = 3 * sigmoid(0.5 * s + 1)", false, true, false, false, false},
    {"score = tanh(s / 9) + s", false, true, false, false, false},
    {"score = tanh(s) * tensor('t', 'fp32', nk)(j)", false, false, false, false, false},
    {"score = tanh(s) + tanh(2 * s)", false, false, false, false, false},
    {"score = where(s > 0, tanh(s), 0)", false, false, false, false, false},
    {"local x = s\nfor k = 1, 200 do x = x + x end\nscore = x * 0.0", false, false, false, false,
     false},
};

START_TEST(forms_are_found) {
  struct ft_score score;
  struct ft_exponent of;
  ck_assert_msg(ft_score_read(&score, "form", forms[_i].text, strlen(forms[_i].text)) == FT_OK,
                "%s", ft_detail());
  int lowered = score.score;
  ck_assert_int_eq(ft_score_lower(&score.expression, &lowered, 1), FT_OK);
  ck_assert_int_eq(ft_score_exponent(&score, lowered, &of), FT_OK);
  ck_assert_msg(of.has_sides == forms[_i].has_sides && of.has_sigmoid == forms[_i].has_sigmoid &&
                    of.sigmoid_alone == forms[_i].sigmoid_alone &&
                    of.reads_keys == forms[_i].reads_keys &&
                    of.adds_by_key == forms[_i].adds_by_key,
                "%s: %d %d %d %d %d", forms[_i].text, of.has_sides, of.has_sigmoid,
                of.sigmoid_alone, of.reads_keys, of.adds_by_key);
  ft_score_free(&score);
}
END_TEST

/* Each value of the index is used three times by the next one. Looked at anew for each use, they
 * would take years, and the test its time limit. */
START_TEST(values_of_an_index_are_looked_at_once) {
  static const char source[] = "local t = tensor('t', 'fp32', nk)\nlocal x = j - i\n"
                               "for k = 1, 40 do x = x + (i - x) + (x - j) end\n"
                               "score = s + t(x)";
  struct ft_score score;
  struct ft_exponent of;
  struct ft_text text = FT_TEXT_INIT;
  ck_assert_msg(ft_score_read(&score, "index", source, sizeof source - 1) == FT_OK, "%s",
                ft_detail());
  ck_assert_int_eq(ft_score_emit(&score, NULL, &of, &text), FT_OK);
  ck_assert_ptr_nonnull(strstr(text.data, "dense_exponent_of"));
  ft_text_free(&text);
  ft_score_free(&score);
}
END_TEST

/* ---- kinds ---- */

static const struct {
  const char *text;
  enum ft_score_kind kind;
} kinds[] = {
    {"score = s - 0.5 * abs(i - j)", FT_SCORE_SIDES},
    {"score = 30 * tanh(s / 30)", FT_SCORE_SIGMOID},
    {"score = s + tensor('bias', 'fp32', nk)(j)", FT_SCORE_KEYS},
    {"score = s + tensor('bias', 'fp32', 2 * nk)(j - i + nk)", FT_SCORE_DISTANCE},
    {"score = s + tensor('bias', 'bf16', 2 * nk)(i - j + nk)", FT_SCORE_DISTANCE},
    {"score = s + tensor('bias', 'bf16', heads, nq, nk)(h, i, j)", FT_SCORE_TILE},
    {"score = s + tensor('bias', 'fp16', nk, nq)(j + nq - 3, i // 4)", FT_SCORE_TILE},
    {"score = tanh(s + tensor('bias', 'fp16', nq, nk)(i, j))", FT_SCORE_TILE},
    {"score = s + tensor('bias', 'fp16', nq, nk)(i, j + i)", FT_SCORE_DISTANCE},
    {"score = s + tensor('bias', 'fp32', nq, nk)(i, j)", FT_SCORE_EACH},
    {"score = s + tensor('bias', 'int32', nq, nk)(i, j)", FT_SCORE_EACH},
    {"score = s + tensor('bias', 'bf16', nq, nk)(i, nk - j)", FT_SCORE_EACH},
    {"score = s + tensor('bias', 'bf16', nq, nk)(i, 2 * j)", FT_SCORE_EACH},
    {"score = s + 2 * exp(-0.01 * abs(i - j))", FT_SCORE_EACH},
    {"score = s + tensor('x', 'fp32', 127)(j % 64 - i % 64 + 63)"
     " + tensor('y', 'fp32', 2 * nq)(j // 64 - i // 64 + nq)",
     FT_SCORE_LONG},
    {"visible = tensor('bias', 'bf16', nq, nk)(i, j) > 0", FT_SCORE_OTHER},
};

START_TEST(numbers_have_kinds) {
  struct ft_score_registry registry = {0};
  int64_t number, again;
  ck_assert_msg(ft_registry_add(&registry, NULL, "kind", kinds[_i].text, &number) == FT_OK, "%s",
                ft_detail());
  ck_assert_msg(ft_score_kind_of(number) == kinds[_i].kind, "%s: %d", kinds[_i].text,
                (int)ft_score_kind_of(number));
  ck_assert_int_eq(ft_registry_add(&registry, NULL, "other", kinds[_i].text, &again), FT_OK);
  ck_assert_int_eq(again, number);
  ck_assert_int_eq(registry.count, 1);
  ft_registry_close(&registry);
}
END_TEST

Suite *make_score_exponent_suite(void) {
  Suite *const suite = suite_create("score_exponent");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, exponents_agree_with_scores);
  tcase_add_loop_test(tests, forms_are_found, 0, FT_COUNT(forms));
  tcase_add_test(tests, values_of_an_index_are_looked_at_once);
  tcase_add_loop_test(tests, numbers_have_kinds, 0, FT_COUNT(kinds));
  suite_add_tcase(suite, tests);
  return suite;
}
