/* compile_pool.h: threads that compile candidates ahead of the thread that measures them.
 * in -> out: candidates in order -> their kernels, nearly in the same order, a bounded number of
 * them early. */
#ifndef TUNER_COMPILE_POOL_H
#define TUNER_COMPILE_POOL_H

#include "tuner/search/candidates.h"
#include "tuner/search/rig.h"

struct ft_compiled {
  int status;              /* of rig->compile */
  char detail[1024];       /* ft_detail() of the compiling thread */
  struct ft_kernel kernel; /* when status is FT_OK */
  double seconds;
};

struct ft_compile_pool;

/* skip[i]: candidate i is not compiled, and comes before all that are (may be NULL). jobs 0: one
 * per core. rig, candidates and skip must outlive the pool. measures: the search measures what it
 * takes, and the jobs go on meanwhile. */
int ft_compile_pool_open(struct ft_compile_pool **pool, const struct ft_rig *rig,
                         const struct ft_candidates *candidates, const bool *skip, int jobs,
                         bool measures);

/* The candidate at this place of the order, whose place is settled by that. Places must rise from
 * call to call. */
int ft_compile_pool_candidate(struct ft_compile_pool *pool, int place);

/* Places from this one on are not compiled until a later call says so; at first all are. The place
 * that is taken next has to be before it. */
void ft_compile_pool_limit(struct ft_compile_pool *pool, int limit);

/* Hands over the result of the candidate at this place. If that takes longer to compile than a few
 * milliseconds, it changes places with the first of those behind it that is done; the first two
 * places are waited for. Returns the candidate. Places must rise from call to call. */
int ft_compile_pool_take(struct ft_compile_pool *pool, int place, struct ft_compiled *compiled);

/* Of the candidates that no thread has claimed, makes the first that is wanted the next to be
 * claimed. Returns whether there was one. */
typedef bool ft_is_wanted(void *payload, const struct ft_config *config);
bool ft_compile_pool_prefer(struct ft_compile_pool *pool, ft_is_wanted *is_wanted, void *payload);

/* Whether all places before the limit are claimed, so that threads begin to have nothing to do. */
bool ft_compile_pool_is_claimed(struct ft_compile_pool *pool);

/* Waits for the compiles under way and frees what was not taken. */
void ft_compile_pool_close(struct ft_compile_pool *pool);

#endif
