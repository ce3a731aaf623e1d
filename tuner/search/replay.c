/* replay.c: repeats of a launch, kept as a graph.
 * in -> out: a launch -> one call that runs it many times. */
#include "tuner/search/replay.h"

#include "generator/status.h"
#include "runtime/session.h"

enum { CAPTURE_OF_THREAD = 1 }; /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */

/* The host enqueues a launch in 5 us, and in 16 where others need its cores; where these are the
 * compilers of the search it may be kept waiting for longer than a kernel takes. */
static const double SHORT_US = 500;

static int launch_each(const struct ft_replay *replay, cu_stream stream) {
  for (int n = 0; n < replay->repeats; n++)
    FT_TRY(replay->runnable->launch(replay->runnable->payload, stream));
  return FT_OK;
}

void ft_replay_open(struct ft_replay *replay, fatune_session *session,
                    const struct ft_runnable *runnable, int repeats, double us, cu_stream stream) {
  const struct ft_driver *const driver = &session->driver;
  cu_graph graph = NULL;
  *replay = (struct ft_replay){.driver = driver, .runnable = runnable, .repeats = repeats};
  if (us > SHORT_US || repeats < 2 || driver->capture_begin(stream, CAPTURE_OF_THREAD) != 0) return;
  const int status = launch_each(replay, stream);
  if (driver->capture_end(stream, &graph) != 0 || graph == NULL) return;
  if (status != FT_OK || driver->graph_instantiate(&replay->graph, graph, 0) != 0)
    replay->graph = NULL;
  driver->graph_destroy(graph);
}

int ft_replay_run(const struct ft_replay *replay, cu_stream stream) {
  if (replay->graph == NULL) return launch_each(replay, stream);
  return ft_driver_status(replay->driver, replay->driver->graph_launch(replay->graph, stream),
                          "cuGraphLaunch");
}

void ft_replay_close(struct ft_replay *replay) {
  if (replay->graph != NULL) replay->driver->graph_exec_destroy(replay->graph);
  replay->graph = NULL;
}
