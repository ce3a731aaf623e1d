/* finalists.h: everything that ran right, and the decision among it.
 * in -> out: screened trials -> the near-best measured again in turn -> rows, winner. */
#ifndef TUNER_FINALISTS_H
#define TUNER_FINALISTS_H

#include "tuner/search/trial_run.h"

struct ft_entrant {
  struct ft_trial trial; /* as recorded, or as it would be now. OK: with samples of finals, of this
                            run or an earlier one; else SCREENED, or PREDICTED */
  struct ft_kernel kernel;
  void *loaded;     /* NULL for a recalled one until it is needed */
  double screen_us; /* beside the best of its time (struct ft_pace); recalled: as measured then */
  bool recalled;    /* from the store */
  bool recorded;
};

struct ft_field {
  const struct ft_rig *rig;
  struct ft_entrant *entrants;
  int count, capacity;
  double best_us;  /* least screen_us; 0: none yet */
  bool had_finals; /* in an earlier run: what it screened has lost, and had clocks of that run */
};

/* Takes kernel and loaded over. Rows that are clearly not among the best are recorded at once; the
 * others wait for the finals, whose samples replace theirs. recalled: the row is in the store
 * already. */
int ft_field_add(struct ft_field *field, const struct ft_trial *trial, double screen_us,
                 struct ft_kernel *kernel, void *loaded, bool recalled);

/* The best so far, loaded. */
int ft_field_pace(struct ft_field *field, struct ft_pace *pace);

/* Measures the near-best and the default in turn. stop: as in ft_tune_options, looked at between
 * rounds. */
int ft_field_finals(struct ft_field *field, const volatile sig_atomic_t *stop);

/* Records what still waits, as it is. */
int ft_field_flush(struct ft_field *field);

/* By the store's rule: of those that had finals, if any, within ft_tie_limit of the best the
 * default, else less shared memory, fewer registers, ft_config_compare. NULL when nothing ran. */
const struct ft_entrant *ft_field_winner(const struct ft_field *field);

/* Unloads and frees everything. */
void ft_field_close(struct ft_field *field);

#endif
