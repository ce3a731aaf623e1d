/* request.h: what is asked for (noun 1 of 5): one attention problem, with no word on how.
 * in -> out: text or fields -> validated struct; struct -> canonical text, bucket, kernel class.
 *
 * Text form, in this order, defaults left out:
 *   forward bf16 d128 dv64 hq32 hkv8 b2 nq4096 nk4096 causal dropout mask=128x128@0.25
 * causal is `causal` (bottom-right) or `causal=top-left`; `deterministic` only for backward. */
#ifndef GENERATOR_REQUEST_H
#define GENERATOR_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "generator/text.h"

enum ft_pass { FT_FORWARD, FT_BACKWARD };
enum ft_dtype { FT_FP16, FT_BF16 };
enum ft_causal {
  FT_CAUSAL_NONE,
  FT_CAUSAL_BOTTOM_RIGHT, /* key j visible to query i when j <= i + nk - nq, as FlashAttention */
  FT_CAUSAL_TOP_LEFT      /* key j visible to query i when j <= i (PyTorch) */
};

struct ft_request {
  enum ft_pass pass;
  enum ft_dtype dtype;
  int head_dim;   /* of Q and K: 16..256, a multiple of 8 */
  int head_dim_v; /* of V and O: 16..256, a multiple of 8 */
  int heads_q;    /* a multiple of heads_kv; 0 in a kernel class */
  int heads_kv;
  int64_t batch;
  int64_t seqlen_q; /* 1 .. 2^31 - 1 */
  int64_t seqlen_k;
  enum ft_causal causal;
  bool dropout;
  bool deterministic;
  int mask_rows; /* rows of one block of the block-sparse mask, a multiple of 16; 0: no mask */
  int mask_cols;
  double mask_density; /* share of blocks kept, 0 < density <= 1: steers the choice of a config
                          only; 1 when there is no mask */
};

/* FT_E_ARGUMENT naming the field, its value and what is allowed. */
int ft_request_validate(const struct ft_request *request);

/* Appends the canonical text. Two requests are equal when their texts are. */
void ft_request_print(const struct ft_request *request, struct ft_text *text);

/* Parses the text form; words may come in any order, each once; validates. Absent: forward, bf16,
 * dv = d, one head, batch 1, nk = nq. `d` and `nq` are required. Errors name the word. */
int ft_request_parse(struct ft_request *request, const char *text);

/* The bucket a config is chosen for: batch x kv heads, group, lengths and density each rounded (in
 * logarithm) to a power of two, everything the kernel is specialised for kept. A valid request. */
struct ft_request ft_request_bucket(const struct ft_request *request);

/* What the emitted text depends on: lengths, batch, heads and density cleared. Prints without them:
 * "forward bf16 d128 causal". */
struct ft_request ft_request_kernel_class(const struct ft_request *request);

/* Distance between two buckets of one kernel class in octaves (sum over the rounded quantities),
 * or a negative number when the kernel classes differ. */
double ft_request_distance(const struct ft_request *a, const struct ft_request *b);

/* Floating-point operations in the convention of FlashAttention: 2 nq nk (d + dv) per batch and
 * query head, times 2.5 for backward, only visible pairs (visibility.h), times the mask's density.
 */
double ft_request_flops(const struct ft_request *request);

/* Whether some query tiles walk over more key tiles than others: where queries see different keys,
 * or under a mask. */
bool ft_request_tiles_differ(const struct ft_request *request);

/* Bytes of one element of Q, K, V, O. */
int ft_dtype_bytes(enum ft_dtype dtype);
const char *ft_dtype_name(enum ft_dtype dtype);
const char *ft_pass_name(enum ft_pass pass);

#endif
