/* wgmma_forward_plan.c: what a kernel of the forward by wgmma takes.
 * in -> out: request + config + arch -> budget. */
#include <string.h>

#include "generator/families/plan.h"
#include "generator/families/wgmma_forward.h"
#include "generator/visibility.h"

enum { WARPGROUP = 128, WARPGROUP_ROWS = 64 };

/* With e4m3 products take V by columns only. It comes by rows and is transposed on the way from one
 * place in shared memory to another, or it comes as a kernel before has transposed it. */
static bool transposes_v(const struct ft_request *request) {
  return request->dtype == FT_E4M3;
}

static int panels_of(const struct ft_request *request, int columns) {
  const int of_panel = FT_PANEL_ROW / ft_dtype_bytes(request->dtype);
  return (columns + of_panel - 1) / of_panel;
}

/* Barriers | Q stages | K stages | V stages | P | V by rows, where it is transposed | what a score
 * reads, 16 bits for each query and key | what it adds for each key. Panels are aligned by whole
 * 1024 bytes. */
static void plan_panels(struct ft_budget *budget, struct ft_wgmma_forward_budget *own,
                        const struct ft_request *request, const struct ft_wgmma_forward_knobs *k) {
  enum { BARRIERS = 1024 };
  const bool transposed = transposes_v(request); /* then O is not staged either */
  const int rows = k->block_m * FT_PANEL_ROW, keys = k->block_n * FT_PANEL_ROW;
  own->o_bytes = transposed ? 0 : rows * own->dv_panels;
  own->q_bytes = max_int(rows * own->d_panels, own->o_bytes);
  own->k_bytes = keys * own->d_panels;
  own->v_rows_bytes = transposed && !k->v_by_columns ? keys * own->dv_panels : 0;
  own->v_bytes = transposed ? own->dv_pad * FT_PANEL_ROW * panels_of(request, k->block_n)
                            : keys * own->dv_panels;
  own->turning_bytes = k->v_by_columns ? keys * own->dv_panels + own->v_bytes : 0;
  own->p_bytes = k->p_in_smem ? rows * ft_panels(k->block_n) : 0;
  own->smem_q_offset = BARRIERS;
  own->smem_k_offset = own->smem_q_offset + k->q_stages * own->q_bytes;
  own->smem_v_offset = own->smem_k_offset + k->stages * own->k_bytes;
  own->smem_p_offset = own->smem_v_offset + k->stages * own->v_bytes;
  own->smem_v_rows_offset = own->smem_p_offset + own->p_bytes;
  own->smem_score_offset = own->smem_v_rows_offset + k->stages * own->v_rows_bytes;
  own->smem_keys_offset =
      own->smem_score_offset + (k->score_in_smem > 0) * k->block_m * k->block_n * 2;
  budget->smem_bytes = own->smem_keys_offset + k->keys_in_product * keys;
  own->smem_parts_offset = own->smem_k_offset;
  if (k->split_keys > 1)
    budget->smem_bytes = max_int(budget->smem_bytes,
                                 own->smem_parts_offset + ft_part_bytes(k->block_m, own->dv_pad));
}

/* A block begins with the same number of registers for each thread; the producer releases what the
 * consumers claim. setmaxnreg takes multiples of 8 from 24 on, and all together must not have more
 * than the block was given. The producer of sequences of different lengths keeps where two of them
 * lie (places), and that of pages their numbers. */
static void share_registers(struct ft_budget *budget, struct ft_wgmma_forward_budget *own,
                            const struct ft_arch *arch, const struct ft_request *request) {
  enum { PRODUCER_LEAST = 24, PRODUCER_MOST = 56, LOADERS = 72, MOST_OF_PAGES = 80 };
  enum { CONSUMER_MOST = 232 };
  const int consumers = own->consumers;
  const bool places = request->ragged || request->pages > 0;
  const int most = request->pages > 0 ? MOST_OF_PAGES : PRODUCER_MOST;
  const bool more = (places && consumers == 2) || (request->pages > 0 && consumers == 3);
  const int producer = own->loaders > 1 ? LOADERS : more ? PRODUCER_MOST : PRODUCER_LEAST;
  if (!is_within(consumers, 1, 4)) return; /* none to share, or too few for any tile */
  const int share = arch->regs_per_sm / budget->threads / 8 * 8;
  budget->launch_regs = min_int(CONSUMER_MOST, share);
  const int warpgroups = budget->launch_regs * (1 + consumers); /* all that the block is given */
  own->consumer_regs = min_int(CONSUMER_MOST, (warpgroups - producer) / consumers / 8 * 8);
  own->producer_regs = min_int(most, warpgroups - consumers * own->consumer_regs);
  budget->regs_limit = own->consumer_regs;
}

