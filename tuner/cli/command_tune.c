/* command_tune.c: `fatune tune`: searches the best config for each request.
 * in -> out: requests + GPU -> trials in the cache; a table of winners.
 * A GPU that is not in the machine is predicted, and every output says so; where it is emulated,
 * the winner is run and checked. */
#include "cache/store.h"
#include "cache/trial.h"
#include "generator/clock.h"
#include "generator/status.h"
#include "runtime/choice.h"
#include "tuner/cli/cli_claims.h"
#include "tuner/cli/cli_emulated_run.h"
#include "tuner/cli/cli_emulator.h"
#include "tuner/cli/cli_progress.h"
#include "tuner/cli/cli_tuned.h"
#include "tuner/cli/cli_workers.h"
#include "tuner/cli/command.h"
#include "tuner/search/ahead.h"
#include "tuner/search/tune.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The signal that asked to stop. A handler can reach nothing but a global. */
static volatile sig_atomic_t stop_signal;

static void on_signal(int number) {
  static const char message[] = "\nfatune tune: stopping after this candidate; once more kills\n";
  stop_signal = number;
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  if (write(STDERR_FILENO, message, sizeof message - 1) < 0) return;
}

/* What was set to be ignored (nohup, a background job) stays so. */
static void catch_signal(int number) {
  struct sigaction action = {.sa_handler = on_signal}, before;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
    sigaction(number, &action, NULL);
  }
}

/* One run over all requests. */
struct tuning {
  struct cli *cli;
  struct cli_workers *workers; /* NULL: this process is alone */
  fatune_session *session;
  struct cli_target target;
  struct cli_tuned tuned;
  struct cli_progress progress;
  double deadline; /* by ft_seconds_now; 0: none */
  bool cut_short;  /* the budget ended a search before its end */
  int code;        /* of the first failure */
  bool lost;       /* the GPU no longer answers */
  int emulated_runs;
  double share;              /* seconds the request at hand may take; 0: any */
  int shard, shards;         /* of its candidates; shards 0: all */
  struct cli_claims *claims; /* NULL: all requests are this process's */
  int claimants;             /* processes that share out the requests left */
  int ours;                  /* requests that are not another process's */
  struct ft_ahead *ahead;    /* where the next request's search is begun */
  int index;                 /* of the request at hand */
  /* Of the request at hand, when its last candidate was done. */
  int tried, total;
  double elapsed;
};

static void tell_trial(struct cli *cli, const struct ft_trial *trial) {
  char *const config = cli_config_text(&trial->config), time[32] = "";
  if (trial->median_us > 0) snprintf(time, sizeof time, "  %.1f us", trial->median_us);
  cli_detail(cli, "%s%s  %d regs  %s%s%s", config, time, trial->registers,
             ft_outcome_name(trial->outcome), trial->reason[0] != '\0' ? ": " : "", trial->reason);
  free(config);
}

static void on_progress(void *payload, const struct ft_tune_progress *progress) {
  struct tuning *const tuning = payload;
  char note[48] = "";
  tuning->tried = progress->done;
  tuning->total = progress->total;
  tuning->elapsed = progress->elapsed_seconds;
  if (progress->best_us > 0) snprintf(note, sizeof note, "best %.1f us", progress->best_us);
  if (progress->trial != NULL && tuning->cli->options.verbosity > 0) {
    tell_trial(tuning->cli, progress->trial);
  }
  cli_progress_update(&tuning->progress, progress->done, progress->total, progress->eta_seconds,
                      note);
}

static void on_watch(void *payload, const struct ft_trial *trial) {
  const struct tuning *const tuning = payload;
  if (tuning->workers != NULL) ft_worker_watch(&tuning->workers->seat, trial);
}

/* The time left is shared evenly by the requests left, of which other processes take their part. */
static double share_of_budget(const struct tuning *tuning, int requests_of_all) {
  const int requests_left = (requests_of_all + tuning->claimants - 1) / tuning->claimants;
  if (tuning->deadline <= 0) return 0;
  const double left = tuning->deadline - ft_seconds_now();
  return left > 0.001 * requests_left ? left / requests_left : 0.001;
}

static bool is_tuned(struct tuning *tuning, const struct ft_request *request) {
  struct ft_choice choice;
  return tuning->cli->options.if_missing &&
         ft_session_choose(tuning->session, request, &tuning->target.arch, tuning->target.id,
                           &choice) == FT_OK &&
         choice.hit == FT_HIT_EXACT;
}

static void on_cores_free(void *payload);

