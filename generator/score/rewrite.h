/* rewrite.h: a score's Lua text, with comparisons, `and`, `or` and `not` as calls that see both of
 * their operands.
 * in -> out: text -> text of the same lines, whose operators a metatable can define.
 *
 * Lua makes a boolean of what a metamethod of `<` returns, asks no metamethod of `==` when one
 * operand is a number, and has none of `and`. Its bitwise operators have the same order of
 * precedence and take any operands. So `a < b` becomes `a &__lt& b`, where __lt is a value that
 * takes its left operand first and its right one then; `and` uses ~, `or` |. `not` becomes
 * `__not ^`, which binds as `not` does. */
#ifndef GENERATOR_SCORE_REWRITE_H
#define GENERATOR_SCORE_REWRITE_H

#include <stddef.h>

#include "generator/text.h"

/* The text is correct Lua. FT_E_ARGUMENT with name and line when it uses what a score text may not:
 * bitwise operators, names that begin with two underscores, and statements that would decide by an
 * expression as if it were a plain value (if, while, repeat, goto). */
int ft_score_rewrite(const char *name, const char *text, size_t length, struct ft_text *rewritten);

#endif
