/* cuda_value.c: one value of an expression as CUDA C.
 * in -> out: node -> text of its value, nested as deep as values are used once. */
#include "generator/score/cuda_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ft_node *node_at(const struct ft_cuda *cuda, int number) {
  return ft_node(&cuda->score->expression, number);
}

static enum ft_level level_at(const struct ft_cuda *cuda, int number) {
  return ft_level_of(node_at(cuda, number));
}

/* At hand in every function as it stands. */
static bool is_at_hand(const struct ft_node *node) {
  return node->operation == FT_OP_CONSTANT || node->operation == FT_OP_SCALAR;
}

const char *ft_cuda_element(enum ft_captured_dtype dtype) {
  /* ORDER CAPTURED */
  static const char *const elements[] = {"float",     "fp16",          "bf16", "int",
                                         "long long", "unsigned char", "bool"};
  return elements[dtype];
}

/* The function that is being written takes it. */
static bool is_given(const struct ft_cuda *cuda, int number) {
  return number != 0 && (number == cuda->inverse || number == cuda->of_tile);
}

/* ---- plan ---- */

/* `user` needs `number`, in a function of `level`. */
static void need(struct ft_cuda *cuda, int number, enum ft_level level) {
  if (is_at_hand(node_at(cuda, number))) return;
  if (level_at(cuda, number) == level)
    cuda->uses[number] += 1;
  else
    cuda->kept[number] = true;
}

/* A read's index makes its part of the address where the index is computed. */
static void need_indices(struct ft_cuda *cuda, int number) {
  const struct ft_node *const node = node_at(cuda, number);
  const enum ft_level own = ft_level_of(node);
  for (int i = 0; i < node->operand_count; ++i) {
    const enum ft_level level = level_at(cuda, node->operands[i]);
    if (level != own) cuda->has_part[number] |= (unsigned char)(1 << level);
    need(cuda, node->operands[i], level);
  }
}

static void need_operands(struct ft_cuda *cuda, int number) {
  const struct ft_node *const node = node_at(cuda, number);
  if (node->operation == FT_OP_READ) {
    need_indices(cuda, number);
    return;
  }
  for (int i = 0; i < node->operand_count; ++i) need(cuda, node->operands[i], ft_level_of(node));
}

void ft_cuda_plan(struct ft_cuda *cuda, const int *roots, int count) {
  for (int i = 0; i < count; ++i) need(cuda, roots[i], FT_LEVEL_ELEMENT);
  for (int n = 0; n < cuda->nodes; ++n) {
    if (!cuda->can_be_dense[n]) continue;
    need(cuda, node_at(cuda, n)->operands[ft_cuda_key_index(cuda, n)], FT_LEVEL_ELEMENT);
  }
  const struct ft_node *const by_rows = node_at(cuda, cuda->by_rows);
  for (int i = 0; i < by_rows->operand_count; ++i)
    need(cuda, by_rows->operands[i], FT_LEVEL_ELEMENT);
  for (int n = cuda->nodes - 1; n >= 0; --n)
    if (cuda->uses[n] > 0 || cuda->kept[n]) need_operands(cuda, n);
}

void ft_cuda_enter(struct ft_cuda *cuda, enum ft_level level) {
  cuda->level = level;
  memset(cuda->local, 0, sizeof cuda->local);
}

void ft_cuda_enter_element(struct ft_cuda *cuda, int root) {
  ft_cuda_enter(cuda, FT_LEVEL_ELEMENT);
  memset(cuda->uses, 0, sizeof cuda->uses);
  if (level_at(cuda, root) == FT_LEVEL_ELEMENT) cuda->uses[root] = 1;
  for (int n = root; n >= 0; --n) {
    const struct ft_node *const node = node_at(cuda, n);
    for (int i = 0; cuda->uses[n] > 0 && !is_given(cuda, n) && i < node->operand_count; ++i)
      if (level_at(cuda, node->operands[i]) == FT_LEVEL_ELEMENT) cuda->uses[node->operands[i]] += 1;
  }
}

