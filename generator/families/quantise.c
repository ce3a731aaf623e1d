/* quantise.c: the kernels that turn a tensor into e4m3 with descales.
 * in -> out: request -> budget. */
#include "generator/families/quantise.h"

#include <stdint.h>
#include <string.h>

#include "generator/families/own_kernel.h"
#include "generator/key_parts.h"

FT_DEFINE_TABLES(FT_QUANTISE_KNOBS, FT_QUANTISE_BUDGET);

static bool serves(const struct ft_request *request, const struct ft_arch *arch) {
  enum { WITH_E4M3 = 89 };
  return arch->sm >= WITH_E4M3 && ft_dtype_bytes(request->dtype) == 2;
}

enum { WARP = 32, ROWS_OF_WARP = 16, CLUSTER_MOST = 16 };

/* Two blocks on a multiprocessor where their registers fit, so that one computes while the other
 * waits; up to 192 KiB in the rings of both. With 128 columns ptxas spills for sm_89 alone. */
static void plan_ring(struct ft_quantise_budget *own, struct ft_budget *budget, int head_dim,
                      int warps, const struct ft_arch *arch) {
  enum { RINGS_MOST = 192 * 1024 };
  const int half_of_registers = arch->sm < 90 ? 112 : 128; /* columns */
  const int task = own->rows * head_dim * (int)sizeof(uint16_t);
  const int largest = 2 * warps * (int)sizeof(float);
  own->blocks = head_dim <= half_of_registers ? 2 : 1;
  const int room = arch->smem_per_sm / own->blocks - arch->smem_reserved - largest;
  own->stages = max_int(1, min_int(room, RINGS_MOST / own->blocks) / task);
  budget->smem_bytes = own->stages * task + largest;
}

/* Clusters of 16 blocks, each with most of a multiprocessor's shared memory in its ring: sm_90,
 * sm_100 and sm_103. With tasks of 32 KiB up to d128 blocks of heads that fit were fastest on an
 * H200. */
static void plan_heads(struct ft_quantise_budget *own, const struct ft_request *request,
                       const struct ft_arch *arch) {
  enum { WITH_CLUSTERS = 90, SMEM_LEAST = 200 * 1024, NARROW = 64, STAGES_MOST = 14 };
  enum { MESSAGE = 16, BARRIERS = 16, PARITIES = 2 };
  if (arch->sm < WITH_CLUSTERS || arch->smem_per_block < SMEM_LEAST) return;
  own->head_warps = request->head_dim <= NARROW ? 16 : 8;
  const int task = ROWS_OF_WARP * own->head_warps * request->head_dim * (int)sizeof(uint16_t);
  const int rest =
      PARITIES * (own->head_warps * (int)sizeof(float) + MESSAGE * (1 + CLUSTER_MOST)) + BARRIERS;
  own->head_stages = min_int(STAGES_MOST, (arch->smem_per_block - rest) / task);
  own->head_smem_bytes = own->head_stages * task + rest;
}

/* Clusters of so many blocks or more: a larger one where its rounds take an eighth less. */
static int cluster_of_few_rounds(int cluster, int64_t tasks, int64_t heads,
                                 const struct ft_arch *arch) {
  int64_t least = INT64_MAX / CLUSTER_MOST;
  for (struct ft_walks clusters = {.blocks_per_sm = 1, .cluster = cluster};
       clusters.cluster <= CLUSTER_MOST && clusters.cluster <= tasks &&
       clusters.cluster <= arch->sm_count;
       clusters.cluster *= 2) {
    const int64_t at_once = ft_clusters_at_once(&clusters, arch);
    const int64_t rounds = (heads + at_once - 1) / at_once;
    const int64_t sixteenths = rounds * CLUSTER_MOST / clusters.cluster;
    if (8 * sixteenths > 7 * least) continue;
    least = sixteenths;
    cluster = clusters.cluster;
  }
  return cluster;
}

/* The descale of a rotated head of many tasks is guessed, so that its rows are read once and need
 * not fit. Rows of others that do not fit come twice: the limit is where two kernels read as much.
 */
int ft_quantise_cluster(const struct ft_quantise_budget *budget, int64_t rows, int64_t heads,
                        bool rotated, const struct ft_arch *arch) {
  if (budget->head_stages == 0) return 0;
  const int64_t of_task = ROWS_OF_WARP * budget->head_warps, tasks = (rows + of_task - 1) / of_task;
  const int half = (budget->head_stages + 1) / 2;
  if (rotated && tasks > 8 * half) return cluster_of_few_rounds(1, tasks, heads, arch);
  struct ft_walks clusters = {.blocks_per_sm = 1, .cluster = 1};
  while (clusters.cluster < CLUSTER_MOST && tasks > (int64_t)clusters.cluster * half)
    clusters.cluster *= 2;
  const int64_t of_block = (tasks + clusters.cluster - 1) / clusters.cluster;
  const int64_t twice = of_block - budget->head_stages;
  if (twice <= 0) return cluster_of_few_rounds(clusters.cluster, tasks, heads, arch);
  const int64_t at_once = ft_clusters_at_once(&clusters, arch);
  const int64_t places = (heads + at_once - 1) / at_once * at_once;
  return 8 * twice > 6 * of_block || 2 * places > 3 * heads ? 0 : clusters.cluster;
}

static void plan(struct ft_budget *budget, const struct ft_request *request,
                 const struct ft_config *config, const struct ft_arch *arch) {
  enum { COLUMNS = 512 };
  const int warps = ft_config_block_m(config);
  /* Finders that together load some 128 KiB at a time keep the memory of an H200 busy. */
  struct ft_quantise_budget own = {
      .rows = ROWS_OF_WARP * warps,
      .finders = min_int(COLUMNS / request->head_dim, arch->threads_per_sm / (WARP * warps))};
  ft_plan_threads(budget, WARP * warps, arch);
  plan_ring(&own, budget, request->head_dim, warps, arch);
  if (request->head_dim_v == request->head_dim) plan_heads(&own, request, arch);
  budget->ctas_per_sm = own.blocks;
  budget->regs_limit = budget->regs_estimate = ft_registers_for(arch, WARP * warps, own.blocks);
  memcpy(budget->own, &own, sizeof own);
}

FT_OWN_KERNEL_FAMILY(quantise, serves);
