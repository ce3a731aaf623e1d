/* registry.h: the score functions that a session knows, by number.
 * in -> out: name, text -> number, which requests have; number -> score, derivative, CUDA text. */
#ifndef GENERATOR_SCORE_REGISTRY_H
#define GENERATOR_SCORE_REGISTRY_H

#include "generator/request.h"
#include "generator/score/cost.h"
#include "generator/score/cuda_ranges.h"
#include "generator/score/derive.h"
#include "generator/score/exponent.h"
#include "generator/score/kind.h"
#include "generator/score/score.h"
#include "generator/template_files.h"

/* The bit of a captured thing in a request's score_gradients: a tensor's number, or that of a
 * scalar behind all tensors. */
enum { FT_GRADIENTS_MOST = FT_SCORE_TENSORS + FT_SCORE_SCALARS };

struct ft_known_gradient {
  bool exists;
  char name[FT_SCORE_NAME + 20]; /* "the gradient of NAME" */
  char why_not[256];             /* where it does not exist */
};

/* Stays as it is, where it is, until the registry is closed. */
struct ft_known_score {
  int64_t number; /* from kind and digest: equal texts have equal numbers */
  struct ft_score score;
  bool has_slope;    /* a backward can be made; else why_no_slope says why not */
  bool slope_is_one; /* the score is s and what does not depend on it */
  bool slope_varies; /* the slope depends on s */
  bool has_score, has_visible;
  int slope; /* node */
  char why_no_slope[256];
  struct ft_exponent exponent;
  struct ft_score_costs costs;
  struct ft_text cuda;            /* of parts/score_function.cu.in */
  struct ft_text cuda_of_visible; /* likewise, of block_mask.cu.in; "" without a mask function */
  struct ft_range_values visible_values;

  /* By all captured floats that the score is differentiable by, and the text that has them, too. */
  struct ft_derivatives derivatives;
  struct ft_text cuda_with_gradients;
  struct ft_known_gradient
      gradients[FT_GRADIENTS_MOST]; /* by the bit of ft_request.score_gradients */
};

/* Whether the score is largest near the query, and nothing hides keys there. */
static inline bool ft_score_fades(const struct ft_known_score *known) {
  return known->has_score && !known->has_visible && known->exponent.fades;
}

/* Whether a backward may make dS of P times the slope, both rounded to the dtype: marks of what is
 * dropped, and gradients of captured things, want P itself. known NULL: there is no score. */
static inline bool ft_score_weighs_p(const struct ft_known_score *known,
                                     const struct ft_request *request) {
  return known != NULL && known->slope_varies && request->score_gradients == 0 && !request->dropout;
}

struct ft_score_registry {
  struct ft_known_score **rows; /* owned */
  int count;
};

/* text NULL: the built-in one of this name. A score that is known already gets the number that it
 * has. */
int ft_registry_add(struct ft_score_registry *registry, const struct ft_template_files *files,
                    const char *name, const char *text, int64_t *number);
/* The bit of what is called `name`. FT_E_ARGUMENT with name and line where the score captures no
 * such thing, or is not differentiable by it. */
int ft_known_gradient_bit(const struct ft_known_score *known, const char *name, int *bit);
/* FT_E_ARGUMENT unless there is a gradient for all bits. */
int ft_known_gradients_check(const struct ft_known_score *known, int64_t wanted);

void ft_registry_close(struct ft_score_registry *registry);

/* One that was added, else a built-in one. FT_E_NOT_FOUND where there is none. */
int ft_registry_find(struct ft_score_registry *registry, const struct ft_template_files *files,
                     int64_t number, const struct ft_known_score **known);

#endif
