/* trials_file.h: trials for the fit of the model, as a file of text: generator/model/fit.
 * in -> out: file -> arrays of what was measured.
 *
 *     # a comment
 *     run what="record_many.py of many.list" device=nvidia-h200/sm_90/132 policy=events-warm/3 ...
 *     request forward bf16 d128 hq32 hkv8 b2 nq8192 causal
 *     config 1 wgmma_forward block_m=192 block_n=128 stages=2 q_stages=2
 *     1 1529.18 1965 168 0.54% 0.42 ok default
 *     config 2 wgmma_forward block_m=192 block_n=256 stages=2 q_stages=1
 *     2 - - 255+96 spilled : 96 bytes of local memory per thread
 *     with policy=events-warm-ragged/2
 *
 * A line that begins with a number is a trial of the last request: number of its config, median in
 * microseconds, clock in MHz, registers+bytes spilled, half of the spread, error over the one
 * allowed, outcome, whether the config was the default, why it has no time. "-" is not known; what
 * is not known at the end is left out, and so is the outcome `screened`. Times compare within a run
 * and a request alone. Configs are numbered anew in each run, in their order. `with` changes by
 * what the trials behind it were measured. */
#ifndef TUNER_TRIALS_FILE_H
#define TUNER_TRIALS_FILE_H

#include "tuner/cli/fit/trials_line.h"
#include "tuner/cli/fit/trials_texts.h"

/* known: this version has such requests, and such knobs. */
struct ft_trials_request {
  const char *text;
  bool known;
  struct ft_request request;
};

struct ft_trials_config {
  const char *text;
  bool known;
  struct ft_config config;
};

/* Each request and each config is there once. Rows are in the order of the file. */
struct ft_trials {
  struct ft_trials_row *rows;
  struct ft_trials_request *requests;
  struct ft_trials_config *configs;
  struct ft_trials_head *heads;
  int row_count, request_count, config_count, head_count;
  int run_count;
  int *numbered; /* of the last run: the config of each number, from 1 on */
  int numbered_count;
  struct ft_texts request_texts, config_texts;
  char unknown[512]; /* the first that is not known: file, line and why; or "" */
};

/* What fails names the file, the line and what is allowed. */
int ft_trials_read(struct ft_trials *trials, const char *path);
void ft_trials_free(struct ft_trials *trials);

/* Whether it ran right and has a time, and its request and config are known. */
bool ft_trials_ran(const struct ft_trials *trials, const struct ft_trials_row *row);

/* Its time at another clock. */
double ft_trials_us_at(const struct ft_trials_row *row, double clock_mhz);

#endif
