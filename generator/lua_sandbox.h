/* lua_sandbox.h: a Lua state that can neither reach outside nor run away.
 * in -> out: nothing -> state with base, string, table, math less what is unsafe; limited calls.
 * Guards against mistakes in templates: a call ends after 5 * 10^7 instructions, with what C
 * functions do counted as instructions (lua_library.h), or after 5 s of CPU time. */
#ifndef GENERATOR_LUA_SANDBOX_H
#define GENERATOR_LUA_SANDBOX_H

#include <lua.h>

#include "generator/lua_limits.h"

struct ft_sandbox {
  lua_State *state;
  struct ft_lua_limits limits;
};

/* The sandbox must not move in memory while it is open. */
int ft_sandbox_open(struct ft_sandbox *sandbox);
void ft_sandbox_close(struct ft_sandbox *sandbox);

/* As ft_lua_call. */
int ft_sandbox_call(struct ft_sandbox *sandbox, int arguments, int results);

#endif