static struct ft_tune_options options_of(struct tuning *tuning) {
  const struct cli_options *const options = &tuning->cli->options;
  return (struct ft_tune_options){.effort = options->effort,
                                  .budget_seconds = tuning->share,
                                  .jobs = options->jobs,
                                  .seed = options->seed,
                                  .shard = tuning->shard,
                                  .shards = tuning->shards,
                                  .again = options->again && !cli_workers_again(tuning->workers),
                                  .stop = &stop_signal,
                                  .progress = on_progress,
                                  .watch = on_watch,
                                  .cores_are_free = on_cores_free,
                                  .payload = tuning,
                                  .ahead = tuning->ahead};
}

/* Claims the request where several processes share them out. */
static int claim(const struct tuning *tuning, const char *text, bool *ours) {
  *ours = true;
  return tuning->claims != NULL ? cli_claims_take(tuning->claims, text, ours) : FT_OK;
}

/* A claim that fails is told in the request's turn. */
static bool is_to_be_tuned(struct tuning *tuning, const struct ft_request *request) {
  char *const text = cli_request_text(request);
  bool ours;
  const int status = claim(tuning, text, &ours);
  free(text);
  return status == FT_OK && ours && !is_tuned(tuning, request);
}

static bool is_same_bucket(const struct ft_request *a, const struct ft_request *b) {
  const struct ft_request buckets[2] = {ft_request_bucket(a), ft_request_bucket(b)};
  return ft_request_distance(&buckets[0], &buckets[1]) == 0;
}

/* Begins the next request that this process has to tune. One of the same bucket waits for the rows
 * of the request at hand. The last requests that processes share out are left to the one that is
 * free first. */
static void on_cores_free(void *payload) {
  struct tuning *const tuning = payload;
  const struct cli_options *const options = &tuning->cli->options;
  const struct ft_request *const at_hand = &options->requests[tuning->index];
  const struct ft_request *const end = options->requests + options->request_count;
  const struct ft_request *next = at_hand + 1;
  if (stop_signal != 0 || tuning->ahead == NULL) return;
  const struct ft_request *const last = tuning->claims != NULL ? end - tuning->claimants : end;
  while (next < last && !is_to_be_tuned(tuning, next)) next++;
  if (next >= last || is_same_bucket(next, at_hand)) return;
  struct ft_tune_options tune = options_of(tuning);
  tune.again = options->again; /* no worker has been lost at it */
  ft_ahead_begin(tuning->ahead, tuning->session, next, &tune);
}

static int search(struct tuning *tuning, const struct ft_request *request,
                  struct ft_tune_summary *summary) {
  const struct ft_tune_options tune = options_of(tuning);
  if (tuning->target.here) return ft_tune(tuning->session, request, &tune, summary);
  return ft_tune_predict(tuning->session, request, &tuning->target.arch, &tune, summary);
}

/* A search also ends early because nothing better is likely; then there was time left. The slack is
 * for the moment between its last report and its own look at the clock. */
static bool ran_out_of_time(const struct tuning *tuning) {
  const double slack = 0.05;
  return tuning->share > 0 && tuning->tried < tuning->total &&
         tuning->elapsed > tuning->share - slack;
}

static void report_failure(struct tuning *tuning, const char *text, int status) {
  if (status == FT_OK || status == FT_E_INTERRUPTED) return; /* end_code tells of a stop, once */
  const int code = status == FT_E_NOT_FOUND ? CLI_EXIT_NO_CANDIDATE : cli_exit_of(status);
  ft_fail_within(status, "%s", text);
  cli_fail(tuning->cli, status);
  if (tuning->code == CLI_EXIT_OK) tuning->code = code;
  /* After a fault the context answers nothing but the fault; the next run passes the candidate
   * over. */
  if (status == FT_E_DEVICE) tuning->lost = true;
}

/* The verdict of the emulator on what the search found. */
static int run_emulated(struct tuning *tuning, const struct ft_request *request,
                        const struct ft_tune_summary *summary, struct cli_tuned_run *emulated) {
  if (!tuning->target.emulated || !(summary->best_us > 0) || stop_signal != 0) return FT_OK;
  const int status =
      cli_emulated_run(tuning->cli, tuning->session, request, &summary->best, emulated);
  tuning->emulated_runs += emulated->json != NULL;
  return status;
}

/* Takes the result of a request that an earlier worker has done. False: none has. */
static bool take_result(struct tuning *tuning, const struct ft_request *request, int index) {
  const struct cli_worker_result *const result = cli_workers_result(tuning->workers, index);
  if (result == NULL) return false;
  if (tuning->code == CLI_EXIT_OK) tuning->code = result->code;
  tuning->cut_short |= result->cut_short;
  if (result->skipped) return true;
  char *const text = cli_request_text(request);
  cli_tuned_add(&tuning->tuned, request, text, &result->summary, NULL);
  free(text);
  return true;
}

