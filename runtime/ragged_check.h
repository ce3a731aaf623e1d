/* ragged_check.h: whether the lengths of a ragged run, which lie on the device, are what they may
 * be. in -> out: arguments -> FT_OK, or FT_E_ARGUMENT with the batch entry. */
#ifndef RUNTIME_RAGGED_CHECK_H
#define RUNTIME_RAGGED_CHECK_H

#include "runtime/driver.h"
#include "runtime/launch_checks.h"

/* Copies the lengths to the host and waits for the stream, so it is for emulated GPUs and for
 * FATUNE_CHECK=1. Does nothing for a run that is not ragged, and while the stream is captured. */
int ft_ragged_check(const struct ft_request *request, const fatune_arguments *arguments,
                    const struct ft_driver *driver, cu_stream stream);

#endif
