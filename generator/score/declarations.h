/* declarations.h: what a score's Lua text captures, and what it states.
 * in -> out: table of the text's names -> the same with scalar(), tensor(), plain Lua's functions;
 * assignments to `score` and `visible`. */
#ifndef GENERATOR_SCORE_DECLARATIONS_H
#define GENERATOR_SCORE_DECLARATIONS_H

#include <lua.h>

#include "generator/score/score.h"

/* Sets the names in the table on the top of the stack and watches the table. Runs protected. */
void ft_declarations_open(lua_State *state, struct ft_score *score);

#endif
