/* rates.c: what a multiprocessor does per cycle, for the models of all families.
 * in -> out: arch, request -> rates, microseconds. */
#include "generator/model/rates.h"

#include <math.h>

#include "generator/key_parts.h"

/* An H200's, from decodes of 65536 keys with one step on its way: 2680 cycles a step of 32 KiB
 * where all multiprocessors read, 1690 where 64 do. */
static const double DRAM_LATENCY = 670;
static const double DRAM_SHARE = 0.89;     /* of its rate that a kernel which only reads reaches */
static const double SM_BYTES_PER_CLK = 32; /* that a multiprocessor loads, however idle the rest */
/* Loads of 32 bytes of a row instead of 64 come to a multiprocessor 2^1.3 times as slowly, and from
 * L2 four times, by decodes of d 72, 80 and 112. */
static const double PIECES = 1.3, PIECES_OF_L2 = 2;

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

double ft_rows_us(const struct ft_request *request, const struct ft_arch *arch) {
  const double rows = (double)request->batch * request->heads_q * (double)request->seqlen_q;
  const double bytes = request->head_dim * (double)ft_dtype_bytes(request->dtype) +
                       request->head_dim_v * (double)ft_dtype_bytes(ft_output_dtype(request));
  return rows * bytes / (DRAM_SHARE * ft_dram_bytes_per_us(arch));
}

struct ft_load ft_load_of(const struct ft_request *request, const struct ft_arch *arch,
                          const struct ft_loads *loads) {
  const double keys = (double)request->batch * request->heads_kv * (double)request->seqlen_k;
  const double once =
      keys * (request->head_dim + request->head_dim_v) * ft_dtype_bytes(ft_kv_dtype(request));
  const double density = request->mask_rows > 0 ? request->mask_density : 1;
  const double cold = fmin(1, once * density / fmax(1, loads->bytes * loads->steps));
  const double pieces = ft_piece_cost(loads->piece);
  const double dram = DRAM_SHARE * ft_dram_bytes_per_us(arch) / pieces;
  const double of_dram = dram / ft_cycles_per_us(arch);
  const double rate = fmin(SM_BYTES_PER_CLK / pow(pieces, PIECES), of_dram / fmax(1, loads->busy));
  const double received =
      loads->bytes * (cold / rate + (1 - cold) * pow(pieces, PIECES_OF_L2) / loads->beside);
  return (struct ft_load){.waited = cold * DRAM_LATENCY + received, .received = received};
}

double ft_resident_clusters(const struct ft_arch *arch, double blocks, double resident) {
  const double sms = fmax(1, arch->sm_count), usable = blocks > 2 ? sms * 10 / 11 : sms;
  return fmax(1, floor(usable * resident / fmax(1, blocks)));
}

double ft_fragment_instructions(enum ft_dtype dtype, double rows) {
  const double share = 16 / fmax(16, rows); /* of what is done once for all rows */
  if (dtype == FT_FP32) return 6 + 4 + 12 * share;
  return dtype == FT_TF32 ? 2 + 1 + 3 * share : 1;
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
