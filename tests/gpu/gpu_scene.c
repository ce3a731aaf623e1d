/* gpu_scene.c: scenes and graphs of them.
 * in -> out: request -> plan, problem; a run -> graph. */
#include "tests/gpu/gpu_scene.h"

#include "tuner/verify/problem.h"
#include "tuner/verify/problem_options.h"
#include "tuner/verify/shape.h"

struct gpu_scene gpu_scene_open(const char *text, const char *config, uint64_t salt) {
  struct gpu_scene scene = {.request = gpu_request(text)};
  const struct ft_problem_options options = {.request = scene.request,
                                             .layout = FT_LAYOUT_BHSD,
                                             .seed = gpu_seed(salt),
                                             .keep_host = true,
                                             .want_lse = true,
                                             .want_dlse = true};
  scene.plan = gpu_plan(&scene.request, config);
  gpu_assert_ok(ft_problem_make(&scene.problem, gpu_lab()->session, &options));
  gpu_assert_ok(ft_problem_fit(scene.problem, scene.plan));
  return scene;
}

void gpu_scene_close(struct gpu_scene *scene) {
  ft_problem_free(scene->problem);
  fatune_plan_free(scene->plan);
}

struct gpu_graphs gpu_graphs_open(void) {
  struct gpu_graphs graphs = {0};
  *(void **)&graphs.begin = gpu_driver_symbol("cuStreamBeginCapture_v2");
  *(void **)&graphs.end = gpu_driver_symbol("cuStreamEndCapture");
  *(void **)&graphs.instantiate = gpu_driver_symbol("cuGraphInstantiateWithFlags");
  *(void **)&graphs.launch = gpu_driver_symbol("cuGraphLaunch");
  *(void **)&graphs.destroy_exec = gpu_driver_symbol("cuGraphExecDestroy");
  *(void **)&graphs.destroy = gpu_driver_symbol("cuGraphDestroy");
  return graphs;
}

cu_graph_exec gpu_capture(const struct gpu_graphs *graphs, const struct gpu_scene *scene,
                          const fatune_arguments *arguments, cu_address seeds, cu_stream stream) {
  fatune_arguments captured = *arguments;
  cu_graph graph = NULL;
  cu_graph_exec exec = NULL;
  captured.seed_device = (const uint64_t *)(uintptr_t)seeds;
  captured.offset_device = (const uint64_t *)(uintptr_t)(seeds + sizeof(uint64_t));
  gpu_assert_cuda(graphs->begin(stream, 0));
  gpu_assert_ok(fatune_plan_run(scene->plan, &captured, stream));
  gpu_assert_cuda(graphs->end(stream, &graph));
  gpu_assert_cuda(graphs->instantiate(&exec, graph, 0));
  gpu_assert_cuda(graphs->destroy(graph));
  return exec;
}
