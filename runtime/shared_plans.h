/* shared_plans.h: the plans that a session keeps, to be found by their request.
 * in -> out: a request as it was given -> the plan that was made for it, counted once more.
 *
 * Equal requests share one plan while it is used, and for a while after: the most recent ones stay,
 * loaded, until others take their place or the session is closed. All are let go when a trial may
 * have changed what is chosen: at once if it was put by this session, and within
 * FT_PLANS_CHECK_SECONDS if another process has written to tuning.db. */
#ifndef RUNTIME_SHARED_PLANS_H
#define RUNTIME_SHARED_PLANS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/store.h"
#include "runtime/fatune.h"

enum { FT_PLANS_MOST = 32 };

#define FT_PLANS_CHECK_SECONDS 0.1

/* What a plan begins with. */
struct ft_shared_plan {
  void (*destroy)(struct ft_shared_plan *plan); /* once nobody uses it */
  fatune_request request;                       /* as it was given, where the plan is kept */
  int uses; /* under the lock; that it is kept counts as one; 1 to begin with */
};

struct ft_shared_plans {
  pthread_mutex_t lock;
  struct ft_store *store;
  struct {
    uint64_t hash, used;
    struct ft_shared_plan *plan;
  } rows[FT_PLANS_MOST];
  int count;
  uint64_t state, turn;
  double checked_at;
};

void ft_shared_plans_open(struct ft_shared_plans *plans, struct ft_store *store);
/* Lets go of all; destroys those that nobody uses. */
void ft_shared_plans_close(struct ft_shared_plans *plans);

/* The plan of such a request, or NULL. *state: of the stores, for ft_shared_plan_keep. */
struct ft_shared_plan *ft_shared_plan_take(struct ft_shared_plans *plans,
                                           const fatune_request *request, uint64_t *state);

/* From now on others may take the plan, unless the stores have changed since it was looked up. */
void ft_shared_plan_keep(struct ft_shared_plans *plans, struct ft_shared_plan *plan,
                         const fatune_request *request, uint64_t state);

/* One use less. true: it was the last, and the caller is to destroy it. */
bool ft_shared_plan_release(struct ft_shared_plans *plans, struct ft_shared_plan *plan);

#endif
