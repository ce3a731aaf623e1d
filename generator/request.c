/* request.c: what a valid request is, and what is derived from one.
 * in -> out: struct ft_request -> validity, bucket, kernel class, distance, FLOP count.
 * The text form is in request_text.c. */
#include "generator/request.h"

#include <math.h>

#include "generator/request_fields.h"
#include "generator/status.h"
#include "generator/visibility.h"

static int validate_mask(const struct ft_request *request) {
  const int rows = request->mask_rows, cols = request->mask_cols;
  if (rows == 0 && cols != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "mask_rows is 0; allowed: multiples of 16 from 16, or 0 with "
                   "mask_cols, which is %d",
                   cols);
  if (cols == 0 && rows != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "mask_cols is 0; allowed: multiples of 16 from 16, or 0 with "
                   "mask_rows, which is %d",
                   rows);
  if (rows == 0 && request->mask_longest != 1)
    return ft_fail(FT_E_ARGUMENT, "mask_longest is %lld; allowed: 1 when there is no mask",
                   (long long)request->mask_longest);
  const double density = request->mask_density;
  if (rows == 0 && density != 1) /* a NaN differs from 1, too */
    return ft_fail(FT_E_ARGUMENT, "mask_density is %g; allowed: 1 when there is no mask", density);
  if (!(density > 0 && density <= 1))
    return ft_fail(FT_E_ARGUMENT, "mask_density is %g; allowed: above 0, at most 1", density);
  return FT_OK;
}

/* Without a window its sides are -1, or 0 as in a struct of zeros. */
static int validate_window(const struct ft_request *request) {
  const bool of_left = request->window_left > 0;
  const int64_t keys = of_left ? request->window_left : request->window_right;
  if (request->window != FT_WINDOW_NONE || keys <= 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "window_%s is %lld; allowed: -1 when there is no window",
                 of_left ? "left" : "right", (long long)keys);
}

static int validate_dtype_o(const struct ft_request *request) {
  const bool of_e4m3 = request->dtype == FT_E4M3, wide = ft_dtype_is_fp32(request->dtype);
  const int allowed = of_e4m3 ? FT_O_FP16 : wide ? FT_O_DEFAULT : FT_O_FP32;
  if (request->dtype_o == FT_O_DEFAULT || (int)request->dtype_o == allowed) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "dtype_o is %s with dtype %s; allowed: default%s",
                 request->dtype_o == FT_O_FP16 ? "fp16" : "fp32", ft_dtype_name(request->dtype),
                 of_e4m3 ? ", fp16"
                 : wide  ? ""
                         : ", fp32");
}

/* What e4m3 excludes for good, and head dims of whole 16 bytes. */
static int validate_e4m3(const struct ft_request *request) {
  enum { MULTIPLE = 16 };
  if (request->dtype != FT_E4M3) return FT_OK;
  if (request->pass == FT_BACKWARD)
    return ft_fail(FT_E_ARGUMENT, "dtype is e4m3 with pass backward; allowed: fp16, bf16, fp32, "
                                  "tf32");
  if (request->dropout)
    return ft_fail(FT_E_ARGUMENT, "dropout is true with dtype e4m3; allowed: false");
  if (request->head_dim % MULTIPLE == 0 && request->head_dim_v % MULTIPLE == 0) return FT_OK;
  const bool of_v = request->head_dim % MULTIPLE == 0;
  return ft_fail(FT_E_ARGUMENT, "head_dim%s is %d with dtype e4m3; allowed: multiples of 16",
                 of_v ? "_v" : "", of_v ? request->head_dim_v : request->head_dim);
}

/* K and V of 8 bits beside a Q of 16: of a forward, with rows of whole 16 bytes. */
static int validate_kv(const struct ft_request *request) {
  enum { MULTIPLE = 16 };
  if (request->dtype_kv == FT_KV_DEFAULT) return FT_OK;
  if (request->dtype != FT_FP16 && request->dtype != FT_BF16)
    return ft_fail(FT_E_ARGUMENT,
                   "dtype_kv is e4m3 with dtype %s; allowed: default, or dtype fp16 or bf16",
                   ft_dtype_name(request->dtype));
  if (request->pass == FT_BACKWARD)
    return ft_fail(FT_E_ARGUMENT, "dtype_kv is e4m3 with pass backward; allowed: default");
  if (request->dtype_o != FT_O_DEFAULT)
    return ft_fail(FT_E_ARGUMENT, "dtype_o is fp32 with dtype_kv e4m3; allowed: default");
  if (request->head_dim % MULTIPLE == 0 && request->head_dim_v % MULTIPLE == 0) return FT_OK;
  const bool of_v = request->head_dim % MULTIPLE == 0;
  return ft_fail(FT_E_ARGUMENT, "head_dim%s is %d with dtype_kv e4m3; allowed: multiples of 16",
                 of_v ? "_v" : "", of_v ? request->head_dim_v : request->head_dim);
}

