/* wgmma_forward_paged.c: what the default config of the forward by wgmma has where K and V lie in
 * pages. in -> out: request + arch, config -> config. */
#include "generator/families/plan.h"
#include "generator/families/wgmma_forward.h"
#include "generator/rules.h"

/* Tiles of 128 rows of heads of 128 and 256 columns, causal, were 2 to 6 % faster so. Tiles of more
 * rows, windows and what is not causal were not. */
void ft_wgmma_forward_pair_heads(const struct ft_request *request, const struct ft_arch *arch,
                                 struct ft_config *config) {
  enum { ROWS = 128, NARROW = 64 };
  struct ft_wgmma_forward_knobs knobs_of = *ft_wgmma_forward_knobs(config);
  if (request->pages == 0 || request->causal == FT_CAUSAL_NONE || request->window ||
      request->score != 0 || request->dropout || request->heads_kv == 0 ||
      knobs_of.block_m != ROWS || max_int(request->head_dim, request->head_dim_v) <= NARROW)
    return;
  knobs_of.multicast = 2;
  const struct ft_config pairs = ft_config_make(&ft_wgmma_forward_family, &knobs_of);
  if (ft_rules_broken(request, arch, &pairs, FT_EVERY_RULE) == NULL) *config = pairs;
}
