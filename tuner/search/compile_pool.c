/* compile_pool.c: compiles ahead of the search, a bounded number of them.
 * in -> out: the next unclaimed candidate -> a slot, which ft_compile_pool_take empties. Slots are
 * emptied in order, but a slot whose kernel takes long to compile is skipped until it is ready. A
 * candidate that is not claimed yet may still change its place. The bound keeps a search that stops
 * early from having compiled hundreds of kernels for nothing. */
#include "tuner/search/compile_pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "generator/clock.h"
#include "generator/status.h"

struct slot {
  bool done;
  struct ft_compiled compiled;
};

struct ft_compile_pool {
  const struct ft_rig *rig;
  const struct ft_candidates *candidates;
  const bool *skip;
  struct slot *slots; /* one per candidate */
  int *order;         /* the candidates by place */
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int next;  /* the next place to be claimed */
  int taken; /* the search is done with all places before this one */
  int limit; /* no place from here on is claimed */
  int lookahead;
  bool closing;
  pthread_t *threads;
  int thread_count;
};

static void compile(struct ft_compile_pool *pool, int index, struct ft_compiled *compiled) {
  const double begin = ft_seconds_now();
  *compiled = (struct ft_compiled){0};
  compiled->status = pool->rig->compile(pool->rig->payload, &pool->candidates->list[index].config,
                                        &compiled->kernel);
  if (compiled->status != FT_OK) {
    snprintf(compiled->detail, sizeof compiled->detail, "%s", ft_detail());
  }
  compiled->seconds = ft_seconds_now() - begin;
}

/* The lock is held. False when there is nothing left to claim. */
static bool claim(struct ft_compile_pool *pool, int *index) {
  const int count = pool->candidates->count;
  for (;;) {
    while (pool->next < count && pool->skip && pool->skip[pool->order[pool->next]]) pool->next += 1;
    if (pool->closing || pool->next >= count) return false;
    if (pool->next < pool->taken + pool->lookahead && pool->next < pool->limit) break;
    pthread_cond_wait(&pool->changed, &pool->lock);
  }
  *index = pool->order[pool->next++];
  return true;
}

