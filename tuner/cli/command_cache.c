/* command_cache.c: `fatune cache`: what the two user files hold, and moving it between machines.
 * in -> out: an action and its words -> paths, lists, counts, files. */
#include "cache/store.h"
#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/cli/cli_bundle.h"
#include "tuner/cli/cli_cache_files.h"
#include "tuner/cli/cli_table.h"
#include "tuner/cli/cli_values.h"
#include "tuner/cli/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum files { NO_FILES, FILES_NEEDED, FILES_ALLOWED };

struct action {
  const char *name;
  enum files files;
  /* status; words begin after the action's name */
  int (*run)(struct cli *cli, fatune_session *session, char **words, int count);
};

static int show_path(struct cli *cli, fatune_session *session, char **words, int count) {
  (void)words, (void)count;
  const char *const tuning = ft_store_tuning_path(session->store);
  const char *const kernels = ft_store_kernels_path(session->store);
  cli_print(cli, "%s\n%s\n", tuning != NULL ? tuning : "-", kernels != NULL ? kernels : "-");
  cli_json(cli, "tuning", cli_json_text(tuning));
  cli_json(cli, "kernels", cli_json_text(kernels));
  return FT_OK;
}

/* One list being made; trials come grouped by bucket and device, the winner first. */
struct listing {
  struct cli *cli;
  struct cli_table table;
  json_t *list;
  char *group; /* bucket and device of the trial before; owned */
  int predicted;
};

static void list_row(struct listing *listing, const struct ft_trial *trial, const char *bucket) {
  struct cli_table *const table = &listing->table;
  char *const config = cli_config_text(&trial->config);
  cli_table_add(table, "%.2f", trial->median_us);
  cli_table_add(table, "%s", ft_outcome_name(trial->outcome));
  cli_table_add(table, "%s", trial->device);
  cli_table_add(table, "%s", bucket);
  cli_table_add(table, "%s", config);
  if (listing->cli->options.all) cli_table_add(table, "%s", trial->reason);
  free(config);
  json_t *const row = cli_trial_json(trial);
  cli_json_set(row, "bucket", cli_json_text(bucket));
  cli_json_set(row, "device", cli_json_text(trial->device));
  cli_json_set(row, "nvrtc", cli_json_text(trial->nvrtc));
  cli_json_set(row, "driver", cli_json_text(trial->driver));
  cli_json_set(row, "at", json_integer(trial->at));
  cli_json_append(listing->list, row);
  listing->predicted += !ft_outcome_ran(trial->outcome) && ft_outcome_timed(trial->outcome);
}

static bool list_trial(void *payload, const struct ft_trial *trial) {
  struct listing *const listing = payload;
  char *const bucket = cli_request_text(&trial->bucket), *group = NULL;
  if (asprintf(&group, "%s %s", bucket, trial->device) < 0) cli_no_memory();
  const bool winner = listing->group == NULL || strcmp(group, listing->group) != 0;
  const bool timed = ft_outcome_timed(trial->outcome);
  if (listing->cli->options.all || (winner && timed)) list_row(listing, trial, bucket);
  free(listing->group);
  listing->group = group;
  free(bucket);
  return true;
}

static int list_trials(struct cli *cli, fatune_session *session, char **words, int count) {
  (void)words, (void)count;
  struct listing listing = {.cli = cli, .list = json_array()};
  cli_table_begin(&listing.table, cli->options.all ? ">us|outcome|device|bucket|config|reason"
                                                   : ">us|outcome|device|bucket|config");
  const int status = ft_store_trials(session->store, NULL, NULL, list_trial, &listing);
  cli_table_end(cli, &listing.table);
  if (listing.predicted > 0)
    cli_note(cli, "%d predicted: `cache stats` counts winners that were measured",
             listing.predicted);
  cli_json(cli, "trials", listing.list);
  free(listing.group);
  return status;
}

static int show_stats(struct cli *cli, fatune_session *session, char **words, int count) {
  (void)words, (void)count;
  struct ft_store_stats stats;
  FT_TRY(ft_store_stats(session->store, &stats));
  const struct {
    const char *name;
    int64_t value;
  } rows[] = {{"trials", stats.trials},
              {"skipped_trials", stats.skipped},
              {"winners", stats.winners},
              {"kernels", stats.kernels},
              {"kernel_bytes", stats.kernel_bytes},
              {"tuning_file_bytes", stats.tuning_file_bytes},
              {"kernels_file_bytes", stats.kernels_file_bytes},
              {"layers", stats.layers}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    cli_print(cli, "%-18s %lld\n", rows[i].name, (long long)rows[i].value);
    cli_json(cli, rows[i].name, json_integer(rows[i].value));
  }
  return FT_OK;
}

