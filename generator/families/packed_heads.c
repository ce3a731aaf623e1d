/* packed_heads.c: which query heads share the rows of a work tile.
 * in -> out: config + query heads of a kv head -> heads, and rows of a query. */
#include "generator/families/packed_heads.h"

#include "generator/families/mma_forward.h"
#include "generator/families/wgmma_forward.h"

bool ft_config_packs(const struct ft_config *config) {
  if (config->family == &ft_wgmma_forward_family) return ft_wgmma_forward_knobs(config)->pack_gqa;
  if (config->family == &ft_mma_forward_family) return ft_mma_forward_knobs(config)->pack_gqa;
  return false;
}

struct ft_pack ft_pack_of_group(const struct ft_config *config, bool masked, int group,
                                int64_t seqlen_q) {
  enum { BITS_MOST = 6 };
  struct ft_pack pack = {0, 1};
  if (!ft_config_packs(config)) return pack;
  int bits = 0;
  while (1 << bits < group && bits <= BITS_MOST) bits++;
  if (bits <= BITS_MOST && !masked && seqlen_q <= ft_config_block_m(config) >> bits)
    return (struct ft_pack){bits, group};
  while (group % (2 * pack.heads) == 0 && pack.bits < BITS_MOST &&
         seqlen_q <= INT32_MAX / (2 * pack.heads))
    pack = (struct ft_pack){pack.bits + 1, 2 * pack.heads};
  return pack;
}

struct ft_pack ft_pack_of(const struct ft_config *config, const struct ft_request *request) {
  if (request->heads_kv == 0) return (struct ft_pack){0, 1};
  return ft_pack_of_group(config, request->mask_rows > 0, request->heads_q / request->heads_kv,
                          request->seqlen_q);
}

bool ft_packed_group(const struct ft_rule_case *of) {
  return !ft_config_packs(of->config) || of->request->heads_kv == 0 ||
         ft_pack_of(of->config, of->request).heads > 1;
}

enum { MISSING = 8 }; /* the bits from this one on */

int ft_pack_code(struct ft_pack pack) {
  return pack.bits | ((1 << pack.bits) - pack.heads) << MISSING;
}

struct ft_pack ft_pack_of_code(int code) {
  const int bits = code & ((1 << MISSING) - 1);
  return (struct ft_pack){bits, (1 << bits) - (code >> MISSING)};
}
