/* pages_check.h: whether the page table of a run, which lies on the device, is what it may be.
 * in -> out: arguments -> FT_OK, or FT_E_ARGUMENT with the batch entry. */
#ifndef RUNTIME_PAGES_CHECK_H
#define RUNTIME_PAGES_CHECK_H

#include "runtime/driver.h"
#include "runtime/launch_checks.h"

/* As ft_ragged_check, for K and V in pages. */
int ft_pages_check(const struct ft_request *request, const fatune_arguments *arguments,
                   const struct ft_driver *driver, cu_stream stream);

#endif
