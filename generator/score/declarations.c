/* declarations.c: what a score's Lua text captures, and what it states.
 * in -> out: scalar(), tensor(), reads of tensors -> rows of struct ft_score, nodes. */
#include "generator/score/declarations.h"

#include <ctype.h>
#include <lauxlib.h>
#include <string.h>

#include "generator/score/handles.h"
#include "generator/score/simplify.h"

/* ORDER CAPTURED */
static const struct {
  const char *name;
  int bytes;
  enum ft_value_type type;
} dtypes[FT_CAPTURED_DTYPES + 1] = {{"fp32", 4, FT_VALUE_FLOAT}, {"fp16", 2, FT_VALUE_FLOAT},
                                    {"bf16", 2, FT_VALUE_FLOAT}, {"int32", 4, FT_VALUE_INT},
                                    {"int64", 8, FT_VALUE_INT},  {"uint8", 1, FT_VALUE_INT},
                                    {"bool", 1, FT_VALUE_BOOL},  {NULL, 0, FT_VALUE_BOOL}};

const char *ft_captured_dtype_name(enum ft_captured_dtype dtype) {
  return dtypes[dtype].name;
}

int ft_captured_dtype_bytes(enum ft_captured_dtype dtype) {
  return dtypes[dtype].bytes;
}

enum ft_value_type ft_captured_dtype_type(enum ft_captured_dtype dtype) {
  return dtypes[dtype].type;
}

/* ---- names ---- */

static bool is_name(const char *name) {
  size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
  return length > 0 && length < FT_SCORE_NAME && name[length] == '\0' &&
         isalpha((unsigned char)name[0]);
}

/* Whether the name means something in the text already. */
static bool is_reserved(const char *name) {
  static const char *const words[] = {"score",  "visible", "scalar", "tensor", "inf",   "nan",
                                      "math",   "ipairs",  "pairs",  "error",  "break", "do",
                                      "else",   "elseif",  "end",    "false",  "for",   "function",
                                      "goto",   "if",      "in",     "local",  "nil",   "repeat",
                                      "return", "then",    "true",   "until",  "while"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i)
    if (strcmp(words[i], name) == 0) return true;
  for (int i = 0; i < FT_OPERATIONS; ++i)
    if (strcmp(ft_operation_text((enum ft_operation)i), name) == 0) return true;
  for (int i = 0; i < FT_SYMBOLS; ++i)
    if (strcmp(ft_symbol_name((enum ft_symbol)i), name) == 0) return true;
  return false;
}

static bool is_taken(const struct ft_score *score, const char *name) {
  for (int i = 0; i < score->scalar_count; ++i)
    if (strcmp(score->scalars[i].name, name) == 0) return true;
  for (int i = 0; i < score->tensor_count; ++i)
    if (strcmp(score->tensors[i].name, name) == 0) return true;
  return false;
}

static void take_name(lua_State *state, const struct ft_score *score, const char *kind,
                      char name[FT_SCORE_NAME]) {
  if (lua_type(state, 1) != LUA_TSTRING || !is_name(lua_tostring(state, 1)))
    luaL_error(state,
               "%s '%s' has a wrong name; allowed: letters, digits and underscores, %d at "
               "most, a letter first",
               kind, luaL_tolstring(state, 1, NULL), FT_SCORE_NAME - 1);
  const char *const given = lua_tostring(state, 1);
  if (is_reserved(given)) luaL_error(state, "%s '%s' is a word of the language", kind, given);
  if (is_taken(score, given)) luaL_error(state, "'%s' is declared twice", given);
  memcpy(name, given, strlen(given) + 1);
}

/* ---- scalars ---- */

