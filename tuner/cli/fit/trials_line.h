/* trials_line.h: the lines of a file of trials for the fit (trials_file.h has its form).
 * in -> out: what a run was, or a trial, as numbers <-> one line of text. */
#ifndef TUNER_TRIALS_LINE_H
#define TUNER_TRIALS_LINE_H

#include <stdbool.h>

#include "cache/trial.h"
#include "generator/text.h"

/* By what trials were measured; "" or all zero: not known. */
struct ft_trials_head {
  char what[512]; /* what the run was, in words */
  char device[96], policy[48], driver[32], nvrtc[64];
  struct ft_digest templates;
  char date[16]; /* "2026-11-27" */
};

/* What is kept of a trial. 0: not known, but for `outcome`. Shares of one. */
struct ft_trials_row {
  int run, head, request, config; /* numbers of a file: trials_file.h */
  enum ft_outcome outcome;
  double median_us;
  int sm_clock_mhz;
  int registers, spill_bytes;
  double spread; /* spread_us over median_us */
  double error_ratio;
  bool is_default;
  char *reason; /* or NULL */
};

struct ft_trials_head ft_trials_head_of(const struct ft_trial *trial, const char *what);

/* "run what=... device=... policy=... ..."; the words of `with` are those in which a head differs
 * from the one before: nothing where none do. What a `with` does not name stays. */
void ft_trials_print_run(const struct ft_trials_head *head, struct ft_text *line);
void ft_trials_print_with(const struct ft_trials_head *before, const struct ft_trials_head *head,
                          struct ft_text *line);
int ft_trials_parse_run(struct ft_trials_head *head, const char *words);
int ft_trials_parse_with(struct ft_trials_head *head, const char *words);

/* A trial, with its config's number in the run. parse leaves run, head and request 0, takes that
 * number for the config, and points `reason` into the text. */
void ft_trials_print_row(int config, const struct ft_trial *trial, struct ft_text *line);
int ft_trials_parse_row(struct ft_trials_row *row, const char *text);

#endif
