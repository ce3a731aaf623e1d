/* test_gpu_gradients.c: what holds of a backward besides its numbers.
 * in -> out: large problems, whose O and LSE a forward's kernel has made -> right; deterministic
 * runs
 * -> equal bits; a captured run with seeds on the device -> that of the values; a tuned request ->
 * no candidate wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/gpu/gpu_runs.h"
#include "tests/gpu/gpu_scene.h"
#include "tests/gpu/gpu_suites.h"
#include "tuner/search/tune.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/problem_score.h"
#include "tuner/verify/problem_verify.h"
#include "tuner/verify/stopwatch.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- large ---- */

static const char *const large_requests[] = {"backward bf16 d128 hq16 hkv4 b2 nq8192 causal",
                                             "backward fp16 d64 hq8 b2 nq16384 dropout",
                                             "backward bf16 d128 hq8 nq8192 mask=128x128@0.25",
                                             "backward bf16 d256 hq8 nq4000 nk9000 causal dropout"};

START_TEST(large_problems_are_right) {
  gpu_check_large(large_requests[_i], NULL, 700 + (uint64_t)_i);
}
END_TEST

/* ---- the same bits ---- */

/* All gradients as they lie in memory, one after the other; to be freed. */
static unsigned char *fetch_gradients(const struct gpu_scene *scene, size_t *bytes) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  const struct ft_problem *const problem = scene->problem;
  *bytes = problem->bytes[FT_DQ] + problem->bytes[FT_DK] + problem->bytes[FT_DV];
  unsigned char *const made = malloc(*bytes), *to = made;
  ck_assert_ptr_nonnull(made);
  for (int buffer = FT_DQ; buffer <= FT_DV; to += problem->bytes[buffer++])
    gpu_assert_cuda(driver->copy_to_host(to, problem->data[buffer], problem->bytes[buffer], NULL));
  gpu_assert_ok(ft_stream_wait(gpu_lab()->session, NULL));
  return made;
}

static const char *const deterministic_requests[] = {
    "backward bf16 d64 hq16 b2 nq4096 deterministic causal",
    "backward bf16 d128 hq16 hkv4 nq4096 deterministic",
    "backward fp16 d128 hq8 nq4096 deterministic mask=128x128@0.5 dropout"};

START_TEST(deterministic_means_the_same_bits) {
  struct gpu_scene scene = gpu_scene_open(deterministic_requests[_i], NULL, 720 + (uint64_t)_i);
  fatune_arguments arguments = *ft_problem_arguments(scene.problem);
  size_t bytes;
  gpu_assert_ok(gpu_run_and_wait(scene.plan, &arguments));
  unsigned char *const once = fetch_gradients(&scene, &bytes);
  for (int n = 0; n < 5; n++) {
    gpu_assert_ok(ft_problem_poison(scene.problem, NULL));
    gpu_assert_ok(gpu_run_and_wait(scene.plan, &arguments));
    unsigned char *const again = fetch_gradients(&scene, &bytes);
    ck_assert_msg(memcmp(once, again, bytes) == 0, "run %d of %s differs", n + 1,
                  deterministic_requests[_i]);
    free(again);
  }
  free(once);
  gpu_scene_close(&scene);
}
END_TEST

/* What is captured is read by head, by key, by query and by all of them, and by many scores each.
 */
static const char captures[] =
    "local slope, of_key = tensor('slope', 'fp32', heads), tensor('of_key', 'bf16', heads, nk)\n"
    "local of_row, table = tensor('of_row', 'fp16', batch, nq), tensor('table', 'fp32', 64)\n"
    "local cap = scalar('cap')\n"
    "score = cap * tanh((s + of_key(h, j)) / cap) - slope(h) * abs(i - j) * 0.01 + of_row(b, i) *\n"
    "  s + table((i - j) % 64)";

/* The gradients of all that a problem's score captures, one after the other; to be freed. */
static float *fetch_captured(const struct gpu_scene *scene, size_t *count) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  const struct ft_problem_score *const score = &scene->problem->score;
  *count = 0;
  for (int bit = 0; bit < FT_GRADIENTS_MOST; bit++) *count += (size_t)score->gradient_counts[bit];
  float *const made = malloc(*count * sizeof *made), *to = made;
  ck_assert_ptr_nonnull(made);
  for (int bit = 0; bit < FT_GRADIENTS_MOST; to += score->gradient_counts[bit++])
    if (score->gradients[bit])
      gpu_assert_cuda(driver->copy_to_host(to, score->gradients[bit],
                                           (size_t)score->gradient_counts[bit] * sizeof *to, NULL));
  gpu_assert_ok(ft_stream_wait(gpu_lab()->session, NULL));
  return made;
}

