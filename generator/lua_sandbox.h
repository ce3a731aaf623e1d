/* lua_sandbox.h: a Lua state that can neither reach outside nor run away.
 * in -> out: nothing -> state with base, string, table, math less what is unsafe; limited calls.
 * Guards against mistakes in templates: instructions are counted between Lua instructions, so one
 * call into the string library (a pattern made to backtrack) is limited by memory only. */
#ifndef GENERATOR_LUA_SANDBOX_H
#define GENERATOR_LUA_SANDBOX_H

#include <lua.h>
#include <stddef.h>

struct ft_sandbox {
  lua_State *state;
  size_t bytes;      /* now allocated by Lua */
  long instructions; /* since the call began, in steps of the hook */
};

/* The sandbox must not move in memory while it is open. */
int ft_sandbox_open(struct ft_sandbox *sandbox);
void ft_sandbox_close(struct ft_sandbox *sandbox);

/* As ft_lua_call. */
int ft_sandbox_call(struct ft_sandbox *sandbox, int arguments, int results);

#endif
