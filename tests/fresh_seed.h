/* fresh_seed.h: another seed in every run; the test that fails with it prints it. */
#ifndef TESTS_FRESH_SEED_H
#define TESTS_FRESH_SEED_H

#include <stdint.h>
#include <time.h>

static inline uint64_t fresh_seed(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
}

#endif
