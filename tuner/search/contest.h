/* contest.h: everything that has a time, and the decision among it.
 * in -> out: screened or predicted trials -> the near-best measured again in turn -> rows, winner.
 */
#ifndef TUNER_CONTEST_H
#define TUNER_CONTEST_H

#include "cache/winner.h"
#include "tuner/search/rig.h"
#include "tuner/search/tune_options.h"

/* What candidates are measured beside: the best so far. The clock moves by a sixth between an idle
 * GPU and a hot one, so times of two candidates compare only by what each takes beside a third. */
struct ft_pace {
  void *loaded; /* NULL: there is none yet */
  double us;    /* its time on the scale of the screening */
};

struct ft_entrant {
  struct ft_trial trial; /* as recorded, or as it would be now. OK: with samples of finals, of this
                            run or an earlier one; else SCREENED, or PREDICTED */
  struct ft_kernel kernel;
  void *loaded;     /* NULL for a recalled one until it is needed */
  double screen_us; /* beside the best of its time (struct ft_pace); recalled: as measured then;
                       predicted: the prediction */
  bool recalled;    /* from the store */
  bool recorded;
};

struct ft_contest {
  const struct ft_rig *rig;
  struct ft_entrant *entrants;
  struct ft_standing *standings; /* room for all entrants, filled when the winner is asked for */
  int count, capacity;
  double best_us;  /* least screen_us; 0: none yet */
  bool had_finals; /* in an earlier run: what it screened has lost, and had clocks of that run */
};

/* Takes kernel and loaded over. Rows that are clearly not among the best are recorded at once; the
 * others wait for the finals, whose samples replace theirs. recalled: the row is in the store
 * already. */
int ft_contest_add(struct ft_contest *contest, const struct ft_trial *trial, double screen_us,
                   struct ft_kernel *kernel, void *loaded, bool recalled);

/* The best so far, loaded. */
int ft_contest_pace(struct ft_contest *contest, struct ft_pace *pace);

/* Measures the near-best and the default in turn. stop: as in ft_tune_options, looked at between
 * rounds. */
int ft_contest_finals(struct ft_contest *contest, const volatile sig_atomic_t *stop);

/* Records what still waits, as it is. */
int ft_contest_flush(struct ft_contest *contest);

/* By the store's rule (ft_standings_order). NULL when nothing has a time. */
struct ft_entrant *ft_contest_winner(struct ft_contest *contest);

/* Unloads and frees everything. */
void ft_contest_close(struct ft_contest *contest);

#endif
