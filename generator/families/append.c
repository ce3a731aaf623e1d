/* append.c: the kernel that writes new rows of K and V behind those there are.
 * in -> out: request -> budget. */
#include "generator/families/append.h"

#include <string.h>

#include "generator/families/own_kernel.h"

FT_DEFINE_TABLES(FT_APPEND_KNOBS, FT_APPEND_BUDGET);

static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  enum { WARP = 32, CHUNK_BYTES = 16 };
  const int threads = WARP * ft_config_block_m(config),
            bytes = ft_dtype_bytes(ft_kv_dtype(request));
  struct ft_append_budget own = {.k_chunks = request->head_dim * bytes / CHUNK_BYTES,
                                 .v_chunks = request->head_dim_v * bytes / CHUNK_BYTES,
                                 .lanes = 1};
  const int longest = max_int(own.k_chunks, own.v_chunks);
  while (own.lanes < WARP && own.lanes < longest) own.lanes *= 2;
  own.rows = threads / own.lanes;
  ft_plan_threads(budget, threads, arch);
  memcpy(budget->own, &own, sizeof own);
}

FT_OWN_KERNEL_FAMILY(append, ft_serves_everywhere);
