/* wgmma_forward_turned.c: the default of e4m3 where V is turned around before.
 * in -> out: request + arch + config -> config. */
#include "generator/families/plan.h"
#include "generator/families/wgmma_forward.h"
#include "generator/visibility.h"

/* A kernel that turns V around once takes as long as one that reads and writes V; each block then
 * saves that at each step. On an H200 it pays where more than so many query rows see a key. */
void ft_wgmma_forward_turned(const struct ft_request *request, const struct ft_arch *arch,
                             struct ft_config *config) {
  enum { FULL_ALONE = 0, CAUSAL_TOO = 1, FAST_EXP = 2, FAST_BOTH = FAST_EXP | CAUSAL_TOO };
  static const struct {
    int above, head_dim; /* max(d, dv) is above the first and at most the second */
    int rows;            /* of queries for each key, in the mean */
    int when;            /* it pays: where queries see different keys, too; with fast_exp alone */
    struct ft_wgmma_forward_knobs knobs;
  } turned[] = {
      {0, 64, 3072, FAST_EXP, {TILE(192, 128), .stages = 3, .q_stages = 1}},
      {0, 64, 3072, FAST_BOTH, {TILE(192, 128), .stages = 3, .q_stages = 2, .overlap_tiles = 1}},
      {0, 64, 3072, FULL_ALONE, {TILE(192, 128), .stages = 3, .q_stages = 1, .pingpong = 2}},
      {64, 128, 2048, CAUSAL_TOO, {TILE(192, 96), .stages = 3, .q_stages = 2, .overlap_tiles = 1}},
      {192, 256, 1536, FULL_ALONE, {TILE(128, 96), .stages = 3, .q_stages = 1}},
      {192, 256, 1536, CAUSAL_TOO, {TILE(128, 96), .stages = 2, .q_stages = 2, .overlap_tiles = 1}},
  };
  if (request->dtype != FT_E4M3 || request->score != 0 || request->mask_rows > 0 ||
      request->seqlen_k == 0 || request->heads_kv == 0)
    return;
  const struct ft_visibility visibility = ft_visibility_of(request);
  const double group = (double)request->heads_q / request->heads_kv;
  const double rows = group * ft_visible_pairs(&visibility) / (double)request->seqlen_k;
  const int head_dim = max_int(request->head_dim, request->head_dim_v);
  for (int i = 0; i < FT_COUNT(turned); ++i) {
    struct ft_wgmma_forward_knobs knobs_of = turned[i].knobs;
    if (head_dim <= turned[i].above || head_dim > turned[i].head_dim || rows <= turned[i].rows ||
        (ft_visibility_varies(request) && !(turned[i].when & CAUSAL_TOO)) ||
        ((turned[i].when & FAST_EXP) && !request->fast_exp))
      continue;
    knobs_of.integer_max = knobs_of.lazy_rescale = 1;
    knobs_of.direct_store = knobs_of.v_by_columns = 1;
    const struct ft_config columns = ft_config_make(&ft_wgmma_forward_family, &knobs_of);
    if (!ft_wgmma_forward_fits(request, arch, &columns)) continue;
    *config = columns;
    return;
  }
}
