/* gradient_lab.h: small random problems of a backward on the host, and verdicts over gradients.
 * in -> out: request -> problem with O and LSE; gradients as the plain computation has them. */
#ifndef TESTS_GRADIENT_LAB_H
#define TESTS_GRADIENT_LAB_H

#include "generator/score/registry.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/gradients.h"

struct gradient_sample {
  struct ft_host_problem problem;
  uint16_t *q, *k, *v, *o, *dout;
  float *lse, *dlse;
  uint8_t *blocks;
  uint64_t seed;
};

/* Its seed is a fresh one. */
struct gradient_sample gradient_sample_of(const char *text);
void gradient_sample_free(struct gradient_sample *sample);
/* O and LSE as the forward in float64 leaves them, rounded. */
void gradient_sample_forward(struct gradient_sample *sample);

/* All gradients as the plain computation has them, of a problem that may not be the one asked. */
void gradients_plain(const struct ft_host_problem *problem, uint16_t *values[FT_GRADIENTS]);
void gradients_free(uint16_t *values[FT_GRADIENTS]);
struct ft_comparison gradients_compare(const struct gradient_sample *sample,
                                       uint16_t *values[FT_GRADIENTS]);

/* A score function of this text. */
struct gradient_score {
  struct ft_template_files files;
  struct ft_score_registry registry;
  const struct ft_known_score *known;
};
void gradient_score_open(struct gradient_score *score, const char *text);
void gradient_score_close(struct gradient_score *score);

#endif
