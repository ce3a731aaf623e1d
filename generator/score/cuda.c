/* cuda.c: expressions as CUDA C.
 * in -> out: score, its derivatives -> structs and functions, level by level. */
#include "generator/score/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/score/cuda_value.h"
#include "generator/score/lower.h"
#include "generator/status.h"

/* score, visible, slope, those of the exponent; then of each other derivative its own node and the
 * indices of its leaf. */
enum { EXPONENT_ROOTS = 11, GENERAL_EXPONENT = 3, FIRST_ROOTS = GENERAL_EXPONENT + EXPONENT_ROOTS };
enum { ROOTS_OF_ONE = 1 + FT_SCORE_DIMS };
enum { ROOTS = FIRST_ROOTS + FT_DERIVATIVES * ROOTS_OF_ONE };

/* ORDER LEVEL */
static const struct {
  const char *type, *name, *meaning, *parameters;
} levels[] = {
    {"ScoreHead", "head", "a head of a batch entry",
     "const Score &score, const ScoreSizes &sizes, int b, int h, int kv"},
    {"ScoreRow", "row", "query i, whose number as fp32 is i_float",
     "const Score &score, const ScoreHead &head, int i, float i_float"},
    {"ScoreColumn", "column", "key j, whose number as fp32 is j_float",
     "const Score &score, const ScoreHead &head, const Key &key, float j_float"},
};

/* A member for each thing that a derivative is by, in the order of the things. */
static void write_gradients(struct ft_cuda *cuda, const struct ft_derivatives *derivatives) {
  const struct ft_score *const score = cuda->score;
  const uint64_t sources = ft_derivatives_sources(score, derivatives);
  for (int i = 0; i < score->tensor_count; ++i)
    if (sources & ft_source_tensor(i))
      ft_text_add(cuda->text, "  Gradient %s_gradient;\n", score->tensors[i].name);
  for (int i = 0; i < score->scalar_count; ++i)
    if (sources & ft_source_scalar(i))
      ft_text_add(cuda->text, "  Gradient %s_gradient;\n", score->scalars[i].name);
}

static void write_argument(struct ft_cuda *cuda, const struct ft_derivatives *derivatives) {
  const struct ft_score *const score = cuda->score;
  ft_text_add(cuda->text, "// What the score captures.\nstruct __align__(8) Score {\n");
  for (int i = 0; i < score->tensor_count; ++i)
    ft_text_add(cuda->text, "  Captured<%s> %s_;\n", ft_cuda_element(score->tensors[i].dtype),
                score->tensors[i].name);
  for (int i = 0; i < score->scalar_count; ++i)
    ft_text_add(cuda->text, "  %s %s_;\n", ft_value_type_name(score->scalars[i].type),
                score->scalars[i].name);
  if (derivatives != NULL) write_gradients(cuda, derivatives);
  ft_text_add(cuda->text, "};\n\n");
}

static void write_struct(struct ft_cuda *cuda, enum ft_level level) {
  ft_text_add(cuda->text, "// Of %s.\nstruct %s {\n", levels[level].meaning, levels[level].type);
  for (int n = 0; n < cuda->nodes; ++n) {
    const struct ft_node *const node = ft_node(&cuda->score->expression, n);
    if (cuda->kept[n] && ft_level_of(node) == level)
      ft_text_add(cuda->text, "  %s v%d;\n", ft_value_type_name(node->type), n);
    if (!(cuda->has_part[n] & 1 << level)) continue;
    if (level == FT_LEVEL_COLUMN)
      ft_text_add(cuda->text, "  long long a%d;\n", n);
    else
      ft_text_add(cuda->text, "  const %s *a%d;\n",
                  ft_cuda_element(cuda->score->tensors[node->number].dtype), n);
  }
  ft_text_add(cuda->text, "};\n\n");
}