static int declare_scalar(lua_State *state) {
  struct ft_score *const score = ft_handle_score(state);
  struct ft_score_scalar scalar = {.type = FT_VALUE_FLOAT};
  take_name(state, score, "scalar", scalar.name);
  const char *const type = luaL_optstring(state, 2, "float");
  if (strcmp(type, "int") == 0)
    scalar.type = FT_VALUE_INT;
  else if (strcmp(type, "float") != 0)
    return luaL_error(state, "scalar '%s' has type '%s'; allowed: float, int", scalar.name, type);
  if (score->scalar_count == FT_SCORE_SCALARS)
    return luaL_error(state, "scalar '%s' is one too many; allowed: %d", scalar.name,
                      FT_SCORE_SCALARS);
  const int number = score->scalar_count++;
  score->scalars[number] = scalar;
  ft_handle_push(state, ft_expression_add(&score->expression,
                                          (struct ft_node){.operation = FT_OP_SCALAR,
                                                           .type = scalar.type,
                                                           .number = number,
                                                           .sources = ft_source_scalar(number)}));
  return 1;
}

/* ---- tensors ---- */

/* Names of a tensor's dtypes, for a message. */
static const char *push_dtype_names(lua_State *state) {
  lua_pushliteral(state, "");
  for (int i = 0; i < FT_CAPTURED_DTYPES; ++i) {
    lua_pushfstring(state, i == 0 ? "%s" : ", %s", dtypes[i].name);
    lua_concat(state, 2);
  }
  return lua_tostring(state, -1);
}

static enum ft_captured_dtype take_dtype(lua_State *state, const char *tensor) {
  const char *const given = luaL_optstring(state, 2, "");
  for (int i = 0; i < FT_CAPTURED_DTYPES; ++i)
    if (strcmp(dtypes[i].name, given) == 0) return (enum ft_captured_dtype)i;
  luaL_error(state, "tensor '%s' has dtype '%s'; allowed: %s", tensor, given,
             push_dtype_names(state));
  return FT_CAPTURED_FP32; /* never: luaL_error jumps */
}

/* The extent of a dimension depends on sizes and scalars. */
static int take_extent(lua_State *state, const struct ft_score *score, const char *tensor,
                       int dim) {
  static const uint64_t positions = (uint64_t)1 << FT_SYMBOL_S | (uint64_t)1 << FT_SYMBOL_B |
                                    (uint64_t)1 << FT_SYMBOL_H | (uint64_t)1 << FT_SYMBOL_KV |
                                    (uint64_t)1 << FT_SYMBOL_I | (uint64_t)1 << FT_SYMBOL_J;
  const int node = ft_handle_node(state, dim + 3, tensor, dim + 1);
  const struct ft_node *const extent = ft_node(&score->expression, node);
  uint64_t varies = positions;
  for (int i = 0; i < score->tensor_count; ++i) varies |= ft_source_tensor(i);
  if (extent->type != FT_VALUE_INT || extent->sources & varies)
    luaL_error(state,
               "extent %d of tensor '%s' is no size; allowed: integers made of nq, nk, batch, "
               "heads, kv_heads, scalars and numbers",
               dim + 1, tensor);
  if (extent->most < 1)
    luaL_error(state, "extent %d of tensor '%s' is never above 0", dim + 1, tensor);
  return node;
}

static int declare_tensor(lua_State *state) {
  struct ft_score *const score = ft_handle_score(state);
  struct ft_score_tensor tensor = {.dims = lua_gettop(state) - 2};
  take_name(state, score, "tensor", tensor.name);
  tensor.dtype = take_dtype(state, tensor.name);
  if (tensor.dims < 1 || tensor.dims > FT_SCORE_DIMS)
    return luaL_error(state, "tensor '%s' has %d dimensions; allowed: 1 to %d", tensor.name,
                      tensor.dims, FT_SCORE_DIMS);
  if (score->tensor_count == FT_SCORE_TENSORS)
    return luaL_error(state, "tensor '%s' is one too many; allowed: %d", tensor.name,
                      FT_SCORE_TENSORS);
  for (int dim = 0; dim < tensor.dims; ++dim)
    tensor.extents[dim] = take_extent(state, score, tensor.name, dim);
  int *const handle = lua_newuserdatauv(state, sizeof *handle, 0);
  *handle = score->tensor_count;
  luaL_setmetatable(state, FT_HANDLE_TENSOR);
  score->tensors[score->tensor_count++] = tensor;
  return 1;
}

