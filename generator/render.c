/* render.c: values -> Lua tables, template engine -> struct ft_source.
 * in -> out: struct ft_render -> text and line origins.
 * Lua raises errors by longjmp, so all that talks to it runs in one protected function (render),
 * and whatever C memory that function makes hangs on the source and outlives it. */
#include "generator/render.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>

#include "generator/families/wgmma_forward.h"
#include "generator/family.h"
#include "generator/request_fields.h"
#include "generator/arguments.h"
#include "generator/schedule.h"
#include "generator/score/lower.h"
#include "generator/visibility.h"

static void set_integer(lua_State *state, const char *name, lua_Integer value) {
  lua_pushinteger(state, value);
  lua_setfield(state, -2, name);
}

static void set_boolean(lua_State *state, const char *name, bool value) {
  lua_pushboolean(state, value);
  lua_setfield(state, -2, name);
}

static void set_string(lua_State *state, const char *name, const char *value) {
  lua_pushstring(state, value);
  lua_setfield(state, -2, name);
}

/* Sets field `name` of the table below to engine.strict(table on top, name). */
static void set_strict(lua_State *state, int engine, const char *name) {
  lua_getfield(state, engine, "strict");
  lua_insert(state, -2);
  lua_pushstring(state, name);
  lua_call(state, 2, 1);
  lua_setfield(state, -2, name);
}

/* What the text may depend on. */
static void push_request(lua_State *state, const struct ft_request *request) {
  lua_newtable(state);
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i) {
    const struct ft_request_field *const field = ft_request_field(i);
    const int64_t value = ft_request_get(request, i);
    if (field->part != FT_PART_KERNEL) continue;
    if (field->kind == FT_KIND_CHOICE) set_string(state, field->name, field->choices[value]);
    if (field->kind == FT_KIND_FLAG) set_boolean(state, field->name, value != 0);
    if (field->kind == FT_KIND_COUNT) set_integer(state, field->name, value);
    if (field->kind == FT_KIND_DIGEST) set_boolean(state, field->name, value != 0);
  }
}

static void push_config(lua_State *state, const struct ft_config *config) {
  const struct ft_family *const family = config->family;
  lua_newtable(state);
  set_string(state, "family", family->name);
  for (int i = 0; i < family->knob_count; ++i)
    set_integer(state, family->knobs[i].name, config->knobs[i]);
}

static void push_budget(lua_State *state, const struct ft_family *family,
                        const struct ft_budget *budget) {
  const struct ft_budget_field *field;
  lua_newtable(state);
  for (int i = 0, value; (field = ft_budget_common(budget, i, &value)) != NULL; ++i)
    if (field->in_templates) set_integer(state, field->name, value);
  for (int i = 0; i < family->budget_field_count; ++i)
    if (family->budget_fields[i].in_templates)
      set_integer(state, family->budget_fields[i].name, budget->own[i]);
}

/* What the part `visibility` is given. */
static void push_visibility(lua_State *state, const struct ft_request *request) {
  const struct ft_visibility_value *value;
  lua_newtable(state);
  for (int i = 0; (value = ft_visibility_value_at(i)) != NULL; ++i)
    set_boolean(state, value->name, value->of(request));
}

/* A text as an array of its lines. */
static void push_lines(lua_State *state, const char *text) {
  lua_newtable(state);
  for (lua_Integer n = 1; *text != '\0'; ++n) {
    const size_t length = strcspn(text, "\n");
    lua_pushlstring(state, text, length);
    lua_rawseti(state, -2, n);
    text += length + (text[length] == '\n');
  }
}

static bool varies(const struct ft_known_score *score, int node) {
  return (ft_node(&score->score.expression, node)->sources & ft_source_symbol(FT_SYMBOL_S)) != 0;
}