/* The function that fills the struct of a level; ending: of its name. */
static void write_level(struct ft_cuda *cuda, enum ft_level level, const char *ending) {
  const bool of_key = level == FT_LEVEL_COLUMN; /* an int, or a KeyOfStep */
  ft_cuda_enter(cuda, level);
  ft_text_add(cuda->text, "%s__device__ __forceinline__ %s score_%s%s(%s) {\n%s  %s %s;\n",
              of_key ? "template <class Key>\n" : "", levels[level].type, levels[level].name,
              ending, levels[level].parameters, of_key ? "  const int j = key;\n" : "",
              levels[level].type, levels[level].name);
  for (int n = 0; n < cuda->nodes; ++n) {
    const bool own = ft_level_of(ft_node(&cuda->score->expression, n)) == level;
    if (cuda->uses[n] > 0 && own) ft_cuda_write_local(cuda, n);
    if (cuda->kept[n] && own) {
      ft_text_add(cuda->text, "  %s.v%d = ", levels[level].name, n);
      ft_cuda_write_value(cuda, n);
      ft_text_add(cuda->text, ";\n");
    }
    if (cuda->has_part[n] & 1 << level) {
      ft_text_add(cuda->text, "  %s.a%d = ", levels[level].name, n);
      ft_cuda_write_part(cuda, n, level);
      ft_text_add(cuda->text, ";\n");
      if (level == FT_LEVEL_ROW) ft_text_add(cuda->text, "  pin(row.a%d);\n", n);
    }
  }
  ft_text_add(cuda->text, "  return %s;\n}\n\n", levels[level].name);
}

/* Writes a function of one score element that returns `root`. `more` is the text of its arguments
 * after the four levels. */
static void write_root(struct ft_cuda *cuda, const char *type, const char *name, const char *more,
                       int root) {
  ft_cuda_enter_element(cuda, root);
  ft_text_add(cuda->text,
              "__device__ __forceinline__ %s %s(const Score &score, const ScoreHead &head, const "
              "ScoreRow &row,\n    const ScoreColumn &column%s) {\n",
              type, name, more);
  for (int n = 0; n < cuda->nodes; ++n) ft_cuda_write_local(cuda, n);
  ft_text_add(cuda->text, "  return ");
  ft_cuda_write_value(cuda, root);
  ft_text_add(cuda->text, ";\n}\n\n");
}

/* ---- masks of several conditions, of which some go one way along the keys ---- */

/* -1: a comparison that holds for all keys of a step if it does for the first; 1: if it does for
 * the last; 0: anything else. */
static int way_of(const struct ft_cuda *cuda, int condition) {
  const struct ft_node *const node = ft_node(&cuda->score->expression, condition);
  if (node->operation != FT_OP_LT && node->operation != FT_OP_LE) return 0;
  for (int i = 0; i < 2; ++i) {
    const struct ft_node *const side = ft_node(&cuda->score->expression, node->operands[i]);
    if (side->type != FT_VALUE_INT || !ft_cuda_grows_evenly(cuda, node->operands[i])) return 0;
  }
  const int grows = cuda->growth[node->operands[0]] - cuda->growth[node->operands[1]];
  return (grows > 0) - (grows < 0);
}

/* The conditions that a mask function is the conjunction of, as terms of a product. */
struct conditions {
  int count;
  struct ft_text of_step;         /* those that go one way, for the key that decides */
  struct ft_text one_way, others; /* the same, and all others, for a key */
  bool rows[FT_SCORE_NODES];      /* what the others take of a query */
};

/* Marks the values of a query that an element's value is made of. */
static void find_rows(const struct ft_cuda *cuda, int root, bool rows[FT_SCORE_NODES]) {
  bool reached[FT_SCORE_NODES] = {false};
  reached[root] = true;
  for (int n = root; n >= 0; --n) {
    const struct ft_node *const node = ft_node(&cuda->score->expression, n);
    const enum ft_level level = ft_level_of(node);
    rows[n] |= reached[n] && level == FT_LEVEL_ROW;
    for (int i = 0; reached[n] && level == FT_LEVEL_ELEMENT && i < node->operand_count; ++i)
      reached[node->operands[i]] = true;
  }
}

