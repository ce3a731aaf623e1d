/* handles.c: nodes of an expression as Lua values, and back.
 * in -> out: Lua value -> node with its type; node -> Lua value. */
#include "generator/score/handles.h"

#include <lauxlib.h>

struct ft_score *ft_handle_score(lua_State *state) {
  struct ft_score *const score = lua_touserdata(state, lua_upvalueindex(1));
  lua_Debug caller;
  if (lua_getstack(state, 1, &caller) && lua_getinfo(state, "l", &caller) && caller.currentline > 0)
    score->expression.line = caller.currentline;
  return score;
}

bool ft_handle_is_expression(lua_State *state, int index) {
  return luaL_testudata(state, index, FT_HANDLE_EXPRESSION) != NULL;
}

int ft_handle_node(lua_State *state, int index, const char *what, int number) {
  struct ft_expression *const expression =
      &((struct ft_score *)lua_touserdata(state, lua_upvalueindex(1)))->expression;
  const int *const handle = luaL_testudata(state, index, FT_HANDLE_EXPRESSION);
  if (handle != NULL) return *handle;
  if (lua_isboolean(state, index))
    return ft_constant(expression, FT_VALUE_BOOL, lua_toboolean(state, index));
  if (luaL_testudata(state, index, FT_HANDLE_TENSOR) != NULL)
    return luaL_error(state, "operand %d of '%s' is a tensor; allowed: its elements, bias(h, i, j)",
                      number, what);
  if (lua_type(state, index) != LUA_TNUMBER)
    return luaL_error(state, "operand %d of '%s' is %s; allowed: numbers and bools", number, what,
                      luaL_typename(state, index));
  if (!lua_isinteger(state, index))
    return ft_constant(expression, FT_VALUE_FLOAT, lua_tonumber(state, index));
  const lua_Integer value = lua_tointeger(state, index);
  if (value < INT32_MIN || value > INT32_MAX)
    return luaL_error(state, "operand %d of '%s' is %I; allowed: integers of 32 bits", number, what,
                      value);
  return ft_constant(expression, FT_VALUE_INT, (double)value);
}

void ft_handle_push(lua_State *state, int node) {
  const struct ft_score *const score = lua_touserdata(state, lua_upvalueindex(1));
  const struct ft_node *const known = ft_node(&score->expression, node);
  if (score->expression.full) luaL_error(state, "more than %d operations", FT_SCORE_NODES);
  if (known->operation != FT_OP_CONSTANT) {
    int *const handle = lua_newuserdatauv(state, sizeof *handle, 0);
    *handle = node;
    luaL_setmetatable(state, FT_HANDLE_EXPRESSION);
  } else if (known->type == FT_VALUE_BOOL) {
    lua_pushboolean(state, known->value != 0);
  } else if (known->type == FT_VALUE_INT) {
    lua_pushinteger(state, (lua_Integer)known->value);
  } else {
    lua_pushnumber(state, known->value);
  }
}
