/* worker.h: a supervisor forks a worker, which does all work on the GPU. If the worker dies or
 * hangs, the supervisor names the candidate at fault and forks another worker. The supervisor does
 * not open the GPU, so a kernel cannot do it any harm. in -> out: a process -> a supervisor, and
 * one worker after the other. */
#ifndef TUNER_WORKER_H
#define TUNER_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cache/trial.h"

/* Memory that both processes share: what the worker is doing. */
struct ft_worker_seat {
  atomic_bool taken;     /* the worker has a candidate, and `trial` is of it */
  struct ft_trial trial; /* begun, without an outcome */
  atomic_uint beats;     /* counts candidates as they are begun and as they are done */
};

/* The exit code of a worker that has lost the GPU, and has recorded the candidate at fault. */
enum { FT_WORKER_LOST = 75 };

struct ft_supervision {
  struct ft_worker_seat *seat;
  double silence_seconds; /* a worker that takes longer for one candidate is killed */
  /* Called when a worker was lost. trial: that of its candidate, with outcome and reason, which is
   * to be recorded; NULL: it had none, or has recorded it. Returns whether to fork another worker.
   */
  bool (*lost)(void *payload, const struct ft_trial *trial, const char *why);
  void *payload;
};

/* Shared with processes that are forked later; NULL: no memory (ft_detail says so). */
void *ft_worker_memory(size_t bytes);
void ft_worker_forget(void *memory, size_t bytes);

/* Returns false in each worker, which then works, and in the caller itself if it could not fork.
 * Returns true in the supervisor when all work is done; *code is the exit code of the last worker.
 * The supervisor hands the first SIGINT or SIGTERM to the worker, and kills it at the second. A
 * worker dies with its supervisor. */
bool ft_supervise(const struct ft_supervision *how, int *code);

/* Called by the worker, through ft_tune_options.watch, when it begins a candidate. trial NULL: the
 * candidate is done. */
void ft_worker_watch(struct ft_worker_seat *seat, const struct ft_trial *trial);

#endif