/* Writes a function for each condition. */
static void write_conditions(struct ft_cuda *cuda, int root, struct conditions *conditions) {
  const struct ft_node node = *ft_node(&cuda->score->expression, root);
  if (node.operation == FT_OP_AND) {
    write_conditions(cuda, node.operands[0], conditions);
    write_conditions(cuda, node.operands[1], conditions);
    return;
  }
  const int way = way_of(cuda, root), number = conditions->count++;
  char name[32];
  (void)snprintf(name, sizeof name, "condition_%d", number);
  write_root(cuda, "bool", name, "", root);
  ft_text_add(way != 0 ? &conditions->one_way : &conditions->others,
              " & %s(score, head, row, column)", name);
  if (way != 0)
    ft_text_add(&conditions->of_step, " & %s(score, head, row, %s)", name,
                way > 0 ? "last" : "first");
  else
    find_rows(cuda, root, conditions->rows);
}

static void write_product(struct ft_text *text, const char *name, const char *parameters,
                          const struct ft_text *terms) {
  ft_text_add(text, "__device__ __forceinline__ bool %s(%s) {\n  return true%s;\n}\n", name,
              parameters, terms->length > 0 ? terms->data : "");
}

/* Writes GOES_ONE_WAY and what comes with it: see generator/score/cuda.h. */
static void write_besides(struct ft_cuda *cuda, int root) {
  static const char of_key[] = "const Score &score, const ScoreHead &head, const ScoreRow &row,\n"
                               "    const ScoreColumn &column",
                    of_keys[] = "const Score &score, const ScoreHead &head, const ScoreRow &row,\n"
                                "    const ScoreColumn &first, const ScoreColumn &last";
  struct conditions conditions = {.count = 0};
  struct ft_text alike = FT_TEXT_INIT;
  write_conditions(cuda, root, &conditions);
  for (int n = 0; n < cuda->nodes; ++n)
    if (conditions.rows[n]) {
      const bool is_bool = ft_node(&cuda->score->expression, n)->type == FT_VALUE_BOOL;
      const char *const type = is_bool ? "int" : ""; /* warps exchange 32 bits */
      ft_text_add(&alike, " & are_same(%s(upper.v%d), %s(lower.v%d))", type, n, type, n);
    }
  ft_text_add(cuda->text, "constexpr bool GOES_ONE_WAY = %s;\n",
              conditions.one_way.length > 0 ? "true" : "false");
  ft_text_add(cuda->text,
              "template <class Value> __device__ __forceinline__ bool are_same(Value upper, Value "
              "lower) {\n  const Value first = __shfl_sync(0xffffffffu, upper, 0);\n  return "
              "__all_sync(0xffffffffu, upper == first & lower == first);\n}\n");
  write_product(cuda->text, "holds_of_keys", of_keys, &conditions.of_step);
  write_product(cuda->text, "is_visible_one_way", of_key, &conditions.one_way);
  write_product(cuda->text, "is_visible_besides", of_key, &conditions.others);
  write_product(cuda->text, "rows_are_alike", "const ScoreRow &upper, const ScoreRow &lower",
                &alike);
  ft_text_free(&conditions.of_step);
  ft_text_free(&conditions.one_way);
  ft_text_free(&conditions.others);
  ft_text_free(&alike);
}

/* Writes is_inside: whether, for one query and key, every index that makes a read dense lies within
 * its extent. */
