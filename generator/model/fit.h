/* fit.h: what was fitted to recorded trials, and how well it ranks what it has not seen.
 * in -> out: generator/model/fit/TARGET.fit, made by fit.py -> figures, a factor on a prediction.
 */
#ifndef GENERATOR_FIT_H
#define GENERATOR_FIT_H

#include "generator/model/trees.h"

/* Of one family on one target. Held out: what the trees have not seen. A kind: requests that
 * differ in lengths, batch and heads alone. */
struct ft_fit {
  const struct ft_family *family;
  const char *target;          /* "sm_90" */
  int trials, requests, kinds; /* that it was fitted to */
  double rank_by_hand, rank;   /* Spearman's correlation, mean over requests held out; 0: unknown */
  double kind_rank;            /* the same where kinds are held out */
  double ceiling;              /* what a model without error would have, for the times are noisy */
  double error_by_hand, error; /* median relative error of ratios of times; requests held out */
  double order; /* pairs of its own trials as measured less those the other way, of all pairs */
};

/* Of the choice of an untuned config, over the requests that were recorded, each held out in turn:
 * time of the best tried over that of the default, and over that of the choice. */
struct ft_fit_choice {
  enum ft_pass pass;
  const char *target;
  int requests;
  double margin; /* so much faster than the default must a config be predicted to be, to be taken */
  double usual, usual_least, chosen, chosen_least; /* geometric means, least ones */
};

/* NULL: nothing is known of the family on that target. */
const struct ft_fit *ft_fit_of(const struct ft_family *family, const struct ft_arch *arch);

/* NULL: likewise of the pass; the default is then the choice. */
const struct ft_fit_choice *ft_fit_choice_of(enum ft_pass pass, const struct ft_arch *arch);

/* The next config of the family, as text, that was the fastest of what was tried for some request:
 * worth asking for others, too. *place is 0 before the first. NULL beyond the last. */
const char *ft_fit_start(const struct ft_family *family, const struct ft_arch *arch, int *place);

/* The fit corrects each prediction by hand by a factor. The logarithm of the factor is a sum over
 * the trees of the pass and the trees of the config's family. NULL: there are none. */
const struct ft_trees *ft_fit_trees_of_pass(enum ft_pass pass, const struct ft_arch *arch);
const struct ft_trees *ft_fit_trees_of_family(const struct ft_family *family,
                                              const struct ft_arch *arch);

#endif