/* Blocks of rows are counted from the first row of a head. */
static int validate_descales(const struct ft_request *request) {
  const int rows = request->descale_rows;
  if (rows == 0) return FT_OK;
  if (request->dtype != FT_E4M3)
    return ft_fail(FT_E_ARGUMENT, "descale_rows is %d with dtype %s; allowed: 0, or dtype e4m3",
                   rows, ft_dtype_name(request->dtype));
  if (!request->ragged && request->pages == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "descale_rows is %d with %s; allowed: 0 (sequences of different lengths have a "
                 "descale for each head)",
                 rows, request->ragged ? "ragged true" : "pages");
}

/* A faster choice of e4m3, of scores that nothing but one factor has changed. */
static int validate_fast_exp(const struct ft_request *request) {
  if (!request->fast_exp) return FT_OK;
  if (request->dtype != FT_E4M3)
    return ft_fail(FT_E_ARGUMENT, "fast_exp is true with dtype %s; allowed: false, or dtype e4m3",
                   ft_dtype_name(request->dtype));
  if (request->score != 0)
    return ft_fail(FT_E_ARGUMENT, "fast_exp is true with a score function; allowed: false");
  if (request->descale_rows == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "fast_exp is true with descale_rows %d; allowed: false (it is for "
                 "a descale for each head)",
                 request->descale_rows);
}

static int validate_score(const struct ft_request *request) {
  if (request->score != 0 || request->score_gradients == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "score_gradients is %lld without a score function; allowed: 0",
                 (long long)request->score_gradients);
}

static int validate_ragged(const struct ft_request *request) {
  if (!request->ragged) return FT_OK;
  if (request->mask_rows == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "ragged is true with a mask of %dx%d; allowed: false (a block mask is of one "
                 "length)",
                 request->mask_rows, request->mask_cols);
}

/* A block mask is made for lengths that the host knows; those of paged K and V are on the device.
 */
static int validate_pages(const struct ft_request *request) {
  const int rows = request->pages;
  if (rows == 0) return FT_OK;
  if ((rows & (rows - 1)) != 0)
    return ft_fail(FT_E_ARGUMENT, "pages is %d; allowed: powers of two", rows);
  if (request->pass == FT_BACKWARD)
    return ft_fail(FT_E_ARGUMENT, "pages is %d with pass backward; allowed: 0", rows);
  if (request->mask_rows == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "pages is %d with a mask of %dx%d; allowed: 0 (a block mask is of one length)",
                 rows, request->mask_rows, request->mask_cols);
}

int ft_request_validate(const struct ft_request *request) {
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i)
    FT_TRY(ft_request_check(i, ft_request_get(request, i), false));
  if (request->deterministic && request->pass == FT_FORWARD)
    return ft_fail(FT_E_ARGUMENT, "deterministic is true with pass forward; allowed: false (the "
                                  "forward pass always is; the flag is for backward)");
  if (request->heads_q % request->heads_kv != 0)
    return ft_fail(FT_E_ARGUMENT, "heads_q is %d; allowed: multiples of heads_kv, which is %d",
                   request->heads_q, request->heads_kv);
  FT_TRY(validate_dtype_o(request));
  FT_TRY(validate_e4m3(request));
  FT_TRY(validate_kv(request));
  FT_TRY(validate_descales(request));
  FT_TRY(validate_fast_exp(request));
  FT_TRY(validate_window(request));
  FT_TRY(validate_score(request));
  FT_TRY(validate_ragged(request));
  FT_TRY(validate_pages(request));
  return validate_mask(request);
}

/* Nearest power of two in logarithm, at most 2^30 so that every bucket is a valid request. What is
 * not above 0 stays: it has a meaning of its own. */
static int64_t round_to_power(double value) {
  if (value <= 0) return (int64_t)value;
  const long exponent = lround(log2(value));
  return (int64_t)1 << (exponent < 0 ? 0 : exponent > 30 ? 30 : exponent);
}

struct ft_request ft_request_bucket(const struct ft_request *request) {
  struct ft_request bucket = *request;
  bucket.batch = request->batch * request->heads_kv;
  bucket.heads_q = request->heads_q / request->heads_kv;
  bucket.heads_kv = 1;
  if (request->ragged) { /* each kv head is a sequence more */
    bucket.seqlen_q *= request->heads_kv;
    bucket.seqlen_k *= request->heads_kv;
  }
  ft_visibility_tidy_hints(&bucket);
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i) {
    const struct ft_request_field *const field = ft_request_field(i);
    if (field->part == FT_PART_KERNEL) continue;
    if (field->kind == FT_KIND_SHARE)
      ft_request_set_real(&bucket, i, exp2(round(log2(ft_request_get_real(&bucket, i)))));
    else
      ft_request_set(&bucket, i, round_to_power((double)ft_request_get(&bucket, i)));
  }
  return bucket;
}

