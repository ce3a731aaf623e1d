/* trial.h: one measured candidate (noun 5 of 5).
 * in -> out: what the tuner saw -> struct ft_trial; text form "name=value" words, one line.
 * Trials are append-only; which one wins is a query (store.h). */
#ifndef CACHE_TRIAL_H
#define CACHE_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "generator/config.h"
#include "generator/digest.h"
#include "generator/request.h"

/* ORDER OUTCOME */
enum ft_outcome {
  FT_OUTCOME_OK,        /* verified and measured, in turn with the others that are near the best */
  FT_OUTCOME_SCREENED,  /* verified and measured, but at a clock of its own: its time compares with
                           no other's */
  FT_OUTCOME_PREDICTED, /* compiled for real, timed by the model only */
  FT_OUTCOME_REJECTED,  /* a rule or the compiled resources rule it out; reason names which */
  FT_OUTCOME_COMPILE,   /* NVRTC refused it */
  FT_OUTCOME_SPILLED,   /* compiled, but registers spill to local memory */
  FT_OUTCOME_LAUNCH,    /* the driver refused to load or launch it, or it faulted */
  FT_OUTCOME_WRONG,     /* failed verification, wrote out of bounds, or left outputs unwritten */
  FT_OUTCOME_TIMEOUT    /* ran far beyond its prediction */
};

enum { FT_TRIAL_SAMPLES = 64 };

struct ft_trial {
  struct ft_request bucket; /* the key: bucket, device, policy, config */
  char device[96];          /* device class: "nvidia-h200/sm_90/132" */
  char policy[48];          /* measurement policy: "events-warm/3" */
  struct ft_config config;
  struct ft_request request; /* what was measured exactly */
  char nvrtc[64], driver[32];
  struct ft_digest templates;
  struct ft_digest kernel; /* key of the kernel measured */
  enum ft_outcome outcome;
  char reason[256];
  double median_us; /* of samples; for FT_OUTCOME_PREDICTED the model's time */
  double spread_us; /* half the distance between the 20th and the 80th percentile */
  double samples_us[FT_TRIAL_SAMPLES]; /* OK: at the clock of the first finals (contest.c) */
  int sample_count;
  int registers, spill_bytes, smem_bytes;
  int sm_clock_mhz;   /* seen while measuring; 0: unknown */
  double error_ratio; /* error over the allowed error, < 1 is right; 0: not verified */
  int is_default;     /* the config is ft_default_config's */
  int64_t at;         /* seconds since 1970 */
};

const char *ft_outcome_name(enum ft_outcome outcome);

/* Whether it ran right and has times: OK or SCREENED. */
bool ft_outcome_ran(enum ft_outcome outcome);

/* Whether it has a time, measured or predicted. */
bool ft_outcome_timed(enum ft_outcome outcome);

/* median_us scaled to another clock: the time that the trial's cycles take there. A trial whose
 * clock is not known keeps its median_us. */
double ft_trial_us_at(const struct ft_trial *trial, double clock_mhz);

/* By outcome first, so that a prediction, or a time at another clock, however short, beats no
 * measurement; then by median. */
bool ft_trial_beats(const struct ft_trial *a, const struct ft_trial *b);

void ft_trial_print(const struct ft_trial *trial, struct ft_text *text);
int ft_trial_parse(struct ft_trial *trial, const char *text);

#endif
