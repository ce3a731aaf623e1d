/* matrix_cases.c: the cross-product of features as requests.
 * in -> out: index, size -> request, layout, mask, dropout; requests -> counts. */
#include "tests/matrix_cases.h"
#include "tuner/verify/problem_options.h"
#include "tuner/verify/random_inputs.h"
#include "tuner/verify/shape.h"

#include <check.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum { SEQUENCES_MORE = 4 };

static int random_below(uint64_t *state, int limit) {
  return (int)(ft_random_next(state) % (uint64_t)limit);
}

/* ---- requests ---- */

/* Around the edges of tiles and mma steps, and in between. */
static int64_t random_length(uint64_t *state, int64_t longest) {
  static const int edges[] = {1,  2,  7,  8,   15,  16,  17,  31,  33,  63,  64,  65,
                              95, 96, 97, 127, 128, 129, 191, 193, 255, 256, 257, 385};
  if (random_below(state, 10) == 0) return 1;
  if (random_below(state, 2) == 0) return edges[random_below(state, COUNT(edges))];
  return 1 + random_below(state, (int)longest);
}

static void choose_mask(struct ft_problem_options *options, uint64_t *state) {
  static const int sizes[][2] = {{16, 16}, {32, 64},  {64, 64},  {128, 128}, {64, 128}, {256, 64},
                                 {48, 32}, {128, 32}, {16, 128}, {192, 96},  {80, 48},  {64, 256}};
  /* 1e-9 keeps the one block that ft_problem_make always keeps. */
  static const double densities[] = {1e-9, 0.1, 0.25, 0.5, 0.75, 1};
  const int size = random_below(state, COUNT(sizes));
  options->request.mask_rows = sizes[size][0];
  options->request.mask_cols = sizes[size][1];
  options->request.mask_density = densities[random_below(state, COUNT(densities))];
  options->broadcast_mask = random_below(state, 3) == 0;
  if (random_below(state, 4) == 0) options->request.mask_longest = 8;
}

static void choose_heads(struct ft_request *request, uint64_t *state) {
  static const int groups[] = {1, 1, 2, 3, 4, 8};
  request->heads_kv = 1 + random_below(state, 3);
  request->heads_q = request->heads_kv * groups[random_below(state, COUNT(groups))];
  request->batch = 1 + random_below(state, 3);
}

/* Few enough rows that the CPU keeps up; group and lengths are what matters, so the batch and the
 * kv heads give way. */
static void limit_rows(struct ft_request *request, int64_t limit, int64_t tile) {
  const int group = request->heads_q / request->heads_kv;
  const int64_t rows = (request->seqlen_q + tile - 1) / tile * tile;
  while (request->batch > 1 && request->batch * request->heads_q * rows > limit) request->batch--;
  while (request->heads_kv > 1 && request->heads_q * rows > limit) {
    request->heads_kv--;
    request->heads_q = group * request->heads_kv;
  }
}

/* A side is open, empty, or up to twice as long as there are keys. */
static int64_t random_side(uint64_t *state, int64_t keys) {
  const int kind = random_below(state, 6);
  return kind == 0   ? -1
         : kind == 1 ? 0
                     : random_below(state, (int)(kind == 2 ? 2 * keys : keys / 3 + 1));
}

static void choose_window(struct ft_request *request, uint64_t *state) {
  request->window = random_below(state, 2) ? FT_WINDOW_TOP_LEFT : FT_WINDOW_BOTTOM_RIGHT;
  request->window_left = random_side(state, request->seqlen_k);
  request->window_right = random_side(state, request->seqlen_k);
}

void matrix_choose(struct ft_problem_options *options, int index, const struct matrix_size *size) {
  static const double dropouts[] = {0.05, 0.1, 0.25, 0.5, 0.75, 0.9};
  uint64_t state = 0xFA70u + (uint64_t)index;
  struct ft_request *const request = &options->request;
  const int combination = index % MATRIX_COMBINATIONS;
  request->pass = FT_FORWARD;
  request->causal = (enum ft_causal)(combination % 3);
  request->dropout = combination / 3 % 2 == 1;
  request->dtype = combination / 12 == 0 ? FT_FP16 : FT_BF16;
  request->head_dim = request->head_dim_v = 16 + 8 * (index % MATRIX_DIMS);
  if (random_below(&state, 3) == 0)
    request->head_dim_v = 16 + 8 * random_below(&state, MATRIX_DIMS);
  request->seqlen_q = random_length(&state, size->longest);
  request->seqlen_k = random_length(&state, size->longest);
  choose_heads(request, &state);
  limit_rows(request, random_below(&state, 6) == 0 ? size->rows_seldom : size->rows, size->tile);
  request->mask_density = 1;
  request->mask_longest = 1;
  if (combination / 6 % 2 == 1) choose_mask(options, &state);
  if (request->dropout) options->dropout = dropouts[random_below(&state, COUNT(dropouts))];
  options->layout = (enum ft_layout)random_below(&state, MATRIX_LAYOUTS);
  options->want_lse = random_below(&state, 6) != 0;
  if (random_below(&state, 5) == 0) options->scale = 0.02 + 0.3 * random_below(&state, 2);
  request->window_left = request->window_right = -1;
  if (random_below(&state, 3) == 0) choose_window(request, &state);
  request->sinks = random_below(&state, 4) == 0;
  request->ragged = request->mask_rows == 0 && random_below(&state, 3) == 0;
  if (request->ragged) request->batch += SEQUENCES_MORE; /* in as many rows as else one has */
  if (request->mask_rows == 0 && random_below(&state, 3) == 0)
    request->pages = 1 << random_below(&state, 9);
}

