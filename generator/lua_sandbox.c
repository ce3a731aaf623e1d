/* lua_sandbox.c: a Lua state that can neither reach outside nor run away.
 * in -> out: the standard libraries -> a subset that is pure: equal templates give equal text. */
#include "generator/lua_sandbox.h"

#include <stdbool.h>

#include <lauxlib.h>
#include <lualib.h>

#include "generator/lua_library.h"
#include "generator/status.h"

/* load, for text only: bytecode can be made to break out of any sandbox. Upvalue: Lua's load. */
static int text_load(lua_State *state) {
  int count = lua_gettop(state);
  if (lua_type(state, 1) == LUA_TSTRING) ft_lua_spend(state, (double)lua_rawlen(state, 1));
  if (count < 3) lua_settop(state, count = 3);
  lua_pushliteral(state, "t");
  lua_replace(state, 3);
  lua_pushvalue(state, lua_upvalueindex(1));
  lua_insert(state, 1);
  lua_call(state, count, LUA_MULTRET);
  return lua_gettop(state);
}

/* setmetatable without finalizers: those run with the hook off, an endless one for ever. */
static int safe_setmetatable(lua_State *state) {
  if (lua_istable(state, 2)) {
    lua_pushliteral(state, "__gc");
    if (lua_rawget(state, 2) != LUA_TNIL)
      return luaL_error(state, "templates may not have finalizers (__gc)");
    lua_pop(state, 1);
  }
  lua_pushvalue(state, lua_upvalueindex(1));
  lua_insert(state, 1);
  lua_call(state, lua_gettop(state) - 1, 1);
  return 1;
}

/* The iterator of sorted_pairs. Upvalues: table, sorted keys, position. */
static int sorted_next(lua_State *state) {
  const lua_Integer position = lua_tointeger(state, lua_upvalueindex(3)) + 1;
  lua_pushinteger(state, position);
  lua_replace(state, lua_upvalueindex(3));
  if (lua_rawgeti(state, lua_upvalueindex(2), position) == LUA_TNIL) return 1;
  lua_pushvalue(state, -1);
  lua_rawget(state, lua_upvalueindex(1));
  return 2;
}

/* pairs in the order of keys: Lua's own order changes from run to run (it seeds its hash from
 * addresses), and so would emitted text. Upvalue: table.sort. */
static int sorted_pairs(lua_State *state) {
  luaL_checktype(state, 1, LUA_TTABLE);
  lua_settop(state, 1);
  lua_newtable(state);
  lua_Integer count = 0;
  for (lua_pushnil(state); lua_next(state, 1) != 0;) {
    lua_pop(state, 1);
    lua_pushvalue(state, -1);
    lua_rawseti(state, 2, ++count);
  }
  ft_lua_spend(state, 64 * (double)count);
  lua_pushvalue(state, lua_upvalueindex(1));
  lua_pushvalue(state, 2);
  lua_call(state, 1, 0);
  lua_pushinteger(state, 0);
  lua_pushcclosure(state, sorted_next, 3);
  return 1;
}

static void remove_fields(lua_State *state, const char *const *names) {
  for (; *names != NULL; ++names) {
    lua_pushnil(state);
    lua_setfield(state, -2, *names);
  }
}

static void wrap_global(lua_State *state, const char *name, lua_CFunction wrapper) {
  lua_getglobal(state, name);
  lua_pushcclosure(state, wrapper, 1);
  lua_setglobal(state, name);
}

/* Runs protected. pcall is left out so that a template cannot go on after a limit was hit;
 * coroutines would have a hook of their own; random numbers and addresses are not pure. */
static int set_up(lua_State *state) {
  static const char *const base[] = {"collectgarbage", "dofile", "getmetatable", "loadfile", "next",
                                     "pcall",          "print",  "warn",         "xpcall",   NULL};
  static const char *const string[] = {"dump", NULL};
  static const char *const math[] = {"random", "randomseed", NULL};
  luaL_requiref(state, LUA_GNAME, luaopen_base, 1);
  remove_fields(state, base);
  luaL_requiref(state, LUA_STRLIBNAME, luaopen_string, 1);
  remove_fields(state, string);
  luaL_requiref(state, LUA_MATHLIBNAME, luaopen_math, 1);
  remove_fields(state, math);
  luaL_requiref(state, LUA_TABLIBNAME, luaopen_table, 1);

  ft_lua_bound_library(state);
  wrap_global(state, "load", text_load);
  wrap_global(state, "setmetatable", safe_setmetatable);
  lua_getfield(state, -1, "sort");
  lua_pushcclosure(state, sorted_pairs, 1);
  lua_setglobal(state, "pairs");
  return 0;
}

int ft_sandbox_open(struct ft_sandbox *sandbox) {
  sandbox->state = ft_lua_limits_open(&sandbox->limits);
  if (sandbox->state == NULL) return ft_fail(FT_E_MEMORY, "no memory for a Lua state");
  lua_pushcfunction(sandbox->state, set_up);
  const int status = ft_sandbox_call(sandbox, 0, 0);
  if (status != FT_OK) ft_sandbox_close(sandbox);
  return status;
}

void ft_sandbox_close(struct ft_sandbox *sandbox) {
  if (sandbox->state != NULL) lua_close(sandbox->state);
  sandbox->state = NULL;
}

int ft_sandbox_call(struct ft_sandbox *sandbox, int arguments, int results) {
  lua_State *const state = sandbox->state;
  const int below = lua_gettop(state) - arguments - 1;
  ft_lua_limits_begin(state);
  const int outcome = lua_pcall(state, arguments, results, 0);
  if (outcome == LUA_OK) return FT_OK;

  /* Only a string is taken as it is: converting anything else could raise outside of a pcall. */
  const bool has_text = lua_type(state, -1) == LUA_TSTRING;
  const int status =
      outcome == LUA_ERRMEM
          ? ft_fail(FT_E_MEMORY,
                    "%sLua ran out of memory (limit: %d MiB, a string or table %d MiB)",
                    sandbox->limits.place, FT_LUA_MEMORY >> 20, FT_LUA_BLOCK >> 20)
          : ft_fail(FT_E_TEMPLATE, "%s",
                    has_text ? lua_tostring(state, -1) : "an error without text was raised");
  lua_settop(state, below);
  return status;
}
