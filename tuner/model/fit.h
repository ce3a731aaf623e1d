/* fit.h: coefficients fitted to recorded trials, and how well a fit ranks what it has not seen.
 * in -> out: tuner/model/fit/TARGET.fit, embedded at build time -> a factor on a prediction. */
#ifndef TUNER_FIT_H
#define TUNER_FIT_H

#include "generator/templates.h"
#include "tuner/model/features.h"

/* The .fit files of the build. Ends with a row whose name is NULL. */
extern const struct ft_template ft_fits[];

/* Of one family on one target. Held out: what the coefficients have not seen. A kind: requests that
 * differ in lengths, batch and heads alone. */
struct ft_fit {
  const struct ft_family *family;
  char target[16];             /* "sm_90" */
  char dtypes[32];             /* "bf16,fp16": of other requests it says nothing */
  int trials, requests, kinds; /* that it was fitted to, or that were too few */
  bool used;                   /* false: the data is too thin, or no better; by hand it stays */
  double rank_by_hand, rank;   /* Spearman's correlation, mean over requests held out; 0: unknown */
  double kind_rank;            /* the same where kinds are held out */
  double ceiling;              /* what a model without error would have, for the times are noisy */
  double error_by_hand, error; /* median relative error of ratios of times; requests held out */
  double order; /* pairs of its own trials as measured less those the other way, of all pairs */
  double (*knobs)[FT_SETTINGS]; /* of each value searched of each knob, one after the other */
  double terms[FT_TERMS][FT_SETTINGS];
};

/* NULL: nothing is known of the family on that target. */
const struct ft_fit *ft_fit_of(const struct ft_family *family, const struct ft_arch *arch);

/* What the prediction by hand is to be multiplied by; 1 without a fit that is used. */
double ft_fit_factor(const struct ft_fit *fit, const struct ft_modelled *of,
                     const struct ft_prediction *prediction);

/* Takes in the text of a .fit file, and returns how many of its lines could not be read. Not while
 * another thread asks for a fit. */
int ft_fits_read(const char *text, size_t length);

/* The number of the fits' lines that could not be read; a build has none, and a test asks. */
int ft_fits_unread(void);

#endif
