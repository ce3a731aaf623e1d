/* plan.h: what several families' budgets, rules and defaults share.
 * in -> out: numbers of a config -> numbers of a budget, verdicts of a rule. */
#ifndef GENERATOR_FAMILIES_PLAN_H
#define GENERATOR_FAMILIES_PLAN_H

#include "generator/family.h"
#include "generator/key_parts.h"
#include "generator/score/kind.h"
#include "generator/visibility.h"

static inline int min_int(int a, int b) {
  return a < b ? a : b;
}

static inline int max_int(int a, int b) {
  return a > b ? a : b;
}

static inline int round_up(int value, int unit) {
  return (value + unit - 1) / unit * unit;
}

static inline bool is_within(int value, int least, int most) {
  return value >= least && value <= most;
}

static inline bool is_power_of_two(int value) {
  return value > 0 && (value & (value - 1)) == 0;
}

/* Whether the last kernel of a backward can ask how far the main one is, which early_dq needs. */
static inline bool ft_backward_has_sections(const struct ft_request *request) {
  return !request->ragged && !request->sinks && request->score_gradients == 0;
}

/* Bytes from row to row of a tile in shared memory that ldmatrix reads. Its eight rows must begin
 * in eight different groups of banks: rows of whole 128 bytes are swizzled by the kernel, others
 * are made an odd number of 16-byte chunks long. */
static inline int ft_row_stride(int padded_dim, int element_bytes) {
  const int bytes = padded_dim * element_bytes;
  return bytes % 128 == 0 ? bytes : (bytes / 16 | 1) * 16;
}

/* Bytes of a row in global memory that threads of a warp copy side by side: chunks of 16 bytes, as
 * many as a power of two divides the row's chunks by, at most 16 (templates/parts/copy_tile.cu.in).
 */
static inline int ft_copied_piece(int padded_dim, int element_bytes) {
  enum { CHUNK = 16, THREADS = 16 };
  const int chunks = padded_dim * element_bytes / CHUNK;
  return CHUNK * min_int(chunks & -chunks, THREADS);
}

/* Tiles of the wgmma families lie in shared memory as panels of so many columns, whose rows are so
 * many bytes, swizzled. */
enum { FT_PANEL_COLUMNS = 64, FT_PANEL_ROW = 128 };

static inline int ft_panels(int columns) {
  return (columns + FT_PANEL_COLUMNS - 1) / FT_PANEL_COLUMNS;
}

/* Bytes of shared memory for the result of a part of the keys: rows of O in fp32, with a gap behind
 * each, and their LSE (templates/parts/merge_four.cu.in). */
static inline int ft_part_bytes(int rows, int columns) {
  enum { FLOAT = 4, APART = 8 };
  return rows * (columns + APART + 1) * FLOAT;
}

/* Registers of a thread where so many blocks of so many threads share a multiprocessor. */
static inline int ft_registers_for(const struct ft_arch *arch, int threads, int ctas_per_sm) {
  enum { MOST = 255, UNIT = 8 };
  return min_int(MOST, arch->regs_per_sm / (threads * ctas_per_sm) / UNIT * UNIT);
}

/* Registers that a pair of elements of an operand takes in the mma families. */
static inline int ft_pair_registers(enum ft_dtype dtype) {
  return ft_dtype_is_fp32(dtype) ? 2 : 1;
}

/* Registers for what fp32's three products need beside their operands: each of these as two numbers
 * of TF32, and sums. */
static inline int ft_part_registers(enum ft_dtype dtype) {
  return dtype == FT_FP32 ? 16 : 0;
}

/* d + dv, doubled for fp32, whose rows take twice the room of those of 16-bit types. */
static inline int ft_head_dims(const struct ft_request *request) {
  return (request->head_dim + request->head_dim_v) * ft_pair_registers(request->dtype);
}

