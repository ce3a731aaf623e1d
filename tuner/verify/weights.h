/* weights.h: the weights a kernel really gives to the keys of one row.
 * in -> out: problem + runs of the kernel with V = columns of the unit matrix -> P[i, j] as used
 * and as float64 has it -> which keys are wrong, in words. */
#ifndef TUNER_WEIGHTS_H
#define TUNER_WEIGHTS_H

#include "generator/text.h"
#include "tuner/verify/problem_parts.h"

/* How to run the kernel of a problem, and how many more runs are allowed. */
struct ft_runner {
  int (*run)(void *payload, const fatune_arguments *arguments);
  void *payload;
  int left;
};

/* The weights of one row, by key; seqlen_k of each. */
struct ft_weights {
  struct ft_row row;
  int64_t count;
  double *used, *expected, *allowed; /* allowed: the error that `used` may have */
  unsigned char *keys;               /* enum ft_key */
  bool *looked;                      /* whether used[j] was measured */
  int64_t begin; /* key j was measured in column (j - begin) mod head_dim_v of O */
};

int ft_weights_make(struct ft_weights *weights, const struct ft_problem *problem,
                    struct ft_row row);
void ft_weights_free(struct ft_weights *weights);

/* Measures all keys, or, if these would take too many runs, those around the largest error. */
int ft_weights_measure(struct ft_weights *weights, struct ft_problem *problem,
                       struct ft_runner *runner);

/* Measures the weight of one key again, in the column half of head_dim_v further on. */
int ft_weights_elsewhere(const struct ft_weights *weights, struct ft_problem *problem,
                         struct ft_runner *runner, int64_t j, double *used);
/* Poisons, runs and fetches the row of O for the V that is there. */
int ft_weights_run(struct ft_problem *problem, struct ft_runner *runner, struct ft_row row,
                   void *o);

/* Whether used[j] is further from expected[j] than allowed, or not a number. */
bool ft_weights_wrong(const struct ft_weights *weights, int64_t j);
#endif
