/* launch_family.h: what a launch is, and what the launch of one kernel family is.
 * in -> out: what is fixed for all runs of a plan + fatune_arguments -> kernels that run one after
 * the other and the one argument that all of them take.
 * launch_families.c lists the families. Nothing else names them one by one. */
#ifndef RUNTIME_LAUNCH_FAMILY_H
#define RUNTIME_LAUNCH_FAMILY_H

#include "generator/arch.h"
#include "generator/arguments.h"
#include "generator/budget.h"
#include "generator/config.h"
#include "generator/family.h"
#include "generator/request.h"
#include "generator/score/registry.h"
#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "runtime/launch_tensors.h"
#include "runtime/map_cache.h"

enum { FT_KERNELS_MOST = 5 };

/* What is fixed for all runs of a plan. */
struct ft_launch_plan {
  const struct ft_request *request;
  const struct ft_config *config;
  const struct ft_arch *arch;
  const struct ft_budget *budget;
  const struct ft_known_score *score; /* NULL: the request has none */
  struct ft_map_cache *maps; /* where tensor maps are kept and found again; NULL: nowhere */
};

struct ft_launch_kernel {
  unsigned grid;           /* 0: the kernel has nothing to do in this run */
  int threads, smem_bytes; /* of a block */
  bool early; /* it waits for the kernel before it by itself, so it may be launched before that ends
               */
};

struct ft_launch {
  /* The member that the family's kernels read. */
  union {
    struct ft_forward_params forward;
    struct ft_descaled_mma_forward_params descaled_mma_forward;
    struct ft_tiled_forward_params tiled_forward;
    struct ft_descaled_forward_params descaled_forward;
    struct ft_scored_backward_params scored_backward;
    struct ft_tiled_backward_params tiled_backward;
  } argument;
  const struct ft_launch_family *family;
  const struct ft_launch_plan *plan;
  const struct fatune_mask *mask;                   /* NULL: none */
  struct ft_launch_kernel kernels[FT_KERNELS_MOST]; /* in the order of the family's entries */
};

struct ft_launch_family {
  const struct ft_family *family;
  /* The kernels of one image, in the order in which they run. Those whose bit `optional` has are
   * not in every image. */
  const char *entries[FT_KERNELS_MOST];
  int kernel_count;
  unsigned optional;
  unsigned clustered; /* bits of those that run in clusters of as many blocks as a launch says */
  int main;           /* the main kernel, whose registers are reported */

  /* Makes every check of fatune_plan_run, then fills argument and kernels. */
  int (*prepare)(struct ft_launch *launch, const fatune_arguments *arguments);

  /* Encodes the tensor maps of a prepared launch; NULL if the kernels use none. FT_E_ARGUMENT if
   * TMA cannot take a tensor as it lies. */
  int (*map_tensors)(struct ft_launch *launch, const struct ft_driver *driver);

  /* Bytes of workspace of a run; NULL: 0. */
  int (*workspace)(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                   size_t *bytes);

  /* For the emulator: the memory that a kernel of a prepared launch may use. */
  void (*describe)(const struct ft_launch *launch, int kernel, struct ft_launch_tensors *tensors);
};

#endif
