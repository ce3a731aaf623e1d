/* prediction.h: what a model is asked, and what it says. */
#ifndef GENERATOR_PREDICTION_H
#define GENERATOR_PREDICTION_H

#include "generator/budget.h"
#include "generator/score/cost.h"

struct ft_modelled {
  const struct ft_request *request;
  const struct ft_arch *arch;
  const struct ft_config *config;
  struct ft_score_costs score; /* 0 without a score function */
  int registers;               /* of the compiled kernel; 0: the budget's estimate */
  int spill_bytes;             /* likewise, of a thread */
};

/* What a block walks over at a time: the steps of a tile, or of a part of them. */
struct ft_predicted_walk {
  double steps, longest; /* of the mean walk and of the longest */
  double parts;          /* of a tile's walk */
  double merge_us;       /* that parts cost besides */
  double rounds;         /* of blocks, or of clusters, that are resident together */
  double ahead_bytes;    /* of a forward: of K and V, on their way to a multiprocessor at once */
};

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
  struct ft_predicted_walk walk;
};

#endif
