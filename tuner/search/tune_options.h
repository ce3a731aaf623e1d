/* tune_options.h: what a search is told, and what it tells.
 * in -> out: effort, budget, shard -> progress, summary. */
#ifndef TUNER_TUNE_OPTIONS_H
#define TUNER_TUNE_OPTIONS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/trial.h"

enum ft_effort {
  FT_EFFORT_QUICK,     /* the model's best few */
  FT_EFFORT_NORMAL,    /* the model's order until nothing better is likely */
  FT_EFFORT_EXHAUSTIVE /* every legal config */
};

struct ft_ahead;
struct ft_tune_progress;

struct ft_tune_options {
  enum ft_effort effort;
  double budget_seconds; /* 0: none */
  int jobs;              /* compile threads; 0: one per core */
  uint64_t seed;         /* of inputs; 0: from the clock */
  int shard, shards; /* this search takes the candidates whose index mod shards == shard, and the
                        default; shards 0 or 1: all */
  bool again; /* try candidates anew even if their rows from the same conditions are in the store */
  const volatile sig_atomic_t *stop; /* when non-zero: finish the candidate under way, keep its row,
                                        return FT_E_INTERRUPTED. May be NULL */
  void (*progress)(void *payload, const struct ft_tune_progress *progress);
  /* Called before a candidate is run, with its trial as far as it is known; and with NULL when the
   * candidate is done, and its row is written or held for the finals. May be NULL */
  void (*watch)(void *payload, const struct ft_trial *trial);
  /* Called once in a search, when a thread has begun its last kernel: before the finals at the
   * latest. May be NULL */
  void (*cores_are_free)(void *payload);
  void *payload;
  struct ft_ahead *ahead; /* where this search may have been begun (tuner/search/ahead.h). May be
                             NULL */
};

struct ft_tune_progress {
  int done, total; /* candidates */
  double elapsed_seconds, eta_seconds;
  double best_us;               /* 0 until a candidate has a time */
  const struct ft_trial *trial; /* of the candidate just finished */
};

struct ft_tune_summary {
  long product, legal;                   /* configs before the rules, and after them */
  int tried, ok, wrong, failed, spilled; /* failed: compile, launch, timeout, equal images */
  int recalled;                          /* of those tried: rows found in the store */
  int unstored;                          /* rows that the store could not take */
  int rounds_again; /* rounds of finals measured again, as the clock changed in them */
  int unsteady;     /* rounds in which it still changed in the last measurement */
  struct ft_config best;
  double best_us, default_us;
  double seconds, measure_seconds;
  double compile_seconds; /* of all threads together */
  bool measured;          /* false: predicted for a GPU that is not here */
};

#endif
