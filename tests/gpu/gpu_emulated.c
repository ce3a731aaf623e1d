/* gpu_emulated.c: the runs of the matrix once more, on an emulated GPU, by processes of their own.
 * in -> out: cases -> <folder>/jobs: the GPU's name, then "case config seed text" a line ->
 * <folder>/<case>.<config> with the outputs of each run. */
#include "tests/gpu/gpu_emulated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generator/status.h"
#include "runtime/emulator/cxx_search.h"
#include "tests/gpu/gpu_child.h"
#include "tuner/verify/problem.h"

enum { PATH_ROOM = 192, PROCESSES_MOST = 256 };

static pid_t processes[PROCESSES_MOST];
static int process_count;

static void output_path(char path[PATH_ROOM], const char *folder, int index, int config) {
  (void)snprintf(path, PATH_ROOM, "%s/%d.%d", folder, index, config);
}

/* ---- the parent's side ---- */

static void folder_of_run(char folder[PATH_ROOM]) {
  (void)snprintf(folder, PATH_ROOM, "%s/emulated", gpu_lab()->folder);
}

/* The GPU by its own name where the table has it, else any of its kind: the text is the same. */
static void gpu_name(char name[64]) {
  const struct ft_arch *const arch = &gpu_lab()->session->device.arch;
  struct ft_arch known;
  (void)snprintf(name, 64, "%s", arch->name);
  if (ft_lua_gpu(gpu_lab()->session->lua, name, &known) != FT_OK || known.sm != arch->sm)
    ft_arch_target(arch, name);
}

static int write_jobs(const char *path, const struct gpu_case *cases, int count) {
  char gpu[64];
  FILE *const file = fopen(path, "w");
  if (!file) return ft_fail(FT_E_IO, "cannot write %s", path);
  gpu_name(gpu);
  fprintf(file, "%s\n", gpu);
  for (int i = 0; i < count; i++) {
    if (cases[i].options.coarse) continue; /* whose score another session does not know */
    for (int config = 0; config < GPU_CONFIGS; config++) {
      char *const text = gpu_config_text(&cases[i].configs[config]);
      fprintf(file, "%d %d %" PRIu64 " %s\n", cases[i].index, config, cases[i].options.seed, text);
      free(text);
    }
  }
  return fclose(file) == 0 ? FT_OK : ft_fail(FT_E_IO, "cannot write %s", path);
}

int gpu_emulated_start(const struct gpu_case *cases, int count) {
  char compiler[64], path[512], folder[PATH_ROOM], jobs[PATH_ROOM + 8], first[16], step[16];
  const int cores = gpu_lab()->threads < PROCESSES_MOST ? gpu_lab()->threads : PROCESSES_MOST;
  FT_TRY(ft_emulator_compiler(compiler, path));
  folder_of_run(folder);
  if (mkdir(folder, 0700) != 0) return ft_fail(FT_E_IO, "cannot make %s", folder);
  (void)snprintf(jobs, sizeof jobs, "%s/jobs", folder);
  FT_TRY(write_jobs(jobs, cases, count));
  (void)snprintf(step, sizeof step, "%d", cores);
  for (int n = 0; n < cores; n++) {
    (void)snprintf(first, sizeof first, "%d", n);
    const char *const arguments[] = {"emulate", jobs, first, step, NULL};
    processes[process_count] = gpu_child_start(arguments);
    if (processes[process_count] < 0) return ft_fail(FT_E_IO, "cannot start a process");
    process_count++;
  }
  return FT_OK;
}

int gpu_emulated_wait(void) {
  int failed = 0;
  for (int n = 0; n < process_count; n++) {
    int status = -1;
    if (waitpid(processes[n], &status, 0) != processes[n] || status != 0) failed++;
  }
  process_count = 0;
  return failed;
}

int gpu_emulated_load(struct gpu_output *output, int index, int config) {
  char folder[PATH_ROOM - 32], path[PATH_ROOM];
  (void)snprintf(folder, sizeof folder, "%s/emulated", gpu_lab()->folder);
  output_path(path, folder, index, config);
  const int status = gpu_output_load(output, path);
  unlink(path); /* all of them at once are some hundred MB */
  return status;
}

/* ---- a process ---- */

static int open_session(fatune_session **session, const char *gpu) {
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  options.emulate = gpu;
  options.memory_only = 1;
  FT_TRY(fatune_session_open(session, &options));
  return ft_session_needs_device(*session);
}

static int run_job(fatune_session *session, const struct ft_problem_options *options,
                   const char *config, const char *path) {
  const fatune_request request = gpu_public_request(&options->request);
  struct ft_problem *problem = NULL;
  fatune_plan *plan = NULL;
  struct gpu_output output = {0};
  int status;
  FT_TRY(ft_session_enter(session));
  FT_CHECK(ft_problem_make(&problem, session, options));
  FT_CHECK(fatune_plan_make_with(&plan, session, &request, config));
  FT_CHECK(ft_problem_fit(problem, plan));
  FT_CHECK(fatune_plan_run(plan, ft_problem_arguments(problem), NULL));
  FT_CHECK(gpu_output_fetch(&output, problem));
  FT_CHECK(gpu_output_save(&output, path));
done:
  gpu_output_free(&output);
  fatune_plan_free(plan);
  ft_problem_free(problem);
  ft_session_leave(session);
  return status;
}

static int run_line(fatune_session *session, const char *line, const char *folder) {
  struct ft_problem_options options;
  char path[PATH_ROOM], *text;
  const int index = (int)strtol(line, &text, 10);
  const int config = (int)strtol(text, &text, 10);
  const uint64_t seed = strtoull(text, &text, 10);
  if (*text != ' ') return ft_fail(FT_E_ARGUMENT, "no job: %s", line);
  gpu_case_options(&options, index, seed);
  output_path(path, folder, index, config);
  const int status = run_job(session, &options, text + 1, path);
  if (status != FT_OK)
    fprintf(stderr, "emulated run of case %d, config %d: %s\n  config %s\n", index, config,
            ft_detail(), text + 1);
  return status;
}

int gpu_emulated_child(const char *jobs, int first, int step) {
  enum { LINE = 512 };
  char line[LINE], folder[PATH_ROOM - 32];
  fatune_session *session = NULL;
  int status, failed = 0;
  if (step < 1) return ft_fail(FT_E_ARGUMENT, "every job of %d; allowed: 1 and more", step);
  FILE *const file = fopen(jobs, "r");
  if (!file || !fgets(line, sizeof line, file)) return ft_fail(FT_E_IO, "cannot read %s", jobs);
  line[strcspn(line, "\n")] = '\0';
  (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(jobs, '/') - jobs), jobs);
  FT_CHECK(open_session(&session, line));
  for (int n = 0; fgets(line, sizeof line, file); n++) {
    line[strcspn(line, "\n")] = '\0';
    if (n % step == first && run_line(session, line, folder) != FT_OK) failed++;
  }
  if (failed > 0) status = ft_fail(FT_E_WRONG, "%d emulated runs failed", failed);
done:
  (void)fclose(file); /* only read */
  fatune_session_close(session);
  return status;
}
