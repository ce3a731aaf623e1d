/* test_score_rounding.c: the bound of the error of an expression that is computed in fp32.
 * in -> out: expressions, random numbers -> the same computed in floats, as kernels do,
 * beside float64: no further off than the bound, which is no more than some roundings wide. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/score/rounding.h"
#include "generator/status.h"
#include "tests/suites.h"

static float softcap(float s, float j) {
  (void)j;
  return 90.f * (1.f - 2.f * (1.f / (1.f + expf(s / 30.f * 2.f))));
}
static float line(float s, float j) {
  return s * 0.3f + 0.7f * j - 3.1f;
}
static float sigmoid(float s, float j) {
  return 50.f / (1.f + expf(-(s + 0.1f * j)));
}
static float powers(float s, float j) {
  return expf(s * 0.3f) - logf(1.1f + j) / 0.7f;
}
static float chosen(float s, float j) {
  return j < 100.f ? fmaxf(s * 3.3f, -0.1f * j) : fabsf(s / 3.f);
}

/* most: of roundings of the largest number on the way. */
static const struct {
  const char *text;
  float (*in_floats)(float, float);
  double largest, most;
} expressions[] = {
    {"score = 90 * tanh(s / 30)", softcap, 90, 7},
    {"score = s * 0.3 + 0.7 * j - 3.1", line, 200, 8},
    {"score = 50 * sigmoid(s + 0.1 * j)", sigmoid, 50, 20},
    {"score = exp(s * 0.3) - log(1.1 + j) / 0.7", powers, 40, 30},
    {"score = where(j < 100, max(s * 3.3, -0.1 * j), abs(s / 3))", chosen, 40, 8},
};

START_TEST(floats_are_within_the_bound) {
  struct ft_score score;
  struct ft_interpreter interpreter;
  struct ft_score_inputs inputs = {0};
  double errors[FT_SCORE_NODES];
  double widest = 0, furthest = 0;
  unsigned seed = 1;
  const char *const text = expressions[_i].text;
  ck_assert_msg(ft_score_read(&score, "text", text, strlen(text)) == FT_OK, "%s", ft_detail());
  ck_assert_int_eq(ft_interpreter_open(&interpreter, &score, &score.score, 1), FT_OK);
  for (int n = 0; n < 20000; n++) {
    const float s = (float)(rand_r(&seed) % 20001 - 10000) / 1000.f * 1.1f,
                j = (float)(rand_r(&seed) % 256);
    inputs.symbols[FT_SYMBOL_S] = (double)s;
    inputs.symbols[FT_SYMBOL_J] = (double)j;
    ft_interpret(&interpreter, &inputs);
    const double bound = ft_score_rounding(&interpreter, 0, errors, score.score);
    const double error = fabs((double)expressions[_i].in_floats(s, j) -
                              ft_interpreter_value(&interpreter, score.score));
    ck_assert_msg(error <= bound, "%s: s %.9g, j %g: off by %g, bound %g", text, (double)s,
                  (double)j, error, bound);
    widest = fmax(widest, bound);
    furthest = fmax(furthest, error);
  }
  ck_assert_double_le(widest, expressions[_i].most * 0x1p-24 * expressions[_i].largest);
  ck_assert_double_gt(furthest, widest / 64); /* the bound is not far from what there is */
  ft_interpreter_close(&interpreter);
  ft_score_free(&score);
}
END_TEST

/* Integers are exact, and so are s and numbers that fp32 holds. */
START_TEST(what_is_exact_errs_by_nothing) {
  static const char text[] = "score = where((i - j) % 3 == 0, s, -(0.25))";
  struct ft_score score;
  struct ft_interpreter interpreter;
  struct ft_score_inputs inputs = {0};
  double errors[FT_SCORE_NODES];
  ck_assert_msg(ft_score_read(&score, "text", text, strlen(text)) == FT_OK, "%s", ft_detail());
  ck_assert_int_eq(ft_interpreter_open(&interpreter, &score, &score.score, 1), FT_OK);
  for (int j = 0; j < 6; j++) {
    inputs.symbols[FT_SYMBOL_S] = 0.1;
    inputs.symbols[FT_SYMBOL_J] = j;
    ft_interpret(&interpreter, &inputs);
    ck_assert_double_eq(ft_score_rounding(&interpreter, 0, errors, score.score), 0);
  }
  ft_interpreter_close(&interpreter);
  ft_score_free(&score);
}
END_TEST

Suite *make_score_rounding_suite(void) {
  Suite *const suite = suite_create("score_rounding");
  TCase *const tests = tcase_create("score_rounding");
  tcase_add_loop_test(tests, floats_are_within_the_bound, 0,
                      (int)(sizeof expressions / sizeof *expressions));
  tcase_add_test(tests, what_is_exact_errs_by_nothing);
  suite_add_tcase(suite, tests);
  return suite;
}
