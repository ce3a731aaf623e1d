/* score.h: a score function and a mask function, as a Lua text states them.
 * in -> out: name and text -> expressions of `score` and `visible`, what they capture, a digest.
 * The language is in README.md. */
#ifndef GENERATOR_SCORE_SCORE_H
#define GENERATOR_SCORE_SCORE_H

#include <stddef.h>

#include "generator/digest.h"
#include "generator/score/expression.h"
#include "generator/text.h"

enum { FT_SCORE_NAME = 64 };

/* ORDER CAPTURED */
enum ft_captured_dtype {
  FT_CAPTURED_FP32,
  FT_CAPTURED_FP16,
  FT_CAPTURED_BF16,
  FT_CAPTURED_INT32,
  FT_CAPTURED_INT64, /* its values fit into 32 bits */
  FT_CAPTURED_UINT8,
  FT_CAPTURED_BOOL, /* a byte; true: not 0 */
  FT_CAPTURED_DTYPES
};

/* A number of a run. */
struct ft_score_scalar {
  char name[FT_SCORE_NAME];
  enum ft_value_type type; /* int or float */
};

/* A tensor of a run. Its extents are at least the values of the nodes `extents`, which depend on
 * sizes and scalars alone. */
struct ft_score_tensor {
  char name[FT_SCORE_NAME];
  enum ft_captured_dtype dtype;
  int dims;
  int extents[FT_SCORE_DIMS];
};

struct ft_score {
  char name[FT_SCORE_NAME]; /* of the text, for messages */
  struct ft_expression expression;
  struct ft_score_scalar scalars[FT_SCORE_SCALARS];
  int scalar_count;
  struct ft_score_tensor tensors[FT_SCORE_TENSORS];
  int tensor_count;
  int score;               /* node, a float; the symbol s where the text states no score */
  int visible;             /* node, a bool; the constant true where it states none */
  struct ft_digest digest; /* of the canonical text (print.h) */
};

/* FT_E_ARGUMENT with "name:line: what is wrong" when the text is no score function; FT_E_MEMORY.
 * The text's own limits are those of a template (lua_sandbox.h). */
int ft_score_read(struct ft_score *score, const char *name, const char *text, size_t length);
void ft_score_free(struct ft_score *score);

const char *ft_captured_dtype_name(enum ft_captured_dtype dtype);
int ft_captured_dtype_bytes(enum ft_captured_dtype dtype);
/* What a read gives. */
enum ft_value_type ft_captured_dtype_type(enum ft_captured_dtype dtype);

#endif
