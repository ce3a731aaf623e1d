/* cli_workers.c: `fatune tune` in a process of its own.
 * in -> out: a worker that was lost -> the row of its candidate, a warning, the next worker. */
#include "tuner/cli/cli_workers.h"

#include <stdlib.h>
#include <string.h>

#include "cache/store.h"
#include "generator/status.h"
#include "tuner/cli/cli_values.h"

/* FATUNE_WORKER_SECONDS. The default is longer than the reference of a large problem takes on few
 * cores. */
static double silence_seconds(struct cli *cli) {
  static const double DEFAULT = 120;
  const char *const given = getenv("FATUNE_WORKER_SECONDS");
  double seconds = DEFAULT;
  if (given == NULL || cli_duration("FATUNE_WORKER_SECONDS", given, &seconds) == FT_OK)
    return seconds;
  cli_warning(cli, "%s; taken as 120", ft_detail());
  return DEFAULT;
}

enum { LOST_MOST = 8 }; /* workers at one request */

static size_t bytes_of(const struct cli *cli) {
  return sizeof(struct cli_workers) +
         (size_t)cli->options.request_count * sizeof(struct cli_worker_result);
}

struct supervisor {
  struct cli *cli;
  struct cli_workers *workers;
};

static void warn(void *payload, const char *message) {
  cli_warning(payload, "%s", message);
}

/* The store is opened for this one row, because SQLite's connections must not cross a fork. */
static void record(struct cli *cli, const struct ft_trial *trial) {
  struct ft_store *store;
  const struct ft_store_options options = {
      .folder = cli->options.cache_dir, .warn = warn, .payload = cli};
  if (ft_store_open(&store, &options) != FT_OK || ft_store_trial_put(store, trial) != FT_OK)
    cli_warning(cli, "the candidate cannot be recorded: %s", ft_detail());
  ft_store_close(store);
}

/* Gives up the request at hand, which has cost LOST_MOST workers. */
static void give_up(struct supervisor *supervisor) {
  struct cli_workers *const workers = supervisor->workers;
  char *const text = cli_request_text(&supervisor->cli->options.requests[workers->done]);
  cli_warning(supervisor->cli, "%s: %d workers were lost; it is left as it is", text, LOST_MOST);
  cli_workers_keep(
      workers, workers->done,
      &(struct cli_worker_result){.code = CLI_EXIT_FAILURE, .summary = {.measured = true}});
  free(text);
}

static bool lost(void *payload, const struct ft_trial *trial, const char *why) {
  struct supervisor *const supervisor = payload;
  struct cli_workers *const workers = supervisor->workers;
  struct cli *const cli = supervisor->cli;
  const int count = cli->options.request_count;
  workers->lost++;
  workers->lost_here++;
  if (trial != NULL) {
    char *const config = cli_config_text(&trial->config);
    cli_warning(cli, "candidate '%s': %s; it is recorded as %s and not tried again", config, why,
                ft_outcome_name(trial->outcome));
    record(cli, trial);
    free(config);
  } else {
    cli_warning(cli, "%s", why);
  }
  if (workers->lost_here >= LOST_MOST && workers->done < count) give_up(supervisor);
  const bool goes_on = workers->done < count;
  if (goes_on) cli_note(cli, "another worker goes on");
  return goes_on;
}

bool cli_workers_begin(struct cli *cli, struct cli_workers **workers, int *code) {
  *workers = NULL;
  if (cli->options.emulate != NULL) return false;
  *workers = ft_worker_memory(bytes_of(cli));
  if (*workers == NULL) return false;
  (*workers)->bytes = bytes_of(cli);
  struct supervisor supervisor = {cli, *workers};
  const struct ft_supervision how = {.seat = &(*workers)->seat,
                                     .silence_seconds = silence_seconds(cli),
                                     .lost = lost,
                                     .payload = &supervisor};
  if (!ft_supervise(&how, code)) return false;
  if (*code == FT_WORKER_LOST) *code = CLI_EXIT_FAILURE;
  cli_workers_end(*workers);
  json_decref(cli->json); /* the last worker has printed the document */
  cli->json = NULL;
  return true;
}

void cli_workers_end(struct cli_workers *workers) {
  if (workers != NULL) ft_worker_forget(workers, workers->bytes);
}

bool cli_workers_again(const struct cli_workers *workers) {
  return workers != NULL && workers->lost_here > 0;
}

int cli_workers_lost(struct cli *cli) {
  json_decref(cli->json);
  cli->json = NULL;
  return FT_WORKER_LOST;
}

const struct cli_worker_result *cli_workers_result(const struct cli_workers *workers, int index) {
  return workers != NULL && index < workers->done ? &workers->results[index] : NULL;
}

void cli_workers_keep(struct cli_workers *workers, int index,
                      const struct cli_worker_result *result) {
  if (workers == NULL) return;
  workers->results[index] = *result;
  workers->lost_here = 0;
  workers->done = index + 1;
}
