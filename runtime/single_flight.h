/* single_flight.h: of all threads of a session that need a kernel, one makes it, and the others
 * take what it has made. in -> out: key -> a flight to end, or the end of another thread's. */
#ifndef RUNTIME_SINGLE_FLIGHT_H
#define RUNTIME_SINGLE_FLIGHT_H

#include <pthread.h>
#include <stdbool.h>

#include "cache/kernel.h"

struct ft_flight; /* a kernel that a thread is making */

struct ft_flights {
  pthread_mutex_t lock;
  pthread_cond_t ended;
  struct ft_flight *first;
  double patience; /* seconds; who has waited so long for an owner, thread or process, goes ahead */
};

/* Longer than the longest compile: 25 s on a slow core for the largest backward. */
#define FT_FLIGHT_PATIENCE 120.0

void ft_flights_open(struct ft_flights *flights);
void ft_flights_close(struct ft_flights *flights);

/* true: another thread has made the kernel, or has failed: *status, its detail, and the kernel, the
 * caller's to free. false: the caller is to make it, and to end *flight; NULL: it waited too long,
 * or there is no memory, and has nothing to end. */
bool ft_flight_join(struct ft_flights *flights, const struct ft_digest *key,
                    struct ft_flight **flight, struct ft_kernel *kernel, int *status);

/* Tells those who wait. kernel: what was made if status is FT_OK; stays the caller's. */
void ft_flight_end(struct ft_flights *flights, struct ft_flight *flight, int status,
                   const struct ft_kernel *kernel);

#endif
