/* handles.h: nodes of an expression as Lua values, and back.
 * in -> out: Lua value -> node with its type; node -> Lua value. Constants are plain Lua numbers
 * and booleans. Errors are raised in Lua, with name and line. */
#ifndef GENERATOR_SCORE_HANDLES_H
#define GENERATOR_SCORE_HANDLES_H

#include <lua.h>

#include "generator/score/score.h"

/* Metatables in the registry. */
#define FT_HANDLE_EXPRESSION "expression"
#define FT_HANDLE_TENSOR     "tensor"
#define FT_HANDLE_OPERATOR   "operator"

/* What a C function of the language works on: its first upvalue. New nodes get the line that calls
 * it. */
struct ft_score *ft_handle_score(lua_State *state);

/* The node of the value at `index`, the number-th operand of `what`. */
int ft_handle_node(lua_State *state, int index, const char *what, int number);
bool ft_handle_is_expression(lua_State *state, int index);

void ft_handle_push(lua_State *state, int node);

#endif
