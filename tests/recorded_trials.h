/* recorded_trials.h: the trials that the fit was made from, for tests.
 * in -> out: generator/model/fit/nvidia-h200.trials -> those that ran, those of a run and a request
 * side by side. */
#ifndef TESTS_RECORDED_TRIALS_H
#define TESTS_RECORDED_TRIALS_H

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tuner/cli/fit/trials_file.h"

/* count: of rows that ran, whose requests and configs this version knows. */
struct recorded {
  struct ft_trials trials;
  const struct ft_trials_row **rows;
  int count;
};

static inline int by_run_and_request(const void *a, const void *b) {
  const struct ft_trials_row *const x = *(const struct ft_trials_row *const *)a;
  const struct ft_trials_row *const y = *(const struct ft_trials_row *const *)b;
  if (x->run != y->run) return x->run < y->run ? -1 : 1;
  if (x->request != y->request) return x->request < y->request ? -1 : 1;
  return x < y ? -1 : x > y;
}

static inline void read_recorded(struct recorded *recorded) {
  static const char path[] = FATUNE_SOURCE_DIR "/generator/model/fit/nvidia-h200.trials";
  struct ft_trials *const trials = &recorded->trials;
  ck_assert_msg(ft_trials_read(trials, path) == FT_OK, "%s", ft_detail());
  recorded->rows = calloc((size_t)trials->row_count + 1, sizeof *recorded->rows);
  recorded->count = 0;
  ck_assert_ptr_nonnull(recorded->rows);
  for (int n = 0; n < trials->row_count; n++)
    if (ft_trials_ran(trials, &trials->rows[n]))
      recorded->rows[recorded->count++] = &trials->rows[n];
  qsort(recorded->rows, (size_t)recorded->count, sizeof *recorded->rows, by_run_and_request);
}

/* Behind the last row of the run and the request that the row `at` is of. */
static inline int end_of_group(const struct recorded *recorded, int at) {
  const struct ft_trials_row *const first = recorded->rows[at];
  while (at < recorded->count && recorded->rows[at]->run == first->run &&
         recorded->rows[at]->request == first->request)
    at++;
  return at;
}

/* Whether the row `at` is of a run that was recorded after the fit: its words say so. */
static inline bool is_in_no_fit(const struct recorded *recorded, int at) {
  const struct ft_trials_head *const head = &recorded->trials.heads[recorded->rows[at]->head];
  return strstr(head->what, "in no fit yet") != NULL;
}

static inline void free_recorded(struct recorded *recorded) {
  free(recorded->rows);
  ft_trials_free(&recorded->trials);
}

#endif
