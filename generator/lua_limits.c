/* lua_limits.c: what a Lua state may use up: memory, instructions, time.
 * in -> out: a call's begin; what each step costs -> go on, or an error in Lua. */
#include "generator/lua_limits.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { INSTRUCTIONS = 50 * 1000 * 1000, SECONDS = 5, HOOK_STEP = 1000, LARGE_WORK = 10000 };

/* Lua itself tells no place of such an error. Asking where it runs takes no memory. */
static void note_place(struct ft_lua_limits *limits) {
  lua_Debug running;
  for (int level = 0; limits->state != NULL && lua_getstack(limits->state, level, &running);
       ++level) {
    lua_getinfo(limits->state, "Sl", &running);
    if (running.currentline <= 0) continue;
    (void)snprintf(limits->place, sizeof limits->place, "%s:%d: ", running.short_src,
                   running.currentline);
    return;
  }
}

/* A block is bounded, too: what one instruction does to a string takes the longer the longer it is.
 */
static void *limited_alloc(void *payload, void *block, size_t old_size, size_t new_size) {
  struct ft_lua_limits *const limits = payload;
  if (block == NULL) old_size = 0; /* then Lua passes a type tag in its place */
  if (new_size == 0) {
    free(block);
    limits->bytes -= old_size;
    return NULL;
  }
  if (new_size > old_size &&
      (new_size > FT_LUA_BLOCK || new_size - old_size > (size_t)FT_LUA_MEMORY - limits->bytes)) {
    note_place(limits);
    return NULL;
  }
  void *const moved = realloc(block, new_size);
  if (moved != NULL) limits->bytes = limits->bytes - old_size + new_size;
  return moved;
}

static struct ft_lua_limits *limits_of(lua_State *state) {
  return *(struct ft_lua_limits **)lua_getextraspace(state);
}

static double cpu_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void count_instructions(lua_State *state, lua_Debug *activation);

/* From here on the hook comes at every instruction, so that what runs as the error is raised, the
 * closing of variables, ends at once. level: of the function that was running. */
static void raise(lua_State *state, int level, const char *words, int limit) {
  limits_of(state)->passed = true;
  lua_sethook(state, count_instructions, LUA_MASKCOUNT, 1);
  luaL_where(state, level);
  lua_pushfstring(state, words, limit);
  lua_concat(state, 2);
  lua_error(state);
}

static void check(lua_State *state, int level, bool time_too) {
  const struct ft_lua_limits *const limits = limits_of(state);
  if (limits->instructions > INSTRUCTIONS || limits->passed)
    raise(state, level, "more than %d instructions: an endless loop?", INSTRUCTIONS);
  if (time_too && cpu_seconds() - limits->begin > SECONDS)
    raise(state, level, "more than %d seconds: an endless loop?", SECONDS);
}

/* A hook has no level of its own: 0 is the function that was running. */
static void count_instructions(lua_State *state, lua_Debug *activation) {
  (void)activation;
  limits_of(state)->instructions += HOOK_STEP;
  check(state, 0, true);
}

void ft_lua_spend(lua_State *state, double work) {
  if (!(work > 0)) return;
  limits_of(state)->instructions += work;
  check(state, 1, work > LARGE_WORK);
}

void ft_lua_limits_begin(lua_State *state) {
  struct ft_lua_limits *const limits = limits_of(state);
  limits->instructions = 0;
  limits->begin = cpu_seconds();
  limits->passed = false;
  limits->place[0] = '\0';
  lua_sethook(state, count_instructions, LUA_MASKCOUNT, HOOK_STEP);
}

lua_State *ft_lua_limits_open(struct ft_lua_limits *limits) {
  *limits = (struct ft_lua_limits){0};
  lua_State *const state = lua_newstate(limited_alloc, limits);
  if (state == NULL) return NULL;
  *(struct ft_lua_limits **)lua_getextraspace(state) = limits;
  limits->state = state;
  ft_lua_limits_begin(state);
  return state;
}
