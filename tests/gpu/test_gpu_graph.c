/* test_gpu_graph.c: runs captured into a CUDA graph, on streams, by threads.
 * in -> out: plan + problem -> captured, replayed, concurrent runs that must give the same bits. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_scene.h"
#include "tests/gpu/gpu_suites.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/stopwatch.h"

static size_t o_bytes(const struct gpu_scene *scene) {
  return scene->problem->bytes[FT_O];
}

/* O as bytes on the host, once `stream` is idle; to be freed. */
static void *fetch_o(const struct gpu_scene *scene, cu_address from, cu_stream stream) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  void *const o = malloc(o_bytes(scene));
  ck_assert_ptr_nonnull(o);
  gpu_assert_cuda(driver->copy_to_host(o, from, o_bytes(scene), stream));
  gpu_assert_ok(ft_stream_wait(gpu_lab()->session, stream));
  return o;
}

/* What a plain run with these seeds gives. */
static void *plain_run(struct gpu_scene *scene, uint64_t seed, uint64_t offset) {
  fatune_arguments arguments = *ft_problem_arguments(scene->problem);
  arguments.seed = seed;
  arguments.offset = offset;
  gpu_assert_ok(ft_problem_poison(scene->problem, NULL));
  gpu_assert_ok(fatune_plan_run(scene->plan, &arguments, NULL));
  return fetch_o(scene, scene->problem->data[FT_O], NULL);
}

/* ---- graphs ---- */

static void set_seeds(cu_address seeds, uint64_t seed, uint64_t offset) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  const uint64_t values[2] = {seed, offset};
  gpu_assert_cuda(driver->copy_to_device(seeds, values, sizeof values, NULL));
  gpu_assert_cuda(driver->stream_synchronize(NULL));
}

/* Each replay reads the seeds anew: dropout differs from step to step, as in training. */
START_TEST(graph_replays_with_seeds_on_the_device) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  const struct gpu_graphs graphs = gpu_graphs_open();
  struct gpu_scene scene =
      gpu_scene_open("forward bf16 d64 hq4 b2 nq300 nk400 causal dropout", NULL, 200);
  cu_stream stream = NULL;
  cu_address seeds = 0;
  gpu_assert_cuda(driver->stream_create(&stream, 0));
  gpu_assert_cuda(driver->memory_alloc(&seeds, 2 * sizeof(uint64_t)));
  const cu_graph_exec exec =
      gpu_capture(&graphs, &scene, ft_problem_arguments(scene.problem), seeds, stream);
  for (uint64_t step = 0; step < 3; step++) {
    const uint64_t seed = gpu_seed(300 + step), offset = gpu_seed(400 + step);
    void *const expected = plain_run(&scene, seed, offset);
    gpu_assert_ok(ft_problem_poison(scene.problem, NULL));
    set_seeds(seeds, seed, offset);
    gpu_assert_cuda(graphs.launch(exec, stream));
    void *const replayed = fetch_o(&scene, scene.problem->data[FT_O], stream);
    ck_assert_msg(memcmp(expected, replayed, o_bytes(&scene)) == 0, "replay %d differs", (int)step);
    free(expected);
    free(replayed);
  }
  gpu_assert_cuda(graphs.destroy_exec(exec));
  gpu_assert_cuda(driver->memory_free(seeds));
  gpu_assert_cuda(driver->stream_destroy(stream));
  gpu_scene_close(&scene);
}
END_TEST

/* What would compile and load is refused, and the capture goes on unharmed. A plan that the session
 * has made is shared. */
START_TEST(no_plan_is_made_in_a_capture) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  const struct gpu_graphs graphs = gpu_graphs_open();
  struct gpu_scene scene = gpu_scene_open("forward bf16 d64 hq2 nq128", NULL, 210);
  const fatune_request request = gpu_public_request(&scene.request);
  fatune_request other = request;
  other.head_dim = other.head_dim_v = 248;
  fatune_plan *same = NULL, *late = NULL;
  cu_stream stream = NULL;
  cu_graph graph = NULL;
  gpu_assert_cuda(driver->stream_create(&stream, 0));
  gpu_assert_cuda(graphs.begin(stream, 0));
  gpu_assert_ok(fatune_plan_run(scene.plan, ft_problem_arguments(scene.problem), stream));
  gpu_assert_ok(fatune_plan_make(&same, gpu_lab()->session, &request));
  gpu_assert_status(fatune_plan_make(&late, gpu_lab()->session, &other), FATUNE_E_NOT_PREPARED);
  ck_assert_ptr_null(late);
  gpu_assert_cuda(graphs.end(stream, &graph));
  ck_assert_ptr_nonnull(graph);
  gpu_assert_cuda(graphs.destroy(graph));
  gpu_assert_cuda(driver->stream_destroy(stream));
  fatune_plan_free(same);
  gpu_scene_close(&scene);
}
END_TEST

