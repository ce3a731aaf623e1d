/* launch_backward.h: one run of a backward's kernels.
 * in -> out: request, config + fatune_arguments -> struct ft_launch; bytes of workspace. */
#ifndef RUNTIME_LAUNCH_BACKWARD_H
#define RUNTIME_LAUNCH_BACKWARD_H

#include "generator/arch.h"
#include "generator/config.h"
#include "generator/request.h"
#include "runtime/fatune.h"
#include "runtime/launch_parts.h"

/* Every check of fatune_plan_run for a backward plan. */
int ft_launch_prepare_backward(struct ft_launch *launch, const struct ft_request *request,
                               const struct ft_config *config, const struct ft_arch *arch,
                               const fatune_arguments *arguments);

/* Bytes of device memory that the arguments' run needs; 0 in a forward. arguments NULL: those of
 * the request. */
int ft_launch_workspace(const struct ft_request *request, const struct ft_config *config,
                        const struct ft_arch *arch, const fatune_arguments *arguments,
                        size_t *bytes);

#endif
