/* gpu_cases.c: the requests of the matrix suite and their kernels.
 * in -> out: index, seed -> struct gpu_case; cases -> kernels in the session's store. */
#include "tests/gpu/gpu_cases.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/families/mma_forward.h"
#include "generator/space.h"
#include "generator/status.h"
#include "runtime/kernel_source.h"
#include "runtime/scores.h"
#include "tests/matrix_cases.h"
#include "tests/score_lab.h"

/* ---- configs ---- */

/* Each legal config of the family is as likely as any other; NULL: of all families. false: there is
 * none. */
static bool random_config_of(const struct ft_family *family, const struct ft_request *request,
                             uint64_t seed, struct ft_config *chosen) {
  struct ft_space space;
  struct ft_config config;
  uint64_t seen = 0;
  gpu_assert_ok(ft_space_open(&space, request, &gpu_lab()->session->device.arch));
  while (ft_space_next(&space, &config))
    if ((!family || config.family == family) && gpu_random(&seed) % ++seen == 0) *chosen = config;
  return seen > 0;
}

static void random_config(const struct ft_request *request, uint64_t seed,
                          struct ft_config *chosen) {
  ck_assert(random_config_of(NULL, request, seed, chosen));
}

static const struct matrix_size size = {
    .longest = 600, .rows = 1536, .rows_seldom = 4096, .tile = 1};
static const struct matrix_size size_scored = {
    .longest = 300, .rows = 768, .rows_seldom = 1536, .tile = 1};

/* Whether the request can be of this score function: a backward needs a derivative by s. */
static bool choose_score_of(struct ft_problem_options *options, const char *text) {
  fatune_session *const session = gpu_lab()->session;
  const struct ft_known_score *known = NULL;
  gpu_assert_ok(fatune_score_add(&options->request.score, session, "chosen", text));
  gpu_assert_ok(ft_session_score(session, options->request.score, &known));
  options->coarse = true;
  options->scale = exp2(-floor(log2(options->request.head_dim) / 2));
  return known->has_slope || options->request.pass == FT_FORWARD;
}

/* A score function of random operations. */
static void choose_random_score(struct ft_problem_options *options) {
  bool serves = false;
  for (uint64_t seed = options->seed; !serves; ++seed) {
    struct ft_text text = FT_TEXT_INIT;
    lab_random_score(seed, &text);
    gpu_assert_ok(ft_text_status(&text));
    serves = choose_score_of(options, text.data);
    ft_text_free(&text);
  }
}

/* One case in six has a built-in mask function; where its block mask is of density 1, the function
 * makes that, too. One in six has a random score function. */
static void choose_score(struct ft_problem_options *options) {
  static const int64_t numbers[] = {
      0x0b66b4ed2939, /* documents */
      0xf3e5f48750dc, /* neighbourhood */
      0xf3b887024fc7, /* block_causal */
      0x1124abb34044, /* prefix_lm */
  };
  enum { NUMBERS = sizeof numbers / sizeof *numbers };
  uint64_t state = ~options->seed;
  const uint64_t draw = gpu_random(&state) % 6;
  if (draw == 0) options->request.score = numbers[gpu_random(&state) % NUMBERS];
  if (draw == 1) choose_random_score(options);
}

void gpu_case_options(struct ft_problem_options *options, int index, uint64_t seed) {
  *options = (struct ft_problem_options){.keep_host = true, .seed = seed};
  matrix_choose(options, index, &size);
  choose_score(options);
}

void gpu_case_options_backward(struct ft_problem_options *options, int index) {
  *options =
      (struct ft_problem_options){.keep_host = true, .seed = gpu_seed(5000 + (uint64_t)index)};
  matrix_choose_backward(options, index, &size);
  choose_score(options);
}

static void choose_configs(struct gpu_case *one) {
  one->config_count = GPU_CONFIGS;
  const struct ft_request *const request = &one->options.request;
  gpu_assert_ok(ft_request_validate(request));
  gpu_assert_ok(ft_default_config(request, &gpu_lab()->session->device.arch, &one->configs[0]));
  random_config(request, ~one->options.seed, &one->configs[1]);
}

void gpu_case_make(struct gpu_case *one, int index) {
  memset(one, 0, sizeof *one);
  one->index = index;
  gpu_case_options(&one->options, index, gpu_seed((uint64_t)index));
  choose_configs(one);
}