/* ---- values ---- */

static void write_constant(struct ft_cuda *cuda, const struct ft_node *node) {
  const float value = (float)node->value;
  if (node->type == FT_VALUE_BOOL) {
    ft_text_add(cuda->text, "%s", node->value != 0 ? "true" : "false");
  } else if (node->type == FT_VALUE_INT) {
    ft_text_add(cuda->text, node->value > INT32_MIN ? "%.0f" : "(-2147483647 - 1)", node->value);
  } else if (isnan(value)) {
    ft_text_add(cuda->text, "__int_as_float(0x7fffffff)");
  } else if (isinf(value)) {
    ft_text_add(cuda->text, "__int_as_float(0x%s)", value > 0 ? "7f800000" : "ff800000");
  } else {
    char digits[40];
    (void)snprintf(digits, sizeof digits, "%.9g", (double)value);
    ft_text_add(cuda->text, strpbrk(digits, ".e") == NULL ? "%s.f" : "%sf", digits);
  }
}

static void write_symbol(struct ft_cuda *cuda, const struct ft_node *node) {
  const char *const name = ft_symbol_name((enum ft_symbol)node->number);
  const bool is_size = node->number >= FT_SYMBOL_NQ && node->number <= FT_SYMBOL_SCALE;
  const bool is_of_place = node->number > FT_SYMBOL_SCALE;
  ft_text_add(cuda->text, is_size ? "sizes.%s" : is_of_place ? "place.%s" : "%s", name);
}

/* (a op b), or op(a, b): pieces before, between and behind the operands. */
struct form {
  enum ft_operation operation;
  const char *before, *between, *behind;
};

static void write_form(struct ft_cuda *cuda, const struct form *form, const struct ft_node *node) {
  ft_text_add(cuda->text, "%s", form->before);
  for (int i = 0; i < node->operand_count; ++i) {
    if (i > 0) ft_text_add(cuda->text, "%s", form->between);
    ft_cuda_write_value(cuda, node->operands[i]);
  }
  ft_text_add(cuda->text, "%s", form->behind);
}

/* The same for bools, integers and floats. Bools are joined without a branch. */
static const struct form forms[] = {
    {FT_OP_FLOAT, "float(", "", ")"},
    {FT_OP_ADD, "(", " + ", ")"},
    {FT_OP_SUB, "(", " - ", ")"},
    {FT_OP_MUL, "(", " * ", ")"},
    {FT_OP_DIV, "(", " / ", ")"},
    {FT_OP_FLOOR_DIV, "floor_divided(", ", ", ")"},
    {FT_OP_MOD, "modulo(", ", ", ")"},
    {FT_OP_MIN, "min(", ", ", ")"},
    {FT_OP_MAX, "max(", ", ", ")"},
    {FT_OP_FLOOR, "floor_to_int(", "", ")"},
    {FT_OP_EXP, "exp_of(", "", ")"},
    {FT_OP_LOG, "log_of(", "", ")"},
    {FT_OP_TANH, "tanh_of(", "", ")"},
    {FT_OP_SIGMOID, "sigmoid_of(", "", ")"},
    {FT_OP_SIGMOID2, "sigmoid2_of(", "", ")"},
    {FT_OP_LT, "(", " < ", ")"},
    {FT_OP_LE, "(", " <= ", ")"},
    {FT_OP_EQ, "(", " == ", ")"},
    {FT_OP_AND, "(", " & ", ")"},
    {FT_OP_OR, "(", " | ", ")"},
    {FT_OP_NOT, "(!", "", ")"},
};

static const struct form int_forms[] = {{FT_OP_NEG, "opposite(", "", ")"},
                                        {FT_OP_ABS, "absolute(", "", ")"}};

static const struct form float_forms[] = {{FT_OP_NEG, "(-", "", ")"},
                                          {FT_OP_ABS, "fabsf(", "", ")"},
                                          {FT_OP_MIN, "lesser(", ", ", ")"},
                                          {FT_OP_MAX, "greater(", ", ", ")"}};

