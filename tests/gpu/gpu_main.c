/* gpu_main.c: runs the suites that need a GPU; with --child it is one of the processes they start.
 * in -> out: suite names (none: all) -> Check's report; exit 0 only if tests ran and all passed.
 * A CUDA context does not survive fork, so Check must not fork here and tests have no timeout. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu_child.h"
#include "tests/gpu/gpu_lab.h"
#include "tests/gpu/gpu_suites.h"

struct named_suite {
  const char *name;
  Suite *(*make)(void);
};

static const struct named_suite suites[] = {{"properties", make_gpu_properties_suite},
                                            {"masks", make_gpu_masks_suite},
                                            {"graph", make_gpu_graph_suite},
                                            {"plan", make_gpu_plan_suite},
                                            {"tune", make_gpu_tune_suite},
                                            {"gradients", make_gpu_gradients_suite},
                                            {"matrix", make_gpu_matrix_suite},
                                            {"backward", make_gpu_backward_suite},
                                            {"e4m3", make_gpu_e4m3_suite},
                                            {"quantise", make_gpu_quantise_suite},
                                            {"fp32", make_gpu_fp32_suite},
                                            {"scores", make_gpu_scores_suite}};

enum { SUITE_COUNT = (int)(sizeof suites / sizeof suites[0]) };

static const struct named_suite *find_suite(const char *name) {
  for (int i = 0; i < SUITE_COUNT; i++)
    if (strcmp(suites[i].name, name) == 0) return &suites[i];
  return NULL;
}

static int explain_unknown_suite(const char *name) {
  fprintf(stderr, "fatune_gpu_tests: no suite '%s'; there are:", name);
  for (int i = 0; i < SUITE_COUNT; i++) fprintf(stderr, " %s", suites[i].name);
  fputc('\n', stderr);
  return EXIT_FAILURE;
}

int main(int argc, char **argv) {
  if (argc > 2 && strcmp(argv[1], "--child") == 0) return gpu_child_main(argc - 2, argv + 2);
  for (int i = 1; i < argc; i++)
    if (!find_suite(argv[i])) return explain_unknown_suite(argv[i]);
  if (!gpu_lab_open()) return EXIT_FAILURE;

  SRunner *const runner = srunner_create(NULL);
  srunner_set_fork_status(runner, CK_NOFORK);
  for (int i = 0; i < SUITE_COUNT; i++)
    if (argc == 1) srunner_add_suite(runner, suites[i].make());
  for (int i = 1; i < argc; i++) srunner_add_suite(runner, find_suite(argv[i])->make());

  const double begin = gpu_seconds();
  srunner_run_all(runner, CK_NORMAL);
  const int ran = srunner_ntests_run(runner);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  printf("%d tests in %.1f s\n", ran, gpu_seconds() - begin);
  if (failed > 0) printf("again: FATUNE_TEST_SEED=%llu\n", (unsigned long long)gpu_lab()->seed);
  gpu_lab_close();
  return ran > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
