/* problem_gradients.c: what a backward kernel left in dQ, dK, dV.
 * in -> out: the gradients and the workspace with their fences from the GPU -> verdict, as
 * problem_verify.c gives of a forward. */
#include "tuner/verify/problem_gradients.h"

#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/gradient_answers.h"
#include "tuner/verify/gradients.h"
#include "tuner/verify/problem_outputs.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/shape.h"
#include "tuner/verify/stopwatch.h"

void ft_problem_forget_gradients(struct ft_problem *problem) {
  ft_gradient_answers_free(problem->gradient_answers);
  problem->gradient_answers = NULL;
  for (int gradient = 0; gradient < FT_GRADIENTS; gradient++) {
    free(problem->gradient_images[gradient]);
    free(problem->gradient_rows[gradient]);
    problem->gradient_images[gradient] = NULL;
    problem->gradient_rows[gradient] = NULL;
  }
}

/* ---- rows and answers, once ---- */

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static bool has_answers(const struct ft_problem *problem, int rows) {
  const struct ft_row *chosen;
  if (!problem->gradient_answers) return false;
  const int have = ft_gradient_answers_rows(problem->gradient_answers, FT_GRADIENT_Q, &chosen);
  return have == least(rows, ft_gradient_rows_used(&problem->host, FT_GRADIENT_Q));
}

static int make_buffers(struct ft_problem *problem) {
  for (int gradient = 0; gradient < FT_GRADIENTS; gradient++) {
    const struct ft_row *chosen;
    const enum ft_gradient which = (enum ft_gradient)gradient;
    const int rows = ft_gradient_answers_rows(problem->gradient_answers, which, &chosen);
    const int dim = ft_gradient_dim(&problem->options.request, which);
    problem->gradient_images[gradient] =
        malloc(problem->bytes[FT_DQ + gradient] + 2 * FT_FENCE_BYTES);
    problem->gradient_rows[gradient] =
        malloc((size_t)rows * (size_t)(dim * problem->shapes[FT_DQ + gradient].host_bytes));
    if (!problem->gradient_images[gradient] || !problem->gradient_rows[gradient])
      return ft_fail(FT_E_MEMORY, "no memory for a copy of the gradients");
  }
  return FT_OK;
}

static int prepare(struct ft_problem *problem, int rows, int threads) {
  if (has_answers(problem, rows)) return FT_OK;
  ft_problem_forget_gradients(problem);
  int status;
  FT_CHECK(ft_gradient_answers_make(&problem->gradient_answers, &problem->host, rows,
                                    problem->options.seed ^ 0x2545F4914F6CDD1Du, threads));
  FT_CHECK(make_buffers(problem));
done:
  if (status != FT_OK) ft_problem_forget_gradients(problem);
  return status;
}

/* ---- the outputs ---- */

static const unsigned char *values_of(const struct ft_problem *problem, int gradient) {
  return problem->gradient_images[gradient] + FT_FENCE_BYTES; /* aligned as the image is */
}

static int fetch_outputs(struct ft_problem *problem, struct ft_comparison *comparison,
                         bool *broken) {
  int status;
  FT_TRY(ft_session_enter(problem->session));
  FT_CHECK(ft_stream_wait(problem->session, NULL));
  for (int gradient = 0; gradient < FT_GRADIENTS; gradient++)
    FT_CHECK(ft_output_fetch(problem, FT_DQ + gradient, problem->gradient_images[gradient]));
  FT_CHECK(ft_output_workspace(problem, comparison, broken));
done:
  ft_session_leave(problem->session);
  return status;
}

