/* language.c: the operators and functions of a score's Lua text.
 * in -> out: Lua values -> checked types -> nodes. */
#include "generator/score/language.h"

#include <lauxlib.h>
#include <math.h>
#include <string.h>

#include "generator/score/handles.h"
#include "generator/score/simplify.h"

/* ---- types ---- */

/* What an operation allows its i-th operand to be; NULL: what it is. The last one tells `==` and
 * `where` whether theirs are numbers or bools. */
static const char *wrong_type(enum ft_operation operation, int i, enum ft_value_type type,
                              enum ft_value_type last) {
  const bool is_bool = type == FT_VALUE_BOOL, like_last = is_bool == (last == FT_VALUE_BOOL);
  switch (operation) {
  case FT_OP_AND:
  case FT_OP_OR:
  case FT_OP_NOT: return is_bool ? NULL : "bools";
  case FT_OP_FLOOR_DIV:
  case FT_OP_MOD: return type == FT_VALUE_INT ? NULL : "integers (floor makes one of a float)";
  case FT_OP_EQ: return like_last ? NULL : "two numbers or two bools";
  case FT_OP_WHERE:
    if (i == 0) return is_bool ? NULL : "bools";
    return like_last ? NULL : "two numbers or two bools";
  default: return is_bool ? "numbers" : NULL;
  }
}

static void check_types(lua_State *state, const struct ft_expression *expression,
                        enum ft_operation operation, const char *what,
                        const int operands[FT_OPERANDS_MOST], const int numbers[FT_OPERANDS_MOST]) {
  const int count = ft_operation_operands(operation);
  for (int i = 0; i < count && i < FT_OPERANDS_MOST; ++i) {
    const enum ft_value_type type = ft_node(expression, operands[i])->type;
    const enum ft_value_type last = ft_node(expression, operands[count - 1])->type;
    const char *const allowed = wrong_type(operation, i, type, last);
    if (allowed != NULL)
      luaL_error(state, "operand %d of '%s' is %s; allowed: %s", numbers[i], what,
                 ft_value_type_name(type), allowed);
  }
}

/* The operands lie at the first of three `indices` of the stack. */
static int operation_of(lua_State *state, enum ft_operation operation, const char *what,
                        const int indices[FT_OPERANDS_MOST]) {
  struct ft_score *const score = ft_handle_score(state);
  int operands[FT_OPERANDS_MOST] = {0};
  for (int i = 0; i < ft_operation_operands(operation) && i < FT_OPERANDS_MOST; ++i)
    operands[i] = ft_handle_node(state, indices[i], what, indices[i]);
  check_types(state, &score->expression, operation, what, operands, indices);
  const bool divides = operation == FT_OP_FLOOR_DIV || operation == FT_OP_MOD;
  const struct ft_node *const divisor = ft_node(&score->expression, operands[1]);
  if (divides && divisor->operation == FT_OP_CONSTANT && divisor->value == 0)
    luaL_error(state, "operand 2 of '%s' is 0; allowed: integers other than 0", what);
  return ft_simplified(&score->expression, operation, operands);
}

/* ---- arithmetic, by metamethods of expressions; upvalue 2: the operation ---- */

static int arithmetic(lua_State *state) {
  const enum ft_operation operation = (enum ft_operation)lua_tointeger(state, lua_upvalueindex(2));
  ft_handle_push(
      state, operation_of(state, operation, ft_operation_text(operation), (const int[]){1, 2, 3}));
  return 1;
}

static int power_of(struct ft_expression *expression, int base, int exponent) {
  int power = base;
  for (int i = 1; i < exponent; ++i) power = ft_binary(expression, FT_OP_MUL, power, base);
  return power;
}