static void tell_clock(struct cli *cli, const char *text, const struct ft_tune_summary *summary) {
  if (summary->unsteady > 0)
    cli_warning(cli,
                "%s: the speed of the GPU kept changing during the finals, measured %d times; is "
                "the GPU shared, or throttled?",
                text, summary->rounds_again + 1);
  else if (summary->rounds_again > 0)
    cli_note(cli, "%s: the speed of the GPU changed during the finals; measured again", text);
}

/* Another process does it, or it has a winner already. */
static bool is_passed_over(struct tuning *tuning, const struct ft_request *request,
                           const char *text) {
  bool ours;
  report_failure(tuning, text, claim(tuning, text, &ours));
  tuning->ours += ours;
  if (ours && !is_tuned(tuning, request)) return false;
  if (ours) cli_note(tuning->cli, "%s: has a measured winner, skipped", text);
  return true;
}

/* The request, and which of them it is where there are several. The caller frees it. */
static char *progress_label(const struct cli *cli, const char *text, int index) {
  const int count = cli->options.request_count;
  char *label = NULL;
  const int length = count > 1 ? asprintf(&label, "request %d of %d: %s", index + 1, count, text)
                               : asprintf(&label, "%s", text);
  if (length < 0) cli_no_memory();
  return label;
}

/* A request that fails does not keep the others from being tuned. */
static void tune_one(struct tuning *tuning, const struct ft_request *request, int index,
                     int requests_left) {
  if (take_result(tuning, request, index)) return;
  struct cli *const cli = tuning->cli;
  char *const text = cli_request_text(request);
  struct ft_tune_summary summary = {.measured = tuning->target.here};
  struct cli_tuned_run emulated = {.verdict = "-"};
  if (is_passed_over(tuning, request, text)) {
    cli_workers_keep(tuning->workers, index, &(struct cli_worker_result){.skipped = true});
    free(text);
    return;
  }
  tuning->tried = tuning->total = 0;
  tuning->elapsed = 0;
  tuning->index = index;
  tuning->share = share_of_budget(tuning, requests_left);
  char *const label = progress_label(cli, text, index);
  cli_progress_begin(&tuning->progress, cli, label);
  int status = search(tuning, request, &summary);
  cli_progress_end(&tuning->progress);
  free(label);
  tell_clock(cli, text, &summary);
  report_failure(tuning, text, status);
  /* FT_E_CACHE: the search is complete, its results could not be stored. */
  const bool complete = status == FT_OK || status == FT_E_CACHE;
  if (complete && ran_out_of_time(tuning)) tuning->cut_short = true;
  if (complete) {
    status = run_emulated(tuning, request, &summary, &emulated);
    report_failure(tuning, text, status);
  }
  cli_tuned_add(&tuning->tuned, request, text, &summary,
                tuning->target.emulated ? &emulated : NULL);
  free(text);
  if (tuning->lost) return;
  const struct cli_worker_result result = {
      .summary = summary, .code = tuning->code, .cut_short = tuning->cut_short};
  cli_workers_keep(tuning->workers, index, &result);
}

static int end_code(struct tuning *tuning) {
  if (stop_signal != 0) {
    cli_note(tuning->cli, "stopped; finished trials are kept");
    return CLI_EXIT_SIGNAL + (int)stop_signal;
  }
  if (tuning->code != CLI_EXIT_OK) return tuning->code;
  if (!tuning->cut_short) return CLI_EXIT_OK;
  cli_note(tuning->cli, "the budget ended before the search; finished trials are kept");
  return CLI_EXIT_BUDGET;
}

/* With N requests or more, each of N shards has every N-th request, or the next one that none has
 * claimed, so that all times of a request are measured on one GPU and compare. With fewer, each
 * shard has a share of the candidates. */
static int take_share(struct tuning *tuning) {
  struct cli_options *const options = &tuning->cli->options;
  const int count = options->request_count, shards = options->shards;
  const bool whole = count >= shards;
  tuning->claimants = 1;
  if (options->claims != NULL && !whole)
    cli_note(tuning->cli,
             "--claims is not used: %d request%s for %d shards, so each has a share "
             "of the candidates",
             count, count == 1 ? "" : "s", shards);
  if (options->claims != NULL && whole) {
    if (shards > 1) tuning->claimants = shards;
    FT_TRY(cli_claims_open(&tuning->claims, options->claims));
  }
  if (shards < 2) return FT_OK;
  cli_note(tuning->cli, "shard %d of %d of the %s", options->shard + 1, shards,
           whole ? "requests" : "candidates");
  cli_json(tuning->cli, "shard",
           json_pack("{s:i,s:i,s:s}", "index", options->shard + 1, "count", shards, "of",
                     whole ? "requests" : "candidates"));
  if (!whole) {
    tuning->shard = options->shard;
    tuning->shards = shards;
    return FT_OK;
  }
  if (tuning->claims != NULL) return FT_OK;
  options->request_count = 0;
  for (int i = options->shard; i < count; i += shards)
    options->requests[options->request_count++] = options->requests[i];
  return FT_OK;
}

