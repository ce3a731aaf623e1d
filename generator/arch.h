/* arch.h: what a GPU allows and how fast it is, as plain numbers.
 * in -> out: a row of templates/gpus.lua or the attributes of a real device -> struct ft_arch.
 * Emission depends on `sm` alone, so that one compiled kernel serves every GPU of a target. */
#ifndef GENERATOR_ARCH_H
#define GENERATOR_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "generator/config.h"
#include "generator/request.h"

struct ft_arch {
  char name[64];      /* "h200"; for a real device the driver's name of it */
  int sm;             /* compute capability x 10: 75, 80, 86, 89, 90, 100, 120 */
  int sm_count;       /* streaming multiprocessors */
  int smem_per_block; /* bytes of shared memory one block may opt in to */
  int smem_per_sm;    /* bytes shared by the blocks of one multiprocessor */
  int smem_reserved;  /* bytes the system takes from smem_per_sm for each block */
  int regs_per_sm;    /* 32-bit registers */
  int threads_per_sm;
  int blocks_per_sm;
  int64_t l2_bytes;
  double clock_ghz;         /* boost clock */
  double dram_gbs;          /* memory bandwidth, 10^9 bytes/s */
  double mma_flops_per_clk; /* dense fp16 -> fp32 FLOP per cycle and SM reachable by mma.sync */
};

/* Whether mma.sync of e4m3 has instructions of its own; else it is turned into fp16. */
bool ft_has_mma_of_e4m3(const struct ft_arch *arch);

/* FLOP per cycle and SM by mma.sync of operands of this dtype. */
double ft_mma_flops_per_clk(const struct ft_arch *arch, enum ft_dtype dtype);

/* "sm_90": the compute capability, by which device classes, --gpu and the files of shipped caches
 * name what kernels of all families are for. buffer holds at least 16 bytes. */
void ft_arch_target(const struct ft_arch *arch, char *buffer);

/* What NVRTC compiles a config for on this GPU: "sm_90", or "sm_90a" for a family whose
 * instructions no other compute capability has. */
void ft_config_target(const struct ft_config *config, const struct ft_arch *arch, char *buffer);

#endif
