/* reference_row.h: the steps of a reference row, for answers.c, which does many with one scratch.
 * in -> out: problem + row -> scores of the visible keys -> O and LSE, exact or plain. */
#ifndef TUNER_REFERENCE_ROW_H
#define TUNER_REFERENCE_ROW_H

#include "generator/status.h"
#include "tuner/reference.h"

enum { FT_REFERENCE_DIM = 256 }; /* the largest head dim of a valid request */

/* One entry per visible key of a row. */
struct ft_row_scratch {
  int64_t *keys;
  double *exact; /* scale * q . k */
  float *plain;
  unsigned char *kept; /* by dropout */
};

int ft_row_scratch_make(struct ft_row_scratch *scratch, int64_t seqlen_k);
void ft_row_scratch_free(struct ft_row_scratch *scratch);

/* Fills the scratch; returns the number of visible keys. */
int64_t ft_row_scores(const struct ft_host_problem *problem, struct ft_row row,
                      struct ft_row_scratch *scratch);

void ft_row_exact(const struct ft_host_problem *problem, struct ft_row row,
                  const struct ft_row_scratch *scratch, int64_t count, double *o, double *lse);
void ft_row_plain(const struct ft_host_problem *problem, struct ft_row row,
                  const struct ft_row_scratch *scratch, int64_t count, double *o, double *lse);

#endif
