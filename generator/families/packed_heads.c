/* packed_heads.c: how many query heads share the rows of a work tile.
 * in -> out: config + query heads of a kv head -> a power of two. */
#include "generator/families/packed_heads.h"

#include "generator/families/mma_forward.h"
#include "generator/families/wgmma_forward.h"

static bool packs(const struct ft_config *config) {
  if (config->family == &ft_wgmma_forward_family) return ft_wgmma_forward_knobs(config)->pack_gqa;
  if (config->family == &ft_mma_forward_family) return ft_mma_forward_knobs(config)->pack_gqa;
  return false;
}

int ft_packed_heads(const struct ft_config *config, int group, int64_t seqlen_q) {
  enum { HEADS_MOST = 64 };
  int heads = 1;
  if (!packs(config)) return 1;
  while (group % (2 * heads) == 0 && 2 * heads <= HEADS_MOST && seqlen_q <= INT32_MAX / (2 * heads))
    heads *= 2;
  return heads;
}

int ft_packed_heads_of(const struct ft_config *config, const struct ft_request *request) {
  if (request->heads_kv == 0) return 1;
  return ft_packed_heads(config, request->heads_q / request->heads_kv, request->seqlen_q);
}