void matrix_make_dense(struct ft_request *request) {
  if (request->ragged) request->batch -= SEQUENCES_MORE;
  request->ragged = false;
  request->pages = 0;
}

void matrix_make_e4m3(struct ft_problem_options *options, int index) {
  struct ft_request *const request = &options->request;
  request->dtype = FT_E4M3;
  request->dtype_o = index % 4 == 1 ? FT_O_FP16 : FT_O_DEFAULT;
  request->score = 0;
  options->coarse = false;
  if (index % 3 > 0) matrix_make_dense(request);
  request->dropout = false;
  options->dropout = 0;
  request->head_dim = (request->head_dim + 15) / 16 * 16;
  request->head_dim_v = (request->head_dim_v + 15) / 16 * 16;
  if (request->mask_cols > 0) request->mask_cols = (request->mask_cols + 31) / 32 * 32;
  if (!request->ragged && request->pages == 0) request->descale_rows = index % 5 * 64 % 192;
  request->fast_exp = request->descale_rows == 0 && index % 7 == 3;
}

void matrix_choose_backward(struct ft_problem_options *options, int index,
                            const struct matrix_size *size) {
  matrix_choose(options, index, size);
  uint64_t state = 0xBAC5u + (uint64_t)index;
  options->request.pass = FT_BACKWARD;
  options->request.pages = 0;
  options->request.deterministic = random_below(&state, 4) == 0;
  options->want_lse = true;
  options->want_dlse = random_below(&state, 2) == 0;
}

/* ---- what they cover ---- */

void matrix_count(struct matrix_tally *tally, const struct ft_problem_options *options) {
  const struct ft_request *const r = &options->request;
  const int combination =
      (int)r->causal + 3 * r->dropout + 6 * (r->mask_rows > 0) + 12 * (r->dtype == FT_BF16);
  tally->dims[r->head_dim / 8 - 2]++;
  tally->combinations[combination]++;
  tally->layouts[options->layout]++;
  tally->other_dim_v += r->head_dim_v != r->head_dim;
  tally->mqa += r->heads_kv == 1 && r->heads_q > 1;
  tally->gqa += r->heads_kv > 1 && r->heads_q > r->heads_kv;
  tally->one_query += r->seqlen_q == 1;
  tally->one_key += r->seqlen_k == 1;
  tally->blind_rows += r->causal == FT_CAUSAL_BOTTOM_RIGHT && r->seqlen_q > r->seqlen_k;
  tally->empty_mask += r->mask_rows > 0 && r->mask_density < 0.01;
  tally->full_mask += r->mask_rows > 0 && r->mask_density > 0.99;
  tally->broadcast += options->broadcast_mask;
  tally->sinks += r->sinks;
  tally->ragged += r->ragged;
  tally->pages += r->pages > 0;
  tally->windows += r->window != FT_WINDOW_NONE;
  tally->no_lse += !options->want_lse;
  tally->own_scale += options->scale > 0;
  tally->deterministic += r->deterministic;
  tally->with_dlse += options->want_dlse;
  tally->odd_mask += r->mask_rows % 64 != 0 || r->mask_cols % 64 != 0;
}

void matrix_assert_covers(const struct matrix_tally *tally, const struct matrix_least *least) {
  for (int i = 0; i < MATRIX_DIMS; i++) ck_assert_int_ge(tally->dims[i], least->dim);
  for (int i = 0; i < MATRIX_COMBINATIONS; i++)
    ck_assert_int_ge(tally->combinations[i], least->combination);
  for (int i = 0; i < MATRIX_LAYOUTS; i++) ck_assert_int_ge(tally->layouts[i], least->layout);
  const struct {
    const char *name;
    int count;
  } features[] = {{"another head_dim_v", tally->other_dim_v},
                  {"one kv head for all", tally->mqa},
                  {"groups of heads", tally->gqa},
                  {"a window", tally->windows},
                  {"sinks", tally->sinks},
                  {"sequences of different lengths", tally->ragged},
                  {"one query", tally->one_query},
                  {"one key", tally->one_key},
                  {"rows that see no key", tally->blind_rows},
                  {least->pass == FT_BACKWARD ? "deterministic" : "K and V in pages",
                   least->pass == FT_BACKWARD ? tally->deterministic : tally->pages},
                  {least->pass == FT_BACKWARD ? "deterministic" : "no LSE",
                   least->pass == FT_BACKWARD ? tally->deterministic : tally->no_lse},
                  {least->pass == FT_BACKWARD ? "a gradient of LSE" : "no LSE",
                   least->pass == FT_BACKWARD ? tally->with_dlse : tally->no_lse},
                  {"a scale of its own", tally->own_scale},
                  {"a mask without blocks", tally->empty_mask},
                  {"a mask of all blocks", tally->full_mask},
                  {"one mask for all heads", tally->broadcast},
                  {"blocks that are not multiples of 64", tally->odd_mask}};
  for (int i = 0; i < COUNT(features); i++)
    ck_assert_msg(features[i].count >= least->feature, "%s: only %d times", features[i].name,
                  features[i].count);
}
