/* request.c: what a valid request is, and what is derived from one.
 * in -> out: struct ft_request -> validity, bucket, kernel class, distance, FLOP count.
 * The text form is in request_text.c. */
#include "generator/request.h"

#include <math.h>

#include "generator/status.h"
#include "generator/visibility.h"

static int validate_enums(const struct ft_request *request) {
  if (request->pass != FT_FORWARD && request->pass != FT_BACKWARD)
    return ft_fail(FT_E_ARGUMENT, "pass is %d; allowed: forward (0), backward (1)",
                   (int)request->pass);
  if (request->dtype != FT_FP16 && request->dtype != FT_BF16)
    return ft_fail(FT_E_ARGUMENT, "dtype is %d; allowed: fp16 (0), bf16 (1)", (int)request->dtype);
  if (request->causal != FT_CAUSAL_NONE && request->causal != FT_CAUSAL_BOTTOM_RIGHT &&
      request->causal != FT_CAUSAL_TOP_LEFT)
    return ft_fail(FT_E_ARGUMENT, "causal is %d; allowed: none (0), bottom-right (1), top-left (2)",
                   (int)request->causal);
  if (request->deterministic && request->pass == FT_FORWARD)
    return ft_fail(FT_E_ARGUMENT, "deterministic is true with pass forward; allowed: false (the "
                                  "forward pass always is; the flag is for backward)");
  return FT_OK;
}

static int validate_head_dim(const char *field, int value) {
  if (value >= 16 && value <= 256 && value % 8 == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "%s is %d; allowed: multiples of 8 from 16 to 256", field, value);
}

static int validate_count(const char *field, int64_t value) {
  if (value >= 1 && value <= INT32_MAX) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "%s is %lld; allowed: 1 to %d", field, (long long)value, INT32_MAX);
}

static int validate_mask(const struct ft_request *request) {
  const int rows = request->mask_rows, cols = request->mask_cols;
  if (rows < 0 || rows % 16 != 0 || (rows == 0 && cols != 0))
    return ft_fail(FT_E_ARGUMENT,
                   "mask_rows is %d; allowed: positive multiples of 16, or 0 with mask_cols", rows);
  if (cols < 0 || cols % 16 != 0 || (cols == 0 && rows != 0))
    return ft_fail(FT_E_ARGUMENT,
                   "mask_cols is %d; allowed: positive multiples of 16, or 0 with mask_rows", cols);
  const double density = request->mask_density;
  if (rows == 0 && density != 1) /* a NaN differs from 1, too */
    return ft_fail(FT_E_ARGUMENT, "mask_density is %g; allowed: 1 when there is no mask", density);
  if (!(density > 0 && density <= 1))
    return ft_fail(FT_E_ARGUMENT, "mask_density is %g; allowed: above 0, at most 1", density);
  return FT_OK;
}

int ft_request_validate(const struct ft_request *request) {
  FT_TRY(validate_enums(request));
  FT_TRY(validate_head_dim("head_dim", request->head_dim));
  FT_TRY(validate_head_dim("head_dim_v", request->head_dim_v));
  FT_TRY(validate_count("heads_kv", request->heads_kv));
  FT_TRY(validate_count("heads_q", request->heads_q));
  if (request->heads_q % request->heads_kv != 0)
    return ft_fail(FT_E_ARGUMENT, "heads_q is %d; allowed: multiples of heads_kv, which is %d",
                   request->heads_q, request->heads_kv);
  FT_TRY(validate_count("batch", request->batch));
  FT_TRY(validate_count("seqlen_q", request->seqlen_q));
  FT_TRY(validate_count("seqlen_k", request->seqlen_k));
  return validate_mask(request);
}

/* Nearest power of two in logarithm, at most 2^30 so that every bucket is a valid request. */
static int64_t round_to_power(double value) {
  const long exponent = lround(log2(value));
  return (int64_t)1 << (exponent < 0 ? 0 : exponent > 30 ? 30 : exponent);
}

struct ft_request ft_request_bucket(const struct ft_request *request) {
  struct ft_request bucket = *request;
  bucket.batch = round_to_power((double)request->batch * request->heads_kv);
  bucket.heads_kv = 1;
  bucket.heads_q = (int)round_to_power((double)request->heads_q / request->heads_kv);
  bucket.seqlen_q = round_to_power((double)request->seqlen_q);
  bucket.seqlen_k = round_to_power((double)request->seqlen_k);
  bucket.mask_density = exp2(round(log2(request->mask_density)));
  return bucket;
}

struct ft_request ft_request_kernel_class(const struct ft_request *request) {
  struct ft_request class = *request;
  class.heads_q = class.heads_kv = 0;
  class.batch = class.seqlen_q = class.seqlen_k = 0;
  class.mask_density = 1;
  return class;
}

static bool same_class(const struct ft_request *a, const struct ft_request *b) {
  return a->pass == b->pass && a->dtype == b->dtype && a->head_dim == b->head_dim &&
         a->head_dim_v == b->head_dim_v && a->causal == b->causal && a->dropout == b->dropout &&
         a->deterministic == b->deterministic && a->mask_rows == b->mask_rows &&
         a->mask_cols == b->mask_cols;
}

static double octaves(double a, double b) {
  return fabs(log2(a) - log2(b));
}

double ft_request_distance(const struct ft_request *a, const struct ft_request *b) {
  if (!same_class(a, b)) return -1;
  const struct ft_request from = ft_request_bucket(a), to = ft_request_bucket(b);
  return octaves((double)from.batch, (double)to.batch) + octaves(from.heads_q, to.heads_q) +
         octaves((double)from.seqlen_q, (double)to.seqlen_q) +
         octaves((double)from.seqlen_k, (double)to.seqlen_k) +
         octaves(from.mask_density, to.mask_density);
}

bool ft_request_tiles_differ(const struct ft_request *request) {
  return ft_visibility_varies(request) || request->mask_rows > 0;
}

double ft_request_flops(const struct ft_request *request) {
  const double heads = (double)request->batch * request->heads_q;
  const double passes = request->pass == FT_BACKWARD ? 2.5 : 1;
  const struct ft_visibility visibility = ft_visibility_of(request);
  return 2 * ft_visible_pairs(&visibility) * (request->head_dim + request->head_dim_v) * heads *
         passes * request->mask_density;
}

int ft_dtype_bytes(enum ft_dtype dtype) {
  switch (dtype) {
  case FT_FP16:
  case FT_BF16: return 2;
  }
  return 0;
}

const char *ft_dtype_name(enum ft_dtype dtype) {
  switch (dtype) {
  case FT_FP16: return "fp16";
  case FT_BF16: return "bf16";
  }
  return "unknown";
}

const char *ft_pass_name(enum ft_pass pass) {
  switch (pass) {
  case FT_FORWARD: return "forward";
  case FT_BACKWARD: return "backward";
  }
  return "unknown";
}
