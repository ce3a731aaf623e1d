/* stopwatch.h: events on a stream, waited for with a deadline.
 * in -> out: stream -> times between events; idle, or the reason why not. */
#ifndef TUNER_STOPWATCH_H
#define TUNER_STOPWATCH_H

#include "runtime/session.h"

/* A kernel that hangs must not hang the tuner: every wait ends after this time. */
enum { FT_RUN_SECONDS = 20 };

enum { FT_STOPWATCH_EVENTS = 65 };

struct ft_stopwatch {
  const struct ft_driver *driver;
  cu_stream stream;
  cu_event events[FT_STOPWATCH_EVENTS];
  int count;
};

/* Makes `count` events. The stopwatch is to be closed even if this fails. */
int ft_stopwatch_open(struct ft_stopwatch *watch, fatune_session *session, cu_stream stream,
                      int count);
void ft_stopwatch_close(struct ft_stopwatch *watch);

int ft_stopwatch_record(struct ft_stopwatch *watch, int event);

/* Waits until the GPU has reached the event, at most FT_RUN_SECONDS. FT_E_DEVICE names the error,
 * or says that the GPU is still busy. */
int ft_stopwatch_wait(const struct ft_stopwatch *watch, int event);

/* Microseconds between events `first` and `first` + 1, which the GPU has reached. */
int ft_stopwatch_interval(const struct ft_stopwatch *watch, int first, double *us);

/* Waits until the stream is idle, as ft_stopwatch_wait does. */
int ft_stream_wait(fatune_session *session, cu_stream stream);

/* Whether later work can run. */
enum ft_health {
  FT_HEALTH_GOOD,
  FT_HEALTH_LOST, /* a kernel faulted; every later call fails */
  FT_HEALTH_BUSY  /* a kernel does not end */
};
enum ft_health ft_stream_health(fatune_session *session, cu_stream stream);

#endif
