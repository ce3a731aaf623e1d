/* lua_library.h: Lua's functions of strings and tables, bounded: each says what it will do before
 * it does it. in -> out: the libraries -> the same with limits (lua_limits.h). */
#ifndef GENERATOR_LUA_LIBRARY_H
#define GENERATOR_LUA_LIBRARY_H

#include <lua.h>

/* Into the globals `string` and `table`, and `tostring`, which are there. */
void ft_lua_bound_library(lua_State *state);

#endif
