/* language.h: the operators and functions of a score's Lua text.
 * in -> out: table of the text's names -> the same with operators, functions and symbols. */
#ifndef GENERATOR_SCORE_LANGUAGE_H
#define GENERATOR_SCORE_LANGUAGE_H

#include <lua.h>

#include "generator/score/score.h"

/* Makes the metatables of expressions and operators, and sets the names in the table on the top of
 * the stack. Runs protected. */
void ft_language_open(lua_State *state, struct ft_score *score);

#endif