/* The derivatives by what the request wants gradients of. */
static void push_gradients(lua_State *state, const struct ft_known_score *score, int64_t wanted) {
  static const char *const levels[] = {"head", "row", "column", "element"}; /* ORDER LEVEL */
  lua_Integer count = 0;
  lua_newtable(state);
  for (int i = 0; score != NULL && wanted != 0 && i < score->derivatives.count; ++i) {
    const struct ft_derivative *const derivative = &score->derivatives.others[i];
    const struct ft_node *const leaf = ft_node(&score->score.expression, derivative->leaf);
    const bool of_tensor = leaf->operation == FT_OP_READ;
    if (!(wanted >> (of_tensor ? leaf->number : FT_SCORE_TENSORS + leaf->number) & 1)) continue;
    lua_newtable(state);
    set_integer(state, "number", i);
    set_string(state, "level", levels[ft_level_of(leaf)]);
    set_string(state, "of",
               of_tensor ? score->score.tensors[leaf->number].name
                         : score->score.scalars[leaf->number].name);
    set_boolean(state, "varies",
                varies(score, derivative->node) || varies(score, derivative->leaf));
    lua_rawseti(state, -2, ++count);
  }
}

/* What the parts of score functions are given. */
static void push_score(lua_State *state, const struct ft_known_score *score,
                       const struct ft_request *request) {
  const bool with_gradients = score != NULL && request->score_gradients != 0;
  lua_newtable(state);
  push_lines(state, score == NULL    ? ""
                    : with_gradients ? score->cuda_with_gradients.data
                                     : score->cuda.data);
  lua_setfield(state, -2, "lines");
  push_lines(state, score == NULL || !score->has_visible ? "" : score->cuda_of_visible.data);
  lua_setfield(state, -2, "lines_of_visible");
  push_gradients(state, score, request->score_gradients);
  lua_setfield(state, -2, "gradients");
  set_boolean(state, "has_score", score != NULL && score->has_score);
  set_boolean(state, "has_visible", score != NULL && score->has_visible);
  /* Whether a block mask may say of some blocks that the function hides nothing of them. */
  set_boolean(state, "marks_blocks", score != NULL && score->has_visible && request->mask_rows > 0);
  set_boolean(state, "slope_is_one", score != NULL && score->slope_is_one);
  set_boolean(state, "has_sides", score != NULL && score->exponent.has_sides);
  set_boolean(state, "has_sigmoid", score != NULL && score->exponent.has_sigmoid);
  set_boolean(state, "sigmoid_alone", score != NULL && score->exponent.sigmoid_alone);
  set_boolean(state, "has_tile", score != NULL && score->has_score && score->exponent.tile != 0);
  set_boolean(state, "tile_has_rows", score != NULL && score->exponent.tile_has_rows);
  set_boolean(state, "reads_keys", score != NULL && score->exponent.reads_keys);
  set_boolean(state, "adds_by_key",
              score != NULL && score->has_score && score->exponent.adds_by_key);
  set_boolean(state, "x_grows", score != NULL && score->exponent.x_grows);
  set_boolean(state, "fades", score != NULL && ft_score_fades(score));
  set_boolean(state, "has_key_slope", score != NULL && score->exponent.key_slope != 0);
  set_boolean(state, "has_key_terms", score != NULL && score->exponent.key_term != 0);
  set_boolean(state, "slope_varies", score != NULL && score->slope_varies);
  set_boolean(state, "weighs_p", ft_score_weighs_p(score, request));
}

