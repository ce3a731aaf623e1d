/* launch.h: one run of a plan.
 * in -> out: plan + fatune_arguments -> struct ft_launch -> kernels on a stream. */
#ifndef RUNTIME_LAUNCH_H
#define RUNTIME_LAUNCH_H

#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "runtime/launch_family.h"
#include "runtime/module.h"

/* Makes every check of fatune_plan_run and prepares the launch. The plan must outlive the launch.
 */
int ft_launch_prepare(struct ft_launch *launch, const struct ft_launch_plan *plan,
                      const fatune_arguments *arguments);

/* Encodes the tensor maps of a prepared launch, for families that load by TMA; does nothing for
 * others. */
int ft_launch_map_tensors(struct ft_launch *launch, const struct ft_driver *driver);

/* Enqueues all kernels; the context must be current. */
int ft_launch_enqueue(const struct ft_launch *launch, const struct ft_driver *driver,
                      const struct ft_module *module, cu_stream stream);

/* Bytes of workspace that a run with these arguments needs. arguments NULL: the
 * request's lengths. */
int ft_launch_workspace(const struct ft_launch_plan *plan, const fatune_arguments *arguments,
                        size_t *bytes);

#endif
