/* model.h: predicted time of a candidate: roofline, occupancy, wave quantisation.
 * in -> out: request + arch + config + budget (+ registers of the compiled kernel) -> microseconds
 * and the terms it is made of. Orders candidates; it never excludes one by itself. */
#ifndef TUNER_MODEL_H
#define TUNER_MODEL_H

#include "generator/budget.h"

struct ft_prediction {
  double us;       /* the whole */
  double mma_us;   /* matrix unit */
  double exp_us;   /* special-function unit */
  double issue_us; /* instruction issue */
  double smem_us;  /* shared-memory traffic: ldmatrix, and the copies in */
  double l2_us;    /* K and V tiles from L2, once per block that walks over them */
  double dram_us;  /* compulsory bytes */
  double waves;    /* blocks / (SMs x occupancy) */
  int occupancy;   /* blocks per SM */
};

/* Bytes of local memory per thread up to which a candidate is still measured: a loop-invariant or
 * two that ptxas parks outside the registers cost less than a smaller tile. Beyond it is `spilled`.
 */
enum { FT_SPILL_TOLERATED = 64 };

/* registers 0: the budget's estimate. spill_bytes > 0 is charged as local traffic. */
struct ft_prediction ft_model(const struct ft_request *request, const struct ft_arch *arch,
                              const struct ft_config *config, int registers, int spill_bytes);

#endif
