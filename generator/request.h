/* request.h: what is asked for (noun 1 of 5): one attention problem, with no word on how.
 * in -> out: text or fields -> validated struct; struct -> canonical text, bucket, kernel class.
 *
 * Text form, in the order of request.def, defaults left out:
 *   forward bf16 d128 dv64 hq32 hkv8 b2 nq4096 nk2048 causal dropout mask=128x128@0.25 */
#ifndef GENERATOR_REQUEST_H
#define GENERATOR_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "generator/text.h"

enum ft_pass { FT_FORWARD, FT_BACKWARD };
enum ft_dtype { FT_FP16, FT_BF16, FT_E4M3, FT_FP32, FT_TF32 };
enum ft_dtype_o { FT_O_DEFAULT, FT_O_FP16, FT_O_FP32 };
enum ft_dtype_kv { FT_KV_DEFAULT, FT_KV_E4M3 }; /* the request's dtype; e4m3 */
enum ft_causal {
  FT_CAUSAL_NONE,
  FT_CAUSAL_BOTTOM_RIGHT, /* key j visible to query i when j <= i + nk - nq, as FlashAttention */
  FT_CAUSAL_TOP_LEFT      /* key j visible to query i when j <= i (PyTorch) */
};
enum ft_window { /* key j visible to query i when i + shift - left <= j <= i + shift + right */
                 FT_WINDOW_NONE,
                 FT_WINDOW_BOTTOM_RIGHT, /* shift = nk - nq */
                 FT_WINDOW_TOP_LEFT      /* shift = 0 */
};

/* The fields are in request.def, with what is allowed. In a kernel class the sizes of a run are 0.
 */
struct ft_request {
#define FIELD(kind, type, name, ...) type name;
#include "generator/request.def"
#undef FIELD
};

/* FT_E_ARGUMENT naming the field, its value and what is allowed. */
int ft_request_validate(const struct ft_request *request);

/* Appends the canonical text. Two requests are equal when their texts are. */
void ft_request_print(const struct ft_request *request, struct ft_text *text);

/* Parses the text form; words may come in any order, each once; validates. Absent: forward, bf16,
 * dv = d, one head, batch 1, nk = nq. `d` and `nq` are required. Errors name the word. */
int ft_request_parse(struct ft_request *request, const char *text);

/* The bucket a config is chosen for: batch x kv heads, group, lengths and hints each rounded (in
 * logarithm) to a power of two, everything the kernel is specialised for kept. A valid request. */
struct ft_request ft_request_bucket(const struct ft_request *request);

/* What the emitted text depends on: sizes are 0, hints are left out. Prints without them: "forward
 * bf16 d128 causal". */
struct ft_request ft_request_kernel_class(const struct ft_request *request);

/* Distance between two buckets of one kernel class in octaves (sum over the rounded quantities),
 * or a negative number when the kernel classes differ. */
double ft_request_distance(const struct ft_request *a, const struct ft_request *b);

/* Floating-point operations in the convention of FlashAttention: 2 nq nk (d + dv) per batch and
 * query head, times 2.5 for backward, only visible pairs (visibility.h), times the mask's density.
 */
double ft_request_flops(const struct ft_request *request);

/* A ragged request with the lengths of its mean sequence, as if all were alike; another as it is.
 */
struct ft_request ft_request_alike(const struct ft_request *request);

/* What a mask's lines keep of their blocks by the hints, as shares: one line, the longest, and each
 * other one of so many. Lines are rows of blocks, or columns. */
struct ft_line_shares {
  double longest, others;
};
struct ft_line_shares ft_line_shares_of(const struct ft_request *request, int64_t lines);

/* Whether some query tiles walk over more key tiles than others: where queries see different keys,
 * under a mask, in sequences of different lengths. */
bool ft_request_tiles_differ(const struct ft_request *request);

/* Whether elements are fp32: multiplied as such or, faster, rounded to TF32. */
bool ft_dtype_is_fp32(enum ft_dtype dtype);
/* How long mma.sync takes for a product, in products of 16-bit numbers: TF32 has half their rate,
 * and a product of fp32 is three of TF32. */
int ft_dtype_mma_cost(enum ft_dtype dtype);
/* Bytes of one element. */
int ft_dtype_bytes(enum ft_dtype dtype);
/* Of what the pass writes: O, or dQ, dK and dV. Q has the request's dtype. */
enum ft_dtype ft_output_dtype(const struct ft_request *request);
/* Of what a kernel calls an element. */
enum ft_dtype ft_operand_dtype(const struct ft_request *request);
/* Whether outputs are fp32 and operands are not. */
bool ft_outputs_are_wide(const struct ft_request *request);
/* Of K and V. */
enum ft_dtype ft_kv_dtype(const struct ft_request *request);
/* How many descales a head of so many rows has. */
int64_t ft_descale_blocks(int descale_rows, int64_t rows);
const char *ft_dtype_name(enum ft_dtype dtype);
const char *ft_pass_name(enum ft_pass pass);

#endif