/* x ^ 2 is a product, 2 ^ x an exponential. */
static int power(lua_State *state) {
  struct ft_score *const score = ft_handle_score(state);
  struct ft_expression *const expression = &score->expression;
  const int base = ft_handle_node(state, 1, "^", 1), exponent = ft_handle_node(state, 2, "^", 2);
  check_types(state, expression, FT_OP_MUL, "^", (const int[FT_OPERANDS_MOST]){base, exponent},
              (const int[]){1, 2, 3});
  const struct ft_node *const b = ft_node(expression, base), *const e =
                                                                 ft_node(expression, exponent);
  const double number = e->value, from = b->value;
  if (e->operation == FT_OP_CONSTANT && number >= 1 && number <= 16 && number == floor(number)) {
    ft_handle_push(state, power_of(expression, ft_as_float(expression, base), (int)number));
    return 1;
  }
  if (b->operation != FT_OP_CONSTANT || !(from > 0))
    return luaL_error(state, "'^' takes a whole number from 1 to 16 as its exponent, or a constant "
                             "above 0 as its base");
  const int factor = ft_constant(expression, FT_VALUE_FLOAT, log(from));
  const int product = ft_binary(expression, FT_OP_MUL, exponent, factor);
  ft_handle_push(state, ft_unary(expression, FT_OP_EXP, product));
  return 1;
}

/* ---- comparisons and logic, by operators that take one operand after the other ---- */

struct infix {
  const char *name; /* in rewritten texts */
  const char *text;
  enum ft_operation operation;
  bool swapped, negated;
};

static const struct infix infixes[] = {
    {"__lt", "<", FT_OP_LT, false, false},     {"__le", "<=", FT_OP_LE, false, false},
    {"__gt", ">", FT_OP_LT, true, false},      {"__ge", ">=", FT_OP_LE, true, false},
    {"__eq", "==", FT_OP_EQ, false, false},    {"__ne", "~=", FT_OP_EQ, false, true},
    {"__and", "and", FT_OP_AND, false, false}, {"__or", "or", FT_OP_OR, false, false},
    {"__not", "not", FT_OP_NOT, false, false},
};
enum { INFIXES = sizeof infixes / sizeof infixes[0] };

/* An operator as a Lua value: alone, or with its left operand as user value 1. */
struct handle {
  const struct infix *infix;
  bool has_left;
};

static struct handle *push_operator(lua_State *state, const struct infix *infix) {
  struct handle *const handle = lua_newuserdatauv(state, sizeof *handle, 1);
  *handle = (struct handle){.infix = infix};
  luaL_setmetatable(state, FT_HANDLE_OPERATOR);
  return handle;
}

/* Of two values without an expression, as Lua does it. The left one is at 1, the right one at 2. */
static void push_plain(lua_State *state, const struct infix *infix) {
  const bool left = lua_toboolean(state, 1);
  switch (infix->operation) {
  case FT_OP_AND: lua_pushvalue(state, left ? 2 : 1); return;
  case FT_OP_OR: lua_pushvalue(state, left ? 1 : 2); return;
  case FT_OP_NOT: lua_pushboolean(state, !left); return;
  case FT_OP_EQ:
    lua_pushboolean(state, lua_compare(state, 1, 2, LUA_OPEQ) != (int)infix->negated);
    return;
  default: break;
  }
  const int type = lua_type(state, 1);
  if (type != lua_type(state, 2) || (type != LUA_TNUMBER && type != LUA_TSTRING))
    luaL_error(state, "'%s' compares a %s with a %s", infix->text, luaL_typename(state, 1),
               luaL_typename(state, 2));
  const int first = infix->swapped ? 2 : 1;
  const int how = infix->operation == FT_OP_LT ? LUA_OPLT : LUA_OPLE;
  lua_pushboolean(state, lua_compare(state, first, 3 - first, how));
}

static void push_result(lua_State *state, const struct infix *infix) {
  if (!ft_handle_is_expression(state, 1) && !ft_handle_is_expression(state, 2)) {
    push_plain(state, infix);
    return;
  }
  struct ft_expression *const expression = &ft_handle_score(state)->expression;
  const int first = infix->swapped ? 2 : 1;
  int node = operation_of(state, infix->operation, infix->text, (const int[]){first, 3 - first, 3});
  if (infix->negated) node = ft_unary(expression, FT_OP_NOT, node);
  ft_handle_push(state, node);
}