static void write_is_inside(struct ft_cuda *cuda) {
  static const char parameters[] = "const Score &score, const ScoreHead &head, const ScoreRow &row,"
                                   "\n    const ScoreColumn &column";
  for (int n = 0; n < cuda->nodes; ++n)
    if (cuda->can_be_dense[n]) {
      const struct ft_node *const read = ft_node(&cuda->score->expression, n);
      const int dim = ft_cuda_key_index(cuda, n);
      char name[40];
      (void)snprintf(name, sizeof name, "key_index_%d", n);
      write_root(cuda, "int", name, "", read->operands[dim]);
    }
  ft_text_add(cuda->text, "__device__ __forceinline__ bool is_inside(%s) {\n  return true",
              parameters);
  for (int n = 0; n < cuda->nodes; ++n)
    if (cuda->can_be_dense[n])
      ft_text_add(cuda->text,
                  " & (unsigned(key_index_%d(score, head, row, column)) <= "
                  "unsigned(score.%s_.last[%d]))",
                  n, cuda->score->tensors[ft_node(&cuda->score->expression, n)->number].name,
                  ft_cuda_key_index(cuda, n));
  ft_text_add(cuda->text, ";\n}\n\n");
}

/* Where a row of the tile begins, and the exponent by elements of it that are at hand. */
static void write_tile(struct ft_cuda *cuda, int tile, int root) {
  const int tensor = ft_node(&cuda->score->expression, tile)->number;
  const char *const element = ft_cuda_element(cuda->score->tensors[tensor].dtype);
  ft_cuda_enter(cuda, FT_LEVEL_ELEMENT);
  ft_text_add(
      cuda->text,
      "typedef %s TileElement;\n\n__device__ __forceinline__ const TileElement "
      "*tile_row(const Score &score, const ScoreHead &head,\n    const ScoreRow &row, const "
      "ScoreColumn &column) {\n  return ",
      element);
  ft_cuda_write_address(cuda, tile);
  ft_text_add(cuda->text, ";\n}\n\n");
  cuda->of_tile = tile;
  write_root(cuda, "float", "tile_exponent_of", ", const ScorePlace &place", root);
  cuda->of_tile = 0;
}

/* Where a tensor has its rows side by side as TMA wants them, and where in it a step's begin.
 * ft_score_maps_tile is the twin of can_be_mapped. */
static void write_tile_rows(struct ft_cuda *cuda, const struct ft_exponent *exponent) {
  const struct ft_node *const node = ft_node(&cuda->score->expression, exponent->tile);
  const char *const name = cuda->score->tensors[node->number].name;
  int others = 0;
  ft_text_add(cuda->text,
              "__device__ __forceinline__ bool can_be_mapped(const Score &score) {\n  return "
              "reinterpret_cast<u64>(score.%s_.data) %% 16 == 0 && score.%s_.stride[%d] == 1",
              name, name, exponent->tile_key);
  for (int dim = 0; dim < node->operand_count; ++dim)
    if (dim != exponent->tile_key)
      ft_text_add(cuda->text, " &&\n         score.%s_.stride[%d] %% 8 == 0", name, dim);
  ft_text_add(cuda->text,
              " && score.%s_.stride[%d] > 0;\n}\n\n"
              "__device__ __forceinline__ int last_tile_row(const Score &score) { return "
              "score.%s_.last[%d]; }\n\n",
              name, exponent->tile_row, name, exponent->tile_row);
  write_root(cuda, "int", "tile_key", "", node->operands[exponent->tile_key]);
  for (int dim = 0; dim < node->operand_count; ++dim) {
    if (dim == exponent->tile_key || dim == exponent->tile_row) continue;
    char index[32];
    (void)snprintf(index, sizeof index, "tile_index_%d", others);
    write_root(cuda, "int", index, "", node->operands[dim]);
    ft_text_add(cuda->text,
                "__device__ __forceinline__ int tile_place_%d(const Score &score, const ScoreHead "
                "&head, const ScoreRow &row,\n    const ScoreColumn &column) {\n  return "
                "score.%s_.stride[%d] == 0 ? 0 : int(within(%s(score, head, row, column), "
                "score.%s_.last[%d]));\n}\n\n",
                others++, name, dim, index, name, dim);
  }
  for (; others < 2; ++others)
    ft_text_add(cuda->text,
                "__device__ __forceinline__ int tile_place_%d(const Score &, const ScoreHead &, "
                "const ScoreRow &, const ScoreColumn &) {\n  return 0;\n}\n\n",
                others);
}