void gpu_case_make_backward(struct gpu_case *one, int index) {
  memset(one, 0, sizeof *one);
  one->index = index;
  gpu_case_options_backward(&one->options, index);
  choose_configs(one);
}

void gpu_case_make_e4m3(struct gpu_case *one, int index) {
  struct ft_request *const request = &one->options.request;
  memset(one, 0, sizeof *one);
  one->index = index;
  gpu_case_options(&one->options, index, gpu_seed(9000 + (uint64_t)index));
  matrix_make_e4m3(&one->options, index);
  choose_configs(one);
  if (index % 2 == 1)
    (void)random_config_of(&ft_mma_forward_family, request, ~one->options.seed, &one->configs[1]);
}

void gpu_case_make_fp32(struct gpu_case *one, int index) {
  memset(one, 0, sizeof *one);
  one->index = index;
  if (index % 2 == 1)
    gpu_case_options_backward(&one->options, index);
  else
    gpu_case_options(&one->options, index, gpu_seed(12000 + (uint64_t)index));
  one->options.request.dtype = index / 2 % 4 == 3 ? FT_TF32 : FT_FP32;
  choose_configs(one);
}

/* Of all that the score captures and has a gradient by. */
static void want_gradients(struct ft_request *request) {
  const struct ft_known_score *known;
  gpu_assert_ok(ft_session_score(gpu_lab()->session, request->score, &known));
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit)
    if (known->gradients[bit].exists) request->score_gradients |= (int64_t)1 << bit;
}

/* Reads a tensor at the least of three integers, of which one is negated: see
 * templates/parts/ptx_signs.cu.in. */
static const char least_of_three[] =
    "score = s * 0.5 + tensor('table', 'fp32', 9)(min(nq, -floor(s * 3 + 0.3)))";

void gpu_case_make_scored(struct gpu_case *one, int index) {
  struct ft_problem_options *const options = &one->options;
  memset(one, 0, sizeof *one);
  one->index = index;
  *options =
      (struct ft_problem_options){.keep_host = true, .seed = gpu_seed(30000 + (uint64_t)index)};
  if (index % 3 == 2)
    matrix_choose_backward(options, index, &size_scored);
  else
    matrix_choose(options, index, &size_scored);
  if (index % 16 == 9 && options->request.pass == FT_FORWARD)
    ck_assert(choose_score_of(options, least_of_three));
  else
    choose_random_score(options);
  if (index % 6 == 5) want_gradients(&options->request);
  choose_configs(one);
  if (index / 3 % 2 == 1) one->configs[0] = one->configs[1];
  one->config_count = 1;
}

/* ---- kernels ---- */

struct pool {
  const struct gpu_case *cases;
  int count;
  atomic_int next, failed;
};

static int compile(const struct gpu_case *one, const struct ft_config *config) {
  fatune_session *const session = gpu_lab()->session;
  struct ft_source source = {0};
  struct ft_kernel kernel = {0};
  bool compiled;
  FT_TRY(ft_session_emit(session, &one->options.request, &session->device.arch, config, &source));
  const int status = ft_session_kernel(session, &source, NULL, &kernel, &compiled);
  ft_source_free(&source);
  if (status == FT_OK) ft_kernel_free(&kernel);
  return status;
}

/* Check's assertions belong to the main thread alone. */
static void *compile_some(void *payload) {
  struct pool *const pool = payload;
  for (;;) {
    const int job = atomic_fetch_add(&pool->next, 1);
    if (job >= pool->count * GPU_CONFIGS) return NULL;
    const struct gpu_case *const one = &pool->cases[job / GPU_CONFIGS];
    if (job % GPU_CONFIGS >= one->config_count) continue;
    if (compile(one, &one->configs[job % GPU_CONFIGS]) == FT_OK) continue;
    fprintf(stderr, "case %d, config %d: %s\n", one->index, job % GPU_CONFIGS, ft_detail());
    atomic_fetch_add(&pool->failed, 1);
  }
}

int gpu_cases_compile(const struct gpu_case *cases, int count) {
  enum { THREADS_MOST = 64 };
  pthread_t threads[THREADS_MOST];
  struct pool pool = {.cases = cases, .count = count};
  int started = 0;
  if (gpu_lab()->session->driver.emulated) return 0; /* whose kernels are in no store */
  while (started < gpu_lab()->threads - 1 && started < THREADS_MOST &&
         pthread_create(&threads[started], NULL, compile_some, &pool) == 0)
    started++;
  compile_some(&pool);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  return atomic_load(&pool.failed);
}
