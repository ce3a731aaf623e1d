/* wgmma_forward_scored.c: the default config of forwards with score functions over few keys, and of
 * those that leave out keys far from the query.
 * in -> out: request + arch + config -> config.
 *
 * The favourites are those of 4096 keys and more. What is here was measured on an H200, 512, 1024
 * and 2048 queries and keys (bench/ledger.md). */
#include "generator/families/plan.h"
#include "generator/families/wgmma_forward.h"
#include "generator/score/kind.h"

enum { SHORT = 1024, FEW = 2048, WARPGROUP_ROWS = 64 };

static bool is_for_few(const struct ft_request *request) {
  return ft_dtype_bytes(request->dtype) == 2 && request->score != 0 && !request->dropout &&
         !request->ragged && request->pages == 0 && request->seqlen_q >= WARPGROUP_ROWS &&
         request->seqlen_q <= FEW && request->seqlen_k > 0 && request->seqlen_k <= FEW;
}

/* Whether tiles of 256 x 64 compute no more scores than tiles of the config do. */
static bool fits_tall(const struct ft_request *request,
                      const struct ft_wgmma_forward_knobs *knobs_of) {
  enum { ROWS = 256, COLUMNS = 64 };
  if (request->seqlen_q > SHORT || request->seqlen_k > SHORT) return false;
  const int rows = (int)request->seqlen_q, columns = (int)request->seqlen_k;
  return round_up(rows, ROWS) * round_up(columns, COLUMNS) <=
         round_up(rows, knobs_of->block_m) * round_up(columns, knobs_of->block_n);
}

/* At d64 tiles of 256 rows have fewer rows beyond the last query than those of 192. Their
 * steps have 64 keys, which lie on one side of a query more often than 128. ALiBi is faster there.
 */
static void fit_64(const struct ft_request *request, struct ft_wgmma_forward_knobs *knobs_of) {
  const enum ft_score_kind kind = ft_score_kind_of(request->score);
  if (request->causal) return;
  if ((kind == FT_SCORE_SIDES || kind == FT_SCORE_SIGMOID || kind == FT_SCORE_DISTANCE) &&
      fits_tall(request, knobs_of)) {
    knobs_of->block_m = 256;
    knobs_of->block_n = 64;
    knobs_of->stages = 4;
    knobs_of->pingpong = kind == FT_SCORE_SIDES ? 1 : 2;
  }
}

/* At d128 O goes to global memory straight from registers where steps are unequally long. Of 1024
 * queries tiles of 192 rows leave too many rows, or multiprocessors, without work. */
static void fit_128(const struct ft_request *request, struct ft_wgmma_forward_knobs *knobs_of) {
  const enum ft_score_kind kind = ft_score_kind_of(request->score);
  if (knobs_of->overlap_tiles && (ft_blocks_are_partial(request) || kind == FT_SCORE_SIDES ||
                                  (request->causal && kind == FT_SCORE_SIGMOID)))
    knobs_of->direct_store = 1;
  if (!request->causal && kind == FT_SCORE_SIGMOID && request->seqlen_q <= SHORT) {
    knobs_of->block_m = knobs_of->block_n = 128;
    knobs_of->stages = 2;
    knobs_of->direct_store = 0;
  }
}

void ft_wgmma_forward_few_scored(const struct ft_request *request, const struct ft_arch *arch,
                                 struct ft_config *config) {
  const int head_dim = max_int(request->head_dim, request->head_dim_v);
  struct ft_wgmma_forward_knobs knobs_of = *ft_wgmma_forward_knobs(config);
  if (!is_for_few(request)) return;
  if (head_dim <= 64) fit_64(request, &knobs_of);
  if (head_dim > 80 && head_dim <= 128) fit_128(request, &knobs_of);
  const struct ft_config few = ft_config_make(&ft_wgmma_forward_family, &knobs_of);
  if (ft_config_is_legal(&few, request, arch)) *config = few;
}

/* ALiBi leaves keys out where that saves more than it costs to find the largest norms of Q and K:
 * the more keys there are, the more of them are far. At d128 warpgroups take no turns then. */
void ft_wgmma_forward_far_scored(const struct ft_request *request, const struct ft_arch *arch,
                                 struct ft_config *config) {
  enum { LEAST = 2048 };
  const int head_dim = max_int(request->head_dim, request->head_dim_v);
  if (ft_dtype_bytes(request->dtype) != 2 || request->seqlen_q < LEAST ||
      request->seqlen_k < LEAST || ft_score_kind_of(request->score) != FT_SCORE_SIDES)
    return;
  struct ft_wgmma_forward_knobs knobs_of = *ft_wgmma_forward_knobs(config);
  knobs_of.skip_far = 1;
  knobs_of.keys_in_product = 1;
  if (head_dim > 64 && !ft_visibility_varies(request)) knobs_of.pingpong = 0;
  for (; knobs_of.keys_in_product >= 0; --knobs_of.keys_in_product) {
    const struct ft_config far = ft_config_make(&ft_wgmma_forward_family, &knobs_of);
    if (!ft_wgmma_forward_fits(request, arch, &far)) continue;
    *config = far;
    return;
  }
}
