/* stopwatch.c: events on a stream, waited for with a deadline.
 * in -> out: stream -> times between events; idle, or the reason why not. */
#include "tuner/verify/stopwatch.h"

#include <time.h>

#include "generator/clock.h"
#include "generator/status.h"

enum { NOT_READY = 600 }; /* CUDA_ERROR_NOT_READY */

int ft_stopwatch_open(struct ft_stopwatch *watch, fatune_session *session, cu_stream stream,
                      int count) {
  *watch = (struct ft_stopwatch){.driver = &session->driver, .stream = stream};
  if (count > FT_STOPWATCH_EVENTS) {
    return ft_fail(FT_E_ARGUMENT, "%d events of a stopwatch, at most %d", count,
                   FT_STOPWATCH_EVENTS);
  }
  for (; watch->count < count; watch->count++) {
    FT_TRY(ft_driver_status(watch->driver,
                            watch->driver->event_create(&watch->events[watch->count], 0),
                            "cuEventCreate"));
  }
  return FT_OK;
}

void ft_stopwatch_close(struct ft_stopwatch *watch) {
  for (int n = 0; n < watch->count; n++) watch->driver->event_destroy(watch->events[n]);
}

int ft_stopwatch_record(struct ft_stopwatch *watch, int event) {
  return ft_driver_status(watch->driver,
                          watch->driver->event_record(watch->events[event], watch->stream),
                          "cuEventRecord");
}

/* Polls, because a wait in the driver could not be given up. NOT_READY: the time is over. */
static cu_result poll_event(const struct ft_stopwatch *watch, int event, double seconds) {
  const double deadline = ft_seconds_now() + seconds;
  for (int polls = 0;; polls++) {
    const cu_result result = watch->driver->event_query(watch->events[event]);
    if (result != NOT_READY || ft_seconds_now() > deadline) return result;
    if (polls > 100) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
  }
}

int ft_stopwatch_wait(const struct ft_stopwatch *watch, int event) {
  const cu_result result = poll_event(watch, event, FT_RUN_SECONDS);
  if (result != NOT_READY) return ft_driver_status(watch->driver, result, "cuEventQuery");
  return ft_fail(FT_E_DEVICE, "the GPU is still busy after %d s: a kernel hangs", FT_RUN_SECONDS);
}

int ft_stopwatch_interval(const struct ft_stopwatch *watch, int first, double *us) {
  float milliseconds = 0;
  FT_TRY(ft_driver_status(
      watch->driver,
      watch->driver->event_elapsed(&milliseconds, watch->events[first], watch->events[first + 1]),
      "cuEventElapsedTime"));
  *us = (double)milliseconds * 1e3;
  return FT_OK;
}

int ft_stream_wait(fatune_session *session, cu_stream stream) {
  struct ft_stopwatch watch;
  int status;
  FT_CHECK(ft_stopwatch_open(&watch, session, stream, 1));
  FT_CHECK(ft_stopwatch_record(&watch, 0));
  FT_CHECK(ft_stopwatch_wait(&watch, 0));
done:
  ft_stopwatch_close(&watch);
  return status;
}

enum ft_health ft_stream_health(fatune_session *session, cu_stream stream) {
  struct ft_stopwatch watch;
  enum ft_health health = FT_HEALTH_LOST;
  if (ft_stopwatch_open(&watch, session, stream, 1) == FT_OK &&
      ft_stopwatch_record(&watch, 0) == FT_OK) {
    const cu_result result = poll_event(&watch, 0, 1);
    if (result == NOT_READY) health = FT_HEALTH_BUSY;
    if (result == 0) health = FT_HEALTH_GOOD;
  }
  ft_stopwatch_close(&watch);
  return health;
}
