/* test_score_random.c: random score functions, computed in several ways.
 * in -> out: seed -> Lua texts: the interpreter against plain Lua, derivatives against differences,
 * emitted text, compiled for the CPU, against the interpreter. */
#include <check.h>
#include <dlfcn.h>
#include <lauxlib.h>
#include <lualib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generator/score/cuda.h"
#include "generator/score/derive.h"
#include "generator/status.h"
#include "generator/template_files.h"
#include "tests/fresh_seed.h"
#include "tests/score_lab.h"
#include "tests/suites.h"

enum { SCORES = 200, PLACES = 60 };

static uint64_t seed_of_run(void) {
  const char *const given = getenv("FATUNE_TEST_SEED");
  return given != NULL ? strtoull(given, NULL, 0) : fresh_seed();
}

struct case_ {
  struct ft_text text;
  struct ft_score score;
  struct ft_interpreter interpreter;
  struct ft_derivatives derivatives;
};

/* The number-th score of a seed. `wanted`: what its derivatives are by. */
static void open_case(struct case_ *it, uint64_t seed, int number) {
  *it = (struct case_){.text = FT_TEXT_INIT};
  lab_random_score(seed + (uint64_t)number * 7919, &it->text);
  ck_assert_int_eq(ft_text_status(&it->text), FT_OK);
  ck_assert_msg(ft_score_read(&it->score, "random", it->text.data, it->text.length) == FT_OK,
                "seed %llu: %s in\n%s", (unsigned long long)seed, ft_detail(), it->text.data);
}

/* By all that the score has a derivative by. */
static bool derive_case(struct case_ *it) {
  uint64_t wanted = 0;
  if (ft_score_derive(&it->score, 0, &it->derivatives) != FT_OK) return false;
  static const int tensors[] = {LAB_SLOPE, LAB_PAIR};
  static const int scalars[] = {LAB_CAP, LAB_SCALE};
  for (int i = 0; i < 4; ++i) {
    const uint64_t one = i < 2 ? ft_source_tensor(tensors[i]) : ft_source_scalar(scalars[i - 2]);
    if (ft_score_derive(&it->score, one, &it->derivatives) == FT_OK) wanted |= one;
  }
  ck_assert_msg(ft_score_derive(&it->score, wanted, &it->derivatives) == FT_OK, "%s", ft_detail());
  return true;
}

static void interpret_roots(struct case_ *it, const int *roots, int count) {
  ck_assert_int_eq(ft_interpreter_open(&it->interpreter, &it->score, roots, count), FT_OK);
}

static void close_case(struct case_ *it) {
  ft_interpreter_close(&it->interpreter);
  ft_score_free(&it->score);
  ft_text_free(&it->text);
}

/* ---- plain Lua: names are numbers and functions ---- */

static const char plain_functions[] =
    "function where(c, a, b) if c then return a else return b end end\n"
    "abs, min, max, floor, exp, log = math.abs, math.min, math.max, math.floor, math.exp, "
    "math.log\n"
    "function float(x) return x + 0.0 end\n"
    "function tanh(x) local e = exp(-2 * abs(x)) return (x < 0 and -1 or 1) * (1 - e) / (1 + e) "
    "end\n"
    "function sigmoid(x) return 1 / (1 + exp(-x)) end\n"
    "function scalar(name) return given[name] end\n"
    "function tensor(name) return given[name] end\n";

static const struct ft_score_inputs *plain_inputs;

