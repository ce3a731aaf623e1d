/* score.c: a score function and a mask function, as a Lua text states them.
 * in -> out: name and text -> expressions, by running the rewritten text once in a sandbox. */
#include "generator/score/score.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

#include "generator/lua_sandbox.h"
#include "generator/score/declarations.h"
#include "generator/score/language.h"
#include "generator/score/print.h"
#include "generator/score/rewrite.h"
#include "generator/status.h"

struct job {
  struct ft_score *score;
  const char *text;
  size_t length;
  struct ft_text rewritten;
};

/* Leaves the chunk on the stack. */
static void load(lua_State *state, const char *name, const char *text, size_t length) {
  const char *const chunk_name = lua_pushfstring(state, "=%s", name);
  if (luaL_loadbufferx(state, text, length, chunk_name, "t") != LUA_OK) lua_error(state);
  lua_remove(state, -2);
}

/* In Lua: the text as it was given, so that what is wrong with it is told in its own words. */
static int check_syntax(lua_State *state) {
  const struct job *const job = lua_touserdata(state, 1);
  load(state, job->score->name, job->text, job->length);
  return 0;
}

/* In Lua. */
static int run(lua_State *state) {
  const struct job *const job = lua_touserdata(state, 1);
  struct ft_score *const score = job->score;
  load(state, score->name, job->rewritten.data, job->rewritten.length);
  lua_newtable(state);
  ft_language_open(state, score);
  ft_declarations_open(state, score);
  lua_setupvalue(state, -2, 1); /* _ENV */
  lua_call(state, 0, 0);
  if (score->score < 0 && score->visible < 0)
    return luaL_error(state, "%s states neither score nor visible", score->name);
  return 0;
}

static int call(struct ft_sandbox *sandbox, lua_CFunction function, struct job *job) {
  lua_pushcfunction(sandbox->state, function);
  lua_pushlightuserdata(sandbox->state, job);
  const int status = ft_sandbox_call(sandbox, 1, 0);
  if (status == FT_OK) return FT_OK;
  const int told = status == FT_E_TEMPLATE ? FT_E_ARGUMENT : status;
  /* What Lua's own functions raise may have no place in front. */
  const char *const name = job->score->name;
  return strncmp(ft_detail(), name, strlen(name)) == 0 ? told : ft_fail_within(told, "%s", name);
}

static int digest(struct ft_score *score) {
  struct ft_text text = FT_TEXT_INIT;
  ft_score_print(score, &text);
  const int status = ft_text_status(&text);
  if (status == FT_OK) score->digest = ft_digest_of(text.data, text.length);
  ft_text_free(&text);
  return status;
}

int ft_score_read(struct ft_score *score, const char *name, const char *text, size_t length) {
  *score = (struct ft_score){.score = -1, .visible = -1};
  if (strlen(name) >= FT_SCORE_NAME)
    return ft_fail(FT_E_ARGUMENT, "score '%s' has a long name; allowed: %d bytes", name,
                   FT_SCORE_NAME - 1);
  memcpy(score->name, name, strlen(name) + 1);
  struct job job = {.score = score, .text = text, .length = length};
  struct ft_sandbox sandbox = {0};
  int status = ft_expression_open(&score->expression);
  if (status != FT_OK) goto done;
  FT_CHECK(ft_sandbox_open(&sandbox));
  FT_CHECK(call(&sandbox, check_syntax, &job));
  FT_CHECK(ft_score_rewrite(name, text, length, &job.rewritten));
  FT_CHECK(call(&sandbox, run, &job));
  score->expression.line = 0; /* nodes from here on are the generator's */
  if (score->score < 0) score->score = ft_symbol(&score->expression, FT_SYMBOL_S);
  if (score->visible < 0) score->visible = ft_constant(&score->expression, FT_VALUE_BOOL, 1);
  status = digest(score);

done:
  ft_text_free(&job.rewritten);
  ft_sandbox_close(&sandbox);
  if (status != FT_OK) ft_score_free(score);
  return status;
}

void ft_score_free(struct ft_score *score) {
  ft_expression_close(&score->expression);
  *score = (struct ft_score){0};
}