/* tensor(index, ...) */
static int read_tensor(lua_State *state) {
  struct ft_score *const score = ft_handle_score(state);
  const int number = *(const int *)luaL_checkudata(state, 1, FT_HANDLE_TENSOR);
  const struct ft_score_tensor *const tensor = &score->tensors[number];
  const int given = lua_gettop(state) - 1;
  if (given != tensor->dims)
    return luaL_error(state, "tensor '%s' has %d dimensions; %d indices are given", tensor->name,
                      tensor->dims, given);
  struct ft_node read = {.operation = FT_OP_READ,
                         .type = ft_captured_dtype_type(tensor->dtype),
                         .operand_count = tensor->dims,
                         .number = number,
                         .most = tensor->dtype == FT_CAPTURED_UINT8 ? 255 : 0,
                         .sources = ft_source_tensor(number)};
  for (int i = 0; i < tensor->dims; ++i) {
    read.operands[i] = ft_handle_node(state, i + 2, tensor->name, i + 1);
    const enum ft_value_type type = ft_node(&score->expression, read.operands[i])->type;
    if (type != FT_VALUE_INT)
      return luaL_error(state,
                        "index %d of tensor '%s' is %s; allowed: integers (floor makes one "
                        "of a float)",
                        i + 1, tensor->name, ft_value_type_name(type));
  }
  ft_handle_push(state, ft_expression_add(&score->expression, read));
  return 1;
}

/* ---- what the text states ---- */

static void state_score(lua_State *state, struct ft_score *score) {
  const int node = ft_handle_node(state, 3, "score", 1);
  if (ft_node(&score->expression, node)->type == FT_VALUE_BOOL)
    luaL_error(state, "'score' is bool; allowed: numbers");
  score->score = ft_as_float(&score->expression, node);
}

static void state_visible(lua_State *state, struct ft_score *score) {
  const int node = ft_handle_node(state, 3, "visible", 1);
  const struct ft_node *const visible = ft_node(&score->expression, node);
  if (visible->type != FT_VALUE_BOOL)
    luaL_error(state, "'visible' is %s; allowed: bools", ft_value_type_name(visible->type));
  if (visible->sources & ft_source_symbol(FT_SYMBOL_S))
    luaL_error(state, "'visible' depends on s; a score hides a key by -inf");
  score->visible = node;
}

static int assign(lua_State *state) {
  struct ft_score *const score = ft_handle_score(state);
  const char *const name = luaL_tolstring(state, 2, NULL);
  int *const stated = strcmp(name, "score") == 0     ? &score->score
                      : strcmp(name, "visible") == 0 ? &score->visible
                                                     : NULL;
  if (stated == NULL)
    return luaL_error(state,
                      "'%s' is no result of a score text; allowed: score, visible (make it "
                      "local)",
                      name);
  if (*stated >= 0) return luaL_error(state, "'%s' is stated twice", name);
  if (stated == &score->score)
    state_score(state, score);
  else
    state_visible(state, score);
  return 0;
}

static int unknown_name(lua_State *state) {
  return luaL_error(state, "unknown name '%s'", luaL_tolstring(state, 2, NULL));
}

static void set_function(lua_State *state, struct ft_score *score, const char *name,
                         lua_CFunction run) {
  lua_pushlightuserdata(state, score);
  lua_pushcclosure(state, run, 1);
  lua_setfield(state, -2, name);
}

void ft_declarations_open(lua_State *state, struct ft_score *score) {
  static const char *const plain[] = {"math", "ipairs", "pairs", "error"};
  for (size_t i = 0; i < sizeof plain / sizeof plain[0]; ++i) {
    lua_getglobal(state, plain[i]);
    lua_setfield(state, -2, plain[i]);
  }
  set_function(state, score, "scalar", declare_scalar);
  set_function(state, score, "tensor", declare_tensor);
  luaL_newmetatable(state, FT_HANDLE_TENSOR);
  set_function(state, score, "__call", read_tensor);
  lua_pop(state, 1);
  lua_newtable(state);
  set_function(state, score, "__index", unknown_name);
  lua_setmetatable(state, -2);
  /* The text's own table is empty, so that an assignment to a name of the language is seen. */
  lua_newtable(state);
  lua_newtable(state);
  lua_rotate(state, -3, -1);
  lua_setfield(state, -2, "__index");
  set_function(state, score, "__newindex", assign);
  lua_setmetatable(state, -2);
}
