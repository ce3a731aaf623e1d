/* fake_graphs.h: a part of fake_cuda.c: streams that are captured, graphs that are replayed.
 * in -> out: driver calls -> success, counted objects. */
#ifndef TESTS_FAKE_GRAPHS_H
#define TESTS_FAKE_GRAPHS_H

/* FATUNE_FAKE_GRAPHS: streams can be captured. What is launched meanwhile is counted like any other
 * launch. */
DEFINE(cuStreamBeginCapture_v2, (cu_stream stream, int mode)) {
  FAKE_CALL("cuStreamBeginCapture_v2");
  (void)stream;
  (void)mode;
  return getenv("FATUNE_FAKE_GRAPHS") ? 0 : 801; /* NOT_SUPPORTED */
}

DEFINE(cuStreamEndCapture, (cu_stream stream, cu_graph *graph)) {
  (void)stream;
  return make_object("cuStreamEndCapture", (void **)graph);
}

DEFINE(cuGraphInstantiateWithFlags,
       (cu_graph_exec * exec, cu_graph graph, unsigned long long flags)) {
  (void)graph;
  (void)flags;
  return make_object("cuGraphInstantiateWithFlags", (void **)exec);
}

DEFINE(cuGraphLaunch, (cu_graph_exec exec, cu_stream stream)) {
  FAKE_CALL("cuGraphLaunch");
  (void)stream;
  return exec ? 0 : INVALID_VALUE;
}

DEFINE(cuGraphExecDestroy, (cu_graph_exec exec)) {
  free(exec);
  fake_count_live(-1);
  return fake_call("cuGraphExecDestroy");
}

DEFINE(cuGraphDestroy, (cu_graph graph)) {
  free(graph);
  fake_count_live(-1);
  return fake_call("cuGraphDestroy");
}

#endif
