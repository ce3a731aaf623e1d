/* descales_check.h: whether the descales of a run, which lie on the device, are above 0 and finite.
 * in -> out: arguments -> FT_OK, or FT_E_ARGUMENT with the batch entry and head. */
#ifndef RUNTIME_DESCALES_CHECK_H
#define RUNTIME_DESCALES_CHECK_H

#include "runtime/driver.h"
#include "runtime/launch_checks.h"

/* As ft_ragged_check, for the descales that are given. */
int ft_descales_check(const struct ft_request *request, const fatune_arguments *arguments,
                      const struct ft_driver *driver, cu_stream stream);

#endif
