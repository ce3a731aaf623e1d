/* gpu_lab.c: the session, folder and seed of a run of the GPU suites.
 * in -> out: environment, GPU -> struct gpu_lab. */
#include "tests/gpu/gpu_lab.h"

#include <dlfcn.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "generator/status.h"
#include "tuner/verify/stopwatch.h"

/* Check gives tests no argument, so what they share must be found by a function. */
static struct gpu_lab the_lab;

const struct gpu_lab *gpu_lab(void) {
  return &the_lab;
}

static uint64_t seed_of_run(void) {
  const char *const given = getenv("FATUNE_TEST_SEED");
  if (given && *given) return strtoull(given, NULL, 0);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000003u + (uint64_t)now.tv_nsec / 1000u;
}

static void print_log(void *payload, const char *message) {
  (void)payload;
  fprintf(stderr, "fatune: %s\n", message);
}

/* Nothing a test does may reach the caches of the person who runs it. */
static bool make_folder(void) {
  const char *const base = getenv("TMPDIR");
  const int length = snprintf(the_lab.folder, sizeof the_lab.folder, "%s/fatune-gpu-XXXXXX",
                              base && *base && strlen(base) < 32 ? base : "/tmp");
  if (length < 0 || !mkdtemp(the_lab.folder)) {
    perror("fatune_gpu_tests: mkdtemp");
    return false;
  }
  return setenv("FATUNE_CACHE_DIR", the_lab.folder, 1) == 0 && unsetenv("FATUNE_SYSTEM_PATH") == 0;
}

bool gpu_lab_open(void) {
  const char *const timing = getenv("FATUNE_TEST_TIMING");
  the_lab.seed = seed_of_run();
  the_lab.threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
  the_lab.timing = timing && strcmp(timing, "1") == 0;
  if (!make_folder()) return false;

  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  options.log = print_log;
  options.emulate = getenv("FATUNE_TEST_EMULATED");
  int status = fatune_session_open(&the_lab.session, &options);
  /* The tests use the driver between fatune's calls, so its context stays current. */
  if (status == FT_OK) status = ft_session_enter(the_lab.session);
  if (status != FT_OK) {
    fprintf(stderr, "fatune_gpu_tests: %s: %s\n", ft_status_text(status), ft_detail());
    gpu_lab_close();
    return false;
  }
  printf("%s, driver %s, %d threads, FATUNE_TEST_SEED=%llu\n", the_lab.session->device.id,
         the_lab.session->device.driver, the_lab.threads, (unsigned long long)the_lab.seed);
  fflush(stdout);
  return true;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place) {
  (void)status, (void)type, (void)place;
  return remove(path);
}

void gpu_lab_close(void) {
  if (the_lab.session && the_lab.session->has_device) ft_session_leave(the_lab.session);
  fatune_session_close(the_lab.session);
  the_lab.session = NULL;
  if (the_lab.folder[0]) nftw(the_lab.folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

uint64_t gpu_random(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

int gpu_random_below(uint64_t *state, int limit) {
  return (int)(gpu_random(state) % (uint64_t)limit);
}

uint64_t gpu_seed(uint64_t salt) {
  uint64_t state = the_lab.seed ^ (salt + 1) * 0xD1B54A32D192ED03u;
  return gpu_random(&state);
}

double gpu_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void gpu_judge_time(const char *what, double us, double limit_us) {
  printf("time: %s: %.2f us (aim: at most %g)\n", what, us, limit_us);
  fflush(stdout);
  if (gpu_lab()->timing) ck_assert_msg(us <= limit_us, "%s takes %.2f us", what, us);
}

/* By its text, so that no word is forgotten here. Emulated runs in processes of their own come
 * here, too, where Check does not run. */
fatune_request gpu_public_request(const struct ft_request *request) {
  fatune_request made = FATUNE_REQUEST_INIT;
  struct ft_text text = FT_TEXT_INIT;
  ft_request_print(request, &text);
  if (ft_text_status(&text) != FT_OK || fatune_request_parse(&made, text.data) != FATUNE_OK) {
    fprintf(stderr, "request %s: %s\n", text.data ? text.data : "", fatune_detail());
    abort();
  }
  ft_text_free(&text);
  return made;
}

struct ft_request gpu_request(const char *text) {
  struct ft_request request;
  gpu_assert_ok(ft_request_parse(&request, text));
  return request;
}

fatune_plan *gpu_plan(const struct ft_request *request, const char *config) {
  const fatune_request wanted = gpu_public_request(request);
  fatune_plan *plan = NULL;
  if (config)
    gpu_assert_ok(fatune_plan_make_with(&plan, the_lab.session, &wanted, config));
  else
    gpu_assert_ok(fatune_plan_make(&plan, the_lab.session, &wanted));
  return plan;
}

int gpu_run_and_wait(void *plan, const fatune_arguments *arguments) {
  FT_TRY(fatune_plan_run(plan, arguments, NULL));
  return ft_stream_wait(the_lab.session, NULL);
}

static char *take(struct ft_text *text) {
  gpu_assert_ok(ft_text_status(text));
  return text->data;
}

char *gpu_config_text(const struct ft_config *config) {
  struct ft_text text = FT_TEXT_INIT;
  ft_config_print(config, &text);
  return take(&text);
}

char *gpu_request_text(const struct ft_request *request) {
  struct ft_text text = FT_TEXT_INIT;
  ft_request_print(request, &text);
  return take(&text);
}

void *gpu_driver_symbol(const char *name) {
  void *const symbol = dlsym(the_lab.session->driver.library, name);
  ck_assert_msg(symbol != NULL, "the driver lacks %s", name);
  return symbol;
}