/* ---- threads ---- */

enum { THREADS = 8, RUNS = 40 };

/* One thread with a stream and an output of its own. */
struct worker {
  pthread_t thread;
  const struct gpu_scene *scene;
  cu_stream stream;
  cu_address o;
  int failures;
};

static void *run_often(void *payload) {
  struct worker *const worker = payload;
  fatune_arguments arguments = *ft_problem_arguments(worker->scene->problem);
  arguments.o.data = (void *)(uintptr_t)worker->o;
  arguments.lse = NULL;
  worker->failures = ft_session_enter(gpu_lab()->session) != FATUNE_OK;
  for (int n = 0; n < RUNS && worker->failures == 0; n++)
    worker->failures +=
        fatune_plan_run(worker->scene->plan, &arguments, worker->stream) != FATUNE_OK;
  ft_session_leave(gpu_lab()->session);
  return NULL;
}

static void start_worker(struct worker *worker, const struct gpu_scene *scene) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  worker->scene = scene;
  gpu_assert_cuda(driver->stream_create(&worker->stream, 1)); /* does not wait for stream NULL */
  gpu_assert_cuda(driver->memory_alloc(&worker->o, o_bytes(scene)));
  gpu_assert_cuda(driver->set_bytes(worker->o, 0xFF, o_bytes(scene), worker->stream));
  ck_assert_int_eq(pthread_create(&worker->thread, NULL, run_often, worker), 0);
}

START_TEST(many_threads_run_one_plan) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  struct gpu_scene scene =
      gpu_scene_open("forward fp16 d128 hq4 hkv2 b2 nq500 nk700 causal", NULL, 220);
  struct worker workers[THREADS] = {0};
  void *const expected = plain_run(&scene, 0, 0);
  for (int n = 0; n < THREADS; n++) start_worker(&workers[n], &scene);
  for (int n = 0; n < THREADS; n++) {
    pthread_join(workers[n].thread, NULL);
    ck_assert_int_eq(workers[n].failures, 0);
    void *const o = fetch_o(&scene, workers[n].o, workers[n].stream);
    ck_assert_msg(memcmp(expected, o, o_bytes(&scene)) == 0, "thread %d differs", n);
    free(o);
    gpu_assert_cuda(driver->memory_free(workers[n].o));
    gpu_assert_cuda(driver->stream_destroy(workers[n].stream));
  }
  free(expected);
  gpu_scene_close(&scene);
}
END_TEST

struct maker {
  pthread_t thread;
  const char *request;
  fatune_plan *plan;
  int status;
};

static void *make_plan(void *payload) {
  struct maker *const maker = payload;
  fatune_request request = FATUNE_REQUEST_INIT;
  maker->status = fatune_request_parse(&request, maker->request);
  if (maker->status == FATUNE_OK)
    maker->status = fatune_plan_make(&maker->plan, gpu_lab()->session, &request);
  return NULL;
}

/* No context is current in these threads; plans need none of the caller. */
START_TEST(many_threads_make_plans) {
  static const char *const requests[] = {"forward bf16 d40 nq100", "forward bf16 d48 nq100",
                                         "forward bf16 d40 nq100", "forward fp16 d40 nq100"};
  struct maker makers[4] = {{0}};
  for (int n = 0; n < 4; n++) {
    makers[n].request = requests[n];
    ck_assert_int_eq(pthread_create(&makers[n].thread, NULL, make_plan, &makers[n]), 0);
  }
  for (int n = 0; n < 4; n++) {
    pthread_join(makers[n].thread, NULL);
    ck_assert_int_eq(makers[n].status, FATUNE_OK);
    fatune_plan_free(makers[n].plan);
  }
}
END_TEST

Suite *make_gpu_graph_suite(void) {
  Suite *const suite = suite_create("gpu_graph");
  TCase *const tests = tcase_create("graph");
  tcase_add_test(tests, graph_replays_with_seeds_on_the_device);
  tcase_add_test(tests, no_plan_is_made_in_a_capture);
  tcase_add_test(tests, many_threads_run_one_plan);
  tcase_add_test(tests, many_threads_make_plans);
  suite_add_tcase(suite, tests);
  return suite;
}
