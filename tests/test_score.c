/* test_score.c: the language of score functions.
 * in -> out: Lua texts -> canonical texts, derivatives, values, errors by file, line and name;
 * texts that run away -> clean ends. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/score/builtin.h"
#include "generator/score/derive.h"
#include "generator/score/interpret.h"
#include "generator/score/print.h"
#include "generator/status.h"
#include "tests/suites.h"

static struct ft_score read_score(const char *text) {
  struct ft_score score;
  ck_assert_msg(ft_score_read(&score, "test", text, strlen(text)) == FT_OK, "%s: %s", text,
                ft_detail());
  return score;
}

static char *canonical_text(const struct ft_score *score) {
  struct ft_text text = FT_TEXT_INIT;
  ft_score_print(score, &text);
  ck_assert_int_eq(ft_text_status(&text), FT_OK);
  return text.data;
}

/* ---- expressions come out small and in one form ---- */

static const struct {
  const char *text, *canonical;
} forms[] = {
    {"score = s", "score = s\n"},
    {"score = s + 0", "score = s\n"},
    {"score = 1 * s / 1", "score = s\n"},
    {"score = 2 + s", "score = s + 2.0\n"},
    {"score = 0 + s", "score = s\n"},
    {"score = 0 - s", "score = -s\n"},
    {"score = -1 * s", "score = -s\n"},
    {"score = -s * -tanh(s)", "score = s * tanh(s)\n"},
    {"score = s / inf", "score = s / inf\n"},
    {"score = s + 0 * i", "score = s\n"},
    {"visible = true == (i < j)", "score = s\nvisible = i < j\n"},
    {"visible = (i < j) == false", "score = s\nvisible = j <= i\n"},
    {"visible = true and i < j or false", "score = s\nvisible = i < j\n"},
    {"visible = i < j or true", "score = s\n"},
    {"visible = where(i < 3, true, j < 4)", "score = s\nvisible = i < 3 or j < 4\n"},
    {"local t = [==[ ]] ]=] ]==] .. 'a\\'b' --[=[ == ]] ]=]\nscore = s", "score = s\n"},
    {"score = s + 0x1p-1 * .5 + 25e-2", "score = s + 0.25 + 0.25\n"},
    {"score = s / 4", "score = s * 0.25\n"},
    {"score = s / 3", "score = s / 3.0\n"},
    {"score = s * 0", "score = s * 0.0\n"}, /* s may be infinite */
    {"score = - - s", "score = s\n"},
    {"score = s - -s", "score = s + s\n"},
    {"score = -(s - i)", "score = float(i) - s\n"},
    {"score = s ^ 2", "score = s * s\n"},
    {"score = s + 2 ^ s", "score = s + exp(s * 0.6931471805599453)\n"},
    {"score = s + i * 0", "score = s\n"},
    {"score = s + (i - i)", "score = s\n"},
    {"score = s + floor(i)", "score = s + float(i)\n"},
    {"score = s + abs(h)", "score = s + float(h)\n"},
    {"score = s + i % 1 + j // 1", "score = s + float(j)\n"},
    {"score = s + (i % 8) % 9", "score = s + float(i % 8)\n"},
    {"score = s + min(i % 8, 7)", "score = s + float(i % 8)\n"},
    {"score = where(i >= 0, s, 5)", "score = s\n"},
    {"score = where(not (i < j), s, -inf)", "score = where(j <= i, s, -inf)\n"},
    {"score = where(not (s < 1), s, nan)", "score = where(s < 1.0, nan, s)\n"},
    {"score = where(i ~= j, s, 1)", "score = where(i == j, 1.0, s)\n"},
    {"score = max(s, 1, i)", "score = max(max(s, 1.0), float(i))\n"},
    {"local x = s * s score = x + tanh(x)", "local _1 = s * s\nscore = _1 + tanh(_1)\n"},
    {"visible = j <= i", "score = s\nvisible = j <= i\n"},
    {"visible = i > j == (b ~= h)", "score = s\nvisible = (j < i) == not (b == h)\n"},
    {"visible = not not (i < j)", "score = s\nvisible = i < j\n"},
    {"visible = i < j or i < 5 and true and i == j",
     "score = s\nvisible = i < j or i < 5 and i == j\n"},
    {"visible = (i < j or i < 5) and i ~= j",
     "score = s\nvisible = (i < j or i < 5) and not (i == j)\n"},
    {"visible = where(i < 3, j < 4, false)", "score = s\nvisible = i < 3 and j < 4\n"},
    {"visible = -1 < i", "score = s\n"},
    {"visible = false", "score = s\nvisible = false\n"},
    {"local x = nil or 5 local y = x > 4 and 'a' == 'a' and not nil score = s + (y and 1 or 2)",
     "score = s + 1.0\n"},
    {"local c <const> = 3 score = s + c -- < and\n--[[ if x == y ]] local t = '< and ~=' .. [[==]]",
     "score = s + 3.0\n"},
    {"local sum = 0 for k = 1, 3 do sum = sum + k * i end score = s + sum",
     "score = s + float(i + i * 2 + i * 3)\n"},
    {"local cap = scalar('cap') local n = scalar('n', 'int') score = cap * tanh(s / cap) + n",
     "local cap = scalar(\"cap\", \"float\")\nlocal n = scalar(\"n\", \"int\")\n"
     "score = cap * tanh(s / cap) + float(n)\n"},
    {"local t = tensor('t', 'bf16', heads, 2 * nk - 1) score = s + t(h, i - j)",
     "local t = tensor(\"t\", \"bf16\", heads, nk * 2 - 1)\nscore = s + t(h, i - j)\n"},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

START_TEST(text_has_one_canonical_form) {
  struct ft_score score = read_score(forms[_i].text);
  char *const canonical = canonical_text(&score);
  ck_assert_str_eq(canonical, forms[_i].canonical);
  struct ft_score again = read_score(canonical);
  ck_assert_msg(ft_digest_equal(&score.digest, &again.digest), "%s", canonical);
  free(canonical);
  ft_score_free(&score);
  ft_score_free(&again);
}
END_TEST

START_TEST(digest_tells_scores_apart) {
  static const char *const texts[] = {"score = s",
                                      "score = s + 1",
                                      "score = s + i",
                                      "visible = i < j",
                                      "visible = i <= j",
                                      "local x = scalar('x') score = s + x",
                                      "local y = scalar('y') score = s + y",
                                      "local x = scalar('x', 'int') score = s + x",
                                      "local t = tensor('t', 'fp32', heads) score = s + t(h)",
                                      "local t = tensor('t', 'fp16', heads) score = s + t(h)",
                                      "local t = tensor('t', 'fp32', 8) score = s + t(h)"};
  enum { TEXTS = sizeof texts / sizeof texts[0] };
  struct ft_digest digests[TEXTS];
  for (int i = 0; i < TEXTS; ++i) {
    struct ft_score score = read_score(texts[i]);
    digests[i] = score.digest;
    ft_score_free(&score);
    for (int k = 0; k < i; ++k)
      ck_assert_msg(!ft_digest_equal(&digests[i], &digests[k]), "%s and %s", texts[i], texts[k]);
  }
}
END_TEST

/* ---- errors ---- */

static const struct {
  const char *text;
  int status;
  const char *detail;
} wrong[] = {
    {"", FT_E_ARGUMENT, "test states neither score nor visible"},
    {"x = = 1", FT_E_ARGUMENT, "test:1: unexpected symbol near '='"},
    {"score = s and", FT_E_ARGUMENT, "test:1: unexpected symbol near <eof>"},
    {"\nscore = s + slope", FT_E_ARGUMENT, "test:2: unknown name 'slope'"},
    {"scroe = s", FT_E_ARGUMENT, "test:1: 'scroe' is no result of a score text; allowed: score"},
    {"score = s\nscore = s", FT_E_ARGUMENT, "test:2: 'score' is stated twice"},
    {"score = i < j", FT_E_ARGUMENT, "test:1: 'score' is bool; allowed: numbers"},
    {"score = nil", FT_E_ARGUMENT, "test:1: operand 1 of 'score' is nil"},
    {"visible = i", FT_E_ARGUMENT, "test:1: 'visible' is int; allowed: bools"},
    {"visible = s < 1", FT_E_ARGUMENT, "test:1: 'visible' depends on s"},
    {"\n\nscore = s + (i < j)", FT_E_ARGUMENT,
     "test:3: operand 2 of '+' is bool; allowed: numbers"},
    {"score = s + nil", FT_E_ARGUMENT, "test:1: operand 2 of '+' is nil"},
    {"score = s + {}", FT_E_ARGUMENT, "test:1: operand 2 of '+' is table"},
    {"score = s // 2", FT_E_ARGUMENT, "test:1: operand 1 of '//' is float; allowed: integers"},
    {"score = s + i % 2.5", FT_E_ARGUMENT, "test:1: operand 2 of '%' is float"},
    {"score = s + i % 0", FT_E_ARGUMENT, "test:1: operand 2 of '%' is 0"},
    {"score = s + i // 0", FT_E_ARGUMENT, "test:1: operand 2 of '//' is 0"},
    {"score = s ^ i", FT_E_ARGUMENT, "test:1: '^' takes a whole number from 1 to 16"},
    {"score = (-2) ^ s", FT_E_ARGUMENT, "test:1: '^' takes"},
    {"visible = i and j < 2", FT_E_ARGUMENT, "test:1: operand 1 of 'and' is int; allowed: bools"},
    {"visible = not i", FT_E_ARGUMENT, "test:1: operand 1 of 'not' is int"},
    {"visible = i < j < 3", FT_E_ARGUMENT, "test:1: operand 1 of '<' is bool; allowed: numbers"},
    {"visible = i == (j < 3)", FT_E_ARGUMENT, "test:1: operand 1 of '==' is int; allowed: two"},
    {"visible = i == 'x'", FT_E_ARGUMENT, "test:1: operand 2 of '==' is string"},
    {"visible = 1 < 'x'", FT_E_ARGUMENT, "test:1: '<' compares a number with a string"},
    {"score = where(i, s, 1)", FT_E_ARGUMENT,
     "test:1: operand 1 of 'where' is int; allowed: bools"},
    {"score = where(i < j, s, true)", FT_E_ARGUMENT, "test:1: operand 2 of 'where' is float"},
    {"score = where(i < j, s)", FT_E_ARGUMENT, "test:1: 'where' takes 3 operands; 2 are given"},
    {"score = max(s)", FT_E_ARGUMENT, "test:1: 'max' takes 2 operands or more; 1 are given"},
    {"score = s + 3000000000", FT_E_ARGUMENT,
     "test:1: operand 2 of '+' is 3000000000; allowed: int"},
    {"score = s & 1", FT_E_ARGUMENT, "test:1: a score text has no '&'"},
    {"score = s + [[", FT_E_ARGUMENT, "test:1: unfinished long string"},
    {"--[==[ no end ]=]", FT_E_ARGUMENT, "test:1: unfinished long comment"},
    {"score = 'no end", FT_E_ARGUMENT, "test:1: unfinished string"},
    {"score = 'no end\\", FT_E_ARGUMENT, "test:1: unfinished string"},
    {"score = s >> 1", FT_E_ARGUMENT, "test:1: a score text has no '>>'"},
    {"score = s << 1", FT_E_ARGUMENT, "test:1: a score text has no '<<'"},
    {"\nif i < j then score = s end", FT_E_ARGUMENT,
     "test:2: a score text has no 'if'; use where("},
    {"while true do end score = s", FT_E_ARGUMENT, "test:1: a score text has no 'while'"},
    {"local __lt = 1 score = s", FT_E_ARGUMENT, "test:1: a score text has no '__lt'; names do not"},
    {"score = s .. 'x'", FT_E_ARGUMENT, "test:1: attempt to concatenate"},
    {"score = i.x", FT_E_ARGUMENT, "test:1: attempt to index a expression value (global 'i')"},
    {"for k = 1, j do end", FT_E_ARGUMENT, "test:1: bad 'for' limit"},
    {"score = math.floor(s)", FT_E_ARGUMENT, "test:1: bad argument #1 to 'floor'"},
    {"local x = scalar('9x')", FT_E_ARGUMENT, "test:1: scalar '9x' has a wrong name"},
    {"local x = scalar(nil)", FT_E_ARGUMENT, "test:1: scalar 'nil' has a wrong name"},
    {"local x = scalar('exp')", FT_E_ARGUMENT, "test:1: scalar 'exp' is a word of the language"},
    {"local x = scalar('end')", FT_E_ARGUMENT, "test:1: scalar 'end' is a word of the language"},
    {"local x = scalar('x', 'bool')", FT_E_ARGUMENT,
     "test:1: scalar 'x' has type 'bool'; allowed:"},
    {"local x = scalar('x')\nlocal y = tensor('x', 'fp32', 2)", FT_E_ARGUMENT,
     "test:2: 'x' is declared twice"},
    {"local x = tensor('x', 'fp64', 2)", FT_E_ARGUMENT,
     "test:1: tensor 'x' has dtype 'fp64'; allowed: fp32, fp16, bf16, int32, int64, uint8, bool"},
    {"local x = tensor('x', 'fp32')", FT_E_ARGUMENT,
     "test:1: tensor 'x' has 0 dimensions; allowed:"},
    {"local x = tensor('x', 'fp32', 1, 2, 3, 4, 5)", FT_E_ARGUMENT, "has 5 dimensions"},
    {"local x = tensor('x', 'fp32', i)", FT_E_ARGUMENT,
     "test:1: extent 1 of tensor 'x' is no size"},
    {"local x = tensor('x', 'fp32', 2, 1.5)", FT_E_ARGUMENT,
     "test:1: extent 2 of tensor 'x' is no"},
    {"local x = tensor('x', 'fp32', 0)", FT_E_ARGUMENT, "extent 1 of tensor 'x' is never above 0"},
    {"local x = tensor('x', 'fp32', 2, 2) score = x(i)", FT_E_ARGUMENT,
     "test:1: tensor 'x' has 2 dimensions; 1 indices are given"},
    {"local x = tensor('x', 'fp32', 2) score = x(s)", FT_E_ARGUMENT,
     "test:1: index 1 of tensor 'x' is float; allowed: integers"},
    {"for k = 1, 9 do tensor('x' .. k, 'fp32', 2) end", FT_E_ARGUMENT,
     "tensor 'x9' is one too many; allowed: 8"},
    {"for k = 1, 17 do scalar('x' .. k) end", FT_E_ARGUMENT,
     "scalar 'x17' is one too many; allowed: 16"},
    {"local x = s\nfor k = 1, 1e4 do x = x * s + k end score = x", FT_E_ARGUMENT,
     "test:2: more than 4096 operations"},
    {"\nfor k = 1, 1e12 do end", FT_E_ARGUMENT, "test:2: more than 50000000 instructions"},
    {"local function f() return f() end f()", FT_E_ARGUMENT, "test:1: more than"},
    {"local t = {}\nfor k = 1, 1e9 do t[k] = {k} end", FT_E_MEMORY,
     "test:2: Lua ran out of memory"},
    {"error('no')", FT_E_ARGUMENT, "test:1: no"},
    {"io.open('x')", FT_E_ARGUMENT, "test:1: unknown name 'io'"},
    {"load('x')", FT_E_ARGUMENT, "test:1: unknown name 'load'"},
    {"score = setmetatable({}, {})", FT_E_ARGUMENT, "test:1: unknown name 'setmetatable'"},
    {"\033Lua", FT_E_ARGUMENT, "test: attempt to load a binary chunk"},
    {"error({})", FT_E_ARGUMENT, "test: an error without text was raised"},
    {"score = math.min(s, i)", FT_E_ARGUMENT, "test: attempt to compare two expression values"},
    {"\ns = 3 score = s", FT_E_ARGUMENT, "test:2: 's' is no result of a score text; allowed: sc"},
    {"exp = 2 score = s", FT_E_ARGUMENT, "test:1: 'exp' is no result of a score text"},
    {"local x = tensor('x', 'fp32', 2)\nscore = s + x", FT_E_ARGUMENT,
     "test:2: operand 2 of '+' is a tensor; allowed: its elements"},
};
enum { WRONG = sizeof wrong / sizeof wrong[0] };

START_TEST(wrong_text_is_told_by_line_and_name) {
  struct ft_score score;
  const int status = ft_score_read(&score, "test", wrong[_i].text, strlen(wrong[_i].text));
  ck_assert_msg(status == wrong[_i].status, "%s: %d (%s)", wrong[_i].text, status, ft_detail());
  ck_assert_msg(strstr(ft_detail(), wrong[_i].detail) != NULL, "%s: \"%s\" lacks \"%s\"",
                wrong[_i].text, ft_detail(), wrong[_i].detail);
  ck_assert_ptr_null(score.expression.nodes);
}
END_TEST

/* ---- derivatives ---- */

static const struct {
  const char *text, *derivative;
} slopes[] = {
    {"score = s", "by_s = 1.0\n"},
    {"score = s + i * j", "by_s = 1.0\n"},
    {"score = 3 - s", "by_s = -1.0\n"},
    {"local cap = scalar('cap') score = cap * tanh(s / cap)",
     "local _1 = tanh(s / cap)\nby_s = 1.0 - _1 * _1\n"},
    {"score = 30 * tanh(s / 30)", "local _1 = tanh(s / 30.0)\nby_s = 1.0 - _1 * _1\n"},
    {"score = where(i < j, s, -inf)", "by_s = where(i < j, 1.0, 0.0)\n"},
    {"score = where(s < 0, s / 8, s)", "by_s = where(s < 0.0, 0.125, 1.0)\n"},
    {"score = s + where(s < 0, 1, 2)", "by_s = 1.0\n"},
    {"score = s * s", "by_s = s * 2.0\n"},
    {"score = exp(s)", "by_s = exp(s)\n"},
    {"score = log(s)", "by_s = 1.0 / s\n"},
    {"score = sigmoid(s)", "local _1 = sigmoid(s)\nby_s = _1 * (1.0 - _1)\n"},
    {"score = abs(s)", "by_s = where(s < 0.0, -1.0, 1.0)\n"},
    {"score = max(s, 0)", "by_s = where(0.0 <= s, 1.0, 0.0)\n"},
    {"score = 1 / s", "by_s = -(1.0 / s / s)\n"},
    {"score = i + 0.5", "by_s = 0.0\n"},
};
enum { SLOPES = sizeof slopes / sizeof slopes[0] };

START_TEST(derivative_by_s_is_small) {
  struct ft_score score = read_score(slopes[_i].text);
  struct ft_derivatives derivatives;
  struct ft_text text = FT_TEXT_INIT;
  ck_assert_msg(ft_score_derive(&score, 0, &derivatives) == FT_OK, "%s", ft_detail());
  const struct ft_named_node row = {"by_s", derivatives.by_s};
  ft_score_print_nodes(&score, &row, 1, &text);
  ck_assert_str_eq(text.data, slopes[_i].derivative);
  ft_text_free(&text);
  ft_score_free(&score);
}
END_TEST

#define CAPTURED                                                                                   \
  "local c = scalar('c') local n = scalar('n', 'int')\n"                                           \
  "local t = tensor('t', 'fp32', heads) local d = tensor('d', 'int32', nk)\n"

START_TEST(derivative_by_what_is_captured) {
  struct ft_score score = read_score(CAPTURED "score = s + t(h) * c + t(h + 1) * d(j)");
  struct ft_derivatives derivatives;
  const uint64_t wanted = ft_source_tensor(0) | ft_source_scalar(0);
  ck_assert_msg(ft_score_derive(&score, wanted, &derivatives) == FT_OK, "%s", ft_detail());
  ck_assert_int_eq(derivatives.count, 3);
  struct ft_text text = FT_TEXT_INIT;
  for (int i = 0; i < 3; ++i) {
    const struct ft_named_node rows[] = {{"leaf", derivatives.others[i].leaf},
                                         {"by", derivatives.others[i].node}};
    ft_score_print_nodes(&score, rows, 2, &text);
  }
  ck_assert_str_eq(text.data, "leaf = c\nby = t(h)\nleaf = t(h)\nby = c\nleaf = t(h + 1)\n"
                              "by = float(d(j))\n");
  ft_text_free(&text);
  ft_score_free(&score);
}
END_TEST

static const struct {
  const char *text;
  uint64_t tensors, scalars; /* wanted, by number */
  const char *detail;
} underivable[] = {
    {"\nscore = floor(s)", 0, 0, "test:2: score is not differentiable by 's': floor makes"},
    {"\nscore = s +\n floor(s * 2) * i", 0, 0, "test:3: score is not differentiable by 's'"},
    {"score = s + s * where(s < 1, 1, floor(s))", 0, 0, "test:1: score is not differentiable by"},
    {"score = where(s < 1, 0.5, 2.5)", 0, 0, "score is not differentiable by 's': it is only comp"},
    {CAPTURED "score = s + t(floor(s))", 0, 0, "test:3: score is not differentiable by 's': floor"},
    {CAPTURED "score = s + floor(t(h))", 1, 0, "test:3: score is not differentiable by 't': floor"},
    {CAPTURED "score = s + t(floor(c))", 1, 1, "test:3: score is not differentiable by 'c': floor"},
    {CAPTURED "score = s + where(t(h) < 0, 1, 2)", 1, 0, "by 't': it is only compared"},
    {CAPTURED "score = s", 1, 0, "test: score is not differentiable by 't': it is not in it"},
    {CAPTURED "score = s + d(j)", 2, 0, "tensor 'd' has dtype int32; allowed for a gradient: fp32"},
    {CAPTURED "score = s + n", 0, 2, "scalar 'n' has type int; allowed for a gradient: float"},
};
enum { UNDERIVABLE = sizeof underivable / sizeof underivable[0] };

START_TEST(what_has_no_derivative_is_told) {
  struct ft_score score = read_score(underivable[_i].text);
  struct ft_derivatives derivatives;
  uint64_t wanted = 0;
  for (int i = 0; i < 2; ++i) {
    if (underivable[_i].tensors >> i & 1) wanted |= ft_source_tensor(i);
    if (underivable[_i].scalars >> i & 1) wanted |= ft_source_scalar(i);
  }
  ck_assert_int_eq(ft_score_derive(&score, wanted, &derivatives), FT_E_ARGUMENT);
  ck_assert_msg(strstr(ft_detail(), underivable[_i].detail) != NULL, "%s: \"%s\" lacks \"%s\"",
                underivable[_i].text, ft_detail(), underivable[_i].detail);
  ft_score_free(&score);
}
END_TEST

/* ---- values ---- */

static double value_of(const struct ft_score *score, int node,
                       const struct ft_score_inputs *inputs) {
  struct ft_interpreter interpreter;
  ck_assert_int_eq(ft_interpreter_open(&interpreter, score, &node, 1), FT_OK);
  ft_interpret(&interpreter, inputs);
  const double value = ft_interpreter_value(&interpreter, node);
  ft_interpreter_close(&interpreter);
  return value;
}

static const struct {
  const char *text;
  double s, value;
} values[] = {
    {"score = s + (-7) // 2 + i // (j - 7) + i % (j - 7)", 0, -4}, /* i is 5, j is 7 */
    {"score = s + (i - 8) % 3", 0, 0},
    {"score = s + (i - 9) // 3 * 10", 0, -20},
    {"score = min(s, 1)", NAN, NAN},
    {"score = max(1, s)", NAN, NAN},
    {"score = max(s, i)", INFINITY, INFINITY},
    {"score = s * 0", INFINITY, NAN},
    {"score = floor(s)", -2.5, -3},
    {"score = floor(s)", NAN, 0},
    {"score = floor(s)", 1e20, 2147483647},
    {"score = floor(s)", -INFINITY, -2147483648.0},
    {"score = tanh(s)", INFINITY, 1},
    {"score = where(j < 3, s, -inf)", 1, -INFINITY},
};
enum { VALUES = sizeof values / sizeof values[0] };

START_TEST(value_is_as_documented) {
  struct ft_score score = read_score(values[_i].text);
  struct ft_score_inputs inputs = {
      .symbols = {values[_i].s, 1, 2, 1, 5, 7, 16, 32, 2, 4, 2}}; /* ORDER SYMBOL */
  const double value = value_of(&score, score.score, &inputs);
  ck_assert_msg(value == values[_i].value || (isnan(value) && isnan(values[_i].value)),
                "%s: %g, not %g", values[_i].text, value, values[_i].value);
  ft_score_free(&score);
}
END_TEST

START_TEST(indices_beyond_a_tensor_read_its_ends) {
  struct ft_score score = read_score("local t = tensor('t', 'fp32', 3) score = s + t(i - 8)");
  const float data[] = {10, -1, 20, -1, 30};
  struct ft_score_inputs inputs = {.tensors = {{.data = data, .extents = {3}, .strides = {2}}}};
  static const double expected[][2] = {{0, 10}, {7, 10}, {8, 10}, {9, 20}, {10, 30}, {99, 30}};
  for (size_t n = 0; n < sizeof expected / sizeof expected[0]; ++n) {
    inputs.symbols[FT_SYMBOL_I] = expected[n][0];
    ck_assert_double_eq(value_of(&score, score.score, &inputs), expected[n][1]);
  }
  ft_score_free(&score);
}
END_TEST

/* ---- built-in ones ---- */

START_TEST(builtin_scores_read_and_have_slopes) {
  struct ft_template_files files;
  ck_assert_int_eq(ft_template_files_open(&files, NULL), FT_OK);
  char name[FT_SCORE_NAME];
  int count = 0;
  for (; ft_score_builtin_name(&files, count, name); ++count) {
    struct ft_score score;
    struct ft_derivatives derivatives;
    ck_assert_msg(ft_score_read_builtin(&score, &files, name) == FT_OK, "%s", ft_detail());
    ck_assert_msg(ft_score_derive(&score, 0, &derivatives) == FT_OK, "%s", ft_detail());
    ft_score_free(&score);
  }
  ck_assert_int_ge(count, 14);
  struct ft_score score;
  ck_assert_int_eq(ft_score_read_builtin(&score, &files, "alibbi"), FT_E_NOT_FOUND);
  ck_assert_ptr_nonnull(
      strstr(ft_detail(), "score 'alibbi' is unknown; built in: alibi bias_bf16"));
  ft_template_files_close(&files);
}
END_TEST

Suite *make_score_suite(void) {
  Suite *const suite = suite_create("score");
  TCase *const tests = tcase_create("all");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, text_has_one_canonical_form, 0, FORMS);
  tcase_add_test(tests, digest_tells_scores_apart);
  tcase_add_loop_test(tests, wrong_text_is_told_by_line_and_name, 0, WRONG);
  tcase_add_loop_test(tests, derivative_by_s_is_small, 0, SLOPES);
  tcase_add_test(tests, derivative_by_what_is_captured);
  tcase_add_loop_test(tests, what_has_no_derivative_is_told, 0, UNDERIVABLE);
  tcase_add_loop_test(tests, value_is_as_documented, 0, VALUES);
  tcase_add_test(tests, indices_beyond_a_tensor_read_its_ends);
  tcase_add_test(tests, builtin_scores_read_and_have_slopes);
  suite_add_tcase(suite, tests);
  return suite;
}