/* The schedule of families whose blocks take one work tile each. */
static inline enum ft_schedule ft_schedule_lpt(const struct ft_request *request,
                                               const struct ft_config *config) {
  (void)request, (void)config;
  return FT_SCHEDULE_LPT;
}

/* Whether a backward's key tiles can add to dQ in an order that is the same in every run. Under a
 * block mask it is not known who adds before. */
static inline bool ft_adds_have_an_order(const struct ft_request *request) {
  return ft_key_block_of(request) == 0;
}

/* fp32 sums of the dQ of a query tile. Ordered adds, where every query sees the same keys, go to
 * two, so that key tiles can begin at different query tiles (templates/parts/key_tile.cu.in). */
static inline int ft_dq_sums(const struct ft_request *request, bool ordered) {
  return ordered && !ft_visibility_varies(request) ? 2 : 1;
}

/* heads_inner: in the walk of a backward's key tile the heads of a group are the inner loop, and L2
 * sections walk down and up in turn. It cannot run with a block mask, as each head has a list of
 * its own; nor ragged, as the list of key tiles has no L2 sections; nor deterministic, as dQ is
 * then added in the order of walks head by head. */
#define FT_HEADS_INNER_SAYS                                                                        \
  "the heads of a group are the inner loop where all have the same walk, L2 sections are known "   \
  "and adds to dQ have no order: without block mask, ragged and deterministic"
static inline bool ft_heads_inner_can_run(const struct ft_request *request) {
  return request->mask_rows == 0 && !request->ragged && !request->deterministic;
}

/* Whether key tiles would be at different heads of their group at a time otherwise. */
#define FT_LONE_HEADS_SAYS                                                                         \
  "without causal and without a group all walks of an L2 section are at the same head; with a "    \
  "window and dropout it lost"
static inline bool ft_heads_inner_is_worth_trying(const struct ft_request *request) {
  return request->causal && !request->window && !request->dropout &&
         (request->heads_kv == 0 || request->heads_q > request->heads_kv);
}

/* Whether heads_inner is the default. It is where a group has `columns` columns or more: its query
 * heads times the head dim. */
static inline bool ft_heads_inner_pays(const struct ft_request *request, int columns) {
  return ft_heads_inner_can_run(request) && ft_heads_inner_is_worth_trying(request) &&
         request->score == 0 && request->heads_kv > 0 &&
         request->heads_q / request->heads_kv * (int64_t)request->head_dim >= columns;
}

/* Rules of more than one family. */
static inline bool ft_registers_suffice(const struct ft_rule_case *of) {
  return of->budget->regs_estimate <= of->budget->regs_limit;
}

/* Whether more than half of a tile of block_m rows is used, or the tile is small. rows: of a head,
 * or of the heads packed into a tile; 0: unknown. */
static inline bool ft_half_a_tile_is_used(int64_t rows, int block_m) {
  return rows == 0 || block_m <= 64 || block_m < 2 * rows;
}

/* Whether the walks of the request's tiles may be divided into parts. slots: blocks that are
 * resident at once. A kernel class has no lengths and may. */
static inline bool ft_split_may_pay(const struct ft_request *request, struct ft_pack pack,
                                    int block_m, int64_t slots) {
  const int64_t heads = request->batch * (request->heads_q / pack.heads);
  const int64_t tiles = ((request->seqlen_q << pack.bits) + block_m - 1) / block_m;
  int64_t all;
  return !__builtin_mul_overflow(tiles, heads, &all) && ft_key_parts_pay(all, slots);
}

/* Whether each head is one sequence in one piece, without a score function and a block mask. */
static inline bool ft_heads_are_plain(const struct ft_request *request) {
  return request->score == 0 && request->mask_rows == 0 && !request->ragged && request->pages == 0;
}

/* Whether blocks of a mask are partial by a function: then steps are unequally long, and
 * warpgroups that take turns wait for each other. */
static inline bool ft_blocks_are_partial(const struct ft_request *request) {
  return request->mask_rows > 0 && request->score != 0 && ft_score_is_any(request->score);
}

