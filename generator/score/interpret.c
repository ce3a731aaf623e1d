/* interpret.c: expressions by number, in float64.
 * in -> out: nodes, positions, scalars, tensors -> values, node by node in their order. */
#include "generator/score/interpret.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/score/numbers.h"
#include "generator/status.h"

int ft_interpreter_open(struct ft_interpreter *interpreter, const struct ft_score *score,
                        const int *roots, int count) {
  const size_t nodes = (size_t)score->expression.count;
  *interpreter = (struct ft_interpreter){.score = score,
                                         .nodes = malloc(nodes * sizeof(int)),
                                         .values = calloc(nodes, sizeof(double))};
  bool *const needed = calloc(nodes, sizeof(bool));
  if (interpreter->nodes == NULL || interpreter->values == NULL || needed == NULL) {
    free(needed);
    ft_interpreter_close(interpreter);
    return ft_fail(FT_E_MEMORY, "no memory to interpret score %s", score->name);
  }
  for (int i = 0; i < count; ++i) needed[roots[i]] = true;
  for (int n = score->expression.count - 1; n >= 0; --n) {
    const struct ft_node *const node = ft_node(&score->expression, n);
    for (int i = 0; needed[n] && i < node->operand_count; ++i) needed[node->operands[i]] = true;
  }
  for (int n = 0; n < score->expression.count; ++n)
    if (needed[n]) interpreter->nodes[interpreter->count++] = n;
  free(needed);
  return FT_OK;
}

void ft_interpreter_close(struct ft_interpreter *interpreter) {
  free(interpreter->nodes);
  free(interpreter->values);
  *interpreter = (struct ft_interpreter){0};
}

static double widened_fp16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? (double)NAN : sign * HUGE_VAL;
  return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(fraction + 1024, exponent - 25));
}

static double widened_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return (double)value;
}

static double element(enum ft_captured_dtype dtype, const void *data, int64_t offset) {
  switch (dtype) {
  case FT_CAPTURED_FP32: return (double)((const float *)data)[offset];
  case FT_CAPTURED_FP16: return widened_fp16(((const uint16_t *)data)[offset]);
  case FT_CAPTURED_BF16: return widened_bf16(((const uint16_t *)data)[offset]);
  case FT_CAPTURED_INT32: return ((const int32_t *)data)[offset];
  case FT_CAPTURED_INT64: return (double)((const int64_t *)data)[offset];
  case FT_CAPTURED_UINT8: return ((const uint8_t *)data)[offset];
  case FT_CAPTURED_BOOL: return ((const uint8_t *)data)[offset] != 0;
  case FT_CAPTURED_DTYPES: break;
  }
  return (double)NAN;
}

int64_t ft_interpreter_offset(const struct ft_interpreter *interpreter,
                              const struct ft_score_inputs *inputs, int read) {
  const struct ft_node *const node = ft_node(&interpreter->score->expression, read);
  const struct ft_captured *const tensor = &inputs->tensors[node->number];
  int64_t offset = 0;
  for (int dim = 0; dim < node->operand_count; ++dim) {
    const double index = interpreter->values[node->operands[dim]];
    const double last = (double)(tensor->extents[dim] - 1);
    offset += (int64_t)fmax(fmin(index, last), 0) * tensor->strides[dim];
  }
  return offset;
}

static double value_of(const struct ft_interpreter *interpreter,
                       const struct ft_score_inputs *inputs, int number) {
  const struct ft_score *const score = interpreter->score;
  const struct ft_node *const node = ft_node(&score->expression, number);
  double operands[3] = {0};
  switch (node->operation) {
  case FT_OP_CONSTANT: return node->value;
  case FT_OP_SYMBOL: return inputs->symbols[node->number];
  case FT_OP_SCALAR: return inputs->scalars[node->number];
  case FT_OP_READ:
    return element(score->tensors[node->number].dtype, inputs->tensors[node->number].data,
                   ft_interpreter_offset(interpreter, inputs, number));
  default: break;
  }
  for (int i = 0; i < node->operand_count && i < 3; ++i)
    operands[i] = interpreter->values[node->operands[i]];
  return ft_operate(node->operation, operands);
}

void ft_interpret_forced(struct ft_interpreter *interpreter, const struct ft_score_inputs *inputs,
                         const struct ft_forced *forced, int count) {
  int next = 0;
  for (int n = 0; n < interpreter->count; ++n) {
    const int node = interpreter->nodes[n];
    const bool is_forced = next < count && forced[next].node == node;
    interpreter->values[node] =
        is_forced ? forced[next++].value : value_of(interpreter, inputs, node);
  }
}

void ft_interpret(struct ft_interpreter *interpreter, const struct ft_score_inputs *inputs) {
  static const struct ft_forced none[1];
  ft_interpret_forced(interpreter, inputs, none, 0);
}

double ft_score_size(const struct ft_expression *expression, int number,
                     const struct ft_score_inputs *inputs) {
  const struct ft_node *const node = ft_node(expression, number);
  double operands[3] = {0};
  switch (node->operation) {
  case FT_OP_CONSTANT: return node->value;
  case FT_OP_SYMBOL: return inputs->symbols[node->number];
  case FT_OP_SCALAR: return inputs->scalars[node->number];
  default: break;
  }
  for (int i = 0; i < node->operand_count && i < 3; ++i)
    operands[i] = ft_score_size(expression, node->operands[i], inputs);
  return ft_operate(node->operation, operands);
}