/* The forms of parts that a request has, by their endings. */
static void push_forms(lua_State *state, const struct ft_render *job) {
  const struct ft_request *const request = job->request;
  const bool has_gradients = job->score != NULL && request->score_gradients != 0;
  const bool slope_varies = job->score != NULL && varies(job->score, job->score->slope);
  const char *const wide = ft_dtype_is_fp32(request->dtype) ? "_fp32" : "";
  const char *const stores_wide = ft_outputs_are_wide(request) ? "_wide" : "";
  const char *const of_kv = request->dtype_kv == FT_KV_E4M3 ? "_e4m3" : "";
  const char *const blocks = request->mask_rows > 0 ? "_blocks" : "";
  const char *const paged = request->pages > 0 ? "_paged" : "";
  const char *const dropout = request->dropout ? "" : "_none";
  const bool packed = ft_config_packs(job->config);
  const char *const of_dense = packed ? "_packed" : "_dense";
  const char *const of_ragged = packed ? "_ragged_packed" : "_ragged";
  const bool shares = ft_schedule_of(request, job->config) == FT_SCHEDULE_STREAM;
  const char *const score = request->score != 0 ? "" : "_none";
  const char *const sinks = request->sinks ? "" : "_none";
  const char *const ordered = request->deterministic ? "" : "_none"; /* adds to dQ by wgmma */
  const char *const plain_exponents = request->descale_rows > 0 ? "_descaled" : "_none";
  const bool changes = job->score != NULL && job->score->has_score;
  const bool hides = job->score != NULL && job->score->exponent.visible_reads_keys && !packed &&
                     request->descale_rows == 0;
  const char *const exponents = changes ? "" : hides ? "_hiding" : plain_exponents;
  const char *const of_e4m3 = request->descale_rows > 0 ? "_blocks" : "";
  const bool e4m3 = request->dtype == FT_E4M3, kv_e4m3 = e4m3 || *of_kv;
  const bool marks = request->dropout || slope_varies || has_gradients;
  const char *const marked = !marks ? "_none" : request->score != 0 ? "" : "_registers";
  const struct {
    const char *part, *ending;
  } forms[] = {
      {"pairs", wide}, /* fragments of elements of 32 bits */
      {"fragments", e4m3 ? "_e4m3" : wide},
      {"staging", kv_e4m3 ? "_e4m3" : wide},
      {"kv_fragments", of_kv},
      {"kv_scale", kv_e4m3 ? of_e4m3 : "_none"},
      {"numbers_of_lane", wide},
      {"outputs", *stores_wide ? "_fp32" : wide},
      {"rows_of_o", stores_wide}, /* by mma, likewise below */
      {"rows_of_dq", stores_wide},
      {"epilogue_backward", stores_wide},
      {"roles_end", stores_wide},
      {"sequence", request->ragged ? "_ragged" : paged},
      {"key_rows", paged},
      {"work_list", !request->ragged ? "_none"
                    : shares         ? "_steps"
                                     : ""},
      {"stream_walks", request->ragged ? "_ragged" : ""},
      {"rows", request->ragged ? of_ragged : of_dense}, /* by TMA, likewise below */
      {"rows_of_keys", !request->pages && request->ragged ? "_ragged" : paged},
      {"produce", paged},
      {"rows_of_sequences", request->ragged || request->pages ? "" : "_none"},
      {"tile_rows", request->ragged ? "_ragged" : ""}, /* of a backward */
      {"query_tiles", request->ragged ? "_ragged" : ""},
      {"key_walk", blocks},
      {"query_walk", blocks},
      {"key_order", blocks},
      {"announce", blocks},
      {"dropout", dropout},
      {"dropout_rows", request->dropout && packed ? "_packed" : dropout},
      {"dropout_transposed", dropout},
      {"score", score},
      {"score_function", score},
      {"score_pass", score},
      {"wgmma_exponents", exponents},
      {"score_transposed", score},
      {"sinks", sinks},
      {"e4m3_scale", e4m3 ? of_e4m3 : "_none"},
      {"sink_gradient", sinks},
      {"dq_tickets", ordered},
      {"dq_adds", ordered},
      {"backward_adders", ordered},
      {"captured_sums", has_gradients ? "" : "_none"},
      {"backward_marked", marked}, /* P for dS is not P for dV */
  };
  lua_newtable(state);
  for (int i = 0; i < FT_COUNT(forms); ++i) set_string(state, forms[i].part, forms[i].ending);
}

