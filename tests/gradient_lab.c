/* gradient_lab.c: small random problems of a backward on the host, and verdicts over gradients.
 * in -> out: request -> problem with O and LSE; gradients as the plain computation has them. */
#include "tests/gradient_lab.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "generator/status.h"
#include "tests/fresh_seed.h"
#include "tuner/verify/gradient_answers.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/random_inputs.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/scorer.h"

/* Multiples of 2^-6 below 1: a step of 2^-6 or 2^-5 is exact in both formats. */
static uint16_t *random_tensor(enum ft_dtype dtype, int64_t count, uint64_t *state) {
  uint16_t *data = malloc((size_t)count * sizeof *data);
  ck_assert_ptr_nonnull(data);
  for (int64_t n = 0; n < count; n++)
    data[n] = ft_to_dtype(dtype, ((double)(ft_random_next(state) % 125) - 62) / 64);
  return data;
}

void gradient_sample_forward(struct gradient_sample *sample) {
  const struct ft_request *r = &sample->problem.request;
  for (int64_t n = 0; n < ft_gradient_rows(r, FT_GRADIENT_Q); n++) {
    const struct ft_row row = ft_gradient_row_at(r, FT_GRADIENT_Q, n);
    double o[256], lse;
    ft_reference_row(&sample->problem, row, o, &lse);
    uint16_t *const to =
        sample->o + ((row.batch * r->seqlen_q + row.i) * r->heads_q + row.head) * r->head_dim_v;
    for (int d = 0; d < r->head_dim_v; d++) to[d] = ft_to_dtype(r->dtype, o[d]);
    sample->lse[n] = (float)lse;
  }
}

struct gradient_sample gradient_sample_of(const char *text) {
  struct gradient_sample sample = {.seed = fresh_seed()};
  struct ft_request request;
  uint64_t state = sample.seed;
  ck_assert_msg(ft_request_parse(&request, text) == FT_OK, "%s", ft_detail());
  const int64_t queries = ft_gradient_rows(&request, FT_GRADIENT_Q);
  const int64_t keys = ft_gradient_rows(&request, FT_GRADIENT_K);
  sample.q = random_tensor(request.dtype, queries * request.head_dim, &state);
  sample.k = random_tensor(request.dtype, keys * request.head_dim, &state);
  sample.v = random_tensor(request.dtype, keys * request.head_dim_v, &state);
  sample.o = random_tensor(request.dtype, queries * request.head_dim_v, &state);
  sample.dout = random_tensor(request.dtype, queries * request.head_dim_v, &state);
  sample.lse = malloc((size_t)queries * sizeof(float));
  sample.dlse = malloc((size_t)queries * sizeof(float));
  ck_assert(sample.lse && sample.dlse);
  for (int64_t n = 0; n < queries; n++)
    sample.dlse[n] = (float)(ft_random_next(&state) % 129) / 64 - 1;
  if (request.mask_rows > 0)
    ck_assert_int_eq(
        ft_random_blocks(&sample.blocks, &request, request.batch, request.heads_q, ~sample.seed),
        FT_OK);
  sample.problem = (struct ft_host_problem){.request = request,
                                            .q = sample.q,
                                            .k = sample.k,
                                            .v = sample.v,
                                            .blocks = sample.blocks,
                                            .mask_batch = (int)request.batch,
                                            .mask_heads = request.heads_q,
                                            .o = sample.o,
                                            .dout = sample.dout,
                                            .lse = sample.lse,
                                            .dlse = sample.dlse,
                                            .scale = 1 / sqrt(request.head_dim),
                                            .dropout = request.dropout ? 0.3 : 0,
                                            .seed = ft_random_next(&state),
                                            .offset = ft_random_next(&state)};
  gradient_sample_forward(&sample);
  return sample;
}

void gradient_sample_free(struct gradient_sample *sample) {
  free(sample->q);
  free(sample->k);
  free(sample->v);
  free(sample->o);
  free(sample->dout);
  free(sample->lse);
  free(sample->dlse);
  free(sample->blocks);
}

void gradients_plain(const struct ft_host_problem *problem, uint16_t *values[FT_GRADIENTS]) {
  const struct ft_request *r = &problem->request;
  struct ft_query_terms *terms;
  struct ft_gradient_row row[FT_GRADIENTS];
  struct ft_scorer scorer;
  ck_assert_int_eq(ft_query_terms_make(&terms, problem), FT_OK);
  ck_assert_int_eq(ft_scorer_open(&scorer, problem), FT_OK);
  for (int g = 0; g < FT_GRADIENTS; g++) {
    const int64_t rows = ft_gradient_rows(r, (enum ft_gradient)g);
    const int dim = ft_gradient_dim(r, (enum ft_gradient)g);
    values[g] = malloc((size_t)(rows * dim) * sizeof(uint16_t));
    ck_assert_ptr_nonnull(values[g]);
    for (int64_t n = 0; n < rows; n++) {
      const struct ft_row at = ft_gradient_row_at(r, (enum ft_gradient)g, n);
      if (g == FT_GRADIENT_Q)
        ft_query_gradient(problem, &scorer, terms, at, &row[FT_GRADIENT_Q]);
      else
        ft_key_gradients(problem, &scorer, terms, at, &row[FT_GRADIENT_K], &row[FT_GRADIENT_V]);
      for (int d = 0; d < dim; d++) values[g][n * dim + d] = ft_to_dtype(r->dtype, row[g].plain[d]);
    }
  }
  ft_scorer_close(&scorer);
  free(terms);
}

void gradients_free(uint16_t *values[FT_GRADIENTS]) {
  for (int g = 0; g < FT_GRADIENTS; g++) free(values[g]);
}

struct ft_comparison gradients_compare(const struct gradient_sample *sample,
                                       uint16_t *values[FT_GRADIENTS]) {
  struct ft_gradient_answers *answers;
  struct ft_comparison comparison;
  ck_assert_int_eq(ft_gradient_answers_make(&answers, &sample->problem, 1 << 20, 1, 2), FT_OK);
  void *const given[FT_GRADIENTS] = {values[0], values[1], values[2]};
  ft_gradient_answers_compare(answers, given, &comparison);
  ft_gradient_answers_free(answers);
  return comparison;
}

void gradient_score_open(struct gradient_score *score, const char *text) {
  int64_t number;
  *score = (struct gradient_score){.known = NULL};
  ck_assert_int_eq(ft_template_files_open(&score->files, NULL), FT_OK);
  ck_assert_msg(ft_registry_add(&score->registry, &score->files, "mine", text, &number) == FT_OK,
                "%s", ft_detail());
  ck_assert_int_eq(ft_registry_find(&score->registry, &score->files, number, &score->known), FT_OK);
}

void gradient_score_close(struct gradient_score *score) {
  ft_registry_close(&score->registry);
  ft_template_files_close(&score->files);
}
