/* problem_verify.c: whether a kernel wrote what it should.
 * in -> out: O and LSE with their fences from the GPU -> verdict: fences whole, every element
 * written, gaps untouched, chosen rows right. The rows and their reference are made once per
 * problem. problem_gradients.c does this for a backward. */

#include "tuner/verify/problem_verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tuner/verify/answers.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_gradients.h"
#include "tuner/verify/problem_outputs.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/random_inputs.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/shape.h"
#include "tuner/verify/stopwatch.h"

/* ---- rows and answers, once ---- */

static int64_t count_rows(const struct ft_problem *problem) {
  const struct ft_request *request = &problem->options.request;
  const int64_t rows =
      request->ragged ? problem->sequences.q.in_use : request->batch * request->seqlen_q;
  return rows * request->heads_q;
}

static struct ft_row row_at(const struct ft_problem *problem, int64_t index) {
  const struct ft_request *request = &problem->options.request;
  if (request->ragged) return ft_row_of_sequences(&problem->sequences.q, request->heads_q, index);
  const int64_t per_batch = request->seqlen_q * request->heads_q;
  return (struct ft_row){.batch = index / per_batch,
                         .head = (int)(index % per_batch / request->seqlen_q),
                         .i = index % request->seqlen_q};
}

/* Chooses all rows, or the first, the last and random ones between. */
static int choose_rows(struct ft_problem *problem, int wanted) {
  const int64_t all = count_rows(problem);
  const int count = all < wanted ? (int)all : wanted;
  uint64_t state = problem->options.seed ^ 0x2545F4914F6CDD1Du;
  problem->rows = malloc(((size_t)count + 1) * sizeof *problem->rows);
  if (!problem->rows) return ft_fail(FT_E_MEMORY, "no memory for %d rows", count);
  for (int n = 0; n < count; n++) {
    int64_t index = n;
    if (count < all && n == 1) index = all - 1;
    if (count < all && n > 1) index = (int64_t)(ft_random_next(&state) % (uint64_t)all);
    problem->rows[n] = row_at(problem, index);
  }
  problem->row_count = count;
  return FT_OK;
}

static int make_buffers(struct ft_problem *problem) {
  const size_t rows = (size_t)problem->row_count + 1; /* none are used of some sequences */
  problem->o_image = malloc(problem->bytes[FT_O] + 2 * FT_FENCE_BYTES);
  problem->lse_image = malloc(problem->bytes[FT_LSE] + 2 * FT_FENCE_BYTES);
  problem->o_rows = malloc(rows * (size_t)problem->options.request.head_dim_v *
                           (size_t)problem->shapes[FT_O].host_bytes);
  problem->lse_rows = malloc(rows * sizeof(float));
  if (problem->o_image && problem->lse_image && problem->o_rows && problem->lse_rows) return FT_OK;
  return ft_fail(FT_E_MEMORY, "no memory for a copy of the outputs");
}

static void forget_answers(struct ft_problem *problem) {
  ft_answers_free(problem->answers);
  free(problem->rows);
  free(problem->o_image);
  free(problem->lse_image);
  free(problem->o_rows);
  free(problem->lse_rows);
  problem->answers = NULL;
  problem->rows = NULL;
  problem->o_image = problem->lse_image = NULL;
  problem->o_rows = NULL;
  problem->lse_rows = NULL;
}

static int prepare(struct ft_problem *problem, int rows, int threads) {
  const int64_t all = count_rows(problem);
  if (problem->answers && problem->row_count == (all < rows ? all : rows)) return FT_OK;
  forget_answers(problem);
  int status;
  FT_CHECK(choose_rows(problem, rows));
  FT_CHECK(make_buffers(problem));
  FT_CHECK(ft_answers_make(&problem->answers, &problem->host, problem->rows, problem->row_count,
                           threads));
done:
  if (status != FT_OK) forget_answers(problem);
  return status;
}

/* ---- the outputs ---- */

static int fetch_outputs(struct ft_problem *problem, struct ft_comparison *comparison,
                         bool *broken) {
  int status;
  FT_TRY(ft_session_enter(problem->session));
  FT_CHECK(ft_stream_wait(problem->session, NULL));
  FT_CHECK(ft_output_fetch(problem, FT_O, problem->o_image));
  FT_CHECK(ft_output_fetch(problem, FT_LSE, problem->lse_image));
  FT_CHECK(ft_output_workspace(problem, comparison, broken));
done:
  ft_session_leave(problem->session);
  return status;
}

/* Where the LSE of a row lies: [batch, head, row], or of sequences [head, row of all of them]. */
static int64_t lse_place(const struct ft_problem *problem, struct ft_row row) {
  const struct ft_request *request = &problem->options.request;
  if (request->ragged)
    return row.head * request->seqlen_q + problem->sequences.q.starts[row.batch] + row.i;
  return (row.batch * request->heads_q + row.head) * request->seqlen_q + row.i;
}

static bool lse_unwritten(const struct ft_problem *problem, const float *lse,
                          struct ft_comparison *comparison) {
  const int64_t count = count_rows(problem);
  for (int64_t n = 0; n < count; n++) {
    const struct ft_row row = row_at(problem, n);
    if (!isnan(lse[lse_place(problem, row)])) continue;
    ft_output_found(comparison, "LSE of batch %lld head %d row %lld is NaN or was not written",
                    (long long)row.batch, row.head, (long long)row.i);
    comparison->row = row;
    comparison->column = FT_COLUMN_LSE;
    return true;
  }
  return false;
}