/* A tensor as a function of Lua; upvalue: its number. */
static int plain_read(lua_State *state) {
  const int number = (int)lua_tointeger(state, lua_upvalueindex(1));
  const struct ft_captured *const tensor = &plain_inputs->tensors[number];
  int64_t at = 0;
  for (int dim = 0; dim < lua_gettop(state); ++dim) {
    const lua_Integer index = lua_tointeger(state, dim + 1), last = tensor->extents[dim] - 1;
    at += (index < 0 ? 0 : index > last ? last : index) * tensor->strides[dim];
  }
  const uint16_t half =
      number == LAB_BIAS || number == LAB_TABLE ? ((const uint16_t *)tensor->data)[at] : 0;
  const uint32_t wide = (uint32_t)half << 16;
  float bf16;
  memcpy(&bf16, &wide, sizeof bf16);
  switch (number) {
  case LAB_BIAS: lua_pushnumber(state, (lua_Number)bf16); break;
  case LAB_TABLE: {
    const double size = half & 0x7C00 ? ldexp((half & 0x3FF) + 1024, (half >> 10 & 31) - 25)
                                      : ldexp(half & 0x3FF, -24);
    lua_pushnumber(state, half >> 15 ? -size : size);
    break;
  }
  case LAB_DOCUMENT: lua_pushinteger(state, ((const uint8_t *)tensor->data)[at]); break;
  case LAB_WIDE: lua_pushinteger(state, ((const int64_t *)tensor->data)[at]); break;
  case LAB_FLAG: lua_pushboolean(state, ((const uint8_t *)tensor->data)[at]); break;
  default: lua_pushnumber(state, (lua_Number)((const float *)tensor->data)[at]);
  }
  return 1;
}

static void set_given(lua_State *state) {
  static const char *const tensors[] = {"slope",    "bias", "table", "pair",
                                        "document", "wide", "flag"};
  lua_newtable(state);
  for (int i = 0; i < LAB_TENSORS; ++i) {
    lua_pushinteger(state, i);
    lua_pushcclosure(state, plain_read, 1);
    lua_setfield(state, -2, tensors[i]);
  }
  lua_pushnumber(state, plain_inputs->scalars[LAB_CAP]);
  lua_setfield(state, -2, "cap");
  lua_pushnumber(state, plain_inputs->scalars[LAB_SCALE]);
  lua_setfield(state, -2, "scale");
  lua_pushinteger(state, (lua_Integer)plain_inputs->scalars[LAB_STEP]);
  lua_setfield(state, -2, "step");
  lua_setglobal(state, "given");
}

static void compute_plain(lua_State *state, const char *text, double *score, bool *visible) {
  lua_pushnumber(state, plain_inputs->symbols[FT_SYMBOL_S]);
  lua_setglobal(state, "s");
  for (int i = FT_SYMBOL_B; i < FT_SYMBOLS; ++i) {
    lua_pushinteger(state, (lua_Integer)plain_inputs->symbols[i]);
    lua_setglobal(state, ft_symbol_name((enum ft_symbol)i));
  }
  ck_assert_msg(luaL_dostring(state, text) == LUA_OK, "%s in\n%s", lua_tostring(state, -1), text);
  lua_getglobal(state, "score");
  *score = lua_tonumber(state, -1);
  lua_getglobal(state, "visible");
  *visible = lua_toboolean(state, -1);
  lua_settop(state, 0);
}

static bool is_near(double a, double b, double tolerance) {
  return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (1 + fabs(a));
}

START_TEST(interpreter_agrees_with_plain_lua) {
  const uint64_t seed = seed_of_run();
  uint64_t random = seed;
  struct ft_score_inputs inputs;
  lab_fill(seed, &inputs);
  plain_inputs = &inputs;
  lua_State *const state = luaL_newstate();
  luaL_openlibs(state);
  set_given(state);
  ck_assert_int_eq(luaL_dostring(state, plain_functions), LUA_OK);
  for (int number = 0; number < SCORES; ++number) {
    struct case_ it;
    open_case(&it, seed, number);
    const int roots[] = {it.score.score, it.score.visible};
    interpret_roots(&it, roots, 2);
    for (int place = 0; place < PLACES; ++place) {
      double plain;
      bool sees;
      lab_place(&random, &inputs);
      compute_plain(state, it.text.data, &plain, &sees);
      ft_interpret(&it.interpreter, &inputs);
      const double score = ft_interpreter_value(&it.interpreter, roots[0]);
      const bool visible = ft_interpreter_value(&it.interpreter, roots[1]) != 0;
      ck_assert_msg(is_near(plain, score, 1e-9) && sees == visible,
                    "seed %llu: %.17g %d, plain Lua: %.17g %d\n%s", (unsigned long long)seed, score,
                    visible, plain, sees, it.text.data);
    }
    close_case(&it);
  }
  lua_close(state);
}
END_TEST

