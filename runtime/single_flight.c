/* single_flight.c: of all threads of a session that need a kernel, one makes it, and the others
 * take what it has made. in -> out: key -> a flight to end, or the end of another thread's. */
#include "runtime/single_flight.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "generator/status.h"

struct ft_flight {
  struct ft_digest key;
  struct ft_flight *next;
  int waiting;
  bool ended;
  int status;
  char detail[1024];
  struct ft_kernel kernel; /* a copy, where somebody waits for it */
};

void ft_flights_open(struct ft_flights *flights) {
  pthread_condattr_t monotonic;
  pthread_mutex_init(&flights->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&flights->ended, &monotonic);
  pthread_condattr_destroy(&monotonic);
  flights->first = NULL;
  flights->patience = FT_FLIGHT_PATIENCE;
}

void ft_flights_close(struct ft_flights *flights) {
  pthread_cond_destroy(&flights->ended);
  pthread_mutex_destroy(&flights->lock);
}

static struct ft_flight *find(const struct ft_flights *flights, const struct ft_digest *key) {
  struct ft_flight *flight = flights->first;
  while (flight && !ft_digest_equal(&flight->key, key)) flight = flight->next;
  return flight;
}

static struct ft_flight *begin(struct ft_flights *flights, const struct ft_digest *key) {
  struct ft_flight *const flight = calloc(1, sizeof *flight);
  if (!flight) return NULL;
  flight->key = *key;
  flight->next = flights->first;
  flights->first = flight;
  return flight;
}

static void free_flight(struct ft_flight *flight) {
  ft_kernel_free(&flight->kernel);
  free(flight);
}

static struct timespec after(double seconds) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  const long nanoseconds = time.tv_nsec + (long)((seconds - (double)(time_t)seconds) * 1e9);
  time.tv_sec += (time_t)seconds + nanoseconds / 1000000000L;
  time.tv_nsec = nanoseconds % 1000000000L;
  return time;
}

/* Whether the flight ended in time. */
static bool wait_for(struct ft_flights *flights, struct ft_flight *flight) {
  const struct timespec deadline = after(flights->patience);
  int error = 0;
  flight->waiting++;
  while (!flight->ended && error != ETIMEDOUT)
    error = pthread_cond_timedwait(&flights->ended, &flights->lock, &deadline);
  flight->waiting--;
  return flight->ended;
}

static int take(const struct ft_flight *flight, struct ft_kernel *kernel) {
  if (flight->status == FT_OK) return ft_kernel_copy(kernel, &flight->kernel);
  return ft_fail(flight->status, "%s", flight->detail);
}

bool ft_flight_join(struct ft_flights *flights, const struct ft_digest *key,
                    struct ft_flight **flight, struct ft_kernel *kernel, int *status) {
  *flight = NULL;
  pthread_mutex_lock(&flights->lock);
  struct ft_flight *const other = find(flights, key);
  const bool ended = other && wait_for(flights, other);
  if (!other) *flight = begin(flights, key);
  if (ended) {
    *status = take(other, kernel);
    if (other->waiting == 0) free_flight(other);
  }
  pthread_mutex_unlock(&flights->lock);
  return ended;
}

static void leave_list(struct ft_flights *flights, const struct ft_flight *flight) {
  struct ft_flight **link = &flights->first;
  while (*link != flight) link = &(*link)->next;
  *link = flight->next;
}

/* From here on nobody finds the flight: the last one who waits frees it. */
void ft_flight_end(struct ft_flights *flights, struct ft_flight *flight, int status,
                   const struct ft_kernel *kernel) {
  if (!flight) return;
  pthread_mutex_lock(&flights->lock);
  leave_list(flights, flight);
  flight->status = status;
  if (status == FT_OK && flight->waiting > 0)
    flight->status = ft_kernel_copy(&flight->kernel, kernel);
  if (flight->status != FT_OK) snprintf(flight->detail, sizeof flight->detail, "%s", ft_detail());
  flight->ended = true;
  if (flight->waiting > 0)
    pthread_cond_broadcast(&flights->ended);
  else
    free_flight(flight);
  pthread_mutex_unlock(&flights->lock);
}
