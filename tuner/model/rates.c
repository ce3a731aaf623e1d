/* rates.c: what a multiprocessor does per cycle, for the models of all families.
 * in -> out: arch, request -> rates, microseconds. */
#include "tuner/model/rates.h"

double ft_or_default(double value, double otherwise) {
  return value > 0 ? value : otherwise;
}

double ft_cycles_per_us(const struct ft_arch *arch) {
  return ft_or_default(arch->clock_ghz, 1.5) * 1e3;
}

double ft_dram_bytes_per_us(const struct ft_arch *arch) {
  return ft_or_default(arch->dram_gbs, 500) * 1e3;
}

double ft_compulsory_us(const struct ft_request *request, const struct ft_arch *arch) {
  const double queries = (double)request->batch * request->heads_q * (double)request->seqlen_q;
  const double keys = (double)request->batch * request->heads_kv * (double)request->seqlen_k;
  const double element = ft_dtype_bytes(request->dtype);
  const double of_o = ft_dtype_bytes(ft_output_dtype(request));
  const double of_kv = ft_dtype_bytes(ft_kv_dtype(request));
  const double bytes = queries * request->head_dim * element +
                       keys * (request->head_dim + request->head_dim_v) * of_kv +
                       queries * request->head_dim_v * of_o + queries * 4;
  return bytes / ft_dram_bytes_per_us(arch);
}

double ft_fragment_instructions(enum ft_dtype dtype) {
  if (dtype == FT_FP32) return 22;
  return dtype == FT_TF32 ? 6 : 1;
}

struct ft_score_cost ft_cost_with_visible(const struct ft_request *request,
                                          const struct ft_score_costs *score,
                                          struct ft_score_cost of) {
  if (request->mask_rows > 0) return of;
  return (struct ft_score_cost){.instructions = of.instructions + score->visible.instructions,
                                .special = of.special + score->visible.special,
                                .reads = of.reads + score->visible.reads};
}

double ft_read_cycles(double elements, double reads) {
  static const double cycles_of_warp = 4; /* by a learnt bias of keys on an H200 */
  return elements / 32 * reads * cycles_of_warp;
}