/* Writes what a kernel needs for dense reads: is_dense says whether the elements lie side by side
 * in memory; is_inside is asked for the first and the last key of a step. If both hold, the kernel
 * calls score_column_dense and dense_exponent_of, in which the addresses of a step differ by
 * constants. */
static void write_dense(struct ft_cuda *cuda, const struct ft_exponent *exponent, int root) {
  int count = 0;
  ft_text_add(cuda->text, "__device__ __forceinline__ bool is_dense(const Score &score) {\n"
                          "  return true");
  for (int n = 0; n < cuda->nodes; ++n) {
    if (!cuda->can_be_dense[n]) continue;
    const char *const name =
        cuda->score->tensors[ft_node(&cuda->score->expression, n)->number].name;
    ft_text_add(cuda->text, " && score.%s_.stride[%d] == 1", name, ft_cuda_key_index(cuda, n));
    count += 1;
  }
  ft_text_add(cuda->text, ";\n}\nconstexpr bool CAN_BE_DENSE = %s;\n\n",
              count > 0 ? "true" : "false");
  cuda->dense = true;
  write_level(cuda, FT_LEVEL_COLUMN, "_dense");
  write_is_inside(cuda);
  cuda->inverse = exponent->has_sigmoid ? exponent->sigmoid : 0;
  write_root(cuda, "float", "dense_exponent_of", ", const ScorePlace &place", root);
  cuda->inverse = 0;
  if (exponent->tile != 0) write_tile(cuda, exponent->tile, root);
  if (exponent->tile_has_rows) write_tile_rows(cuda, exponent);
  cuda->dense = false;
}

/* derivative_N, index_N_DIM and what they are made of, place_N: where the leaf's gradient lies. */
static void write_derivative(struct ft_cuda *cuda, int number, int leaf, const int *roots) {
  const struct ft_node node = *ft_node(&cuda->score->expression, leaf);
  char name[32];
  (void)snprintf(name, sizeof name, "derivative_%d", number);
  write_root(cuda, "float", name, ", float s", roots[0]);
  for (int dim = 0; dim < node.operand_count; ++dim) {
    (void)snprintf(name, sizeof name, "index_%d_%d", number, dim);
    write_root(cuda, "int", name, ", float s", roots[1 + dim]);
  }
  ft_text_add(cuda->text,
              "__device__ __forceinline__ long long place_%d(const Score &score, const ScoreHead "
              "&head, const ScoreRow &row,\n    const ScoreColumn &column, float s) {\n  return 0",
              number);
  for (int dim = 0; dim < node.operand_count; ++dim) {
    const char *const tensor = cuda->score->tensors[node.number].name;
    ft_text_add(cuda->text,
                " +\n      within(index_%d_%d(score, head, row, column, s), score.%s_.last[%d]) * "
                "score.%s_gradient.stride[%d]",
                number, dim, tensor, dim, tensor, dim);
  }
  ft_text_add(cuda->text, ";\n}\n\n");
}

/* ORDER EXPONENT */
static void write_exponent(struct ft_cuda *cuda, const struct ft_exponent *exponent,
                           const int *roots) {
  static const char place[] = ", const ScorePlace &place";
  write_root(cuda, "float", "sigmoid_argument", place, roots[3]);
  write_root(cuda, "float", "first_x", place, roots[2]);
  cuda->inverse = exponent->has_sigmoid ? roots[4] : 0;
  write_root(cuda, "float", "exponent_of", place, roots[0]);
  write_root(cuda, "float", "sided_exponent_of", place, roots[1]);
  cuda->inverse = 0;
  if (!exponent->adds_by_key) return;
  write_root(cuda, "float", "keyless_exponent_of", place, roots[5]);
  write_root(cuda, "float", "sided_keyless_exponent_of", place, roots[6]);
  write_root(cuda, "float", "key_slope", place, roots[7]);
  write_root(cuda, "float", "sided_key_slope", place, roots[8]);
  write_root(cuda, "float", "key_term", place, roots[9]);
  write_root(cuda, "float", "key_unit", place, roots[10]);
}

