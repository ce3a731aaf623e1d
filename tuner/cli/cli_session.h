/* cli_session.h: from options to a session and a config; from a status to an exit code.
 * in -> out: struct cli -> fatune_session, struct ft_choice. */
#ifndef TUNER_CLI_SESSION_H
#define TUNER_CLI_SESSION_H

#include "cache/store.h"
#include "tuner/cli/cli_target.h"

/* Stable: scripts depend on them. */
enum cli_exit {
  CLI_EXIT_OK = 0,
  CLI_EXIT_FAILURE = 1,
  CLI_EXIT_USAGE = 2,
  CLI_EXIT_NO_GPU = 3,       /* no driver, no GPU, or none that serves the request */
  CLI_EXIT_COMPILE = 4,      /* a kernel could not be compiled; no NVRTC, no C++ compiler */
  CLI_EXIT_NO_CANDIDATE = 5, /* the search found no config that works */
  CLI_EXIT_CACHE = 6,        /* a cache is unusable or damaged */
  CLI_EXIT_WRONG = 7,        /* a kernel failed verification, or at all on the emulator */
  CLI_EXIT_BUDGET = 8,       /* the time was up; what was found is kept */
  CLI_EXIT_REPAIRED = 9,     /* a cache was damaged and is sound again */
  CLI_EXIT_SIGNAL = 128      /* + the signal's number */
};

int cli_exit_of(int status);

/* Tells the failure on stderr and in the document (key "error"); returns the exit code. */
int cli_fail(struct cli *cli, int status);

/* Warnings of the session go to stderr. With --gpu emulator its GPU is an emulated one; an unknown
 * name is FT_E_ARGUMENT and suggests one. */
int cli_session_open(struct cli *cli, fatune_session **session);

/* --config, else the best known. choice->hit is unset for --config; *given tells. */
int cli_choose(struct cli *cli, fatune_session *session, const struct ft_request *request,
               const struct cli_target *target, struct ft_choice *choice, bool *given);

/* "exact", "near", "shipped", "model", "default". */
const char *cli_hit_name(enum ft_hit hit);

/* The text of a request or config; caller frees. */
char *cli_request_text(const struct ft_request *request);
char *cli_config_text(const struct ft_config *config);

/* What every list of trials has of one: its config, outcome and time. The caller adds the rest. */
json_t *cli_trial_json(const struct ft_trial *trial);
/* The family and every knob of a config by its text; NULL gives null. */
json_t *cli_knobs_json(const char *text);

#endif
