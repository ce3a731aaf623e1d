/* device_graph.h: CUDA graphs through the driver API. in -> out: what is enqueued on a stream -> a
 * graph that can be launched again and again. A failure ends the program. */
#ifndef DEVICE_GRAPH_H
#define DEVICE_GRAPH_H

#include <device_memory.h>

/* It waits for no other stream: what is captured must not depend on the default one. */
static void *graph_stream(void) {
  enum { NON_BLOCKING = 1 };
  void *stream;
  driver_must(((int (*)(void **, unsigned))driver("cuStreamCreate"))(&stream, NON_BLOCKING),
              "cuStreamCreate");
  return stream;
}

static void graph_begin(void *stream) {
  enum { RELAXED = 2 };
  driver_must(((int (*)(void *, int))driver("cuStreamBeginCapture_v2"))(stream, RELAXED),
              "cuStreamBeginCapture");
}

/* A graph of what was launched since, ready to launch. */
static void *graph_end(void *stream) {
  void *graph, *ready;
  driver_must(((int (*)(void *, void **))driver("cuStreamEndCapture"))(stream, &graph),
              "cuStreamEndCapture");
  driver_must(((int (*)(void **, void *, unsigned long long))driver("cuGraphInstantiateWithFlags"))(
                  &ready, graph, 0),
              "cuGraphInstantiateWithFlags");
  return ready;
}

/* Launches it when copies on the default stream are done, and waits for its end. */
static void graph_replay(void *graph, void *stream) {
  driver_must(((int (*)(void *))driver("cuStreamSynchronize"))(NULL), "cuStreamSynchronize");
  driver_must(((int (*)(void *, void *))driver("cuGraphLaunch"))(graph, stream), "cuGraphLaunch");
  driver_must(((int (*)(void *))driver("cuStreamSynchronize"))(stream), "cuStreamSynchronize");
}

#endif
