/* contest.h: every candidate that has a time, and the choice among them.
 * in -> out: screened or predicted trials -> the near-best measured again in turn -> rows, winner.
 */
#ifndef TUNER_CONTEST_H
#define TUNER_CONTEST_H

#include "cache/winner.h"
#include "tuner/search/rig.h"
#include "tuner/search/tune_options.h"

/* The best candidate so far, which every new one is measured beside. The clock differs by a sixth
 * between an idle GPU and a hot one, so two candidates compare only by their ratios to a third that
 * runs in turn with each. */
struct ft_incumbent {
  void *loaded; /* by the rig; NULL: no candidate has a time yet */
  double us;    /* its screening time */
};

struct ft_entrant {
  struct ft_trial trial; /* as recorded, or as it would be recorded now. Outcome OK: with samples of
                            finals, of this run or an earlier one; else SCREENED or PREDICTED */
  struct ft_kernel kernel;
  void *loaded;     /* of a recalled entrant NULL until it is needed */
  double screen_us; /* scaled by the best of its time (struct ft_incumbent). Recalled: as measured
                       then. Predicted: the prediction */
  bool recalled;    /* its row was in the store */
  bool recorded;
};

struct ft_contest {
  const struct ft_rig *rig;
  struct ft_entrant *entrants;
  struct ft_standing *standings; /* room for all entrants, filled by ft_contest_winner */
  int count, capacity;
  double best_us;         /* the least screen_us; 0: no entrant yet */
  int unstored;           /* rows that the store could not take */
  char unstored_why[512]; /* the first of them */
  int rounds_again;       /* rounds of finals measured again, as the clock changed in them */
  int unsteady;           /* rounds in which it still changed in the last measurement */
  int incumbent;          /* its number from 1 on; 0: there is none yet */
  bool had_finals; /* An earlier run held finals. Its screened entrants have lost, and were timed at
                      other clocks */
};

/* Takes over the kernel and what the rig has loaded. Rows that are clearly not among the best are
 * recorded at once. The others wait for the finals, whose samples replace theirs. recalled: the row
 * is in the store already. */
int ft_contest_add(struct ft_contest *contest, const struct ft_trial *trial, double screen_us,
                   struct ft_kernel *kernel, void *loaded, bool recalled);

/* Up to `most` entrants with the least screening times, the best first. Returns how many. */
int ft_contest_best(const struct ft_contest *contest, int most, const struct ft_entrant **best);

/* The best entrant so far, loaded. */
int ft_contest_incumbent(struct ft_contest *contest, struct ft_incumbent *incumbent);

/* Measures the near-best and the default in turn. `stop`, as in ft_tune_options, is read between
 * rounds. */
int ft_contest_finals(struct ft_contest *contest, const volatile sig_atomic_t *stop);

/* Records a row. One that the store cannot take is counted and does not end the search. */
void ft_contest_record(struct ft_contest *contest, const struct ft_trial *trial);

/* Records the rows that still wait, as they are. */
void ft_contest_flush(struct ft_contest *contest);

/* The winner by the store's rule (ft_standings_order); NULL when no entrant has a time. */
struct ft_entrant *ft_contest_winner(struct ft_contest *contest);

/* Unloads and frees everything. */
void ft_contest_close(struct ft_contest *contest);

#endif
