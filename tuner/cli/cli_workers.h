/* cli_workers.h: `fatune tune` on a GPU works in a process of its own (tuner/search/worker.h).
 * in -> out: a worker that was lost -> a row of the candidate it was lost to, and the next worker,
 * which goes on behind the requests that are done. */
#ifndef TUNER_CLI_WORKERS_H
#define TUNER_CLI_WORKERS_H

#include "tuner/cli/cli_session.h"
#include "tuner/search/tune_options.h"
#include "tuner/search/worker.h"

struct cli_worker_result { /* of a request */
  struct ft_tune_summary summary;
  int code; /* of the first failure so far */
  bool cut_short, skipped;
};

/* Memory of the supervisor and of all workers. */
struct cli_workers {
  struct ft_worker_seat seat;
  size_t bytes;
  int done, lost; /* requests, in their order; workers */
  int lost_here;  /* at the request behind those */
  struct cli_worker_result results[];
};

/* True: this is the supervisor, all is done, and *code is what to end with. False: go on, as a
 * worker, or alone where *workers is NULL. */
bool cli_workers_begin(struct cli *cli, struct cli_workers **workers, int *code);
void cli_workers_end(struct cli_workers *workers);

/* The GPU is lost to this worker: nothing of it is printed. Returns the code to exit with. */
int cli_workers_lost(struct cli *cli);

/* Whether a worker was lost at the request at hand: its rows are of this run. */
bool cli_workers_again(const struct cli_workers *workers);

/* NULL: the request is not done, or there are no workers. */
const struct cli_worker_result *cli_workers_result(const struct cli_workers *workers, int index);
void cli_workers_keep(struct cli_workers *workers, int index,
                      const struct cli_worker_result *result);

#endif