static void push_fields(lua_State *state, const struct ft_argument_struct *arguments) {
  lua_newtable(state);
  for (const struct ft_argument_field *field = arguments->fields; field->name != NULL; ++field) {
    lua_newtable(state);
    set_string(state, "type", field->type);
    set_string(state, "name", field->name);
    set_string(state, "meaning", field->meaning);
    lua_rawseti(state, -2, (lua_Integer)(field - arguments->fields) + 1);
  }
}

/* The structs of the kernels' arguments by name. */
static void push_arguments(lua_State *state) {
  lua_newtable(state);
  for (const struct ft_argument_struct *arguments = ft_argument_structs; arguments->name != NULL;
       ++arguments) {
    lua_newtable(state);
    set_string(state, "name", arguments->name);
    set_string(state, "meaning", arguments->meaning);
    set_integer(state, "alignment", arguments->alignment);
    set_integer(state, "bytes", (lua_Integer)arguments->bytes);
    push_fields(state, arguments);
    lua_setfield(state, -2, "fields");
    lua_setfield(state, -2, arguments->name);
  }
}

/* "mma_forward.cu.in 9f31..., parts/softmax.cu.in 02ab...": the files used. The engine calls it
 * when everything has been rendered, so that all are known. */
static int parts_text(lua_State *state) {
  const struct ft_render *const job = lua_touserdata(state, lua_upvalueindex(1));
  luaL_Buffer buffer;
  luaL_buffinit(state, &buffer);
  for (int i = 0; i < job->part_count; ++i) {
    const struct ft_digest digest = ft_digest_of(job->parts[i]->text, job->parts[i]->length);
    char hex[FT_DIGEST_HEX];
    ft_digest_hex(&digest, hex);
    if (i > 0) luaL_addstring(&buffer, ", ");
    luaL_addstring(&buffer, job->parts[i]->name);
    luaL_addchar(&buffer, ' ');
    luaL_addlstring(&buffer, hex, 8);
  }
  luaL_pushresult(&buffer);
  return 1;
}

static void push_values(lua_State *state, int engine, const struct ft_render *job) {
  lua_newtable(state);
  push_request(state, job->request);
  set_strict(state, engine, "request");
  push_config(state, job->config);
  set_strict(state, engine, "config");
  push_budget(state, job->config->family, &job->source->budget);
  set_strict(state, engine, "budget");
  push_visibility(state, job->request);
  set_strict(state, engine, "visibility");
  push_score(state, job->score, job->request);
  set_strict(state, engine, "score");
  push_forms(state, job);
  set_strict(state, engine, "forms");
  set_string(state, "schedule", ft_schedule_name(ft_schedule_of(job->request, job->config)));
  push_arguments(state);
  lua_setfield(state, -2, "arguments");
  set_integer(state, "sm", job->arch->sm);
  set_string(state, "target", job->source->target);
  set_string(state, "request_text", job->request_text);
  set_string(state, "config_text", job->config_text);
  set_string(state, "again", job->again);
  lua_pushlightuserdata(state, (void *)(uintptr_t)job);
  lua_pushcclosure(state, parts_text, 1);
  lua_setfield(state, -2, "parts_text");
}

/* read(name) of the engine. A missing part is an error at the line that asks for it: level 1 is the
 * engine, level 2 the template. */
static int read_template(lua_State *state) {
  struct ft_render *const job = lua_touserdata(state, lua_upvalueindex(1));
  const char *const name = luaL_checkstring(state, 1);
  const struct ft_template *const file = ft_template_files_find(ft_lua_files(job->lua), name);
  if (file == NULL) {
    luaL_where(state, 2);
    lua_pushfstring(state, "template '%s' does not exist", name);
    lua_concat(state, 2);
    return lua_error(state);
  }
  int known = 0;
  while (known < job->part_count && job->parts[known] != file) ++known;
  if (known == FT_RENDER_PARTS) luaL_error(state, "more than %d template files", FT_RENDER_PARTS);
  if (known == job->part_count) job->parts[job->part_count++] = file;
  lua_pushlstring(state, file->text, file->length);
  return 1;
}