/* Of what is never negative by what is above 0. */
static const struct form natural_forms[] = {{FT_OP_FLOOR_DIV, "(", " / ", ")"},
                                            {FT_OP_MOD, "(", " % ", ")"}};

static const struct form *find_form(const struct form *table, size_t count,
                                    enum ft_operation operation) {
  for (size_t i = 0; i < count; ++i)
    if (table[i].operation == operation) return &table[i];
  return NULL;
}

static const struct form *form_of(const struct ft_cuda *cuda, const struct ft_node *node) {
  const struct form *form = NULL;
  if (node->type == FT_VALUE_FLOAT)
    form = find_form(float_forms, sizeof float_forms / sizeof float_forms[0], node->operation);
  if (node->type == FT_VALUE_INT)
    form = find_form(int_forms, sizeof int_forms / sizeof int_forms[0], node->operation);
  const bool divides = node->operation == FT_OP_FLOOR_DIV || node->operation == FT_OP_MOD;
  if (divides && node_at(cuda, node->operands[0])->least >= 0 &&
      node_at(cuda, node->operands[1])->least >= 1)
    form = find_form(natural_forms, 2, node->operation);
  return form != NULL ? form : find_form(forms, sizeof forms / sizeof forms[0], node->operation);
}

/* ---- reads ---- */

/* Whether the tensor's declared extents say that the index is none beyond them. */
static bool is_within(const struct ft_node *index, const struct ft_node *extent) {
  static const int sizes[][2] = {{FT_SYMBOL_B, FT_SYMBOL_BATCH},
                                 {FT_SYMBOL_H, FT_SYMBOL_HEADS},
                                 {FT_SYMBOL_KV, FT_SYMBOL_KV_HEADS}};
  if (index->least >= 0 && index->most < extent->least) return true;
  if (index->operation != FT_OP_SYMBOL || extent->operation != FT_OP_SYMBOL) return false;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i)
    if (index->number == sizes[i][0] && extent->number == sizes[i][1]) return true;
  return false;
}

static void write_index(struct ft_cuda *cuda, const struct ft_node *read, int dim) {
  const struct ft_score_tensor *const tensor = &cuda->score->tensors[read->number];
  const struct ft_node *const index = node_at(cuda, read->operands[dim]);
  const struct ft_node *const extent = node_at(cuda, tensor->extents[dim]);
  if (is_within(index, extent)) {
    ft_cuda_write_value(cuda, read->operands[dim]);
    return;
  }
  ft_text_add(cuda->text, index->least >= 0 ? "min(" : "max(min(");
  ft_cuda_write_value(cuda, read->operands[dim]);
  ft_text_add(cuda->text, ", score.%s_.last[%d])%s", tensor->name, dim,
              index->least >= 0 ? "" : ", 0)");
}

/* What the indices of a level add to an address; returns how many there are. */
static int write_offsets(struct ft_cuda *cuda, int number, enum ft_level level, const char *first) {
  const struct ft_node *const read = node_at(cuda, number);
  const struct ft_score_tensor *const tensor = &cuda->score->tensors[read->number];
  const int key_index = ft_cuda_key_index(cuda, number);
  int count = 0;
  for (int dim = 0; dim < read->operand_count; ++dim) {
    if (level_at(cuda, read->operands[dim]) != level) continue;
    if (cuda->dense && cuda->can_be_dense[number] && dim == key_index) {
      ft_text_add(cuda->text, "%s", count++ == 0 ? first : " + ");
      ft_cuda_write_value(cuda, read->operands[dim]);
      continue;
    }
    ft_text_add(cuda->text, "%sunsigned(", count++ == 0 ? first : " + ");
    write_index(cuda, read, dim);
    ft_text_add(cuda->text, ") * score.%s_.stride[%d]", tensor->name, dim);
  }
  return count;
}