static int collect_roots(const struct ft_score *score, const struct ft_derivatives *derivatives,
                         const struct ft_exponent *exponent, int *roots) {
  int count = 0;
  roots[count++] = score->score;
  roots[count++] = score->visible;
  roots[count++] = derivatives != NULL ? derivatives->by_s : 0;
  const struct ft_exponent of = exponent != NULL ? *exponent : (struct ft_exponent){0};
  const int of_exponent[EXPONENT_ROOTS] = {of.general,       of.sided,     of.first_x,
                                           of.argument,      of.sigmoid,   of.keyless,
                                           of.sided_keyless, of.key_slope, of.sided_key_slope,
                                           of.key_term,      of.key_unit}; /* ORDER EXPONENT */
  for (int i = 0; i < EXPONENT_ROOTS; ++i) roots[count++] = of_exponent[i];
  for (int i = 0; derivatives != NULL && i < derivatives->count; ++i) {
    const struct ft_node *const leaf = ft_node(&score->expression, derivatives->others[i].leaf);
    roots[count++] = derivatives->others[i].node;
    for (int dim = 0; dim < FT_SCORE_DIMS; ++dim)
      roots[count++] = dim < leaf->operand_count ? leaf->operands[dim] : 0;
  }
  return count;
}

/* Whether each node is contained in the one with this root. */
static void find_contained(const struct ft_cuda *cuda, int root, bool reached[FT_SCORE_NODES]) {
  memset(reached, 0, FT_SCORE_NODES * sizeof *reached);
  reached[root] = true;
  for (int n = root; n >= 0; --n) {
    const struct ft_node *const node = ft_node(&cuda->score->expression, n);
    for (int i = 0; reached[n] && i < node->operand_count; ++i) reached[node->operands[i]] = true;
  }
}

/* The read of a tile, and whether its rows are those of the tensor. */
static void take_tile(const struct ft_cuda *cuda, struct ft_exponent *exponent, int read) {
  const struct ft_expression *const expression = &cuda->score->expression;
  const struct ft_node *const node = ft_node(expression, read);
  int rows = 0, others = 0;
  exponent->tile = read;
  exponent->tile_key = ft_cuda_key_index(cuda, read);
  for (int dim = 0; dim < node->operand_count; ++dim) {
    const struct ft_node *const index = ft_node(expression, node->operands[dim]);
    if (dim == exponent->tile_key) continue;
    if (index->operation == FT_OP_SYMBOL && index->number == FT_SYMBOL_I) {
      exponent->tile_row = dim;
      rows += 1;
    } else {
      others += ft_level_of(index) > FT_LEVEL_HEAD;
    }
  }
  exponent->tile_has_rows = rows == 1 && others == 0;
}

/* Marks the reads that the exponent with this root contains and that can be dense, and says which
 * of them there are. */
static void mark_dense(struct ft_cuda *cuda, struct ft_exponent *exponent, int root) {
  bool reached[FT_SCORE_NODES];
  find_contained(cuda, root, reached);
  for (int n = root; n >= 0; --n) {
    const struct ft_node *const node = ft_node(&cuda->score->expression, n);
    cuda->can_be_dense[n] = reached[n] && ft_cuda_key_index(cuda, n) >= 0;
    if (!cuda->can_be_dense[n]) continue;
    const int index = node->operands[ft_cuda_key_index(cuda, n)];
    if (ft_cuda_is_of_tile(cuda, n)) take_tile(cuda, exponent, n);
    if (ft_level_of(ft_node(&cuda->score->expression, index)) == FT_LEVEL_ELEMENT)
      exponent->reads_distances = true;
  }
}

