/* nvml.h: NVML, opened at run time: clocks, power, the driver's version.
 * in -> out: libnvidia-ml.so.1, device -> readings. */
#ifndef RUNTIME_NVML_H
#define RUNTIME_NVML_H

#include <stdbool.h>

#include "runtime/driver.h"

/* NVML (libnvidia-ml.so.1, or FATUNE_LIBNVML), for clocks and the driver's version. Opening
 * succeeds without one too; every function then answers 0 or false, as it does for NULL. */
struct ft_nvml;
int ft_nvml_open(struct ft_nvml **nvml, const struct ft_driver *driver, cu_device device);
void ft_nvml_close(struct ft_nvml *nvml);
bool ft_nvml_driver_version(struct ft_nvml *nvml, char version[32]);
int ft_nvml_sm_clock(struct ft_nvml *nvml);     /* MHz now; 0 unknown */
int ft_nvml_memory_clock(struct ft_nvml *nvml); /* MHz now; 0 unknown */
int ft_nvml_power(struct ft_nvml *nvml);        /* watts now; 0 unknown */

#endif
