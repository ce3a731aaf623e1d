/* tuning.h: a search on the GPU at hand, in three steps: open, run, close.
 * in -> out: session + request + options -> candidates, the first of them being compiled -> trials
 * in the store, a summary. */
#ifndef TUNER_TUNING_H
#define TUNER_TUNING_H

#include "generator/request.h"
#include "runtime/fatune.h"
#include "tuner/search/tune_options.h"

struct ft_tuning;

/* Lists the candidates, recalls what is known of them and begins to compile the others, in threads
 * of its own. Nothing is done on the GPU, so any thread may call it, while another search runs. The
 * session and what the options point to must outlive the tuning. */
int ft_tuning_open(struct ft_tuning **tuning, fatune_session *session,
                   const struct ft_request *request, const struct ft_tune_options *options);

/* Whether it would be opened as it was: false where another config than then would be used without
 * the search, as another search has ended since. */
bool ft_tuning_is_current(const struct ft_tuning *tuning);

bool ft_tuning_is_of(const struct ft_tuning *tuning, const struct ft_request *request);

/* Returns what ft_tune returns. It is called once, in the thread that closes the tuning.
 * budget_seconds counts from this call and replaces that of the options. */
int ft_tuning_run(struct ft_tuning *tuning, double budget_seconds, struct ft_tune_summary *summary);
void ft_tuning_close(struct ft_tuning *tuning); /* NULL: nothing */

#endif