/* The rows of a mended file, and where the file lies as it was. */
static void tell_mended(struct cli *cli, const struct ft_store_verdict *verdict, json_t *list) {
  static const char *const names[] = {"tuning.db", "kernels.db"};
  for (int kind = 0; kind < 2; ++kind) {
    const char *const kept = verdict->mended[kind].kept;
    const long long saved = verdict->mended[kind].saved;
    if (kept == NULL) continue;
    cli_print(cli, "%s: mended with the %lld rows that are sound; as it was it is kept as %s\n",
              names[kind], saved, kept);
    json_t *const one = json_object();
    cli_json_set(one, "file", cli_json_text(names[kind]));
    cli_json_set(one, "saved", json_integer(saved));
    cli_json_set(one, "kept", cli_json_text(kept));
    cli_json_append(list, one);
  }
}

static int judge(struct cli *cli, const struct ft_store_verdict *verdict) {
  const bool repair = cli->options.repair;
  if (verdict->left > 0)
    return ft_fail(FT_E_CACHE, "%lld damaged entries%s", (long long)verdict->left,
                   repair ? " cannot be mended: see the warnings"
                          : "; `fatune cache verify --repair` mends what can be mended");
  if (verdict->damaged > 0) cli->code = CLI_EXIT_REPAIRED;
  return FT_OK;
}

static int verify(struct cli *cli, fatune_session *session, char **words, int count) {
  if (count > 0 && cli->options.repair)
    return ft_fail(FT_E_ARGUMENT,
                   "--repair mends this user's caches; FILE, as '%s', is only looked at", words[0]);
  if (count > 0) return cli_bundle_verify(cli, session, words, count);
  struct ft_store_verdict verdict;
  const int unusable = ft_store_faults(session->store); /* layers that did not even open */
  int status = ft_store_verify(session->store, cli->options.repair, &verdict);
  json_t *const mended = json_array();
  if (status == FT_OK) {
    cli_print(cli, "%lld checked, %lld damaged\n", (long long)verdict.checked,
              (long long)verdict.damaged);
    status = judge(cli, &verdict);
  }
  tell_mended(cli, &verdict, mended);
  cli_json(cli, "checked", json_integer(verdict.checked));
  cli_json(cli, "damaged", json_integer(verdict.damaged));
  cli_json(cli, "left", json_integer(verdict.left));
  cli_json(cli, "mended", mended);
  ft_store_verdict_free(&verdict);
  if (status == FT_OK && unusable > 0)
    status = ft_fail(FT_E_CACHE, "a cache could not be used: see the warnings");
  return status;
}

static int collect(struct cli *cli, fatune_session *session, char **words, int count) {
  (void)words, (void)count;
  int64_t deleted = 0;
  if (cli->options.cap < 0) {
    return ft_fail(FT_E_ARGUMENT,
                   "gc needs --cap BYTES, as --cap 512M; what exceeds it is deleted, "
                   "least recently used first");
  }
  FT_TRY(ft_store_gc(session->store, cli->options.cap, &deleted));
  cli_print(cli, "%lld kernel%s deleted\n", (long long)deleted, deleted == 1 ? "" : "s");
  cli_json(cli, "deleted", json_integer(deleted));
  return FT_OK;
}

static const struct action actions[] = {{"path", NO_FILES, show_path},
                                        {"list", NO_FILES, list_trials},
                                        {"stats", NO_FILES, show_stats},
                                        {"verify", FILES_ALLOWED, verify},
                                        {"gc", NO_FILES, collect},
                                        {"merge", FILES_NEEDED, cli_cache_merge},
                                        {"export", NO_FILES, cli_cache_export},
                                        {"import", FILES_NEEDED, cli_cache_import}};

enum { ACTIONS = sizeof actions / sizeof *actions };