static void *work(void *payload) {
  struct ft_compile_pool *pool = payload;
  int index;
  pthread_mutex_lock(&pool->lock);
  while (claim(pool, &index)) {
    pthread_mutex_unlock(&pool->lock);
    compile(pool, index, &pool->slots[index].compiled);
    pthread_mutex_lock(&pool->lock);
    pool->slots[index].done = true;
    pthread_cond_broadcast(&pool->changed);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

/* First those that are not wanted, which have no claim to wait for. */
static void settle_order(struct ft_compile_pool *pool) {
  int place = 0;
  for (int wanted = 0; wanted < 2; wanted++) {
    for (int n = 0; n < pool->candidates->count; n++) {
      if ((pool->skip && pool->skip[n]) != wanted) pool->order[place++] = n;
    }
  }
}

int ft_compile_pool_open(struct ft_compile_pool **out, const struct ft_rig *rig,
                         const struct ft_candidates *candidates, const bool *skip, int jobs,
                         bool measures) {
  *out = NULL;
  if (jobs < 0) return ft_fail(FT_E_ARGUMENT, "jobs is %d; allowed: 0 and more", jobs);
  if (jobs == 0) jobs = (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (jobs < 1) jobs = 1;
  if (jobs > candidates->count) jobs = candidates->count;

  struct ft_compile_pool *pool = calloc(1, sizeof *pool);
  if (!pool) return ft_fail(FT_E_MEMORY, "no memory for the compiling threads");
  pool->rig = rig;
  pool->candidates = candidates;
  pool->skip = skip;
  /* A kernel a job is unfinished: under way, waiting for its turn, or being judged. What is being
   * measured takes no job's time. */
  pool->lookahead = measures ? jobs + 1 : jobs;
  pool->limit = candidates->count;
  pool->slots = calloc((size_t)candidates->count, sizeof *pool->slots);
  pool->threads = calloc((size_t)jobs, sizeof *pool->threads);
  pool->order = calloc((size_t)candidates->count, sizeof *pool->order);
  if (pool->order) settle_order(pool);
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->changed, NULL);
  if (!pool->slots || !pool->threads || !pool->order) {
    ft_compile_pool_close(pool);
    return ft_fail(FT_E_MEMORY, "no memory for the results of %d compiles", candidates->count);
  }
  while (pool->thread_count < jobs &&
         pthread_create(&pool->threads[pool->thread_count], NULL, work, pool) == 0) {
    pool->thread_count += 1;
  }
  *out = pool;
  return FT_OK;
}

int ft_compile_pool_candidate(struct ft_compile_pool *pool, int place) {
  pthread_mutex_lock(&pool->lock);
  if (pool->next <= place && pool->thread_count == 0) pool->next = place + 1;
  const int index = pool->order[place];
  /* One that is not wanted may be unclaimed still, but has its place now. */
  if (pool->next <= place && pool->skip && pool->skip[index]) pool->next = place + 1;
  pthread_mutex_unlock(&pool->lock);
  return index;
}

bool ft_compile_pool_prefer(struct ft_compile_pool *pool, ft_is_wanted *is_wanted, void *payload) {
  bool found = false;
  pthread_mutex_lock(&pool->lock);
  int *const order = pool->order;
  for (int place = pool->next; place < pool->candidates->count && !found; place++) {
    const int index = order[place];
    found = is_wanted(payload, &pool->candidates->list[index].config);
    if (!found) continue;
    memmove(&order[pool->next + 1], &order[pool->next],
            (size_t)(place - pool->next) * sizeof *order);
    order[pool->next] = index;
  }
  pthread_mutex_unlock(&pool->lock);
  return found;
}

void ft_compile_pool_limit(struct ft_compile_pool *pool, int limit) {
  pthread_mutex_lock(&pool->lock);
  pool->limit = limit;
  pthread_cond_broadcast(&pool->changed);
  pthread_mutex_unlock(&pool->lock);
}

bool ft_compile_pool_is_claimed(struct ft_compile_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  const int count = pool->candidates->count, end = pool->limit < count ? pool->limit : count;
  const bool claimed = pool->next >= end;
  pthread_mutex_unlock(&pool->lock);
  return claimed;
}

/* ---- what is taken next ---- */

/* The default, which is measured first, and what would be used without the search. */
enum { IN_ORDER = 2 };

/* So long the next in order is waited for. In its stead another is measured, and the thread that is
 * done with that compiles the next. */
static const long WAIT_NS = 10000000;

static bool is_done(const struct ft_compile_pool *pool, int place) {
  return pool->slots[pool->order[place]].done;
}

/* Puts the first claimed candidate that is done at this place, the lock being held. */
static bool bring_forward(struct ft_compile_pool *pool, int place) {
  int from = place;
  while (from < pool->next && !is_done(pool, from)) from++;
  if (from >= pool->next) return false;
  const int index = pool->order[from];
  memmove(&pool->order[place + 1], &pool->order[place],
          (size_t)(from - place) * sizeof *pool->order);
  pool->order[place] = index;
  return true;
}

static void wait_for_one(struct ft_compile_pool *pool, int place) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += WAIT_NS;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  bool in_time = place >= IN_ORDER;
  while (in_time && !is_done(pool, place))
    in_time = pthread_cond_timedwait(&pool->changed, &pool->lock, &until) == 0;
  while (!is_done(pool, place)) {
    if (place >= IN_ORDER && bring_forward(pool, place)) return;
    pthread_cond_wait(&pool->changed, &pool->lock);
  }
}

int ft_compile_pool_take(struct ft_compile_pool *pool, int place, struct ft_compiled *compiled) {
  int index = ft_compile_pool_candidate(pool, place);
  if (pool->thread_count == 0) { /* no thread could be started */
    compile(pool, index, compiled);
    return index;
  }
  pthread_mutex_lock(&pool->lock);
  pool->taken = place;
  pthread_cond_broadcast(&pool->changed);
  wait_for_one(pool, place);
  index = pool->order[place];
  struct slot *const slot = &pool->slots[index];
  slot->done = false; /* it is not taken twice */
  pthread_mutex_unlock(&pool->lock);
  *compiled = slot->compiled;
  slot->compiled = (struct ft_compiled){0}; /* the kernel is the caller's now */
  return index;
}

void ft_compile_pool_close(struct ft_compile_pool *pool) {
  if (!pool) return;
  pthread_mutex_lock(&pool->lock);
  pool->closing = true;
  pthread_cond_broadcast(&pool->changed);
  pthread_mutex_unlock(&pool->lock);
  for (int n = 0; n < pool->thread_count; n++) pthread_join(pool->threads[n], NULL);
  for (int n = 0; pool->slots && n < pool->candidates->count; n++) {
    ft_kernel_free(&pool->slots[n].compiled.kernel);
  }
  pthread_cond_destroy(&pool->changed);
  pthread_mutex_destroy(&pool->lock);
  free(pool->slots);
  free(pool->order);
  free(pool->threads);
  free(pool);
}
