/* problem_sinks.c: the sinks of a problem, and their gradient.
 * in -> out: request + seed -> values on the host and on the GPU; after a backward -> verdict.
 *
 * The gradient of a head's sink is the sum over its rows of P of the sink times (dLSE - rowsum(dO o
 * O)). Its yardstick is the root of the sum of squares if nothing in it cancelled. */
#include "tuner/verify/problem_sinks.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/verify/gradients.h"
#include "tuner/verify/random_inputs.h"

static size_t bytes_of(const struct ft_problem_sinks *sinks) {
  return (size_t)sinks->count * sizeof(float);
}

int ft_problem_sinks_make(struct ft_problem_sinks *sinks, fatune_session *session,
                          const struct ft_request *request, uint64_t seed) {
  const struct ft_driver *const driver = &session->driver;
  uint64_t state = seed ^ 0xA24BAED4963EE407u;
  *sinks = (struct ft_problem_sinks){.count = request->sinks ? request->heads_q : 0};
  if (sinks->count == 0) return FT_OK;
  sinks->host = malloc(bytes_of(sinks));
  sinks->values = malloc(bytes_of(sinks));
  if (sinks->host == NULL || sinks->values == NULL)
    return ft_fail(FT_E_MEMORY, "no memory for %d sinks", sinks->count);
  for (int head = 0; head < sinks->count; ++head)
    sinks->host[head] =
        head == 2 ? -INFINITY : (float)(ft_random_next(&state) >> 40) * (12 * 0x1p-24f) - 2;
  FT_TRY(ft_driver_status(driver, driver->memory_alloc(&sinks->memory, bytes_of(sinks)),
                          "cuMemAlloc"));
  if (request->pass == FT_BACKWARD)
    FT_TRY(ft_driver_status(driver, driver->memory_alloc(&sinks->gradient, bytes_of(sinks)),
                            "cuMemAlloc"));
  FT_TRY(ft_driver_status(driver,
                          driver->copy_to_device(sinks->memory, sinks->host, bytes_of(sinks), NULL),
                          "cuMemcpyHtoDAsync"));
  return ft_driver_status(driver, driver->stream_synchronize(NULL), "cuStreamSynchronize");
}

int ft_problem_sinks_poison(struct ft_problem_sinks *sinks, fatune_session *session,
                            cu_stream stream) {
  enum { NOT_A_NUMBER = 0x7FC0DEAD };
  if (!sinks->gradient) return FT_OK;
  return ft_driver_status(
      &session->driver,
      session->driver.set_words(sinks->gradient, NOT_A_NUMBER, (size_t)sinks->count, stream),
      "cuMemsetD32Async");
}

static int fetch(const struct ft_problem_sinks *sinks, const struct ft_driver *driver, float *to) {
  FT_TRY(ft_driver_status(driver, driver->copy_to_host(to, sinks->gradient, bytes_of(sinks), NULL),
                          "cuMemcpyDtoHAsync"));
  return ft_driver_status(driver, driver->stream_synchronize(NULL), "cuStreamSynchronize");
}

/* ---- the verdict ---- */

struct answer {
  double exact, plain, square;
};

static void add_rows(struct answer *answer, const struct ft_host_problem *problem,
                     const struct ft_query_terms *terms, int head) {
  const struct ft_request *const r = &problem->request;
  const float sink = problem->sinks[head];
  for (int64_t batch = 0; batch < r->batch; ++batch) {
    for (int64_t i = 0; i < r->seqlen_q; ++i) {
      if (!ft_row_exists(problem, (struct ft_row){batch, head, i})) continue;
      const struct ft_query_terms *const of = &terms[(batch * r->heads_q + head) * r->seqlen_q + i];
      if (isinf(of->lse)) continue; /* it sees nothing, not even a sink */
      const double p = exp((double)sink - of->lse);
      answer->exact -= p * of->delta;
      answer->plain -= (double)(expf(sink - (float)of->lse) * of->plain_delta);
      answer->square += p * of->delta_size * p * of->delta_size;
    }
  }
}

static void judge(const struct ft_problem_sinks *sinks, const struct answer *answers,
                  struct ft_comparison *comparison) {
  double share = 0x1p-18; /* fp32 sums of some hundred products */
  for (int head = 0; head < sinks->count; ++head)
    if (answers[head].square > 0)
      share = fmax(share, 2 * fabs(answers[head].plain - answers[head].exact) /
                              sqrt(answers[head].square));
  for (int head = 0; head < sinks->count; ++head) {
    /* No fp32 kernel has what is below the least normal number. */
    const double allowed = fmax(share * sqrt(answers[head].square), (double)FLT_MIN);
    const double error = fabs((double)sinks->values[head] - answers[head].exact);
    const double ratio = error == 0                       ? 0
                         : isfinite(error) && allowed > 0 ? error / allowed
                                                          : (double)INFINITY;
    if (!(ratio > comparison->error_ratio)) continue;
    comparison->error_ratio = ratio;
    comparison->column = FT_COLUMN_NONE;
    (void)snprintf(comparison->worst, sizeof comparison->worst,
                   "the gradient of sink %d is %.7g, not %.7g; it may be off by %.3g", head,
                   (double)sinks->values[head], answers[head].exact, allowed);
  }
}

int ft_problem_sinks_verify(struct ft_problem_sinks *sinks, fatune_session *session,
                            const struct ft_host_problem *problem,
                            struct ft_comparison *comparison) {
  struct ft_query_terms *terms = NULL;
  struct answer *answers = NULL;
  int status;
  if (!sinks->gradient) return FT_OK;
  FT_CHECK(fetch(sinks, &session->driver, sinks->values));
  FT_CHECK(ft_query_terms_make(&terms, problem));
  answers = calloc((size_t)sinks->count, sizeof *answers);
  if (answers == NULL) status = ft_fail(FT_E_MEMORY, "no memory for the gradient of sinks");
  FT_CHECK(status);
  for (int head = 0; head < sinks->count; ++head) add_rows(&answers[head], problem, terms, head);
  judge(sinks, answers, comparison);
done:
  free(answers);
  free(terms);
  return status;
}

int ft_problem_sinks_repeat(struct ft_problem_sinks *sinks, fatune_session *session,
                            struct ft_comparison *comparison) {
  if (!sinks->gradient) return FT_OK;
  float *const again = malloc(bytes_of(sinks));
  if (again == NULL) return ft_fail(FT_E_MEMORY, "no memory for a copy of a gradient");
  const int status = fetch(sinks, &session->driver, again);
  if (status == FT_OK && memcmp(again, sinks->values, bytes_of(sinks)) != 0) {
    *comparison =
        (struct ft_comparison){.error_ratio = HUGE_VAL, .column = FT_COLUMN_NONE, .damaged = true};
    (void)snprintf(comparison->worst, sizeof comparison->worst,
                   "the gradient of the sinks differs from run to run");
  }
  free(again);
  return status;
}

void ft_problem_sinks_free(struct ft_problem_sinks *sinks, fatune_session *session) {
  if (sinks->memory) session->driver.memory_free(sinks->memory);
  if (sinks->gradient) session->driver.memory_free(sinks->gradient);
  free(sinks->host);
  free(sinks->values);
  *sinks = (struct ft_problem_sinks){.count = 0};
}
