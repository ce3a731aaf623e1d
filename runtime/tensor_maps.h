/* tensor_maps.h: the tensors of a run as TMA wants them described.
 * in -> out: struct ft_launch, prepared -> its tensor maps. */
#ifndef RUNTIME_TENSOR_MAPS_H
#define RUNTIME_TENSOR_MAPS_H

#include "generator/config.h"
#include "runtime/driver.h"
#include "runtime/launch_parts.h"

/* For families that load by TMA, the maps of a prepared launch; nothing for others.
 * FT_E_ARGUMENT where a tensor lies as TMA cannot take it. */
int ft_launch_map_tensors(struct ft_launch *launch, const struct ft_config *config,
                          const struct ft_driver *driver);

#endif