/* ---- derivatives ---- */

/* What a derivative is by, as a place in memory: a double of the inputs, or a float of a tensor. */
struct leaf {
  double *number;
  float *element;
};

static struct leaf leaf_at(const struct case_ *it, struct ft_score_inputs *inputs, int node) {
  const struct ft_node *const leaf = ft_node(&it->score.expression, node);
  if (leaf->operation == FT_OP_SYMBOL)
    return (struct leaf){.number = &inputs->symbols[FT_SYMBOL_S]};
  if (leaf->operation == FT_OP_SCALAR)
    return (struct leaf){.number = &inputs->scalars[leaf->number]};
  const int64_t offset = ft_interpreter_offset(&it->interpreter, inputs, node);
  return (struct leaf){.element = (float *)inputs->tensors[leaf->number].data + offset};
}

static double read_leaf(struct leaf leaf) {
  return leaf.number != NULL ? *leaf.number : (double)*leaf.element;
}

static void write_leaf(struct leaf leaf, double value) {
  if (leaf.number != NULL)
    *leaf.number = value;
  else
    *leaf.element = (float)value;
}

/* (f(x + h) - f(x - h)) / 2h, x as it was afterwards; *gap: between the slopes of both halves. */
static double difference(struct case_ *it, struct ft_score_inputs *inputs, struct leaf leaf,
                         double h, double *gap) {
  const double x = read_leaf(leaf);
  double values[3];
  for (int i = 0; i < 3; ++i) {
    write_leaf(leaf, x + (i - 1) * h);
    ft_interpret(&it->interpreter, inputs);
    values[i] = ft_interpreter_value(&it->interpreter, it->score.score);
  }
  write_leaf(leaf, x);
  *gap = fabs(values[2] - 2 * values[1] + values[0]) / h;
  return (values[2] - values[0]) / (2 * h);
}

/* The sum of the derivatives by this element, which several reads may read. */
static double derivative_by(struct case_ *it, struct ft_score_inputs *inputs, struct leaf leaf) {
  double sum = 0;
  for (int i = 0; i < it->derivatives.count; ++i) {
    const struct leaf other = leaf_at(it, inputs, it->derivatives.others[i].leaf);
    if (other.number == leaf.number && other.element == leaf.element)
      sum += ft_interpreter_value(&it->interpreter, it->derivatives.others[i].node);
  }
  return sum;
}

struct tally {
  int compared, skipped;
};

/* Where the score has a kink or a jump nearby there is nothing to compare. */
static void compare(struct case_ *it, struct ft_score_inputs *inputs, struct leaf leaf,
                    double derivative, struct tally *tally, uint64_t seed) {
  double gap, wider_gap;
  const double h = 1.0 / 4096, slope = difference(it, inputs, leaf, h, &gap);
  const double wider = difference(it, inputs, leaf, 2 * h, &wider_gap);
  const double doubt = fmax(fabs(slope - wider), fmax(gap, wider_gap));
  if (!(doubt < 0.02 * (1 + fabs(slope)))) {
    tally->skipped += 1;
    return;
  }
  tally->compared += 1;
  ck_assert_msg(fabs(slope - derivative) <= 1e-5 * (1 + fabs(slope)) + 2 * doubt,
                "seed %llu: derivative %.9g, difference %.9g\n%s", (unsigned long long)seed,
                derivative, slope, it->text.data);
}

