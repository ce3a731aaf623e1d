/* cli_workers.h: `fatune tune` measures in a child process, the worker (tuner/search/worker.h).
 * When a candidate kills the worker, the supervisor records the candidate and starts another
 * worker, which goes on with the first request that is not done. in -> out: a lost worker -> the
 * row of its candidate, the next worker. */
#ifndef TUNER_CLI_WORKERS_H
#define TUNER_CLI_WORKERS_H

#include "tuner/cli/cli_session.h"
#include "tuner/search/tune_options.h"
#include "tuner/search/worker.h"

struct cli_worker_result { /* of a request */
  struct ft_tune_summary summary;
  int code; /* exit code of the first failure up to this request */
  bool cut_short, skipped;
};

/* Memory that the supervisor and all workers share. */
struct cli_workers {
  struct ft_worker_seat seat;
  size_t bytes;
  int done;      /* requests, in their order */
  int lost;      /* workers */
  int lost_here; /* of them, at the first request that is not done */
  struct cli_worker_result results[];
};

/* Returns false in a worker, which goes on with the work; *workers is NULL if there is no
 * supervisor and the process works alone. Returns true in the supervisor, when all is done: the
 * program is to exit with *code. */
bool cli_workers_begin(struct cli *cli, struct cli_workers **workers, int *code);
void cli_workers_end(struct cli_workers *workers);

/* For a worker that has lost the GPU: it prints no document. Returns the code to exit with. */
int cli_workers_lost(struct cli *cli);

/* Whether a worker was lost at the request at hand. Then rows of this very run are in the store. */
bool cli_workers_again(const struct cli_workers *workers);

/* The result of a request that an earlier worker has done. NULL: none has, or there are no workers.
 */
const struct cli_worker_result *cli_workers_result(const struct cli_workers *workers, int index);
void cli_workers_keep(struct cli_workers *workers, int index,
                      const struct cli_worker_result *result);

#endif