/* Marks the reads of keys that can be dense in a mask function that is alone. */
static void mark_dense_visible(struct ft_cuda *cuda, struct ft_exponent *exponent, int root) {
  bool reached[FT_SCORE_NODES], of_keys = false, of_both = false;
  find_contained(cuda, root, reached);
  for (int n = root; n >= 0; --n) {
    const struct ft_node *const node = ft_node(&cuda->score->expression, n);
    if (!reached[n] || node->operation != FT_OP_READ) continue;
    of_both |= ft_level_of(node) == FT_LEVEL_ELEMENT;
    if (ft_level_of(node) != FT_LEVEL_COLUMN || ft_cuda_key_index(cuda, n) < 0) continue;
    cuda->can_be_dense[n] = of_keys = true;
  }
  exponent->visible_reads_keys = of_keys && !of_both;
}

/* Begins a text with the argument and what is computed for each level. exponent: the one of which
 * the roots contain parts, or NULL. Caller frees. */
static int begin(struct ft_cuda **begun, struct ft_score *score,
                 const struct ft_derivatives *derivatives, struct ft_exponent *exponent, int *roots,
                 int count, struct ft_text *text) {
  FT_TRY(ft_score_lower(&score->expression, roots, count));
  struct ft_cuda *const cuda = calloc(1, sizeof *cuda);
  if (cuda == NULL) return ft_fail(FT_E_MEMORY, "no memory to emit score %s", score->name);
  cuda->score = score;
  cuda->text = text;
  cuda->nodes = score->expression.count;
  ft_cuda_find_growth(cuda);
  if (exponent != NULL) mark_dense(cuda, exponent, roots[GENERAL_EXPONENT]);
  if (exponent != NULL && ft_node(&score->expression, roots[0])->operation == FT_OP_SYMBOL)
    mark_dense_visible(cuda, exponent, roots[1]);
  cuda->by_rows = exponent != NULL && exponent->tile_has_rows ? exponent->tile : 0;
  ft_cuda_plan(cuda, roots, count);
  write_argument(cuda, derivatives);
  for (int level = FT_LEVEL_HEAD; level < FT_LEVEL_ELEMENT; ++level) {
    write_struct(cuda, (enum ft_level)level);
    write_level(cuda, (enum ft_level)level, "");
  }
  *begun = cuda;
  return FT_OK;
}

int ft_score_emit_visible(struct ft_score *score, struct ft_text *text,
                          struct ft_range_values *values) {
  struct ft_cuda *cuda;
  int root = score->visible;
  FT_TRY(begin(&cuda, score, NULL, NULL, &root, 1, text));
  write_root(cuda, "bool", "is_visible", "", root);
  *values = ft_cuda_write_ranges(cuda, root, "visible");
  free(cuda);
  return ft_text_status(text);
}

int ft_score_emit(struct ft_score *score, const struct ft_derivatives *derivatives,
                  struct ft_exponent *exponent, struct ft_text *text) {
  struct ft_cuda *cuda;
  int roots[ROOTS];
  int lowered = score->score;
  if (exponent != NULL) {
    FT_TRY(ft_score_lower(&score->expression, &lowered, 1));
    FT_TRY(ft_score_exponent(score, lowered, exponent));
  }
  const int count = collect_roots(score, derivatives, exponent, roots);
  FT_TRY(begin(&cuda, score, derivatives, exponent, roots, count, text));
  /* It needs the uses as they were planned; write_root counts them anew. */
  if (exponent != NULL) write_dense(cuda, exponent, roots[GENERAL_EXPONENT]);
  write_root(cuda, "float", "score_of", ", float s", roots[0]);
  write_root(cuda, "bool", "is_visible", "", roots[1]);
  if (exponent != NULL && exponent->visible_reads_keys) write_besides(cuda, roots[1]);
  if (derivatives != NULL) write_root(cuda, "float", "slope_of", ", float s", roots[2]);
  if (exponent != NULL) write_exponent(cuda, exponent, roots + GENERAL_EXPONENT);
  for (int i = 0; derivatives != NULL && i < derivatives->count; ++i)
    write_derivative(cuda, i, derivatives->others[i].leaf, roots + FIRST_ROOTS + i * ROOTS_OF_ONE);
  free(cuda);
  return ft_text_status(text);
}