START_TEST(derivatives_agree_with_differences) {
  const uint64_t seed = seed_of_run();
  uint64_t random = seed;
  struct ft_score_inputs inputs;
  lab_fill(seed, &inputs);
  struct tally tally = {0, 0};
  int derived = 0;
  for (int number = 0; number < SCORES; ++number) {
    struct case_ it;
    open_case(&it, seed, number);
    const bool has = derive_case(&it);
    derived += has;
    int roots[FT_DERIVATIVES * 2 + 2] = {it.score.score, it.derivatives.by_s}, count = 2;
    for (int i = 0; has && i < it.derivatives.count; ++i) {
      roots[count++] = it.derivatives.others[i].leaf;
      roots[count++] = it.derivatives.others[i].node;
    }
    interpret_roots(&it, roots, count);
    for (int place = 0; has && place < PLACES / 4; ++place) {
      lab_place(&random, &inputs);
      for (int i = -1; i < it.derivatives.count; ++i) {
        ft_interpret(&it.interpreter, &inputs);
        struct leaf leaf = {.number = &inputs.symbols[FT_SYMBOL_S]};
        if (i >= 0) leaf = leaf_at(&it, &inputs, it.derivatives.others[i].leaf);
        const double derivative = i < 0 ? ft_interpreter_value(&it.interpreter, it.derivatives.by_s)
                                        : derivative_by(&it, &inputs, leaf);
        compare(&it, &inputs, leaf, derivative, &tally, seed);
      }
    }
    close_case(&it);
  }
  ck_assert_msg(derived > SCORES / 3, "%d of %d have derivatives", derived, SCORES);
  ck_assert_msg(tally.compared > 2 * tally.skipped, "%d compared, %d not", tally.compared,
                tally.skipped);
}
END_TEST

/* ---- emitted text ---- */

static const char prelude[] =
    "#include <math.h>\n#include <stdlib.h>\n#include <string.h>\n"
    "typedef unsigned long long u64;\n#define __device__\n#define __forceinline__ inline\n#define "
    "__align__(n) alignas(n)\n"
    "template <class T> static void pin(T &) {}\n"
    "static float ex2(float x) { return exp2f(x); }\n"
    "static float lg2(float x) { return log2f(x); }\n"
    "static float rcp(float x) { return 1.f / x; }\n"
    "static float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }\n"
    "static float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }\n"
    "static int __float2int_rd(float x) { const float y = floorf(x); return !(y > -2147483648.f) ? "
    "(x == x ? -2147483647 - 1 : 0) : y < 2147483648.f ? (int)y : 2147483647; }\n"
    "static int opposite(int x) { return -x; }\n"
    "static int absolute(int x) { return abs(x); }\n"
    "static int min(int a, int b) { return a < b ? a : b; }\n"
    "static int max(int a, int b) { return a > b ? a : b; }\n";

static const char runner[] =
    "struct Answer { float score, slope, exponent; bool visible; };\n"
    "static Answer run(const Score &score, const ScoreSizes &sizes, const int *at, float s) {\n"
    "  const ScoreHead head = score_head(score, sizes, at[0], at[1], at[2]);\n"
    "  const ScoreRow row = score_row(score, head, at[3], (float)at[3]);\n"
    "  const ScoreColumn column = score_column(score, head, at[4], (float)at[4]);\n"
    "  ScorePlace place = {s, -1.5f, (float)(at[4] / 2), (float)(at[4] - at[4] / 2), 0, 0};\n"
    "  place.inverse = sigmoid2_of(sigmoid_argument(score, head, row, column, place));\n"
    "  return {score_of(score, head, row, column, s), slope_of(score, head, row, column, s),\n"
    "          is_dense(score) && is_inside(score, head, row, column)\n"
    "              ? dense_exponent_of(score, head, row, score_column_dense(score, head, at[4], "
    "(float)at[4]), place)\n"
    "              : exponent_of(score, head, row, column, place),\n"
    "          is_visible(score, head, row, column)};\n"
    "}\n}\n";

