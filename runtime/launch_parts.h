/* launch_parts.h: what a launch consists of; launch.h prepares and enqueues it. */
#ifndef RUNTIME_LAUNCH_PARTS_H
#define RUNTIME_LAUNCH_PARTS_H

#include "generator/config.h"
#include "generator/request.h"
#include "runtime/map_cache.h"
#include "generator/arguments.h"

/* What a plan launches, in this order. */
enum ft_step { FT_STEP_PREPARE, FT_STEP_MAIN, FT_STEP_CONVERT };

/* arguments -> device struct and grid, every check of fatune_plan_run done. */
struct ft_launch {
  struct ft_tiled_forward_params tiled; /* mma kernels take `rest` of it alone */
  struct ft_backward_params backward;
  enum ft_pass pass;
  const struct ft_family *family;
  unsigned grid;
  unsigned tiles_grid; /* of prepare and convert in a backward: tiles of queries */
  /* Words of a tile in the workspace. */
  int64_t sum_of_tile, stats_of_tile, counters_of_tile;
  int head_dim, head_dim_v; /* what params leave open of the tensors */
  enum ft_dtype dtype;
  struct ft_map_cache *maps; /* where tensor maps are looked for and kept; NULL: nowhere */
};

#endif
