/* gpu_scene.h: a plan with a problem to run it on, and its runs captured into a CUDA graph.
 * in -> out: text of a request -> scene; scene, seeds on the device -> graph to be launched. */
#ifndef TESTS_GPU_GPU_SCENE_H
#define TESTS_GPU_GPU_SCENE_H

#include "tests/gpu/gpu_lab.h"

struct gpu_scene {
  struct ft_request request;
  fatune_plan *plan;
  struct ft_problem *problem; /* with host copies, LSE and, of a backward, its gradient */
};

/* config NULL: the plan chooses. */
struct gpu_scene gpu_scene_open(const char *text, const char *config, uint64_t salt);
void gpu_scene_close(struct gpu_scene *scene);

/* Driver functions that fatune itself has no use for. */
struct gpu_graphs {
  cu_result (*begin)(cu_stream stream, int mode);
  cu_result (*end)(cu_stream stream, cu_graph *graph);
  cu_result (*instantiate)(cu_graph_exec *exec, cu_graph graph, unsigned long long flags);
  cu_result (*launch)(cu_graph_exec exec, cu_stream stream);
  cu_result (*destroy_exec)(cu_graph_exec exec);
  cu_result (*destroy)(cu_graph graph);
};

struct gpu_graphs gpu_graphs_open(void);

/* A run of the scene's plan with these arguments, but with seed and offset from two words on the
 * device. */
cu_graph_exec gpu_capture(const struct gpu_graphs *graphs, const struct gpu_scene *scene,
                          const fatune_arguments *arguments, cu_address seeds, cu_stream stream);

#endif