struct answer {
  float score, slope, exponent;
  bool visible;
};
typedef struct answer run_function(int number, const void *score, const void *sizes, const int *at,
                                   float s);

static void put(FILE *file, const char *text) {
  ck_assert_int_ge(fputs(text, file), 0);
}

static void write_number_functions(FILE *file) {
  struct ft_template_files files;
  ck_assert_int_eq(ft_template_files_open(&files, NULL), FT_OK);
  const struct ft_template *const part =
      ft_template_files_find(&files, "parts/score_numbers.cu.in");
  ck_assert_ptr_nonnull(part);
  put(file, part->text);
  ft_template_files_close(&files);
}

/* Each score in a namespace of its own. */
static void write_program(const char *path, struct case_ *cases) {
  FILE *const file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  put(file, prelude);
  write_number_functions(file);
  for (int number = 0; number < SCORES; ++number) {
    struct ft_text text = FT_TEXT_INIT;
    struct ft_exponent exponent;
    ck_assert_int_eq(
        ft_score_emit(&cases[number].score, &cases[number].derivatives, &exponent, &text), FT_OK);
    ck_assert_int_gt(fprintf(file, "namespace n%d {\n%s%s", number, text.data, runner), 0);
    ft_text_free(&text);
  }
  put(file, "struct Answer { float score, slope, exponent; bool visible; };\n"
            "template <class A> static Answer same(A a) {\n"
            "  return {a.score, a.slope, a.exponent, a.visible};\n}\n"
            "extern \"C\" Answer run(int number, const void *score, const void *sizes, const int "
            "*at, float s) {\n"
            "  const ScoreSizes &size = *(const ScoreSizes *)sizes;\n"
            "  switch (number) {\n");
  for (int number = 0; number < SCORES; ++number)
    ck_assert_int_gt(
        fprintf(file,
                "  case %d: return same(n%d::run(*(const n%d::Score *)score, size, at, "
                "s));\n",
                number, number, number),
        0);
  put(file, "  }\n  return {};\n}\n");
  ck_assert_int_eq(fclose(file), 0);
}

struct argument {
  struct ft_arg_captured tensors[LAB_TENSORS];
  float cap, scale;
  int step;
};

static struct argument argument_of(const struct ft_score_inputs *inputs) {
  struct argument argument = {.cap = (float)inputs->scalars[LAB_CAP],
                              .scale = (float)inputs->scalars[LAB_SCALE],
                              .step = (int)inputs->scalars[LAB_STEP]};
  for (int i = 0; i < LAB_TENSORS; ++i) {
    argument.tensors[i].data = (uint64_t)(uintptr_t)inputs->tensors[i].data;
    for (int dim = 0; dim < FT_SCORE_DIMS; ++dim) {
      argument.tensors[i].stride[dim] = inputs->tensors[i].strides[dim];
      argument.tensors[i].last[dim] = (int32_t)inputs->tensors[i].extents[dim] - 1;
    }
  }
  return argument;
}