struct ft_request ft_request_kernel_class(const struct ft_request *request) {
  struct ft_request class = *request;
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i) {
    const struct ft_request_field *const field = ft_request_field(i);
    if (field->part == FT_PART_SIZE) ft_request_set(&class, i, 0);
    if (field->part == FT_PART_HINT) ft_request_set_real(&class, i, field->fallback);
  }
  return class;
}

static double octaves(double a, double b) {
  return fabs(log2(a) - log2(b));
}

/* For octaves. What has no bound reaches as far as there are keys. */
static double size_of(const struct ft_request *bucket, int field) {
  const int64_t value = ft_request_get(bucket, field);
  return (double)(value < 0 ? bucket->seqlen_k : value > 0 ? value : 1);
}

static bool same_class(const struct ft_request *a, const struct ft_request *b) {
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i)
    if (ft_request_field(i)->part == FT_PART_KERNEL && !ft_request_same(a, b, i)) return false;
  return true;
}

double ft_request_distance(const struct ft_request *a, const struct ft_request *b) {
  if (!same_class(a, b)) return -1;
  const struct ft_request from = ft_request_bucket(a), to = ft_request_bucket(b);
  double distance = 0;
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i) {
    const struct ft_request_field *const field = ft_request_field(i);
    if (ft_request_same(&from, &to, i)) continue;
    if (field->kind == FT_KIND_SHARE)
      distance += octaves(ft_request_get_real(&from, i), ft_request_get_real(&to, i));
    else
      distance += octaves(size_of(&from, i), size_of(&to, i));
  }
  return distance;
}

bool ft_request_tiles_differ(const struct ft_request *request) {
  return ft_visibility_varies(request) || request->mask_rows > 0 || request->ragged ||
         request->pages > 0;
}

struct ft_line_shares ft_line_shares_of(const struct ft_request *request, int64_t lines) {
  const double longest = fmin(1, request->mask_density * (double)request->mask_longest);
  const double rest = (double)lines * request->mask_density - longest;
  return (struct ft_line_shares){longest, lines > 1 ? fmax(0, rest / (double)(lines - 1)) : 0};
}

struct ft_request ft_request_alike(const struct ft_request *request) {
  struct ft_request alike = *request;
  if (!request->ragged || request->batch == 0) return alike;
  alike.seqlen_q = (request->seqlen_q + request->batch - 1) / request->batch;
  alike.seqlen_k = (request->seqlen_k + request->batch - 1) / request->batch;
  return alike;
}

double ft_request_flops(const struct ft_request *request) {
  const double heads = (double)request->batch * request->heads_q;
  const double passes = request->pass == FT_BACKWARD ? 2.5 : 1;
  const struct ft_request alike = ft_request_alike(request);
  const struct ft_visibility visibility = ft_visibility_of(&alike);
  return 2 * ft_visible_pairs(&visibility) * (request->head_dim + request->head_dim_v) * heads *
         passes * request->mask_density;
}

bool ft_dtype_is_fp32(enum ft_dtype dtype) {
  return dtype == FT_FP32 || dtype == FT_TF32;
}

int ft_dtype_mma_cost(enum ft_dtype dtype) {
  return dtype == FT_FP32 ? 6 : dtype == FT_TF32 ? 2 : 1;
}

int ft_dtype_bytes(enum ft_dtype dtype) {
  switch (dtype) {
  case FT_FP16:
  case FT_BF16: return 2;
  case FT_E4M3: return 1;
  case FT_FP32:
  case FT_TF32: return 4;
  }
  return 0;
}

enum ft_dtype ft_operand_dtype(const struct ft_request *request) {
  if (request->dtype == FT_E4M3) return request->dtype_o == FT_O_FP16 ? FT_FP16 : FT_BF16;
  return request->dtype == FT_TF32 ? FT_FP32 : request->dtype;
}

enum ft_dtype ft_output_dtype(const struct ft_request *request) {
  return ft_outputs_are_wide(request) ? FT_FP32 : ft_operand_dtype(request);
}

bool ft_outputs_are_wide(const struct ft_request *request) {
  return request->dtype_o == FT_O_FP32;
}

enum ft_dtype ft_kv_dtype(const struct ft_request *request) {
  return request->dtype_kv == FT_KV_E4M3 ? FT_E4M3 : request->dtype;
}

int64_t ft_descale_blocks(int descale_rows, int64_t rows) {
  return descale_rows == 0 ? 1 : (rows + descale_rows - 1) / descale_rows;
}

static const char *choice_name(int field, int value) {
  for (int i = 0; ft_request_field(field)->choices[i] != NULL; ++i)
    if (i == value) return ft_request_field(field)->choices[i];
  return "unknown";
}

const char *ft_dtype_name(enum ft_dtype dtype) {
  return choice_name(FT_REQUEST_dtype, (int)dtype);
}

const char *ft_pass_name(enum ft_pass pass) {
  return choice_name(FT_REQUEST_pass, (int)pass);
}