/* Whether tiles of so many query rows, of all heads and batch entries, are no more than the slots.
 */
static inline bool ft_tiles_fit(const struct ft_request *request, int rows, int64_t slots) {
  const int64_t of_a_head = (request->seqlen_q + rows - 1) / rows;
  return of_a_head > 0 && request->batch * request->heads_q <= slots / of_a_head;
}

/* The tile of a row of favourites. */
#define TILE(m, n) .block_m = (m), .block_n = (n)

/* Which requests a row of the favourites is for: elements of so many bytes, max(d, dv) of at most
 * head_dim, and what `when` says. */
enum ft_when {
  FT_ALWAYS,
  FT_BUSY,         /* with dropout or a score function: more to do beside the products */
  FT_PLAIN,        /* without either */
  FT_PLAIN_SHORT,  /* plain and causal, 512 keys at most */
  FT_PLAIN_NARROW, /* plain, in a window of 2049 keys at most, or ragged */
  FT_PLAIN_PACKED, /* plain, ragged, K and V not in pages, in no such window */
  FT_VARIED,       /* queries see different keys */
  FT_FEW_SEEN,     /* in a window of 513 keys at most */
  FT_PLAIN_FEW_SEEN,
  FT_OF_TF32,
  FT_OF_TF32_FEW_SEEN,
  FT_SCORED, /* with a score function */
  FT_SCORED_CAUSAL,
  FT_SCORED_FULL /* and not causal */
};
struct ft_favoured {
  int bytes;
  int head_dim;
  enum ft_when when;
  enum ft_score_kind kind; /* FT_SCORE_OTHER: any */
};
#define FT_FAVOURED(bytes, head_dim, when)                                                         \
  { bytes, head_dim, when, FT_SCORE_OTHER }

static inline bool ft_when_is(enum ft_when when, const struct ft_request *request) {
  enum { SHORT = 512, NARROW = 2048, FEW = 512 };
  const bool plain = !request->dropout && !request->score;
  const bool window = request->window && request->window_left >= 0 && request->window_right >= 0;
  const bool narrow = window && request->window_left + request->window_right <= NARROW;
  const bool few = window && request->window_left + request->window_right <= FEW;
  switch (when) {
  case FT_ALWAYS: return true;
  case FT_BUSY: return !plain;
  case FT_PLAIN: return plain;
  case FT_PLAIN_SHORT:
    return plain && request->causal && request->seqlen_k > 0 && request->seqlen_k <= SHORT;
  case FT_PLAIN_NARROW: return plain && (narrow || request->ragged);
  case FT_PLAIN_PACKED: return plain && request->ragged && request->pages == 0 && !narrow;
  case FT_VARIED: return ft_visibility_varies(request);
  case FT_FEW_SEEN: return few;
  case FT_PLAIN_FEW_SEEN: return plain && few;
  case FT_OF_TF32: return request->dtype == FT_TF32;
  case FT_OF_TF32_FEW_SEEN: return request->dtype == FT_TF32 && few;
  case FT_SCORED: return request->score != 0;
  case FT_SCORED_CAUSAL: return request->score != 0 && request->causal;
  case FT_SCORED_FULL: return request->score != 0 && !request->causal;
  }
  return false;
}

static inline bool ft_favourite_counts(struct ft_favoured row, const struct ft_request *request) {
  return ft_dtype_bytes(request->dtype) == row.bytes && ft_when_is(row.when, request) &&
         (row.kind == FT_SCORE_OTHER || row.kind == ft_score_kind_of(request->score)) &&
         max_int(request->head_dim, request->head_dim_v) <= row.head_dim;
}

static inline bool ft_config_is_legal(const struct ft_config *config,
                                      const struct ft_request *request,
                                      const struct ft_arch *arch) {
  return ft_rules_broken(request, arch, config, FT_EVERY_RULE) == NULL;
}

#endif