static int find_action(struct cli *cli, const struct action **action) {
  const char *names[ACTIONS + 1] = {NULL};
  const int count = cli->options.word_count;
  int index;
  for (int i = 0; i < ACTIONS; ++i) names[i] = actions[i].name;
  if (count == 0)
    return ft_fail(FT_E_ARGUMENT,
                   "cache needs an action: path, list, stats, verify, gc, merge, export or import");
  FT_TRY(cli_choice("action", cli->options.words[0], names, &index));
  *action = &actions[index];
  if ((*action)->files == FILES_NEEDED && count < 2) {
    return ft_fail(FT_E_ARGUMENT, "%s needs at least one FILE", (*action)->name);
  }
  if ((*action)->files == NO_FILES && count > 1) {
    return ft_fail(FT_E_ARGUMENT, "%s takes no argument, but there is '%s'", (*action)->name,
                   cli->options.words[1]);
  }
  return FT_OK;
}

/* An option that an action does not know would be without effect. */
static int check_options(const struct cli_options *options, const struct action *action) {
  const struct {
    const char *name, *action;
    bool given;
  } of[] = {{"--all", "list", options->all},
            {"--repair", "verify", options->repair},
            {"--cap", "gc", options->cap >= 0},
            {"--output", "export", options->output != NULL},
            {"--sign", "export", options->sign != NULL},
            {"--passphrase-file", "export", options->passphrase_file != NULL},
            {"--allow-empty", "export", options->allow_empty}};
  for (size_t i = 0; i < sizeof of / sizeof *of; ++i) {
    if (of[i].given && strcmp(action->name, of[i].action) != 0)
      return ft_fail(FT_E_ARGUMENT, "%s is of `cache %s`; %s has no such option", of[i].name,
                     of[i].action, action->name);
  }
  if (options->passphrase_file != NULL && options->sign == NULL)
    return ft_fail(FT_E_ARGUMENT, "--passphrase-file is of a key: --sign KEYFILE is missing");
  return FT_OK;
}

static bool is_missing(const char *path) {
  return path != NULL && access(path, F_OK) != 0 && errno == ENOENT;
}

static void tell_if_new(struct cli *cli, fatune_session *session) {
  const char *const tuning = ft_store_tuning_path(session->store);
  const char *const kernels = ft_store_kernels_path(session->store);
  if (is_missing(tuning) && is_missing(kernels))
    cli_note(cli, "neither '%s' nor '%s' is there yet", tuning, kernels);
}

static int run(struct cli *cli) {
  fatune_session *session = NULL;
  const struct action *action = NULL;
  int status;
  FT_CHECK(find_action(cli, &action));
  FT_CHECK(check_options(&cli->options, action));
  cli_json(cli, "action", cli_json_text(action->name));
  FT_CHECK(cli_session_open(cli, &session));
  if (action->run != show_path && cli->options.word_count == 1) tell_if_new(cli, session);
  FT_CHECK(action->run(cli, session, cli->options.words + 1, cli->options.word_count - 1));
  /* Look-ups take a fault of a store for a miss and warn; here the store itself was the subject. */
  if (ft_store_faults(session->store) > 0 && action->run != show_path && action->run != verify &&
      action->run != cli_cache_export) {
    status = ft_fail(FT_E_CACHE, "the caches are not sound: see the warnings");
  }
done:;
  const int code = status == FT_OK ? cli->code : cli_fail(cli, status);
  fatune_session_close(session);
  return code;
}

const struct command command_cache = {
    .name = "cache",
    .summary = "Look at, check, move the caches",
    .arguments =
        "path|list|stats|verify|gc\nverify FILE...\nmerge FILE...\nexport --gpu NAME -o FILE "
        "[--sign KEYFILE]\nimport FILE...",
    .details = "path: the two files, tuning then kernels\n"
               "list: the winner of every bucket and GPU; --all: every trial\n"
               "stats: counts and sizes\n"
               "verify: check every row and page; --repair mends what is damaged and keeps the "
               "file as it was beside it. Exit codes: 0 sound, 9 was damaged and is mended, 6 is "
               "damaged, 1 could not be read (nothing is changed then)\n"
               "gc --cap BYTES: delete kernels, least recently used first\n"
               "merge FILE: take in another user's tuning.db or kernels.db\n"
               "export, import: winners and their kernels as one file to ship; --sign writes "
               "FILE.minisig beside it; FILE.trials is written as text, a trial a line\n"
               "verify FILE: look a file to ship through: signature, schema, rows",
    .takes = CLI_CACHE | CLI_GPU | CLI_DEVICE | CLI_OUTPUT,
    .run = run};