/* The LSE of rows that no sequence uses. */
static bool lse_beyond_written(const struct ft_problem *problem, const float *lse,
                               struct ft_comparison *comparison) {
  const int64_t all = (int64_t)(problem->bytes[FT_LSE] / sizeof(float));
  const uint32_t poison = FT_POISON_LSE;
  int64_t untouched = 0;
  for (int64_t n = 0; n < all; n++) untouched += memcmp(&lse[n], &poison, sizeof poison) == 0;
  if (untouched == all - count_rows(problem)) return false;
  return ft_output_found(comparison, "wrote %lld LSE of rows that no sequence uses",
                         (long long)(all - count_rows(problem) - untouched));
}

/* Copies the chosen rows side by side. LSE lies as [batch, head, row]. */
static void gather_rows(struct ft_problem *problem, const unsigned char *o, const float *lse) {
  const struct ft_request *request = &problem->options.request;
  const int64_t element = problem->shapes[FT_O].host_bytes, bytes = request->head_dim_v * element;
  for (int n = 0; n < problem->row_count; n++) {
    const struct ft_row row = problem->rows[n];
    const int64_t offset = ft_shape_offset(&problem->shapes[FT_O], row.batch, row.i, row.head);
    memcpy((char *)problem->o_rows + n * bytes, o + offset * element, (size_t)bytes);
    if (!problem->options.want_lse) continue;
    problem->lse_rows[n] = lse[lse_place(problem, row)];
  }
}

static void judge(struct ft_problem *problem, struct ft_comparison *comparison) {
  const bool want_lse = problem->options.want_lse;
  /* The fences are 256 bytes, so O and LSE stay aligned for their types. */
  const unsigned char *o = problem->o_image + FT_FENCE_BYTES;
  const float *lse = (const float *)(const void *)(problem->lse_image + FT_FENCE_BYTES);
  gather_rows(problem, o, lse);
  const struct ft_shape *shape = &problem->shapes[FT_O];
  const enum ft_dtype dtype = ft_output_dtype(&problem->options.request);
  if (ft_output_fence_broken(problem->o_image, problem->bytes[FT_O], "O", comparison)) return;
  if (want_lse &&
      ft_output_fence_broken(problem->lse_image, problem->bytes[FT_LSE], "LSE", comparison))
    return;
  if (ft_output_unwritten(shape, dtype, o, "O", "row", comparison)) return;
  if (ft_output_gaps_written(shape, o, "O", comparison)) return;
  if (want_lse && lse_unwritten(problem, lse, comparison)) return;
  if (want_lse && lse_beyond_written(problem, lse, comparison)) return;
  ft_answers_compare(problem->answers, problem->o_rows, want_lse ? problem->lse_rows : NULL,
                     comparison);
}

int ft_problem_verify(struct ft_problem *problem, int rows, int threads,
                      struct ft_comparison *comparison) {
  *comparison = problem->verdict = (struct ft_comparison){0};
  if (rows < 1) return ft_fail(FT_E_ARGUMENT, "rows to verify is %d; allowed: 1 and more", rows);
  if (!problem->options.keep_host)
    return ft_fail(FT_E_ARGUMENT, "a problem made without keep_host cannot be verified");
  if (problem->options.request.pass == FT_BACKWARD) {
    FT_TRY(ft_problem_verify_gradients(problem, rows, threads, comparison));
  } else {
    FT_TRY(prepare(problem, rows, threads));
    bool broken;
    FT_TRY(fetch_outputs(problem, comparison, &broken));
    if (!broken) judge(problem, comparison);
  }
  problem->verdict = *comparison;
  return FT_OK;
}

/* Compares O and LSE with those of the run before. Elements that no run writes are equal: both
 * times they hold the poison. */
static int compare_again(struct ft_problem *problem, struct ft_comparison *comparison) {
  static const struct {
    int buffer;
    const char *name;
  } outputs[] = {{FT_O, "O"}, {FT_LSE, "LSE"}};
  for (int i = 0; i < (problem->options.want_lse ? 2 : 1); i++) {
    const int buffer = outputs[i].buffer;
    const unsigned char *again;
    FT_TRY(ft_output_fetch_again(problem, buffer, &again));
    const unsigned char *const before = buffer == FT_O ? problem->o_image : problem->lse_image;
    if (memcmp(again, before, problem->bytes[buffer] + 2 * FT_FENCE_BYTES) == 0) continue;
    ft_output_found(comparison, "%s differs from run to run", outputs[i].name);
    return FT_OK;
  }
  return FT_OK;
}

static int verify_again(struct ft_problem *problem, struct ft_comparison *comparison) {
  FT_TRY(ft_session_enter(problem->session));
  int status = ft_stream_wait(problem->session, NULL);
  if (status == FT_OK) status = compare_again(problem, comparison);
  ft_session_leave(problem->session);
  return status;
}

int ft_problem_check(struct ft_problem *problem, const struct ft_problem_run *run, int rows,
                     int threads, struct ft_comparison *comparison) {
  const struct ft_request *request = &problem->options.request;
  FT_TRY(ft_problem_poison(problem, run->stream));
  FT_TRY(run->run(run->payload, &problem->arguments));
  FT_TRY(ft_problem_verify(problem, rows, threads, comparison));
  const bool backward = request->pass == FT_BACKWARD;
  if (comparison->damaged || !(backward ? request->deterministic : run->twice)) return FT_OK;
  FT_TRY(ft_problem_poison(problem, run->stream));
  FT_TRY(run->run(run->payload, &problem->arguments));
  FT_TRY(backward ? ft_problem_verify_repeat(problem, comparison)
                  : verify_again(problem, comparison));
  problem->verdict = *comparison;
  return FT_OK;
}