static void tune_all(struct tuning *tuning) {
  struct cli *const cli = tuning->cli;
  const bool here = tuning->target.here;
  cli_json_target(cli, &tuning->target);
  cli_json(cli, "measured", json_boolean(here));
  cli_json(cli, "emulated", json_boolean(tuning->target.emulated));
  if (!here) {
    cli_warning(cli,
                "%s is %s: times are PREDICTED by the model from compiled "
                "kernels, not measured",
                tuning->target.arch.name,
                tuning->target.emulated ? "emulated" : "not in this machine");
  }
  if (cli->options.budget_seconds > 0) {
    tuning->deadline = ft_seconds_now() + cli->options.budget_seconds;
  }
  cli_tuned_begin(&tuning->tuned, &tuning->target);
  catch_signal(SIGINT);
  catch_signal(SIGTERM);
  const int count = cli->options.request_count;
  if (here && count > 1 && ft_ahead_make(&tuning->ahead) != FT_OK) cli_no_memory();
  for (int i = 0; i < count && stop_signal == 0 && !tuning->lost; ++i) {
    tune_one(tuning, &cli->options.requests[i], i, count - i);
  }
  ft_ahead_free(tuning->ahead);
  const bool is_first = tuning->workers == NULL || tuning->workers->lost == 0;
  if (tuning->claims != NULL && is_first && tuning->ours == 0 && stop_signal == 0)
    cli_note(cli,
             "--claims '%s': other processes have claimed all of the %d request%s; a new run "
             "needs a new folder",
             cli->options.claims, count, count == 1 ? "" : "s");
  if (tuning->lost && tuning->workers != NULL) { /* the next worker prints all results */
    cli_tuned_drop(&tuning->tuned);
    return;
  }
  cli_tuned_end(&tuning->tuned, cli);
  if (tuning->emulated_runs > 0) cli_emulated_steps(cli, tuning->session, &tuning->target);
  cli_json(cli, "complete", json_boolean(stop_signal == 0 && !tuning->cut_short && !tuning->lost));
}

/* Runs in the worker, or in the only process. */
static int work(struct tuning *tuning) {
  struct cli *const cli = tuning->cli;
  struct cli_workers *const workers = tuning->workers;
  int status, code;
  FT_CHECK(cli_session_open(cli, &tuning->session));
  FT_CHECK(cli_target_find(cli, tuning->session, &tuning->target));
  FT_CHECK(cli_emulator_ready(&tuning->target));
  tune_all(tuning);
done:
  if (tuning->lost && workers != NULL && stop_signal == 0) {
    code = cli_workers_lost(cli);
  } else {
    code = status != FT_OK ? cli_fail(cli, status) : end_code(tuning);
    if (workers != NULL && workers->lost > 0)
      cli_json(cli, "workers_lost", json_integer(workers->lost));
  }
  fatune_session_close(tuning->session);
  return code;
}

static int run(struct cli *cli) {
  struct tuning tuning = {.cli = cli};
  int code;
  const int status = take_share(&tuning);
  if (status != FT_OK) return cli_fail(cli, status);
  if (!cli_workers_begin(cli, &tuning.workers, &code)) {
    code = work(&tuning);
    cli_workers_end(tuning.workers);
  }
  cli_claims_close(tuning.claims);
  return code;
}

const struct command command_tune = {
    .name = "tune",
    .summary = "Search the best config for each request and keep every trial",
    .arguments = "REQUEST...",
    .details =
        "With the GPU in this machine every candidate is compiled, verified and measured. For "
        "another GPU (--gpu NAME) candidates are compiled and ranked by the model; these "
        "results are predicted, and give way to the first measurement. With --gpu emulator:NAME "
        "the winner is then run on the CPU, on small problems, and checked; nothing is timed.\n"
        "Ctrl-C finishes the candidate at hand and keeps all trials; a second one kills.",
    .takes = CLI_REQUESTS | CLI_GPU | CLI_DEVICE | CLI_SEARCH | CLI_SEED,
    .run = run};
