/* lua_library.c: Lua's functions of strings and tables, bounded.
 * in -> out: arguments -> what the call will do at most, in instructions -> Lua's own function.
 *
 * The hook that counts instructions does not see inside of a C function, and some of them can be
 * made to run for ever: by a range of 2^62 elements, a length that a table makes up, a pattern that
 * backtracks. Lua's own function is called in the wrapper's place, so its errors name the caller's
 * line. */
#include "generator/lua_library.h"

#include <lauxlib.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "generator/lua_limits.h"

static const double MATCH_MOST = 1e8; /* steps of one match: some tenths of a second */
static const double MATCH_STEPS_OF_INSTRUCTION = 1000;

typedef double work_function(lua_State *state);

/* Not what the table says of itself: it may say another number when it is asked again. */
static double length_of(lua_State *state, int table) {
  if (lua_type(state, table) != LUA_TTABLE) return 0; /* Lua's own function refuses it */
  if (luaL_getmetafield(state, table, "__len") != LUA_TNIL)
    luaL_error(state, "a table with a length of its own (__len) is not allowed here");
  return (double)lua_rawlen(state, table);
}

static double string_length(lua_State *state, int argument) {
  return lua_isstring(state, argument) ? (double)lua_rawlen(state, argument) : 0;
}

static double number_or(lua_State *state, int argument, double otherwise) {
  return lua_isnumber(state, argument) ? (double)lua_tonumber(state, argument) : otherwise;
}

/* ---- tables ---- */

static double work_of_move(lua_State *state) {
  return number_or(state, 3, 0) - number_or(state, 2, 0) + 1;
}

static double work_of_concat(lua_State *state) {
  const double length = length_of(state, 1);
  return number_or(state, 4, length) - number_or(state, 3, 1) + 1;
}

static double work_of_unpack(lua_State *state) {
  const double length = length_of(state, 1);
  return number_or(state, 3, length) - number_or(state, 2, 1) + 1;
}

static double work_of_shift(lua_State *state) {
  return length_of(state, 1);
}

static double work_of_sort(lua_State *state) {
  return 64 * length_of(state, 1);
}

/* ---- strings ---- */

static double work_of_string(lua_State *state) {
  return string_length(state, 1) / 16;
}

/* What is too long for any block fails at once. */
static double work_of_rep(lua_State *state) {
  const double each = string_length(state, 1) + string_length(state, 3);
  const double count = number_or(state, 2, 0);
  return count * each > FT_LUA_BLOCK ? 0 : count * (1 + each / 16);
}

/* How many items of a pattern can match more or less: each may be tried at every length. */
static int repetitions(const char *pattern, size_t length) {
  int count = 0;
  for (size_t n = 0; n < length; n++) {
    if (pattern[n] == '%' && n + 1 < length) {
      n++;
      count += pattern[n] == 'b' || (pattern[n] >= '0' && pattern[n] <= '9');
    } else {
      count += strchr("*+-?", pattern[n]) != NULL && pattern[n] != '\0';
    }
  }
  return count;
}

/* At most as many steps as the subject has places, to the power of what may vary: the begin, unless
 * the pattern is anchored, and each repetition. */
static double work_of_match(lua_State *state) {
  size_t length = 0;
  if (!lua_isstring(state, 1) || !lua_isstring(state, 2)) return 0;
  const char *const pattern = lua_tolstring(state, 2, &length);
  const int varying = repetitions(pattern, length) + (length > 0 && pattern[0] == '^' ? 0 : 1);
  const double steps = pow(string_length(state, 1) + 1, varying) + (double)length;
  if (!(steps <= MATCH_MOST))
    luaL_error(state,
               "a pattern with %d repetitions on %d bytes could take %f steps; allowed: %f (less "
               "text, an anchor ^, or a plain find)",
               repetitions(pattern, length), (int)string_length(state, 1), steps, MATCH_MOST);
  return steps / MATCH_STEPS_OF_INSTRUCTION;
}

static double work_of_find(lua_State *state) {
  return lua_toboolean(state, 4) ? work_of_string(state) : work_of_match(state);
}

/* ---- addresses, which differ from run to run ---- */

static void refuse_address(lua_State *state, int argument) {
  const int type = lua_type(state, argument);
  if (type <= LUA_TBOOLEAN || type == LUA_TNUMBER || type == LUA_TSTRING) return;
  if (luaL_getmetafield(state, argument, "__tostring") == LUA_TNIL)
    luaL_error(state, "a %s has no text (without __tostring it would be its address)",
               lua_typename(state, type));
  lua_pop(state, 1);
}

static double work_of_tostring(lua_State *state) {
  refuse_address(state, 1);
  return 0;
}

/* "%s" alone takes what is no number or string. */
static double work_of_format(lua_State *state) {
  size_t length = 0;
  const char *const format = lua_isstring(state, 1) ? lua_tolstring(state, 1, &length) : "";
  for (size_t n = 0; n + 1 < length; n++) {
    if (format[n] != '%') continue;
    n++;
    n += strspn(format + n, "-+ #0123456789.");
    if (n < length && format[n] == 'p') luaL_error(state, "string.format: %%p is an address");
  }
  double bytes = (double)length;
  for (int argument = 2; argument <= lua_gettop(state); argument++) {
    refuse_address(state, argument);
    bytes += string_length(state, argument);
  }
  return bytes / 16;
}

/* ---- all of them ---- */

static const struct bounded {
  const char *library, *name; /* NULL: a global */
  work_function *work;
} bounded[] = {
    {"table", "move", work_of_move},       {"table", "concat", work_of_concat},
    {"table", "unpack", work_of_unpack},   {"table", "insert", work_of_shift},
    {"table", "remove", work_of_shift},    {"table", "sort", work_of_sort},
    {"string", "rep", work_of_rep},        {"string", "find", work_of_find},
    {"string", "match", work_of_match},    {"string", "gmatch", work_of_match},
    {"string", "gsub", work_of_match},     {"string", "format", work_of_format},
    {"string", "reverse", work_of_string}, {"string", "lower", work_of_string},
    {"string", "upper", work_of_string},   {"string", "byte", work_of_string},
    {"string", "sub", work_of_string},     {"string", "pack", work_of_string},
    {"string", "unpack", work_of_string},  {"string", "packsize", work_of_string},
    {NULL, "tostring", work_of_tostring},
};

/* Upvalues: Lua's own function, the row. */
static int call_bounded(lua_State *state) {
  const struct bounded *const row = lua_touserdata(state, lua_upvalueindex(2));
  const int arguments = lua_gettop(state);
  const double work = row->work(state);
  lua_settop(state, arguments);
  ft_lua_spend(state, work);
  return lua_tocfunction(state, lua_upvalueindex(1))(state);
}

void ft_lua_bound_library(lua_State *state) {
  for (size_t n = 0; n < sizeof bounded / sizeof *bounded; n++) {
    const struct bounded *const row = &bounded[n];
    if (row->library)
      lua_getglobal(state, row->library);
    else
      lua_pushglobaltable(state);
    lua_getfield(state, -1, row->name);
    lua_pushlightuserdata(state, (void *)(uintptr_t)row);
    lua_pushcclosure(state, call_bounded, 2);
    lua_setfield(state, -2, row->name);
    lua_pop(state, 1);
  }
}
