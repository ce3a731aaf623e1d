/* launch.h: one run of a kernel.
 * in -> out: request, config + fatune_arguments -> struct ft_launch -> kernels on a stream. */
#ifndef RUNTIME_LAUNCH_H
#define RUNTIME_LAUNCH_H

#include "generator/arch.h"
#include "generator/budget.h"
#include "generator/config.h"
#include "generator/request.h"
#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "runtime/launch_parts.h"
#include "runtime/module.h"

/* Every check of fatune_plan_run. */
int ft_launch_prepare(struct ft_launch *launch, const struct ft_request *request,
                      const struct ft_config *config, const struct ft_arch *arch,
                      const fatune_arguments *arguments);

/* Enqueues all of it; the context must be current. */
int ft_launch_enqueue(const struct ft_launch *launch, const struct ft_driver *driver,
                      const struct ft_module *module, const struct ft_budget *budget,
                      cu_stream stream);

#endif
