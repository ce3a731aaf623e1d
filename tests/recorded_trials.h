/* recorded_trials.h: the trials that the fit was made from, for tests.
 * in -> out: generator/model/fit/nvidia-h200.trials -> those that ran, with their times. */
#ifndef TESTS_RECORDED_TRIALS_H
#define TESTS_RECORDED_TRIALS_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/trial.h"
#include "generator/model/rates.h"
#include "generator/status.h"

enum { RECORDED_MOST = 40000 };

/* Trials of one section were measured in one run. us: at the speed of the GPU that is modelled. */
struct recorded {
  int section;
  struct ft_trial trial;
  double us;
};

/* *list is to be freed by the caller. */
static inline int read_recorded(struct recorded **list, const struct ft_arch *arch) {
  int count = 0, section = 0;
  char *line = NULL;
  size_t room = 0;
  FILE *const file = fopen(FATUNE_SOURCE_DIR "/generator/model/fit/nvidia-h200.trials", "re");
  struct recorded *const made = calloc(RECORDED_MOST, sizeof *made);
  ck_assert_ptr_nonnull(file);
  ck_assert_ptr_nonnull(made);
  while (getline(&line, &room, file) >= 0) {
    struct recorded *const it = &made[count];
    ck_assert_int_lt(count, RECORDED_MOST);
    line[strcspn(line, "\n")] = '\0';
    section += line[0] == '#';
    if (line[0] == '#' || ft_trial_parse(&it->trial, line) != FT_OK ||
        !ft_outcome_ran(it->trial.outcome) || !(it->trial.median_us > 0))
      continue;
    it->section = section;
    it->us = ft_trial_us_at(&it->trial, ft_cycles_per_us(arch));
    count++;
  }
  fclose(file);
  free(line);
  *list = made;
  return count;
}

#endif
