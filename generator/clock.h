/* clock.h: the monotonic clock, and seeds from the wall clock. */
#ifndef GENERATOR_CLOCK_H
#define GENERATOR_CLOCK_H

#include <stdint.h>

/* Seconds of a monotonic clock: differences count, the zero means nothing. */
double ft_seconds_now(void);

/* A seed that differs from call to call and from process to process: 1 .. INT64_MAX. */
uint64_t ft_seed_now(void);

#endif
