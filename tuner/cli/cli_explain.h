/* cli_explain.h: the parts of `fatune explain`, each printed and put into the document.
 * in -> out: target + request + what the caches hold -> text and JSON. */
#ifndef TUNER_CLI_EXPLAIN_H
#define TUNER_CLI_EXPLAIN_H

#include "cache/store.h"
#include "cache/trial.h"
#include "generator/score/cost.h"
#include "tuner/cli/cli_session.h"

enum { CLI_BEST_TRIALS = 8 };

/* What the caches hold of a bucket. */
struct cli_trials {
  struct ft_trial best[CLI_BEST_TRIALS]; /* in the order the winner is chosen by */
  int best_count;
  int outcomes[FT_OUTCOME_TIMEOUT + 1];
  int total;
  struct ft_trial fastest; /* of those measured, else predicted; total 0: unset */
  struct ft_trial chosen;  /* of the config that the look-up gave; median_us 0: it has no trial */
};

int cli_trials_read(struct cli_trials *trials, fatune_session *session,
                    const struct ft_request *bucket, const char *device,
                    const struct ft_config *chosen);

/* "2026-11-28" of seconds since 1970, in UTC; "?" beyond what has a date. And how long ago. */
void cli_day(int64_t at, char day[16]);
long long cli_days_since(int64_t at);

/* When, on which GPU, by which driver and compiler the chosen config was measured. */
void cli_explain_measured(struct cli *cli, const struct ft_choice *choice);

/* Why this config: one sentence. */
void cli_explain_why(const struct cli_trials *trials, const struct ft_choice *choice,
                     struct ft_text *text);

void cli_explain_trials(struct cli *cli, const struct cli_trials *trials,
                        const struct cli_target *target, const struct ft_request *request);

/* The model's terms for the chosen config and the default. */
void cli_explain_model(struct cli *cli, const struct ft_request *request,
                       const struct cli_target *target, const struct ft_score_costs *score,
                       const struct ft_config *chosen, const struct ft_config *standard,
                       const struct cli_trials *trials);

/* How many configs each rule takes out of the raw space. */
int cli_explain_space(struct cli *cli, const struct ft_request *request,
                      const struct cli_target *target);

#endif