START_TEST(gradients_of_captured_things_are_the_same_bits) {
  static const char *const names[] = {"slope", "of_key", "of_row", "table", "cap"};
  fatune_session *const session = gpu_lab()->session;
  int64_t number, wanted = 0;
  gpu_assert_ok(fatune_score_add(&number, session, "captures", captures));
  for (int i = 0; i < COUNT(names); i++) {
    int64_t bit;
    gpu_assert_ok(fatune_score_gradient(&bit, session, number, names[i]));
    wanted |= bit;
  }
  char text[160];
  snprintf(text, sizeof text,
           "backward bf16 d64 hq8 hkv4 b2 nq2048 causal deterministic score=%012llx+%lld",
           (unsigned long long)number, (long long)wanted);
  struct gpu_scene scene = gpu_scene_open(text, NULL, 730);
  const fatune_arguments *const arguments = ft_problem_arguments(scene.problem);
  size_t count;
  gpu_assert_ok(gpu_run_and_wait(scene.plan, arguments));
  float *const once = fetch_captured(&scene, &count);
  ck_assert_uint_gt(count, 64);
  for (int n = 0; n < 5; n++) {
    gpu_assert_ok(ft_problem_poison(scene.problem, NULL));
    gpu_assert_ok(gpu_run_and_wait(scene.plan, arguments));
    float *const again = fetch_captured(&scene, &count);
    ck_assert_msg(memcmp(once, again, count * sizeof *once) == 0, "run %d differs", n + 1);
    free(again);
  }
  free(once);
  gpu_scene_close(&scene);
}
END_TEST

/* ---- in a graph ---- */

/* Replayed twice: sums and counters begin anew each time. */
START_TEST(a_graph_replays_all_kernels) {
  const struct ft_driver *const driver = &gpu_lab()->session->driver;
  const struct gpu_graphs graphs = gpu_graphs_open();
  struct gpu_scene scene = gpu_scene_open(
      "backward bf16 d64 hq4 b2 nq300 nk400 causal dropout deterministic", NULL, 740);
  const fatune_arguments *const arguments = ft_problem_arguments(scene.problem);
  const uint64_t seeds[2] = {arguments->seed, arguments->offset};
  cu_stream stream = NULL;
  cu_address memory = 0;
  size_t bytes;
  gpu_assert_ok(gpu_run_and_wait(scene.plan, arguments));
  unsigned char *const expected = fetch_gradients(&scene, &bytes);
  gpu_assert_cuda(driver->stream_create(&stream, 0));
  gpu_assert_cuda(driver->memory_alloc(&memory, sizeof seeds));
  gpu_assert_cuda(driver->copy_to_device(memory, seeds, sizeof seeds, NULL));
  fatune_arguments unseeded = *arguments;
  unseeded.seed = unseeded.offset = 0;
  const cu_graph_exec exec = gpu_capture(&graphs, &scene, &unseeded, memory, stream);
  for (int n = 0; n < 2; n++) {
    gpu_assert_ok(ft_problem_poison(scene.problem, NULL));
    gpu_assert_ok(ft_stream_wait(gpu_lab()->session, NULL));
    gpu_assert_cuda(graphs.launch(exec, stream));
    gpu_assert_ok(ft_stream_wait(gpu_lab()->session, stream));
    unsigned char *const replayed = fetch_gradients(&scene, &bytes);
    ck_assert_msg(memcmp(expected, replayed, bytes) == 0, "replay %d differs", n);
    free(replayed);
  }
  free(expected);
  gpu_assert_cuda(graphs.destroy_exec(exec));
  gpu_assert_cuda(driver->memory_free(memory));
  gpu_assert_cuda(driver->stream_destroy(stream));
  gpu_scene_close(&scene);
}
END_TEST

/* ---- tuned ---- */

static const char *const tuned_requests[] = {
    "backward bf16 d64 hq4 b2 nq512 causal",
    "backward fp16 d96 dv64 hq4 hkv2 nq512 nk700 causal dropout mask=64x64@0.5",
    "backward bf16 d64 hq4 b2 nq512 deterministic"};

START_TEST(no_candidate_is_wrong) {
  char folder[128];
  snprintf(folder, sizeof folder, "%s/gradients-%d", gpu_lab()->folder, _i);
  ck_assert_msg(mkdir(folder, 0700) == 0, "mkdir %s", folder);
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  fatune_session *session = NULL;
  options.cache_dir = folder;
  gpu_assert_ok(fatune_session_open(&session, &options));
  const struct ft_request request = gpu_request(tuned_requests[_i]);
  const struct ft_tune_options tune_options = {
      .effort = FT_EFFORT_QUICK, .jobs = gpu_lab()->threads, .seed = gpu_seed(760)};
  struct ft_tune_summary summary;
  gpu_assert_ok(ft_tune(session, &request, &tune_options, &summary));
  printf("tune %s: %d candidates in %.1f s: %d ok, %d spilled, %d failed, %d wrong; best %.1f us, "
         "default %.1f us\n",
         tuned_requests[_i], summary.tried, summary.seconds, summary.ok, summary.spilled,
         summary.failed, summary.wrong, summary.best_us, summary.default_us);
  ck_assert(summary.measured);
  ck_assert_int_gt(summary.ok, 0);
  ck_assert_int_eq(summary.wrong, 0);
  fatune_session_close(session);
}
END_TEST

Suite *make_gpu_gradients_suite(void) {
  Suite *const suite = suite_create("gpu_gradients");
  TCase *const tests = tcase_create("gradients");
  tcase_add_loop_test(tests, large_problems_are_right, 0, COUNT(large_requests));
  tcase_add_loop_test(tests, deterministic_means_the_same_bits, 0, COUNT(deterministic_requests));
  tcase_add_test(tests, gradients_of_captured_things_are_the_same_bits);
  tcase_add_test(tests, a_graph_replays_all_kernels);
  tcase_add_loop_test(tests, no_candidate_is_wrong, 0, COUNT(tuned_requests));
  suite_add_tcase(suite, tests);
  return suite;
}