/* Where the parts of lower levels lead. */
static void write_base(struct ft_cuda *cuda, int read, enum ft_level level) {
  const unsigned parts = cuda->has_part[read];
  if (level == FT_LEVEL_ELEMENT && parts & 1 << FT_LEVEL_ROW)
    ft_text_add(cuda->text, "row.a%d", read);
  else if (level != FT_LEVEL_HEAD && parts & 1 << FT_LEVEL_HEAD)
    ft_text_add(cuda->text, "head.a%d", read);
  else
    ft_text_add(cuda->text, "score.%s_.data",
                cuda->score->tensors[node_at(cuda, read)->number].name);
}

void ft_cuda_write_part(struct ft_cuda *cuda, int read, enum ft_level level) {
  if (level == FT_LEVEL_COLUMN) {
    write_offsets(cuda, read, level, "");
    return;
  }
  write_base(cuda, read, level);
  write_offsets(cuda, read, level, " + ");
}

/* What `growth` says of a value that does not grow by the same integer from key to key. */
enum { NOT_EVEN = 100 };

static int growth_of(const struct ft_cuda *cuda, int number) {
  const struct ft_node *const node = node_at(cuda, number);
  if ((node->sources & ft_source_symbol(FT_SYMBOL_J)) == 0) return 0;
  if (node->operation == FT_OP_SYMBOL) return 1;
  const bool adds = node->operation == FT_OP_ADD, subtracts = node->operation == FT_OP_SUB;
  if (!adds && !subtracts) return NOT_EVEN;
  const int a = cuda->growth[node->operands[0]], b = cuda->growth[node->operands[1]];
  const int sum = adds ? a + b : a - b;
  return a == NOT_EVEN || b == NOT_EVEN || abs(sum) >= NOT_EVEN ? NOT_EVEN : sum;
}

void ft_cuda_find_growth(struct ft_cuda *cuda) {
  for (int n = 0; n < cuda->nodes; ++n) cuda->growth[n] = growth_of(cuda, n);
}

bool ft_cuda_grows_evenly(const struct ft_cuda *cuda, int node) {
  return cuda->growth[node] != NOT_EVEN;
}

int ft_cuda_key_index(const struct ft_cuda *cuda, int read) {
  const struct ft_node *const node = node_at(cuda, read);
  const uint64_t of_score = ft_source_symbol(FT_SYMBOL_S) | ft_source_symbol(FT_SYMBOL_RAW);
  int found = -1;
  if (node->operation != FT_OP_READ || node->sources & of_score) return -1;
  for (int dim = 0; dim < node->operand_count; ++dim) {
    const uint64_t sources = node_at(cuda, node->operands[dim])->sources;
    if ((sources & ft_source_symbol(FT_SYMBOL_J)) == 0) continue;
    const int grows = cuda->growth[node->operands[dim]];
    if (found >= 0 || (grows != 1 && grows != -1)) return -1;
    found = dim;
  }
  return found;
}

bool ft_cuda_is_of_tile(const struct ft_cuda *cuda, int read) {
  const struct ft_node *const node = node_at(cuda, read);
  const int key_index = ft_cuda_key_index(cuda, read);
  if (key_index < 0 || ft_level_of(node) != FT_LEVEL_ELEMENT) return false;
  const enum ft_captured_dtype dtype = cuda->score->tensors[node->number].dtype;
  const int index = node->operands[key_index];
  return (dtype == FT_CAPTURED_FP16 || dtype == FT_CAPTURED_BF16) && cuda->growth[index] == 1 &&
         level_at(cuda, index) == FT_LEVEL_COLUMN;
}

void ft_cuda_write_address(struct ft_cuda *cuda, int read) {
  const enum ft_level level = ft_level_of(node_at(cuda, read));
  write_base(cuda, read, level);
  if (level == FT_LEVEL_ELEMENT && cuda->has_part[read] & 1 << FT_LEVEL_COLUMN)
    ft_text_add(cuda->text, " + column.a%d", read);
  write_offsets(cuda, read, level, " + ");
}

