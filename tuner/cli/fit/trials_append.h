/* trials_append.h: a file of trials for the fit (trials_file.h), written.
 * in -> out: trials of a run -> lines behind those that a file has. */
#ifndef TUNER_TRIALS_APPEND_H
#define TUNER_TRIALS_APPEND_H

#include <stdio.h>

#include "cache/trial.h"

struct ft_trials_append;

/* what: the run, in words. Trials are of the file's last run if its words are these. NULL: of no
 * run before the first `begin`. A file that is not there is made; one of another form is refused.
 */
int ft_trials_append_open(struct ft_trials_append **append, const char *path, const char *what);

/* Trials from here on are of another run. */
int ft_trials_append_begin(struct ft_trials_append *append, const char *what);

int ft_trials_append_put(struct ft_trials_append *append, const struct ft_trial *trial);

/* All lines are in the file then. NULL is let through. */
int ft_trials_append_close(struct ft_trials_append *append);

/* Trials as `fatune cache export` writes them, one a line; a comment line says what the run was
 * whose trials follow. *count: how many there were. Lines from `from` are named by `name`. */
int ft_trials_append_text(struct ft_trials_append *append, FILE *from, const char *name,
                          int *count);

#endif
