/* gpu_cases.c: the requests of the matrix suite and their kernels.
 * in -> out: index, seed -> struct gpu_case; cases -> kernels in the session's store. */
#include "tests/gpu/gpu_cases.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/space.h"
#include "generator/status.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- requests ---- */

/* Around the edges of tiles and mma steps, and in between. */
static int64_t random_length(uint64_t *state) {
  static const int edges[] = {1,  2,  7,  8,   15,  16,  17,  31,  33,  63,  64,  65,
                              95, 96, 97, 127, 128, 129, 191, 193, 255, 256, 257, 385};
  if (gpu_random_below(state, 10) == 0) return 1;
  if (gpu_random_below(state, 2) == 0) return edges[gpu_random_below(state, COUNT(edges))];
  return 1 + gpu_random_below(state, 600);
}

static void choose_mask(struct ft_problem_options *options, uint64_t *state) {
  static const int sizes[][2] = {{16, 16}, {32, 64},  {64, 64},  {128, 128}, {64, 128}, {256, 64},
                                 {48, 32}, {128, 32}, {16, 128}, {192, 96},  {80, 48},  {64, 256}};
  /* 1e-9 keeps the one block that ft_problem_make always keeps. */
  static const double densities[] = {1e-9, 0.1, 0.25, 0.5, 0.75, 1};
  const int size = gpu_random_below(state, COUNT(sizes));
  options->request.mask_rows = sizes[size][0];
  options->request.mask_cols = sizes[size][1];
  options->request.mask_density = densities[gpu_random_below(state, COUNT(densities))];
  options->broadcast_mask = gpu_random_below(state, 3) == 0;
}

static void choose_heads(struct ft_request *request, uint64_t *state) {
  static const int groups[] = {1, 1, 2, 3, 4, 8};
  request->heads_kv = 1 + gpu_random_below(state, 3);
  request->heads_q = request->heads_kv * groups[gpu_random_below(state, COUNT(groups))];
  request->batch = 1 + gpu_random_below(state, 3);
}

/* Few enough rows that the CPU's float64 keeps up; group and lengths are what matters, so the
 * batch and the kv heads give way. */
static void limit_rows(struct ft_request *request, int64_t limit) {
  const int group = request->heads_q / request->heads_kv;
  while (request->batch > 1 && request->batch * request->heads_q * request->seqlen_q > limit)
    request->batch--;
  while (request->heads_kv > 1 && request->heads_q * request->seqlen_q > limit) {
    request->heads_kv--;
    request->heads_q = group * request->heads_kv;
  }
}

static void choose_request(struct ft_problem_options *options, int index) {
  static const double dropouts[] = {0.05, 0.1, 0.25, 0.5, 0.75, 0.9};
  uint64_t state = 0xFA70u + (uint64_t)index;
  struct ft_request *const request = &options->request;
  const int combination = index % 24;
  request->pass = FT_FORWARD;
  request->causal = (enum ft_causal)(combination % 3);
  request->dropout = combination / 3 % 2 == 1;
  request->dtype = combination / 12 == 0 ? FT_FP16 : FT_BF16;
  request->head_dim = request->head_dim_v = 16 + 8 * (index % 31);
  if (gpu_random_below(&state, 3) == 0) request->head_dim_v = 16 + 8 * gpu_random_below(&state, 31);
  request->seqlen_q = random_length(&state);
  request->seqlen_k = random_length(&state);
  choose_heads(request, &state);
  limit_rows(request, gpu_random_below(&state, 6) == 0 ? 4096 : 1536);
  request->mask_density = 1;
  if (combination / 6 % 2 == 1) choose_mask(options, &state);
  if (request->dropout) options->dropout = dropouts[gpu_random_below(&state, COUNT(dropouts))];
  options->layout = (enum ft_layout)gpu_random_below(&state, 3);
  options->want_lse = gpu_random_below(&state, 6) != 0;
  if (gpu_random_below(&state, 5) == 0) options->scale = 0.02 + 0.3 * gpu_random_below(&state, 2);
}

/* ---- configs ---- */

/* Each legal config is as likely as any other. */
static void random_config(const struct ft_request *request, uint64_t seed,
                          struct ft_config *chosen) {
  struct ft_space space;
  struct ft_config config;
  uint64_t seen = 0;
  gpu_assert_ok(ft_space_open(&space, request, &gpu_lab()->session->device.arch));
  while (ft_space_next(&space, &config))
    if (gpu_random(&seed) % ++seen == 0) *chosen = config;
  ck_assert_uint_gt(seen, 0);
}

void gpu_case_make(struct gpu_case *one, int index) {
  const struct ft_arch *const arch = &gpu_lab()->session->device.arch;
  memset(one, 0, sizeof *one);
  one->index = index;
  one->options.keep_host = true;
  one->options.seed = gpu_seed((uint64_t)index);
  choose_request(&one->options, index);
  gpu_assert_ok(ft_request_validate(&one->options.request));
  gpu_assert_ok(ft_default_config(&one->options.request, arch, &one->configs[0]));
  random_config(&one->options.request, ~one->options.seed, &one->configs[1]);
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
  while (started < gpu_lab()->threads - 1 && started < THREADS_MOST &&
         pthread_create(&threads[started], NULL, compile_some, &pool) == 0)
    started++;
  compile_some(&pool);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  return atomic_load(&pool.failed);
}
