/* replay.h: repeats of a launch, kept as a graph.
 * in -> out: a launch -> one call that runs it many times.
 * A kernel of a few microseconds ends before a busy host has enqueued the next one, and then the
 * time between two events is the host's. A graph of all repeats is enqueued at once. */
#ifndef TUNER_REPLAY_H
#define TUNER_REPLAY_H

#include "runtime/driver.h"
#include "runtime/fatune.h"

/* A candidate that can run: launch() enqueues it once on the stream. */
struct ft_runnable {
  int (*launch)(void *payload, cu_stream stream);
  void *payload;
};

struct ft_replay {
  const struct ft_driver *driver;
  const struct ft_runnable *runnable;
  int repeats;
  cu_graph_exec graph; /* NULL: the launches are enqueued one by one */
};

/* us: of one launch, as far as it is known. Launches that take long, or that the driver does not
 * capture, are enqueued one by one. */
void ft_replay_open(struct ft_replay *replay, fatune_session *session,
                    const struct ft_runnable *runnable, int repeats, double us, cu_stream stream);
int ft_replay_run(const struct ft_replay *replay, cu_stream stream);
void ft_replay_close(struct ft_replay *replay);

#endif
