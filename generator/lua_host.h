/* lua_host.h: a sandboxed Lua state with the templates loaded.
 * in -> out: embedded templates (or a development folder) -> a state for emission, GPU look-ups.
 * Sandbox: text chunks only; no io, os, package, debug, load of bytecode; a limit on instructions
 * and on memory. One state is used by one thread at a time; its owner locks. */
#ifndef GENERATOR_LUA_HOST_H
#define GENERATOR_LUA_HOST_H

#include "generator/arch.h"
#include "generator/digest.h"
#include "generator/score/registry.h"
#include "generator/template_files.h"

struct ft_lua;

/* folder: where to read templates from instead of the embedded ones, or NULL. */
int ft_lua_open(struct ft_lua **lua, const char *folder);
void ft_lua_close(struct ft_lua *lua);

/* Digest over the names and contents of all templates. */
struct ft_digest ft_lua_templates_digest(const struct ft_lua *lua);

/* A GPU of templates/gpus.lua by name ("h200"), alias ("h100-sxm") or target ("sm_90"); case and
 * punctuation are ignored. FT_E_NOT_FOUND lists the known names. */
int ft_lua_gpu(struct ft_lua *lua, const char *name, struct ft_arch *arch);

/* The index-th GPU of the table; FT_E_NOT_FOUND past the end (without touching ft_detail). */
int ft_lua_gpu_at(struct ft_lua *lua, int index, struct ft_arch *arch);

/* The templates the state was opened with; owned by lua. */
const struct ft_template_files *ft_lua_files(const struct ft_lua *lua);

/* The score functions that are known besides the built-in ones; owned by lua. */
struct ft_score_registry *ft_lua_scores(struct ft_lua *lua);

/* Pushes what engine.lua returned (the table with render and strict). To be called protected. */
void ft_lua_push_engine(struct ft_lua *lua);

/* For emit.c: runs the engine. request, config and budget go in as tables of named values. */
struct lua_State *ft_lua_state(struct ft_lua *lua);

/* Calls the function below `arguments` values on the stack under the limits; on failure returns
 * FT_E_TEMPLATE (or FT_E_MEMORY) with Lua's message as detail and leaves the stack as it was before
 * the function was pushed. */
int ft_lua_call(struct ft_lua *lua, int arguments, int results);

#endif