/* Two warps share the boxes of K and V in pages where a tile has so many that one would ask for too
 * long, if the consumers can do without the registers that this takes. Measured with two of them
 * and 16-bit rows of two panels alone (bench/ledger.md). */
static int loaders_of(const struct ft_request *request, const struct ft_config *config,
                      const struct ft_wgmma_forward_budget *own, int regs_estimate) {
  enum { BOXES_ENOUGH = 4, REGISTERS_MOST = 192 };
  const int rows = ft_config_block_n(config) / ft_wgmma_forward_cluster(config);
  const int boxes = request->pages > 0 ? rows / request->pages : 0;
  return boxes >= BOXES_ENOUGH && boxes % 2 == 0 && own->d_panels > 1 && own->consumers == 2 &&
                 ft_dtype_bytes(request->dtype) == 2 && regs_estimate <= REGISTERS_MOST
             ? 2
             : 1;
}

/* The last keys that a tile's rows see are hidden from a warpgroup's rows if other rows come after
 * them, and the first keys if other rows come before them: as many as there are such rows, at most.
 * A warpgroup skips the steps of both. Under a mask all take the steps of its blocks. */
static int skipped_steps(const struct ft_request *request, const struct ft_wgmma_forward_knobs *k) {
  int most = 0;
  for (int before = 0; before < k->block_m && request->mask_rows == 0; before += WARPGROUP_ROWS) {
    const int after = k->block_m - WARPGROUP_ROWS - before;
    const int first = ft_hides_first_keys(request) ? round_up(before, k->block_n) : 0;
    const int last = ft_hides_last_keys(request) ? round_up(after, k->block_n) : 0;
    most = max_int(most, (first + last) / k->block_n);
  }
  return most;
}

/* An accumulator of 64 x C values lies in 128 threads: C / 2 registers of each. */
void ft_wgmma_forward_plan(struct ft_budget *budget, const struct ft_request *request,
                           const struct ft_config *config, const struct ft_arch *arch) {
  enum { ADDRESSES_AND_STATISTICS = 32 };
  const struct ft_wgmma_forward_knobs *const k = ft_wgmma_forward_knobs(config);
  const int bytes = ft_dtype_bytes(request->dtype); /* a product is 32 bytes deep */
  struct ft_wgmma_forward_budget own = {.d_pad = round_up(request->head_dim, 32 / bytes),
                                        .dv_pad = request->head_dim_v, /* its n, by eight */
                                        .consumers = k->block_m / WARPGROUP_ROWS,
                                        .regs_s = k->block_n / 2,
                                        .regs_p = k->block_n * bytes / 8,
                                        .regs_o = request->head_dim_v / 2 * (k->two_level ? 2 : 1),
                                        .skipped_steps = skipped_steps(request, k)};
  own.d_panels = panels_of(request, own.d_pad);
  own.dv_panels = panels_of(request, own.dv_pad);
  budget->threads = WARPGROUP * (1 + own.consumers);
  budget->ctas_per_sm = 1;
  plan_panels(budget, &own, request, k);
  budget->regs_estimate =
      own.regs_s + (k->p_in_smem ? 0 : own.regs_p) + own.regs_o + ADDRESSES_AND_STATISTICS;
  own.loaders = loaders_of(request, config, &own, budget->regs_estimate);
  share_registers(budget, &own, arch, request);
  memcpy(budget->own, &own, sizeof own);
}
