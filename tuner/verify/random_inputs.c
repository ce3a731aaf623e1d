/* random_inputs.c: seeded random tensors and masks on the host.
 * in -> out: seed -> elements of a dtype, bitmaps. Gigabytes of input must not keep a GPU waiting:
 * normal numbers are drawn once for a block, and larger tensors are put together from pieces of it
 * taken at random places. */
#include "tuner/verify/random_inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/shape.h"

enum { BLOCK = 1 << 20, SHORT_BLOCK = 1 << 15 }; /* elements; a piece is a quarter */

uint64_t ft_random_next(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

/* Two normals from one draw (Box and Muller). */
static void normal_pair(uint64_t *state, float pair[2]) {
  const uint64_t bits = ft_random_next(state);
  const float u = ((float)(bits >> 40) + 0.5f) * 0x1p-24f;
  const float angle = (float)(bits & 0xFFFFFF) * (float)(2 * M_PI / (1 << 24));
  const float radius = sqrtf(-2 * logf(u));
  pair[0] = radius * cosf(angle);
  pair[1] = radius * sinf(angle);
}

/* Numbers of e4m3 as patterns of bf16. */
static uint16_t pattern_of(enum ft_dtype dtype, float value) {
  if (dtype == FT_FP16) return ft_to_dtype(dtype, (double)value);
  if (dtype == FT_E4M3) return pattern_of(FT_BF16, ft_from_e4m3(ft_to_e4m3(value)));
  const float rounded = ft_round_to_dtype(dtype, value);
  uint32_t bits;
  memcpy(&bits, &rounded, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static void set(void *to, enum ft_dtype dtype, int64_t n, float value) {
  if (ft_dtype_is_fp32(dtype))
    ((float *)to)[n] = value;
  else
    ((uint16_t *)to)[n] = pattern_of(dtype, value);
}

static void fill_normal(void *to, enum ft_dtype dtype, int64_t count, uint64_t *state) {
  for (int64_t n = 0; n < count; n += 2) {
    float pair[2];
    normal_pair(state, pair);
    set(to, dtype, n, pair[0]);
    if (n + 1 < count) set(to, dtype, n + 1, pair[1]);
  }
}

static int make_tensor(void **tensor, enum ft_dtype dtype, int64_t count, int64_t block,
                       uint64_t seed) {
  uint64_t state = seed;
  const size_t bytes = ft_dtype_is_fp32(dtype) ? sizeof(float) : sizeof(uint16_t);
  char *const made = malloc((size_t)count * bytes);
  *tensor = made;
  if (!made)
    return ft_fail(FT_E_MEMORY, "no memory for a tensor of %lld elements", (long long)count);
  const int64_t drawn = count < block ? count : block, piece = block / 4;
  fill_normal(made, dtype, drawn, &state);
  for (int64_t n = drawn; n < count; n += piece) {
    const int64_t length = count - n < piece ? count - n : piece;
    const int64_t from = (int64_t)(ft_random_next(&state) % (uint64_t)(block - piece));
    memcpy(made + (size_t)n * bytes, made + (size_t)from * bytes, (size_t)length * bytes);
  }
  return FT_OK;
}

int ft_random_tensor(void **tensor, enum ft_dtype dtype, int64_t count, uint64_t seed) {
  return make_tensor(tensor, dtype, count, BLOCK, seed);
}

int ft_random_pieces(void **tensor, enum ft_dtype dtype, int64_t count, uint64_t seed) {
  return make_tensor(tensor, dtype, count, SHORT_BLOCK, seed);
}

void ft_random_make_coarse(void *tensor, enum ft_dtype dtype, int64_t count) {
  const enum ft_dtype kept_as = ft_kept_dtype(dtype);
  for (int64_t n = 0; n < count; n++)
    set(tensor, dtype, n, roundf((float)ft_number(kept_as, tensor, n) * 64) / 64);
}

void ft_random_make_e4m3(uint16_t *tensor, enum ft_dtype dtype, int64_t count) {
  enum { PATTERNS = 1 << 16 };
  uint16_t rounded[PATTERNS];
  for (int n = 0; n < PATTERNS; n++) {
    const float value = (float)ft_from_dtype(dtype, (uint16_t)n);
    rounded[n] = pattern_of(dtype, ft_from_e4m3(ft_to_e4m3(value)));
  }
  for (int64_t n = 0; n < count; n++) tensor[n] = rounded[tensor[n]];
}

int ft_random_blocks(uint8_t **blocks, const struct ft_request *request, int64_t batch, int heads,
                     uint64_t seed) {
  uint64_t state = seed;
  const int64_t rows = (request->seqlen_q + request->mask_rows - 1) / request->mask_rows;
  const int64_t cols = (request->seqlen_k + request->mask_cols - 1) / request->mask_cols;
  int64_t lists, count;
  *blocks = NULL;
  FT_TRY(ft_multiply_add(batch * heads, rows, 0, &lists));
  FT_TRY(ft_multiply_add(lists, cols, 0, &count));
  uint8_t *made = malloc((size_t)count);
  if (!made) return ft_fail(FT_E_MEMORY, "no memory for a mask of %lld blocks", (long long)count);
  const bool by_columns = request->pass == FT_BACKWARD;
  const int64_t lines = by_columns ? cols : rows;
  const struct ft_line_shares shares = ft_line_shares_of(request, lines);
  /* A line alone is the mean one, whatever the hints say. */
  const double of_first = lines < 2 ? request->mask_density : shares.longest;
  for (int64_t n = 0; n < count; n++) {
    const bool is_first = by_columns ? n % cols == 0 : n / cols % rows == 0;
    const double limit = (is_first ? of_first : shares.others) * 0x1p32;
    made[n] = (double)(ft_random_next(&state) >> 32) < limit;
  }
  made[count - 1] = 1;                                  /* so that something is seen */
  if (lists >= 3) memset(made + cols, 0, (size_t)cols); /* so that some rows see nothing */
  *blocks = made;
  return FT_OK;
}
