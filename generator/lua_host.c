/* lua_host.c: the sandboxed state with gpus.lua run, and engine.lua when it is needed.
 * in -> out: template files -> engine in the registry, GPUs as a C array.
 * After opening, look-ups touch no Lua; only emission does. */
#include "generator/lua_host.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>

#include "generator/lua_sandbox.h"
#include "generator/made_digests.h"
#include "generator/status.h"
#include "generator/text.h"

enum { MAX_GPUS = 64, MAX_ALIASES = 4 };

struct gpu {
  struct ft_arch arch;
  char aliases[MAX_ALIASES][64];
  int alias_count;
};

struct ft_lua {
  struct ft_sandbox sandbox;
  struct ft_template_files files;
  struct ft_digest digest;
  struct gpu gpus[MAX_GPUS];
  int gpu_count;
  bool embedded; /* the files are those in the library */
  struct ft_score_registry scores;
};

static const char engine_key[] = "fatune.engine";

/* What follows runs protected: a wrong table raises an error that names the row and the field. */

static void copy_string(lua_State *state, const char *row, const char *field, char *to,
                        size_t size) {
  if (lua_getfield(state, -1, field) != LUA_TSTRING)
    luaL_error(state, "%s: field '%s' must be a string", row, field);
  size_t length;
  const char *const text = lua_tolstring(state, -1, &length);
  if (length >= size || strlen(text) != length)
    luaL_error(state, "%s: field '%s' is longer than %d bytes", row, field, (int)size - 1);
  memcpy(to, text, length + 1);
  lua_pop(state, 1);
}

static double positive_number(lua_State *state, const char *row, const char *field) {
  lua_getfield(state, -1, field);
  const double value = lua_type(state, -1) == LUA_TNUMBER ? lua_tonumber(state, -1) : -1;
  if (!(value >= 0 && value < 1e15))
    luaL_error(state, "%s: field '%s' must be a number of at least 0", row, field);
  lua_pop(state, 1);
  return value;
}

static int whole_number(lua_State *state, const char *row, const char *field) {
  const double value = positive_number(state, row, field);
  if (value > 1 << 30 || value != (int)value)
    luaL_error(state, "%s: field '%s' must be a whole number below 2^30", row, field);
  return (int)value;
}

/* The GPU on the top of the stack. */
static void read_gpu(lua_State *state, struct gpu *gpu) {
  struct ft_arch *const arch = &gpu->arch;
  copy_string(state, "gpus.lua", "name", arch->name, sizeof arch->name);
  arch->sm = whole_number(state, arch->name, "sm");
  arch->sm_count = whole_number(state, arch->name, "sm_count");
  arch->smem_per_block = whole_number(state, arch->name, "smem_per_block");
  arch->smem_per_sm = whole_number(state, arch->name, "smem_per_sm");
  arch->smem_reserved = whole_number(state, arch->name, "smem_reserved");
  arch->regs_per_sm = whole_number(state, arch->name, "regs_per_sm");
  arch->threads_per_sm = whole_number(state, arch->name, "threads_per_sm");
  arch->blocks_per_sm = whole_number(state, arch->name, "blocks_per_sm");
  arch->l2_bytes = whole_number(state, arch->name, "l2_bytes");
  arch->clock_ghz = positive_number(state, arch->name, "clock_ghz");
  arch->dram_gbs = positive_number(state, arch->name, "dram_gbs");
  arch->mma_flops_per_clk = positive_number(state, arch->name, "mma_flops_per_clk");

  if (lua_getfield(state, -1, "aliases") == LUA_TTABLE) {
    const lua_Integer count = luaL_len(state, -1);
    if (count > MAX_ALIASES) luaL_error(state, "%s: too many aliases", arch->name);
    for (lua_Integer i = 1; i <= count; ++i) {
      lua_rawgeti(state, -1, i);
      const char *const alias = luaL_checkstring(state, -1);
      const size_t length = strlen(alias);
      if (length >= sizeof gpu->aliases[0]) luaL_error(state, "%s: long alias", alias);
      memcpy(gpu->aliases[gpu->alias_count++], alias, length + 1);
      lua_pop(state, 1);
    }
  }
  lua_pop(state, 1);
}

/* Leaves what the template file returned on the stack. */
static void run_file(lua_State *state, const struct ft_lua *lua, const char *name) {
  const struct ft_template *const file = ft_template_files_find(&lua->files, name);
  if (file == NULL) {
    luaL_error(state, "%s is missing", name);
    return; /* never: luaL_error jumps, but is not declared so */
  }
  const char *const chunk_name = lua_pushfstring(state, "=%s", name);
  if (luaL_loadbufferx(state, file->text, file->length, chunk_name, "t") != LUA_OK)
    lua_error(state);
  lua_remove(state, -2);
  lua_call(state, 0, 1);
  if (!lua_istable(state, -1)) luaL_error(state, "%s must return a table", name);
}

static void load_engine(lua_State *state, const struct ft_lua *lua) {
  run_file(state, lua, "engine.lua");
  lua_setfield(state, LUA_REGISTRYINDEX, engine_key);
}