static void compare_with_emitted(struct case_ *it, int number, run_function *run,
                                 struct ft_score_inputs *inputs, uint64_t seed) {
  static const struct {
    int sizes[5];
    float scale;
  } sizes = {{LAB_NQ, LAB_NK, LAB_BATCH, LAB_HEADS, LAB_KV_HEADS}, 1};
  const struct argument argument = argument_of(inputs);
  const double *const symbols = inputs->symbols;
  const int at[] = {(int)symbols[FT_SYMBOL_B], (int)symbols[FT_SYMBOL_H],
                    (int)symbols[FT_SYMBOL_KV], (int)symbols[FT_SYMBOL_I],
                    (int)symbols[FT_SYMBOL_J]};
  ft_interpret(&it->interpreter, inputs);
  const double score = ft_interpreter_value(&it->interpreter, it->score.score);
  const double slope = ft_interpreter_value(&it->interpreter, it->derivatives.by_s);
  const bool visible = ft_interpreter_value(&it->interpreter, it->score.visible) != 0;
  const struct answer answer = run(number, &argument, &sizes, at, (float)symbols[FT_SYMBOL_S]);
  ck_assert_msg(is_near(score, (double)answer.score, 2e-4) && visible == answer.visible,
                "seed %llu: score %.9g %d, emitted %.9g %d\n%s", (unsigned long long)seed, score,
                visible, (double)answer.score, answer.visible, it->text.data);
  ck_assert_msg(is_near(score * 1.4426950408889634 - 1.5, (double)answer.exponent, 1e-3),
                "seed %llu: score %.9g, exponent %.9g\n%s", (unsigned long long)seed, score,
                (double)answer.exponent, it->text.data);
  /* A slope may jump where two values cross: those of max and min there differ by rounding. */
  const double h = 1.0 / 4096;
  double gap;
  const double near =
      difference(it, inputs, (struct leaf){.number = &inputs->symbols[FT_SYMBOL_S]}, h, &gap);
  ck_assert_msg(is_near(slope, (double)answer.slope, 1e-3) || fabs(near - slope) > 1e-3,
                "seed %llu: slope %.9g, emitted %.9g\n%s", (unsigned long long)seed, slope,
                (double)answer.slope, it->text.data);
}

START_TEST(emitted_text_agrees_with_interpreter) {
  const uint64_t seed = seed_of_run();
  uint64_t random = seed;
  struct ft_score_inputs inputs;
  lab_fill(seed, &inputs);
  char folder[] = "/tmp/fatune-score-XXXXXX", source[64], object[64], command[256];
  ck_assert_ptr_nonnull(mkdtemp(folder));
  (void)snprintf(source, sizeof source, "%s/scores.cc", folder);
  (void)snprintf(object, sizeof object, "%s/scores.so", folder);
  struct case_ *const cases = calloc(SCORES, sizeof *cases);
  ck_assert_ptr_nonnull(cases);
  for (int number = 0; number < SCORES; ++number) {
    open_case(&cases[number], seed, number);
    if (ft_score_derive(&cases[number].score, 0, &cases[number].derivatives) != FT_OK)
      cases[number].derivatives = (struct ft_derivatives){.by_s = 0};
  }
  write_program(source, cases);
  const char *const cxx = getenv("FATUNE_CXX");
  (void)snprintf(command, sizeof command, "%s -std=c++17 -w -O0 -shared -fPIC -o %s %s",
                 cxx != NULL ? cxx : "c++", object, source);
  ck_assert_msg(system(command) == 0, "seed %llu: %s", (unsigned long long)seed, command);
  void *const library = dlopen(object, RTLD_NOW);
  ck_assert_msg(library != NULL, "%s", dlerror());
  run_function *const run = (run_function *)(uintptr_t)dlsym(library, "run");
  for (int number = 0; number < SCORES; ++number) {
    struct case_ *const it = &cases[number];
    const int roots[] = {it->score.score, it->score.visible, it->derivatives.by_s};
    interpret_roots(it, roots, 3);
    for (int place = 0; place < PLACES; ++place) {
      lab_place(&random, &inputs);
      compare_with_emitted(it, number, run, &inputs, seed);
    }
    close_case(it);
  }
  dlclose(library);
  unlink(source);
  unlink(object);
  rmdir(folder);
  free(cases);
}
END_TEST

Suite *make_score_random_suite(void) {
  Suite *const suite = suite_create("score_random");
  TCase *const tests = tcase_create("all");
  tcase_set_timeout(tests, 300);
  tcase_add_test(tests, interpreter_agrees_with_plain_lua);
  tcase_add_test(tests, derivatives_agree_with_differences);
  tcase_add_test(tests, emitted_text_agrees_with_interpreter);
  suite_add_tcase(suite, tests);
  return suite;
}