static void write_read(struct ft_cuda *cuda, int read) {
  ft_text_add(cuda->text, "captured(");
  ft_cuda_write_address(cuda, read);
  ft_text_add(cuda->text, ")");
}

/* ---- */

static bool is_position(const struct ft_node *node) {
  return node->operation == FT_OP_SYMBOL &&
         (node->number == FT_SYMBOL_I || node->number == FT_SYMBOL_J);
}

/* j // c and j % c, c > 0. The key has them at less cost than its number where it is one of a step.
 */
static bool write_part_of_key(struct ft_cuda *cuda, const struct ft_node *node) {
  if (node->operation != FT_OP_FLOOR_DIV && node->operation != FT_OP_MOD) return false;
  const struct ft_node *const a = node_at(cuda, node->operands[0]);
  const struct ft_node *const b = node_at(cuda, node->operands[1]);
  const bool is_key = a->operation == FT_OP_SYMBOL && a->number == FT_SYMBOL_J;
  if (!is_key || b->operation != FT_OP_CONSTANT || b->value < 1) return false;
  ft_text_add(cuda->text, "%s<%.0f>(key)",
              node->operation == FT_OP_MOD ? "remainder_of" : "quotient_of", b->value);
  return true;
}

static void compute(struct ft_cuda *cuda, int number) {
  const struct ft_node *const node = node_at(cuda, number);
  if (node->operation == FT_OP_FLOAT && is_position(node_at(cuda, node->operands[0]))) {
    write_symbol(cuda, node_at(cuda, node->operands[0]));
    ft_text_add(cuda->text, "_float");
    return;
  }
  switch (node->operation) {
  case FT_OP_CONSTANT: write_constant(cuda, node); return;
  case FT_OP_SYMBOL: write_symbol(cuda, node); return;
  case FT_OP_SCALAR:
    ft_text_add(cuda->text, "score.%s_", cuda->score->scalars[node->number].name);
    return;
  case FT_OP_READ: write_read(cuda, number); return;
  case FT_OP_WHERE:
    ft_text_add(cuda->text, "(");
    ft_cuda_write_value(cuda, node->operands[0]);
    ft_text_add(cuda->text, " ? ");
    ft_cuda_write_value(cuda, node->operands[1]);
    ft_text_add(cuda->text, " : ");
    ft_cuda_write_value(cuda, node->operands[2]);
    ft_text_add(cuda->text, ")");
    return;
  default:
    if (!write_part_of_key(cuda, node)) write_form(cuda, form_of(cuda, node), node);
  }
}

void ft_cuda_write_value(struct ft_cuda *cuda, int number) {
  static const char *const structs[] = {"head", "row", "column"}; /* ORDER LEVEL */
  const struct ft_node *const node = node_at(cuda, number);
  const enum ft_level level = ft_level_of(node);
  if (is_given(cuda, number))
    ft_text_add(cuda->text, number == cuda->inverse ? "place.inverse" : "place.of_tile");
  else if (!is_at_hand(node) && level != cuda->level)
    ft_text_add(cuda->text, "%s.v%d", structs[level], number);
  else if (cuda->local[number])
    ft_text_add(cuda->text, "v%d", number);
  else
    compute(cuda, number);
}

void ft_cuda_write_local(struct ft_cuda *cuda, int number) {
  const struct ft_node *const node = node_at(cuda, number);
  const int uses = cuda->uses[number] + cuda->kept[number];
  if (is_at_hand(node) || is_given(cuda, number) || node->operation == FT_OP_SYMBOL ||
      ft_level_of(node) != cuda->level || uses < 2)
    return;
  ft_text_add(cuda->text, "  const %s v%d = ", ft_value_type_name(node->type), number);
  compute(cuda, number);
  ft_text_add(cuda->text, ";\n");
  cuda->local[number] = true;
}
