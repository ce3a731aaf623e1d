/* budget.h: what follows from (request, config): shared memory by buffer, registers by fragment,
 * threads. Pure functions; nothing here is ever stored as a choice.
 * in -> out: request + config + arch -> struct ft_budget. */
#ifndef GENERATOR_BUDGET_H
#define GENERATOR_BUDGET_H

#include <stddef.h>

#include "generator/arch.h"
#include "generator/config.h"
#include "generator/request.h"

enum { FT_BUDGET_MOST = 48 };

/* What every family has. Lengths of shared memory are in bytes; registers are 32-bit and per
 * thread. */
struct ft_budget {
  int threads;             /* of a block */
  int smem_bytes;          /* dynamic shared memory of a block */
  int ctas_per_sm;         /* blocks that the registers are to suffice for on one multiprocessor */
  int regs_estimate;       /* at the peak: fragments, addresses, statistics */
  int regs_limit;          /* what a thread that computes may have */
  int launch_regs;         /* with which every thread begins, where that is fixed; else 0 */
  int own[FT_BUDGET_MOST]; /* the family's own, in the order of its list */
};

/* One value of a budget by name. */
struct ft_budget_field {
  const char *name;
  const char *meaning;
  bool in_templates; /* templates read it as budget.name */
};

/* The values that every family has: index 0.. until NULL; *value is that of the budget. */
const struct ft_budget_field *ft_budget_common(const struct ft_budget *budget, int index,
                                               int *value);

/* All zero where a knob is outside its range (ft_config_out_of_range). */
struct ft_budget ft_budget_of(const struct ft_request *request, const struct ft_config *config,
                              const struct ft_arch *arch);

/* Blocks that fit on one multiprocessor at once with `registers` per thread (from the compiled
 * kernel, or ft_budget_registers). 0: does not fit. */
int ft_budget_occupancy(const struct ft_budget *budget, const struct ft_arch *arch, int registers);

/* Registers to expect of the compiled kernel. */
int ft_budget_registers(const struct ft_budget *budget);

#endif
