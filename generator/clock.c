/* clock.c: the monotonic clock, and seeds from the wall clock. */
#include "generator/clock.h"

#include <time.h>
#include <unistd.h>

double ft_seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

uint64_t ft_seed_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t bits = ((uint64_t)now.tv_sec << 20) ^ (uint64_t)now.tv_nsec ^ (uint64_t)getpid();
  return 1 + bits % INT64_MAX;
}
