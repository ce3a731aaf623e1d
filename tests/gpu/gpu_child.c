/* gpu_child.c: processes of their own that tests and bench/overheads.py start.
 * in -> out: --child NAME REQUEST -> session, plan, runs in a fresh process -> JSON on stdout;
 * --child emulate -> files. */
#include "tests/gpu/gpu_child.h"

#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generator/status.h"
#include "tests/gpu/gpu_emulated.h"
#include "tests/gpu/gpu_lab.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_options.h"
#include "tuner/verify/problem_verify.h"
#include "tuner/verify/stopwatch.h"

/* What every child works on. */
struct child {
  fatune_session *session;
  struct ft_request request;
  fatune_plan *plan;
  struct ft_problem *problem;
  double driver_seconds, session_seconds, plan_seconds;
  double run_seconds; /* the first run, until the GPU has done it */
};

static void print_log(void *payload, const char *message) {
  (void)payload;
  fprintf(stderr, "fatune: %s\n", message);
}

/* What any program with a GPU pays, fatune or not: the driver, and a context that is current. */
static int start_driver(void) {
  typedef int one(unsigned), get(int *, int), retain(void **, int), set(void *);
  int device = 0;
  void *context = NULL, *const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return FT_OK; /* what is wrong with it the session says */
  one *init;
  get *device_get;
  retain *context_retain;
  set *context_set;
  *(void **)&init = dlsym(library, "cuInit");
  *(void **)&device_get = dlsym(library, "cuDeviceGet");
  *(void **)&context_retain = dlsym(library, "cuDevicePrimaryCtxRetain");
  *(void **)&context_set = dlsym(library, "cuCtxSetCurrent");
  if (!init || !device_get || !context_retain || !context_set || init(0) ||
      device_get(&device, 0) || context_retain(&context, device) || context_set(context))
    return ft_fail(FT_E_DEVICE, "the driver gives no context");
  return FT_OK;
}

static int open_child(struct child *child, const char *text, int compile) {
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  options.log = print_log;
  options.compile = compile;
  FT_TRY(ft_request_parse(&child->request, text));
  const fatune_request request = gpu_public_request(&child->request);
  const double started = gpu_seconds();
  FT_TRY(start_driver());
  const double begin = gpu_seconds();
  child->driver_seconds = begin - started;
  FT_TRY(fatune_session_open(&child->session, &options));
  const double opened = gpu_seconds();
  FT_TRY(fatune_plan_make(&child->plan, child->session, &request));
  child->plan_seconds = gpu_seconds() - opened;
  child->session_seconds = opened - begin;
  return ft_session_enter(child->session);
}

static int make_problem(struct child *child) {
  const struct ft_problem_options options = {
      .request = child->request, .seed = 1, .keep_host = true, .want_lse = true};
  return ft_problem_make(&child->problem, child->session, &options);
}

static void close_child(struct child *child) {
  ft_problem_free(child->problem);
  fatune_plan_free(child->plan);
  fatune_session_close(child->session);
}

/* The first kernel of the process, timed and told. */
static int run_first(struct child *child) {
  FT_TRY(make_problem(child));
  const double begin = gpu_seconds();
  FT_TRY(fatune_plan_run(child->plan, ft_problem_arguments(child->problem), NULL));
  FT_TRY(ft_stream_wait(child->session, NULL));
  child->run_seconds = gpu_seconds() - begin;
  printf("{\"driver_us\": %.1f, \"session_us\": %.1f, \"plan_us\": %.1f, \"first_run_us\": %.1f, "
         "\"emitted\": %d, \"origin\": \"%s\", \"config\": \"%s\"}\n",
         child->driver_seconds * 1e6, child->session_seconds * 1e6, child->plan_seconds * 1e6,
         child->run_seconds * 1e6, atomic_load(&child->session->emitted),
         fatune_plan_origin(child->plan), fatune_plan_config(child->plan));
  return FT_OK;
}

static int run_warm(struct child *child, const char *request) {
  FT_TRY(open_child(child, request, 0));
  return run_first(child);
}

