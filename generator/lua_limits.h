/* lua_limits.h: what a Lua state may use up: memory, instructions, time.
 * in -> out: a call's begin; what each step costs -> go on, or an error in Lua. */
#ifndef GENERATOR_LUA_LIMITS_H
#define GENERATOR_LUA_LIMITS_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

/* A kernel of 2000 lines takes some 10^5 instructions, 2 MiB and 10 ms. */
enum { FT_LUA_MEMORY = 64 << 20, FT_LUA_BLOCK = 4 << 20 };

struct ft_lua_limits {
  size_t bytes;        /* now allocated */
  double instructions; /* since the call began; work of C functions counts as instructions */
  double begin;        /* of the call: seconds of this thread's CPU */
  bool passed;         /* a limit was: whatever runs now ends at once */
  lua_State *state;
  char place[80]; /* "name:line: " that asked for more memory than there is; "": none did */
};

/* A state with these limits; NULL: no memory. The limits must not move while it is open. */
lua_State *ft_lua_limits_open(struct ft_lua_limits *limits);
/* A new call: instructions and time begin anew. */
void ft_lua_limits_begin(lua_State *state);
/* What a C function is about to do, in instructions of its own. Raises an error beyond the limit.
 */
void ft_lua_spend(lua_State *state, double work);

#endif