/* left op operator, which keeps the left operand, or such a one op right. */
static int combine(lua_State *state) {
  const struct handle *const first = luaL_testudata(state, 1, FT_HANDLE_OPERATOR);
  const struct handle *const second = luaL_testudata(state, 2, FT_HANDLE_OPERATOR);
  if (first != NULL && first->infix->operation == FT_OP_NOT) {
    lua_replace(state, 1); /* the operand, which push_result looks for at 1 */
    lua_pushnil(state);
    push_result(state, first->infix);
  } else if (first != NULL && first->has_left) {
    const struct infix *const infix = first->infix;
    lua_getiuservalue(state, 1, 1);
    lua_replace(state, 1);
    push_result(state, infix);
  } else if (second == NULL) {
    return luaL_error(state, "an operator without its operands");
  } else {
    push_operator(state, second->infix)->has_left = true;
    lua_pushvalue(state, 1);
    lua_setiuservalue(state, -2, 1);
  }
  return 1;
}

/* ---- functions ---- */

/* Upvalue 2: the operation. */
static int function(lua_State *state) {
  const enum ft_operation operation = (enum ft_operation)lua_tointeger(state, lua_upvalueindex(2));
  const int operands = ft_operation_operands(operation), given = lua_gettop(state);
  const bool any_number = operation == FT_OP_MIN || operation == FT_OP_MAX;
  if (any_number ? given < operands : given != operands)
    return luaL_error(state, "'%s' takes %d operands%s; %d are given", ft_operation_text(operation),
                      operands, any_number ? " or more" : "", given);
  const char *const what = ft_operation_text(operation);
  int node = operation_of(state, operation, what, (const int[]){1, 2, 3});
  for (int i = 3; any_number && i <= given; ++i) {
    ft_handle_push(state, node);
    node = operation_of(state, operation, what, (const int[]){lua_gettop(state), i, 3});
  }
  ft_handle_push(state, node);
  return 1;
}

static void push_closure(lua_State *state, struct ft_score *score, lua_CFunction run,
                         enum ft_operation operation) {
  lua_pushlightuserdata(state, score);
  lua_pushinteger(state, (lua_Integer)operation);
  lua_pushcclosure(state, run, 2);
}

static void make_metatables(lua_State *state, struct ft_score *score) {
  static const struct {
    const char *name;
    enum ft_operation operation;
  } metamethods[] = {{"__add", FT_OP_ADD},       {"__sub", FT_OP_SUB}, {"__mul", FT_OP_MUL},
                     {"__div", FT_OP_DIV},       {"__mod", FT_OP_MOD}, {"__unm", FT_OP_NEG},
                     {"__idiv", FT_OP_FLOOR_DIV}};
  luaL_newmetatable(state, FT_HANDLE_EXPRESSION);
  for (size_t i = 0; i < sizeof metamethods / sizeof metamethods[0]; ++i) {
    push_closure(state, score, arithmetic, metamethods[i].operation);
    lua_setfield(state, -2, metamethods[i].name);
  }
  push_closure(state, score, power, FT_OP_MUL);
  lua_setfield(state, -2, "__pow");
  lua_pop(state, 1);

  static const char *const takers[] = {"__band", "__bxor", "__bor", "__pow"};
  luaL_newmetatable(state, FT_HANDLE_OPERATOR);
  for (size_t i = 0; i < sizeof takers / sizeof takers[0]; ++i) {
    push_closure(state, score, combine, FT_OP_EQ);
    lua_setfield(state, -2, takers[i]);
  }
  lua_pop(state, 1);
}

void ft_language_open(lua_State *state, struct ft_score *score) {
  make_metatables(state, score);
  for (int i = 0; i < INFIXES; ++i) {
    push_operator(state, &infixes[i]);
    lua_setfield(state, -2, infixes[i].name);
  }
  for (int i = FT_OP_FLOAT; i < FT_OPERATIONS; ++i) {
    if (ft_operation_precedence((enum ft_operation)i) != 0) continue;
    push_closure(state, score, function, (enum ft_operation)i);
    lua_setfield(state, -2, ft_operation_text((enum ft_operation)i));
  }
  for (int i = 0; i < FT_SYMBOLS; ++i) {
    int *const handle = lua_newuserdatauv(state, sizeof *handle, 0);
    *handle = ft_symbol(&score->expression, (enum ft_symbol)i);
    luaL_setmetatable(state, FT_HANDLE_EXPRESSION);
    lua_setfield(state, -2, ft_symbol_name((enum ft_symbol)i));
  }
  lua_pushnumber(state, HUGE_VAL);
  lua_setfield(state, -2, "inf");
  lua_pushnumber(state, (lua_Number)NAN);
  lua_setfield(state, -2, "nan");
}