static int run_shipped(struct child *child, const char *request) {
  struct ft_comparison comparison;
  FT_TRY(open_child(child, request, -1));
  FT_TRY(run_first(child));
  FT_TRY(ft_problem_verify(child->problem, 256, 2, &comparison));
  if (comparison.error_ratio <= 1) return FT_OK;
  return ft_fail(FT_E_WRONG, "%s", comparison.worst);
}

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* A batch is far less than the driver's queue holds, so that no run waits for the GPU. */
static int run_host_time(struct child *child, const char *request) {
  enum { BATCHES = 101, RUNS = 100 };
  double us[BATCHES];
  FT_TRY(open_child(child, request, 0));
  FT_TRY(make_problem(child));
  const fatune_arguments *const arguments = ft_problem_arguments(child->problem);
  for (int batch = -10; batch < BATCHES; batch++) { /* the first ten are warm-up */
    const double begin = gpu_seconds();
    for (int n = 0; n < RUNS; n++) FT_TRY(fatune_plan_run(child->plan, arguments, NULL));
    if (batch >= 0) us[batch] = (gpu_seconds() - begin) / RUNS * 1e6;
    FT_TRY(ft_stream_wait(child->session, NULL));
  }
  qsort(us, BATCHES, sizeof *us, compare_doubles);
  printf("{\"run_us\": %.3f, \"run_us_p10\": %.3f, \"run_us_p90\": %.3f}\n", us[BATCHES / 2],
         us[BATCHES / 10], us[BATCHES * 9 / 10]);
  return FT_OK;
}

int gpu_child_main(int argc, char **argv) {
  static const struct {
    const char *name;
    int (*run)(struct child *child, const char *request);
  } kinds[] = {{"warm", run_warm}, {"shipped", run_shipped}, {"host-time", run_host_time}};
  struct child child = {0};
  int status = ft_fail(FT_E_ARGUMENT, "--child takes warm, shipped or host-time, and a request; or "
                                      "emulate, a file of jobs and two numbers");
  if (argc == 4 && strcmp(argv[0], "emulate") == 0)
    status =
        gpu_emulated_child(argv[1], (int)strtol(argv[2], NULL, 10), (int)strtol(argv[3], NULL, 10));
  for (size_t i = 0; argc == 2 && i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(argv[0], kinds[i].name) == 0) status = kinds[i].run(&child, argv[1]);
  if (status != FT_OK) fprintf(stderr, "%s: %s\n", ft_status_text(status), ft_detail());
  close_child(&child);
  return status == FT_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- the parent's side ---- */

/* The environment with some variables added or replaced; the array alone is to be freed. */
static char **environment_with(char *const variables[]) {
  size_t count = 0, more = 0;
  while (environ[count]) count++;
  while (variables[more]) more++;
  char **const made = calloc(count + more + 1, sizeof *made);
  if (!made) return NULL;
  memcpy(made, variables, more * sizeof *made);
  for (size_t i = 0; i < count; i++) {
    const size_t name = strcspn(environ[i], "=") + 1;
    bool replaced = false;
    for (size_t v = 0; variables[v]; v++) replaced |= strncmp(variables[v], environ[i], name) == 0;
    if (!replaced) made[more++] = environ[i];
  }
  return made;
}

pid_t gpu_child_start(const char *const arguments[]) {
  enum { ARGUMENTS_MOST = 8 };
  const char *all[ARGUMENTS_MOST + 1] = {"/proc/self/exe", "--child"};
  pid_t process;
  int count = 2;
  while (*arguments && count < ARGUMENTS_MOST) all[count++] = *arguments++;
  const int failed =
      posix_spawn(&process, all[0], NULL, NULL, (char *const *)(uintptr_t)all, environ);
  return failed ? -1 : process;
}

static void read_all(int descriptor, char *output, size_t size) {
  size_t length = 0;
  ssize_t count;
  while (length + 1 < size && (count = read(descriptor, output + length, size - 1 - length)) > 0)
    length += (size_t)count;
  output[length] = '\0';
}

int gpu_child_run(char *output, size_t size, const char *name, const char *request,
                  char *const variables[]) {
  char self[] = "/proc/self/exe", flag[] = "--child", kind[32], text[256];
  char *const arguments[] = {self, flag, kind, text, NULL};
  int ends[2], status = -1;
  pid_t process;
  posix_spawn_file_actions_t actions;
  snprintf(kind, sizeof kind, "%s", name);
  snprintf(text, sizeof text, "%s", request);
  char **const environment = environment_with(variables);
  ck_assert(environment && pipe(ends) == 0);
  ck_assert_int_eq(posix_spawn_file_actions_init(&actions), 0);
  ck_assert_int_eq(posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO), 0);
  ck_assert_int_eq(posix_spawn_file_actions_addclose(&actions, ends[0]), 0);
  const int failed = posix_spawn(&process, self, &actions, NULL, arguments, environment);
  close(ends[1]);
  if (!failed) {
    read_all(ends[0], output, size);
    waitpid(process, &status, 0);
  }
  close(ends[0]);
  posix_spawn_file_actions_destroy(&actions);
  free(environment);
  return !failed && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

double gpu_child_number(const char *output, const char *name) {
  char key[64];
  snprintf(key, sizeof key, "\"%s\": ", name);
  const char *const at = strstr(output, key);
  ck_assert_msg(at != NULL, "the child's output has no %s: %s", name, output);
  return strtod(at + strlen(key), NULL);
}
