/* shared_plans.c: the plans that a session keeps, to be found by their request.
 * in -> out: a request as it was given -> the plan that was made for it, counted once more. */
#include "runtime/shared_plans.h"

#include <string.h>
#include <time.h>

/* This clock is some milliseconds coarse. Reading it does not enter the operating system. */
static double coarse_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The hash is of all bytes. Bytes between the fields may give one request two hashes: then its plan
 * is made twice. */
static uint64_t hash_of(const fatune_request *request) {
  uint64_t words[sizeof *request / sizeof(uint64_t)], hash = 0;
  _Static_assert(sizeof words == sizeof *request, "a request is whole words");
  memcpy(words, request, sizeof words);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
  }
  return hash;
}

/* Plans to be destroyed once the lock is free: unloading enters the driver. */
struct dropped {
  struct ft_shared_plan *plans[FT_PLANS_MOST];
  int count;
};

static void drop(struct ft_shared_plans *plans, int row, struct dropped *dropped) {
  struct ft_shared_plan *const plan = plans->rows[row].plan;
  plans->rows[row] = plans->rows[--plans->count];
  if (--plan->uses == 0) dropped->plans[dropped->count++] = plan;
}

static void drop_all(struct ft_shared_plans *plans, struct dropped *dropped) {
  while (plans->count > 0) drop(plans, plans->count - 1, dropped);
}

static void destroy_all(const struct dropped *dropped) {
  for (int i = 0; i < dropped->count; i++) dropped->plans[i]->destroy(dropped->plans[i]);
}

/* Trials of this session count at once. Whether the file has others is looked up now and then. */
static void check(struct ft_shared_plans *plans, struct dropped *dropped) {
  const double now = coarse_seconds();
  const bool in_time = now - plans->checked_at < FT_PLANS_CHECK_SECONDS;
  if (in_time && ft_store_taken_in(plans->store) == plans->state >> 32) return;
  const uint64_t state = ft_store_state(plans->store);
  plans->checked_at = now;
  if (state != plans->state) drop_all(plans, dropped);
  plans->state = state;
}

void ft_shared_plans_open(struct ft_shared_plans *plans, struct ft_store *store) {
  *plans = (struct ft_shared_plans){.store = store, .checked_at = -1};
  pthread_mutex_init(&plans->lock, NULL); /* of the default kind it cannot fail on Linux */
}

void ft_shared_plans_close(struct ft_shared_plans *plans) {
  struct dropped dropped = {.count = 0};
  drop_all(plans, &dropped);
  destroy_all(&dropped);
  pthread_mutex_destroy(&plans->lock);
}

static int find(const struct ft_shared_plans *plans, const fatune_request *request, uint64_t hash) {
  for (int i = 0; i < plans->count; i++)
    if (plans->rows[i].hash == hash &&
        memcmp(&plans->rows[i].plan->request, request, sizeof *request) == 0)
      return i;
  return -1;
}

struct ft_shared_plan *ft_shared_plan_take(struct ft_shared_plans *plans,
                                           const fatune_request *request, uint64_t *state) {
  struct dropped dropped = {.count = 0};
  struct ft_shared_plan *plan = NULL;
  const uint64_t hash = hash_of(request);
  pthread_mutex_lock(&plans->lock);
  check(plans, &dropped);
  const int row = find(plans, request, hash);
  if (row >= 0) {
    plan = plans->rows[row].plan;
    plans->rows[row].used = ++plans->turn;
    plan->uses++;
  }
  *state = plans->state;
  pthread_mutex_unlock(&plans->lock);
  if (dropped.count > 0) destroy_all(&dropped);
  return plan;
}

static int oldest(const struct ft_shared_plans *plans) {
  int row = 0;
  for (int i = 1; i < plans->count; i++)
    if (plans->rows[i].used < plans->rows[row].used) row = i;
  return row;
}

void ft_shared_plan_keep(struct ft_shared_plans *plans, struct ft_shared_plan *plan,
                         const fatune_request *request, uint64_t state) {
  struct dropped dropped = {.count = 0};
  const uint64_t hash = hash_of(request);
  pthread_mutex_lock(&plans->lock);
  check(plans, &dropped);
  /* Another thread may have made it, too, and been faster. */
  if (state == plans->state && find(plans, request, hash) < 0) {
    if (plans->count == FT_PLANS_MOST) drop(plans, oldest(plans), &dropped);
    plans->rows[plans->count].hash = hash;
    plans->rows[plans->count].used = ++plans->turn;
    plans->rows[plans->count++].plan = plan;
    plan->request = *request;
    plan->uses++;
  }
  pthread_mutex_unlock(&plans->lock);
  destroy_all(&dropped);
}

bool ft_shared_plan_release(struct ft_shared_plans *plans, struct ft_shared_plan *plan) {
  pthread_mutex_lock(&plans->lock);
  const bool last = --plan->uses == 0;
  pthread_mutex_unlock(&plans->lock);
  return last;
}
