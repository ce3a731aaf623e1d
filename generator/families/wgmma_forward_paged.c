/* wgmma_forward_paged.c: what the default config of the forward by wgmma has where K and V lie in
 * pages. in -> out: request + arch, config -> config. */
#include "generator/families/plan.h"
#include "generator/families/wgmma_forward.h"
#include "generator/rules.h"

enum { NARROW = 64, COLUMNS = 128 };

/* Tiles of 128 rows of heads of 128 and 256 columns, causal, were 1 to 6 % faster by clusters of
 * two heads. Tiles of more rows, windows and what is not causal were not. */
static bool pairs_pay(const struct ft_request *request, const struct ft_wgmma_forward_knobs *k) {
  enum { ROWS = 128 };
  return request->causal != FT_CAUSAL_NONE && !request->window && request->score == 0 &&
         !request->dropout && request->heads_kv > 0 && k->block_m == ROWS &&
         max_int(request->head_dim, request->head_dim_v) > NARROW;
}

/* One query on heads of 128 columns: with fewer, larger steps on their way pages of 16 and 64 were
 * 0.2 to 0.7 % faster, pages of 256 not. */
static bool few_steps_pay(const struct ft_request *request,
                          const struct ft_wgmma_forward_knobs *k) {
  enum { LARGE_PAGE = 128, FEW_ROWS = 64 };
  return request->pages < LARGE_PAGE && !request->ragged && request->seqlen_q == 1 &&
         request->head_dim == COLUMNS && request->head_dim_v == COLUMNS && k->split_keys == 1 &&
         k->block_m == FEW_ROWS && ft_dtype_bytes(request->dtype) == 2;
}

void ft_wgmma_forward_of_pages(const struct ft_request *request, const struct ft_arch *arch,
                               struct ft_config *config) {
  struct ft_wgmma_forward_knobs knobs_of = *ft_wgmma_forward_knobs(config);
  if (request->pages == 0) return;
  if (pairs_pay(request, &knobs_of)) knobs_of.multicast = 2;
  if (few_steps_pay(request, &knobs_of)) {
    knobs_of.block_n = COLUMNS;
    knobs_of.stages = 2;
  }
  const struct ft_config other = ft_config_make(&ft_wgmma_forward_family, &knobs_of);
  if (ft_rules_broken(request, arch, &other, FT_EVERY_RULE) == NULL) *config = other;
}
