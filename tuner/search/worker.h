/* worker.h: work on a GPU in a process of its own, which another takes the place of when it is
 * lost. in -> out: a process -> a worker, and a supervisor that waits for it, names what it was
 * lost to, and begins the next. The supervisor opens no GPU, so that nothing of a kernel can reach
 * it. */
#ifndef TUNER_WORKER_H
#define TUNER_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cache/trial.h"

/* Memory of both processes: what the worker is at. */
struct ft_worker_seat {
  atomic_bool taken;     /* trial is of the candidate at hand */
  struct ft_trial trial; /* begun, without an outcome */
  atomic_uint beats;     /* rises with each candidate that is begun or done */
};

/* What a worker exits with that found the GPU lost, and has recorded what it was lost to. */
enum { FT_WORKER_LOST = 75 };

struct ft_supervision {
  struct ft_worker_seat *seat;
  double silence_seconds; /* a worker that is so long at one candidate is killed */
  /* A worker was lost. trial: of the candidate at hand, with outcome and reason, to be recorded;
   * NULL: there was none, or the worker has recorded it. Returns whether another one is begun. */
  bool (*lost)(void *payload, const struct ft_trial *trial, const char *why);
  void *payload;
};

/* Shared with processes that are forked later; NULL: no memory (ft_detail says so). */
void *ft_worker_memory(size_t bytes);
void ft_worker_forget(void *memory, size_t bytes);

/* Forks. False: this is a worker, which goes on. True: this is the supervisor, and the work has
 * come to its end: *code is the exit code of the last worker. SIGINT and SIGTERM are handed to the
 * worker, the second of them ends it. A worker dies with its supervisor. Without a process for it
 * the caller works itself. */
bool ft_supervise(const struct ft_supervision *how, int *code);

/* By the worker, through ft_tune_options.watch: a candidate is begun; NULL: it is done. */
void ft_worker_watch(struct ft_worker_seat *seat, const struct ft_trial *trial);

#endif
