/* test_program_shards.c: tuning shared out among processes, and one bundle for all of them.
 * in -> out: environments of Slurm, MPI, Kubernetes; processes side by side -> shares, choices ->
 * Check suite. */
#include "tests/suites.h"

#include <math.h>
#include <sys/wait.h>

#include "generator/status.h"
#include "tests/run_program.h"
#include "tuner/cli/cli_claims.h"
#include "tuner/cli/cli_shard.h"

/* ---- the environment ---- */

static const struct {
  const char *text, *environment; /* "NAME=VALUE NAME=VALUE" */
  int shard, shards;              /* shards 0: refused */
  const char *detail;
} starts[] = {
    {"3/8", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", 2, 8, NULL},
    {"auto", "SLURM_ARRAY_TASK_ID=0 SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=0", 0, 4, NULL},
    {"auto", "SLURM_ARRAY_TASK_ID=4 SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=1", 3, 4, NULL},
    {"auto",
     "SLURM_ARRAY_TASK_ID=14 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=10 "
     "SLURM_ARRAY_TASK_STEP=2",
     2, 3, NULL},
    {"auto", "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8", 5, 8, NULL},
    {"auto",
     "SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_MIN=1 SLURM_PROCID=3 "
     "SLURM_STEP_NUM_TASKS=4",
     7, 8, NULL},
    /* sbatch -n 4 without srun: one process */
    {"auto",
     "SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_MIN=1 SLURM_PROCID=0 "
     "SLURM_NTASKS=4",
     1, 2, NULL},
    {"auto", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", 1, 2, NULL},
    {"auto", "PMI_RANK=0 PMI_SIZE=16", 0, 16, NULL},
    {"auto", "PMI_RANK=3 PMI_SIZE=16 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=16", 3, 16, NULL},
    {"auto/5", "JOB_COMPLETION_INDEX=4", 4, 5, NULL},
    {"auto", "JOB_COMPLETION_INDEX=4", 0, 0, "auto/N"},
    {"auto/4", "JOB_COMPLETION_INDEX=4", 0, 0, "process 5 of 4"},
    {"auto", "", 0, 0, "SLURM_ARRAY_TASK_ID"},
    {"auto", "OMPI_COMM_WORLD_RANK=1", 0, 0, "allowed then: K/N"},
    {"auto", "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=2", 0, 0, "OMPI_COMM_WORLD_RANK is 2"},
    {"auto", "OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=2", 0, 0, "OMPI_COMM_WORLD_RANK is 'x'"},
    {"auto", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=0", 0, 0, "OMPI_COMM_WORLD_SIZE is '0'"},
    {"auto", "PMI_RANK=-1 PMI_SIZE=2", 0, 0, "PMI_RANK is '-1'"},
    {"auto", "SLURM_ARRAY_TASK_ID=9 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=1", 0, 0,
     "SLURM_ARRAY_TASK_ID is 9"},
    {"auto",
     "SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=5 "
     "SLURM_ARRAY_TASK_STEP=4",
     0, 0, "SLURM_ARRAY_TASK_ID is 3; allowed: 5 (SLURM_ARRAY_TASK_MIN) and each 4"},
    {"auto",
     "SLURM_ARRAY_TASK_ID=9 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=1 "
     "SLURM_ARRAY_TASK_STEP=0",
     0, 0, "SLURM_ARRAY_TASK_STEP is '0'"},
    {"auto/0", "PMI_RANK=0 PMI_SIZE=1", 0, 0, "auto/N"},
    {"auto/x", "PMI_RANK=0 PMI_SIZE=1", 0, 0, "auto/N"},
    {"automatic", "PMI_RANK=0 PMI_SIZE=1", 0, 0, "K/N"},
    {"2/1", "", 0, 0, "K/N"}};

static const char *const variables[] = {"SLURM_ARRAY_TASK_ID",
                                        "SLURM_ARRAY_TASK_COUNT",
                                        "SLURM_ARRAY_TASK_MIN",
                                        "SLURM_ARRAY_TASK_STEP",
                                        "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_NTASKS",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "JOB_COMPLETION_INDEX"};

START_TEST(shares_come_from_the_environment) {
  char environment[512];
  int shard = -1, shards = -1;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
  snprintf(environment, sizeof environment, "%s", starts[_i].environment);
  for (char *rest = environment, *one = strsep(&rest, " "); one && *one; one = strsep(&rest, " ")) {
    char *const value = strchr(one, '=');
    *value = '\0';
    setenv(one, value + 1, 1);
  }
  const int status = cli_shard("--shard", starts[_i].text, &shard, &shards);
  if (starts[_i].shards == 0) {
    ck_assert_int_eq(status, FT_E_ARGUMENT);
    ck_assert_msg(strstr(ft_detail(), starts[_i].detail) != NULL, "%s", ft_detail());
  } else {
    ck_assert_msg(status == FT_OK, "%s", ft_detail());
    ck_assert_int_eq(shard, starts[_i].shard);
    ck_assert_int_eq(shards, starts[_i].shards);
  }
}
END_TEST

/* ---- claims ---- */

/* Seconds of the searches of 23 requests, in their order: bench/results/nvidia-h200/
 * untuned_choice_96201.txt. */
static const double durations[] = {3.8, 9.7, 2.8, 3.9, 4.4, 5.2, 3.8, 4.6, 4.3, 4.3, 3.4, 3.7,
                                   3.6, 4.9, 2.9, 3.0, 4.3, 4.7, 4.3, 8.6, 3.6, 4.8, 2.7};
enum { SEARCHES = sizeof durations / sizeof *durations, GPUS = 2 };

static void open_claims(struct cli_claims **claims) {
  char path[128];
  snprintf(path, sizeof path, "%s/claims", folder);
  ck_assert_int_eq(cli_claims_open(claims, path), FT_OK);
}

static bool claimed(const struct cli_claims *claims, int request) {
  char text[32];
  bool ours;
  snprintf(text, sizeof text, "fp16 d64 nq%d/x", request + 1);
  ck_assert_msg(cli_claims_take(claims, text, &ours) == FT_OK, "%s", ft_detail());
  return ours;
}

/* Two processes whose searches take as long as those did on a GPU: each request is done by one of
 * them, and both end at about the same time. Every second request for each would be 1.76 times as
 * fast as one process. */
START_TEST(claims_share_the_time_evenly) {
  struct cli_claims *claims[GPUS];
  double busy[GPUS] = {0}, all = 0;
  int next[GPUS] = {0}, done = 0;
  for (int gpu = 0; gpu < GPUS; gpu++) open_claims(&claims[gpu]);
  while (next[0] < SEARCHES || next[1] < SEARCHES) {
    const int gpu = next[0] < SEARCHES && (next[1] == SEARCHES || busy[0] <= busy[1]) ? 0 : 1;
    const int request = next[gpu]++;
    if (!claimed(claims[gpu], request)) continue;
    ck_assert(claimed(claims[gpu], request)); /* as a worker asks that takes over */
    ck_assert(!claimed(claims[1 - gpu], request));
    busy[gpu] += durations[request];
    all += durations[request];
    done++;
  }
  ck_assert_int_eq(done, SEARCHES);
  ck_assert_double_gt(all / fmax(busy[0], busy[1]), 1.9);
  for (int gpu = 0; gpu < GPUS; gpu++) cli_claims_close(claims[gpu]);
  open_claims(&claims[0]);
  ck_assert(!claimed(claims[0], 0)); /* a claim stands when its process is gone */
  cli_claims_close(claims[0]);
}
END_TEST

START_TEST(a_worker_claims_for_its_supervisor) {
  struct cli_claims *claims;
  open_claims(&claims);
  const pid_t child = fork();
  if (child == 0) {
    const bool ours = claimed(claims, 1);
    cli_claims_close(claims);
    _exit(ours ? 0 : 1);
  }
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  ck_assert(claimed(claims, 1) && claimed(claims, 2));
  cli_claims_close(claims);
}
END_TEST

/* On the fake GPU, where each request's search is begun before the one before it ends. */
START_TEST(what_another_process_has_claimed_is_passed_over) {
  static const char *const texts[] = {"forward bf16 d16 nq16", "forward bf16 d16 nq999",
                                      "forward bf16 d32 nq16", "forward bf16 d32 nq999"};
  enum { TEXTS = sizeof texts / sizeof *texts, OTHERS = 1 };
  struct cli_claims *others;
  char line[512];
  bool ours;
  open_claims(&others);
  ck_assert_int_eq(cli_claims_take(others, texts[OTHERS], &ours), FT_OK);
  ck_assert(ours);
  setenv("FATUNE_LIBCUDA", FATUNE_FAKE_DIR "/libfake_cuda.so", 1);
  setenv("FATUNE_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
  snprintf(line, sizeof line,
           "tune --gpu auto --effort quick --shard 1/2 --claims %s/claims --json -q '%s' '%s' '%s' "
           "'%s'",
           folder, texts[0], texts[1], texts[2], texts[3]);
  expect(line, 5); /* the fake GPU computes nothing: no candidate is right */
  for (int n = 0; n < TEXTS; n++) {
    ck_assert_int_eq(strstr(output, texts[n]) != NULL, n != OTHERS);
    ck_assert_int_eq(cli_claims_take(others, texts[n], &ours), FT_OK);
    ck_assert_int_eq(ours, n == OTHERS);
  }
  cli_claims_close(others);
}
END_TEST

START_TEST(a_folder_that_cannot_be_is_told) {
  struct cli_claims *claims;
  ck_assert_int_eq(cli_claims_open(&claims, "/dev/null/claims"), FT_E_IO);
  ck_assert_msg(strstr(ft_detail(), "--claims '/dev/null/claims'") != NULL, "%s", ft_detail());
  ck_assert_ptr_null(claims);
}
END_TEST

/* ---- processes ---- */

enum { PROCESSES = 2 };

static const char *const requests[] = {"fp16 d64 hq8 nq512", "fp16 d64 hq8 nq1024 causal",
                                       "fp16 d128 hq8 nq512", "fp16 d64 hq8 nq256",
                                       "fp16 d128 hq4 nq2048 causal"};
enum { REQUESTS = sizeof requests / sizeof *requests };

/* All at once, each as a rank of MPI with a folder of its own; its output goes to a file there. */
static void run_ranks(const char *arguments) {
  pid_t children[PROCESSES];
  for (int rank = 0; rank < PROCESSES; rank++) {
    children[rank] = fork();
    if (children[rank] != 0) continue;
    char own[128], number[16], count[16], line[8192];
    snprintf(own, sizeof own, "%s/rank%d", folder, rank);
    snprintf(number, sizeof number, "%d", rank);
    snprintf(count, sizeof count, "%d", PROCESSES);
    setenv("FATUNE_CACHE_DIR", own, 1);
    setenv("OMPI_COMM_WORLD_RANK", number, 1);
    setenv("OMPI_COMM_WORLD_SIZE", count, 1);
    snprintf(line, sizeof line, "'%s' %s >%s.out 2>%s.err </dev/null", program, arguments, own,
             own);
    _exit(WEXITSTATUS(system(line)));
  }
  for (int rank = 0; rank < PROCESSES; rank++) {
    int status;
    ck_assert_int_eq(waitpid(children[rank], &status, 0), children[rank]);
    ck_assert_msg(status == 0, "rank %d of fatune %s: %d", rank, arguments, WEXITSTATUS(status));
  }
}

static json_t *output_of(int rank) {
  char name[32];
  json_error_t error;
  snprintf(name, sizeof name, "rank%d.out", rank);
  read_file(name, output, sizeof output);
  json_t *const root = json_loads(output, JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(root != NULL, "%s: %s", error.text, output);
  return root;
}

static void set_up(void) {
  begin_program_test();
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
}

static void tune_in_shares_with(const char *option) {
  char path[128], line[512];
  snprintf(path, sizeof path, "%s/shapes", folder);
  FILE *const file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  for (int i = 0; i < REQUESTS; i++) fprintf(file, "%s\n", requests[i]);
  fclose(file);
  snprintf(line, sizeof line, "tune --gpu a100 --effort quick --json --shard auto --shapes '%s' %s",
           path, option);
  run_ranks(line);
}

static void tune_in_shares(void) {
  tune_in_shares_with("");
}

/* Every request is tuned by one of the processes, and brought together by merge. */
START_TEST(processes_share_the_requests) {
  char line[512];
  size_t tuned = 0;
  tune_in_shares();
  for (int rank = 0; rank < PROCESSES; rank++) {
    json_t *const root = output_of(rank);
    const size_t count = json_array_size(json_object_get(root, "results"));
    ck_assert_uint_eq(count, rank == 0 ? 3 : 2);
    ck_assert_str_eq(text_at(json_object_get(root, "shard"), "of"), "requests");
    tuned += count;
    json_decref(root);
  }
  ck_assert_uint_eq(tuned, REQUESTS);
  snprintf(line, sizeof line, "cache merge '%s/rank0/tuning.db' '%s/rank1/tuning.db'", folder,
           folder);
  expect(line, 0);
  for (int i = 0; i < REQUESTS; i++) {
    snprintf(line, sizeof line, "explain --gpu a100 --json '%s'", requests[i]);
    expect(line, 0);
    json_t *const root = document("explain");
    ck_assert_str_eq(text_at(root, "hit"), "model");
    json_decref(root);
  }
}
END_TEST

/* Each request is one process's, whichever came first. */
START_TEST(processes_claim_the_requests) {
  char option[160];
  const char *tuned[REQUESTS];
  size_t count = 0;
  json_t *roots[PROCESSES];
  snprintf(option, sizeof option, "--claims '%s/claims'", folder);
  tune_in_shares_with(option);
  for (int rank = 0; rank < PROCESSES; rank++) {
    size_t at;
    json_t *result;
    roots[rank] = output_of(rank);
    json_array_foreach(json_object_get(roots[rank], "results"), at, result) {
      ck_assert_uint_lt(count, REQUESTS);
      tuned[count] = text_at(result, "request");
      for (size_t n = 0; n < count; n++) ck_assert_str_ne(tuned[n], tuned[count]);
      count++;
    }
  }
  ck_assert_uint_eq(count, REQUESTS);
  for (int rank = 0; rank < PROCESSES; rank++) json_decref(roots[rank]);
}
END_TEST

/* Of one request the candidates are shared, and the default is tried by each. */
START_TEST(processes_share_the_candidates_of_one_request) {
  run_ranks("tune --gpu a100 --effort quick --json --shard auto fp16 d64 hq8 nq1024");
  for (int rank = 0; rank < PROCESSES; rank++) {
    json_t *const root = output_of(rank);
    const json_t *const result = json_array_get(json_object_get(root, "results"), 0);
    ck_assert_str_eq(text_at(json_object_get(root, "shard"), "of"), "candidates");
    ck_assert_int_eq(json_integer_value(json_object_get(result, "tried")), 7);
    json_decref(root);
  }
}
END_TEST

/* Ranks that have but the bundle choose alike: the config, how it was found, and the kernel's text.
 */
START_TEST(one_bundle_gives_equal_choices_on_all_ranks) {
  char line[512], choices[PROCESSES][4096];
  tune_in_shares();
  snprintf(line, sizeof line, "cache merge '%s/rank1/tuning.db' '%s/rank0/tuning.db'", folder,
           folder);
  expect(line, 0);
  snprintf(line, sizeof line, "mkdir '%s/bundle' && rm -r '%s'/rank[01]", folder, folder);
  ck_assert_int_eq(system(line), 0);
  snprintf(line, sizeof line, "cache export --gpu a100 -o '%s/bundle/sm_80.fatune'", folder);
  expect(line, 0);
  snprintf(line, sizeof line, "%s/bundle", folder);
  setenv("FATUNE_SYSTEM_PATH", line, 1);
  /* Of what was tuned, and of what lies near it. */
  const char *const asked[] = {requests[0], requests[1], requests[4], "fp16 d64 hq8 nq700"};
  for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
    snprintf(line, sizeof line, "explain --gpu a100 --json '%s'", asked[i]);
    run_ranks(line);
    for (int rank = 0; rank < PROCESSES; rank++) {
      json_t *const root = output_of(rank);
      if (i < 3) ck_assert_str_eq(text_at(root, "hit"), "model");
      snprintf(choices[rank], sizeof choices[rank], "%s|%s|%s|%s", text_at(root, "hit"),
               text_at(root, "note"), text_at(root, "config"), text_at(root, "templates"));
      json_decref(root);
    }
    ck_assert_str_eq(choices[0], choices[1]);
  }
}
END_TEST

Suite *make_program_shards_suite(void) {
  Suite *const suite = suite_create("program_shards");
  TCase *const tests = tcase_create("environment");
  tcase_add_loop_test(tests, shares_come_from_the_environment, 0, sizeof starts / sizeof *starts);
  suite_add_tcase(suite, tests);
  TCase *const claims = tcase_create("claims");
  tcase_add_checked_fixture(claims, begin_program_test, end_program_test);
  tcase_add_test(claims, claims_share_the_time_evenly);
  tcase_add_test(claims, a_worker_claims_for_its_supervisor);
  tcase_add_test(claims, what_another_process_has_claimed_is_passed_over);
  tcase_add_test(claims, a_folder_that_cannot_be_is_told);
  suite_add_tcase(suite, claims);
  TCase *const processes = tcase_create("processes");
  tcase_set_timeout(processes, 120);
  tcase_add_checked_fixture(processes, set_up, end_program_test);
  tcase_add_test(processes, processes_share_the_requests);
  tcase_add_test(processes, processes_claim_the_requests);
  tcase_add_test(processes, processes_share_the_candidates_of_one_request);
  tcase_add_test(processes, one_bundle_gives_equal_choices_on_all_ranks);
  suite_add_tcase(suite, processes);
  return suite;
}
