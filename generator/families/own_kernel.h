/* own_kernel.h: what the families share that no request asks for and nothing tunes: they are not in
 * family.c, and have one config, ft_config_first.
 * in -> out: a family's name, its `plan` and tables -> its descriptor. */
#ifndef GENERATOR_FAMILIES_OWN_KERNEL_H
#define GENERATOR_FAMILIES_OWN_KERNEL_H

#include "generator/families/plan.h"

/* Wherever any kernel runs. */
static inline bool ft_serves_everywhere(const struct ft_request *request,
                                        const struct ft_arch *arch) {
  (void)request, (void)arch;
  return true;
}

/* A budget without shared memory. */
static inline void ft_plan_threads(struct ft_budget *budget, int threads,
                                   const struct ft_arch *arch) {
  budget->threads = threads;
  budget->ctas_per_sm = 1;
  budget->regs_limit = budget->regs_estimate = ft_registers_for(arch, threads, 4);
}

#define FT_OWN_KERNEL_FAMILY(family_name, serves_function)                                         \
  const struct ft_family ft_##family_name##_family = {                                             \
      .name = #family_name,                                                                        \
      .pass = FT_FORWARD,                                                                          \
      .instructions = "none",                                                                      \
      .target_suffix = "",                                                                         \
      .template_name = #family_name ".cu.in",                                                      \
      .serves = serves_function,                                                                   \
      .schedule = ft_schedule_lpt,                                                                 \
      FT_FAMILY_LISTS,                                                                             \
      .plan = plan,                                                                                \
  }

#endif