/* The engine of somebody's own templates is tried at once. The one in the library waits for the
 * first emission, as most processes find their kernels in a cache. */
static int load_all(lua_State *state) {
  struct ft_lua *const lua = lua_touserdata(state, 1);
  if (!lua->embedded) load_engine(state, lua);
  run_file(state, lua, "gpus.lua");
  if (luaL_len(state, -1) > MAX_GPUS) luaL_error(state, "gpus.lua: more than %d GPUs", MAX_GPUS);
  const int gpus = (int)luaL_len(state, -1);
  for (; lua->gpu_count < gpus; ++lua->gpu_count) {
    if (lua_rawgeti(state, -1, lua->gpu_count + 1) != LUA_TTABLE)
      luaL_error(state, "gpus.lua: row %d is no table", lua->gpu_count + 1);
    read_gpu(state, &lua->gpus[lua->gpu_count]);
    lua_pop(state, 1);
  }
  return 0;
}

/* From here on nothing runs inside Lua. */

int ft_lua_open(struct ft_lua **lua, const char *folder) {
  *lua = NULL;
  struct ft_lua *const fresh = calloc(1, sizeof *fresh);
  if (fresh == NULL) return ft_fail(FT_E_MEMORY, "no memory for the templates");
  int status = ft_template_files_open(&fresh->files, folder);
  if (status != FT_OK) goto done;
  fresh->embedded = folder == NULL;
  fresh->digest = folder == NULL ? ft_made_templates : ft_template_files_digest(&fresh->files);
  FT_CHECK(ft_sandbox_open(&fresh->sandbox));
  lua_pushcfunction(fresh->sandbox.state, load_all);
  lua_pushlightuserdata(fresh->sandbox.state, fresh);
  status = ft_lua_call(fresh, 1, 0);
  if (status != FT_OK) ft_fail_within(status, "templates in %s", folder ? folder : "the library");

done:
  if (status == FT_OK)
    *lua = fresh;
  else
    ft_lua_close(fresh);
  return status;
}

void ft_lua_close(struct ft_lua *lua) {
  if (lua == NULL) return;
  ft_sandbox_close(&lua->sandbox);
  ft_registry_close(&lua->scores);
  ft_template_files_close(&lua->files);
  free(lua);
}

struct ft_digest ft_lua_templates_digest(const struct ft_lua *lua) {
  return lua->digest;
}

const struct ft_template_files *ft_lua_files(const struct ft_lua *lua) {
  return &lua->files;
}

struct ft_score_registry *ft_lua_scores(struct ft_lua *lua) {
  return &lua->scores;
}

/* "H100-SXM" and "h100 sxm" are the same name: letters and digits count. */
static bool same_name(const char *a, const char *b) {
  for (;; ++a, ++b) {
    while (*a != '\0' && !isalnum((unsigned char)*a)) ++a;
    while (*b != '\0' && !isalnum((unsigned char)*b)) ++b;
    if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
    if (*a == '\0') return true;
  }
}

static bool is_called(const struct gpu *gpu, const char *name) {
  char target[16];
  ft_arch_target(&gpu->arch, target);
  if (same_name(gpu->arch.name, name) || same_name(target, name)) return true;
  for (int i = 0; i < gpu->alias_count; ++i)
    if (same_name(gpu->aliases[i], name)) return true;
  return false;
}

int ft_lua_gpu(struct ft_lua *lua, const char *name, struct ft_arch *arch) {
  for (int i = 0; i < lua->gpu_count; ++i) {
    if (!is_called(&lua->gpus[i], name)) continue;
    *arch = lua->gpus[i].arch;
    return FT_OK;
  }
  struct ft_text known = FT_TEXT_INIT;
  for (int i = 0; i < lua->gpu_count; ++i) ft_text_add(&known, " %s", lua->gpus[i].arch.name);
  ft_fail(FT_E_NOT_FOUND, "GPU '%s' is unknown; known:%s", name, known.data ? known.data : "");
  ft_text_free(&known);
  return FT_E_NOT_FOUND;
}

int ft_lua_gpu_at(struct ft_lua *lua, int index, struct ft_arch *arch) {
  if (index < 0 || index >= lua->gpu_count) return FT_E_NOT_FOUND;
  *arch = lua->gpus[index].arch;
  return FT_OK;
}

lua_State *ft_lua_state(struct ft_lua *lua) {
  return lua->sandbox.state;
}

void ft_lua_push_engine(struct ft_lua *lua) {
  lua_State *const state = lua->sandbox.state;
  if (lua_getfield(state, LUA_REGISTRYINDEX, engine_key) != LUA_TNIL) return;
  lua_pop(state, 1);
  load_engine(state, lua);
  lua_getfield(state, LUA_REGISTRYINDEX, engine_key);
}

int ft_lua_call(struct ft_lua *lua, int arguments, int results) {
  return ft_sandbox_call(&lua->sandbox, arguments, results);
}