static int part_named(lua_State *state, const char *const *names, const struct ft_render *job) {
  const char *const file = luaL_checkstring(state, -1);
  int part = 0;
  while (part < job->part_count && strcmp(names[part], file) != 0) ++part;
  if (part == job->part_count) luaL_error(state, "engine.lua: line from unknown file %s", file);
  return part;
}

static int64_t integer_at(lua_State *state, int array, int i) {
  lua_rawgeti(state, array, i);
  const int64_t value = luaL_checkinteger(state, -1);
  lua_pop(state, 1);
  return value;
}

/* The engine's arrays about runs of lines -> source->origins; files are those of job->parts. */
static void take_origins(lua_State *state, int files, int numbers, int counts,
                         const struct ft_render *job) {
  struct ft_source *const source = job->source;
  const int runs = (int)luaL_len(state, files);
  int64_t lines = 0;
  for (int run = 1; run <= runs; ++run) lines += integer_at(state, counts, run);
  source->origins = calloc((size_t)lines + 1, sizeof *source->origins);
  if (source->origins == NULL) {
    luaL_error(state, "no memory for %d line origins", (int)lines);
    return; /* never: luaL_error jumps, but is not declared so */
  }
  const char *names[FT_RENDER_PARTS];
  const char *name = source->names;
  for (int i = 0; i < job->part_count; name += strlen(name) + 1, ++i) names[i] = name;

  for (int run = 1; run <= runs; ++run) {
    lua_rawgeti(state, files, run);
    const int part = part_named(state, names, job);
    lua_pop(state, 1);
    const int first = (int)integer_at(state, numbers, run);
    const int count = (int)integer_at(state, counts, run);
    for (int i = 0; i < count; ++i)
      source->origins[source->line_count++] = (struct ft_origin){names[part], first + i};
  }
}

/* The rendered text, with the names of the parts beside it. */
static void take_text(lua_State *state, int text, const struct ft_render *job) {
  struct ft_source *const source = job->source;
  size_t length, name_bytes = 0;
  const char *const rendered = luaL_checklstring(state, text, &length);
  for (int i = 0; i < job->part_count; ++i) name_bytes += strlen(job->parts[i]->name) + 1;
  source->text = malloc(length + 1);
  source->names = malloc(name_bytes + 1);
  if (source->text == NULL || source->names == NULL) {
    luaL_error(state, "no memory for %d bytes of source", (int)length);
    return;
  }
  memcpy(source->text, rendered, length);
  source->text[length] = '\0';
  source->length = length;
  char *name = source->names;
  for (int i = 0; i < job->part_count; ++i) name = stpcpy(name, job->parts[i]->name) + 1;
}

/* A value with a line break would shift all origins after it. */
static void check_line_count(lua_State *state, const struct ft_source *source) {
  int breaks = 0;
  for (const char *c = source->text; (c = strchr(c, '\n')) != NULL; ++c) ++breaks;
  if (breaks != source->line_count || strlen(source->text) != source->length)
    luaL_error(state, "a template value holds a line break or a NUL byte");
}

/* Runs protected; the job is the argument. */
static int render(lua_State *state) {
  struct ft_render *const job = lua_touserdata(state, 1);
  ft_lua_push_engine(job->lua);
  const int engine = lua_gettop(state);
  lua_getfield(state, engine, "render");
  lua_pushstring(state, job->template_name);
  push_values(state, engine, job);
  lua_pushlightuserdata(state, job);
  lua_pushcclosure(state, read_template, 1);
  lua_call(state, 3, 4);
  const int text = engine + 1, files = engine + 2, numbers = engine + 3, counts = engine + 4;
  take_text(state, text, job);
  take_origins(state, files, numbers, counts, job);
  check_line_count(state, job->source);
  return 0;
}

int ft_render(struct ft_render *job) {
  lua_State *const state = ft_lua_state(job->lua);
  job->part_count = 0;
  lua_pushcfunction(state, render);
  lua_pushlightuserdata(state, job);
  return ft_lua_call(job->lua, 1, 0);
}