static bool damaged(const struct ft_problem *problem, enum ft_gradient gradient,
                    struct ft_comparison *comparison) {
  const struct ft_shape *shape = &problem->shapes[FT_DQ + (int)gradient];
  const char *const name = ft_gradient_name(gradient);
  const void *values = values_of(problem, gradient);
  return ft_output_fence_broken(problem->gradient_images[gradient],
                                problem->bytes[FT_DQ + (int)gradient], name, comparison) ||
         ft_output_unwritten(shape, ft_output_dtype(&problem->options.request), values, name,
                             ft_gradient_unit(gradient), comparison) ||
         ft_output_gaps_written(shape, values, name, comparison);
}

static void gather_rows(struct ft_problem *problem, enum ft_gradient gradient) {
  const struct ft_shape *shape = &problem->shapes[FT_DQ + (int)gradient];
  const int64_t element = shape->host_bytes, bytes = shape->dim * element;
  const struct ft_row *rows;
  const int count = ft_gradient_answers_rows(problem->gradient_answers, gradient, &rows);
  for (int n = 0; n < count; n++)
    memcpy((char *)problem->gradient_rows[gradient] + n * bytes,
           values_of(problem, gradient) +
               ft_shape_offset(shape, rows[n].batch, rows[n].i, rows[n].head) * element,
           (size_t)bytes);
}

static void judge(struct ft_problem *problem, struct ft_comparison *comparison) {
  for (int gradient = 0; gradient < FT_GRADIENTS; gradient++) {
    if (damaged(problem, (enum ft_gradient)gradient, comparison)) return;
    gather_rows(problem, (enum ft_gradient)gradient);
  }
  ft_gradient_answers_compare(problem->gradient_answers, problem->gradient_rows, comparison);
}

static int judge_captured(struct ft_problem *problem, struct ft_comparison *comparison) {
  if (comparison->damaged) return FT_OK;
  FT_TRY(ft_session_enter(problem->session));
  int status =
      ft_problem_score_verify(&problem->score, problem->session, &problem->host, comparison);
  if (status == FT_OK)
    status = ft_problem_sinks_verify(&problem->sinks, problem->session, &problem->host, comparison);
  ft_session_leave(problem->session);
  return status;
}

int ft_problem_verify_gradients(struct ft_problem *problem, int rows, int threads,
                                struct ft_comparison *comparison) {
  bool broken;
  FT_TRY(prepare(problem, rows, threads));
  FT_TRY(fetch_outputs(problem, comparison, &broken));
  if (broken) return FT_OK;
  judge(problem, comparison);
  return judge_captured(problem, comparison);
}

/* ---- once more ---- */

static int64_t differing(const unsigned char *a, const unsigned char *b,
                         const struct ft_shape *shape) {
  const size_t bytes = (size_t)shape->host_bytes;
  int64_t differ = 0;
  if (memcmp(a, b, (size_t)shape->span * bytes) == 0) return 0;
  for (size_t n = 0; n < (size_t)shape->span; n++)
    differ += memcmp(a + n * bytes, b + n * bytes, bytes) != 0;
  return differ;
}

int ft_problem_verify_repeat(struct ft_problem *problem, struct ft_comparison *comparison) {
  int status = FT_OK;
  const unsigned char *again;
  FT_TRY(ft_session_enter(problem->session));
  FT_CHECK(ft_stream_wait(problem->session, NULL));
  for (int gradient = 0; gradient < FT_GRADIENTS && problem->gradient_answers; gradient++) {
    FT_CHECK(ft_output_fetch_again(problem, FT_DQ + gradient, &again));
    const int64_t differ = differing(again + FT_FENCE_BYTES, values_of(problem, gradient),
                                     &problem->shapes[FT_DQ + gradient]);
    if (differ == 0) continue;
    ft_output_found(comparison, "%lld elements of %s differ from run to run", (long long)differ,
                    ft_gradient_name((enum ft_gradient)gradient));
    break;
  }
  FT_CHECK(ft_problem_score_repeat(&problem->score, problem->session, comparison));
  FT_CHECK(ft_problem_sinks_repeat(&problem->sinks, problem->session, comparison));
done:
  ft_session_leave(problem->session);
  return status;
}
