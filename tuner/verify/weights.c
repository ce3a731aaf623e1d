/* weights.c: measures the weights of one row.
 * in -> out: problem + runs of the kernel on other V -> weights used, weights expected, how far
 * they may be apart.
 *
 * The allowance is what the formats cost. P is rounded to the dtype before it meets V, a relative
 * error of half a unit in the last place of 1. S and the sum err as ft_answers_compare allows LSE
 * to, which is a relative error of a weight. Both are doubled by the rule of reference.h. O is
 * rounded once more, by half a unit in its last place. A weight of 0 has to be 0. */

#include "tuner/verify/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_memory.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/shape.h"

/* Gives V rows of the unit matrix: of the first group * head_dim_v keys from `begin` on, key j gets
 * column ((j - begin) / group + turn) mod head_dim_v. The other rows of V are 0. */
struct probe {
  int64_t begin, group;
  int turn;
};

/* ---- expected -------------------------------------------------------------------------------- */

void ft_weights_free(struct ft_weights *weights) {
  free(weights->used);
  free(weights->expected);
  free(weights->allowed);
  free(weights->keys);
  free(weights->looked);
  *weights = (struct ft_weights){0};
}

/* The largest weights that the formats may flush to 0: P in units of the row's largest weight, and
 * O. */
static double smallest(enum ft_dtype dtype) {
  return dtype == FT_FP16 ? 0x1p-25 : 0x1p-126;
}

static double allowed_error(const struct ft_host_problem *problem, double weight, double lse) {
  const bool e4m3 = problem->request.dtype == FT_E4M3;
  const enum ft_dtype dtype = ft_operand_dtype(&problem->request);
  const double rescale = ft_dropout_rescale(problem);
  const double score = lse + log(weight / rescale);
  const double relative =
      (e4m3 ? 0x1p-4 : ft_half_ulp(dtype, 1)) + 1e-5 + 2e-6 * (fabs(score) + fabs(lse));
  const double floor = 2 * (e4m3 ? 0x1p-15 : smallest(dtype)) * fmax(1, rescale);
  return 2 * relative * weight + ft_half_ulp(dtype, weight) + floor;
}

int ft_weights_make(struct ft_weights *weights, const struct ft_problem *problem,
                    struct ft_row row) {
  const size_t count = (size_t)problem->options.request.seqlen_k;
  *weights = (struct ft_weights){.row = row,
                                 .count = (int64_t)count,
                                 .used = calloc(count, sizeof(double)),
                                 .expected = calloc(count, sizeof(double)),
                                 .allowed = calloc(count, sizeof(double)),
                                 .keys = calloc(count, 1),
                                 .looked = calloc(count, sizeof(bool))};
  int status = FT_E_MEMORY;
  double lse = 0;
  if (weights->used && weights->expected && weights->allowed && weights->keys && weights->looked) {
    status = ft_row_weights(&problem->host, row, weights->expected, weights->keys, &lse);
  } else {
    ft_fail(FT_E_MEMORY, "no memory for the weights of %zu keys", count);
  }
  if (status != FT_OK) {
    ft_weights_free(weights);
    return status;
  }
  for (size_t j = 0; j < count; j++) {
    if (weights->keys[j] != FT_KEY_KEPT || weights->expected[j] == 0) continue;
    weights->allowed[j] = allowed_error(&problem->host, weights->expected[j], lse);
  }
  return FT_OK;
}

bool ft_weights_wrong(const struct ft_weights *weights, int64_t j) {
  return weights->looked[j] &&
         !(fabs(weights->used[j] - weights->expected[j]) <= weights->allowed[j]);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int fetch_row(struct ft_problem *problem, struct ft_row row, void *o) {
  const struct ft_driver *driver = &problem->session->driver;
  const int64_t offset = ft_shape_offset(&problem->shapes[FT_O], row.batch, row.i, row.head);
  const int host_bytes = problem->shapes[FT_O].host_bytes;
  const size_t bytes = (size_t)problem->options.request.head_dim_v * (size_t)host_bytes;
  int status;
  FT_TRY(ft_session_enter(problem->session));
  FT_CHECK(ft_driver_status(
      driver,
      driver->copy_to_host(o, problem->data[FT_O] + (cu_address)(offset * host_bytes), bytes, NULL),
      "cuMemcpyDtoHAsync"));
  FT_CHECK(ft_driver_status(driver, driver->stream_synchronize(NULL), "cuStreamSynchronize"));
done:
  ft_session_leave(problem->session);
  return status;
}

int ft_weights_run(struct ft_problem *problem, struct ft_runner *runner, struct ft_row row,
                   void *o) {
  runner->left -= 1;
  FT_TRY(ft_problem_poison(problem, NULL));
  FT_TRY(runner->run(runner->payload, ft_problem_arguments(problem)));
  return fetch_row(problem, row, o);
}

static void fill_unit(const struct ft_problem *problem, struct probe probe, void *v) {
  const struct ft_shape *shape = &problem->shapes[FT_V];
  const enum ft_dtype dtype = ft_kept_dtype(problem->options.request.dtype);
  const int64_t end = probe.begin + probe.group * shape->dim;
  memset(v, 0, (size_t)(shape->count * shape->host_bytes));
  for (int64_t b = 0; b < shape->batch; b++) {
    for (int64_t j = probe.begin; j < end && j < shape->rows; j++) {
      const int64_t column = ((j - probe.begin) / probe.group + probe.turn) % shape->dim;
      const int64_t row = (b * shape->rows + j) * shape->heads * shape->dim;
      for (int head = 0; head < shape->heads; head++)
        ft_set_number(dtype, v, row + head * shape->dim + column, 1);
    }
  }
}

/* Runs the kernel on the probe's V and reads the row of O: column c is the weight of the probe's
 * keys. */
static int run_probe(struct ft_problem *problem, struct ft_runner *runner, struct ft_row row,
                     struct probe probe, double *columns) {
  const struct ft_shape *shape = &problem->shapes[FT_V];
  float o[FT_REFERENCE_DIM]; /* room for elements of any dtype */
  void *v = malloc((size_t)(shape->count * shape->host_bytes));
  if (!v) return ft_fail(FT_E_MEMORY, "no memory for %lld elements of V", (long long)shape->count);
  fill_unit(problem, probe, v);
  int status = ft_session_enter(problem->session);
  if (status == FT_OK) {
    status = ft_problem_upload(problem, FT_V, v);
    ft_session_leave(problem->session);
  }
  free(v);
  if (status == FT_OK) status = ft_weights_run(problem, runner, row, o);
  for (int c = 0; status == FT_OK && c < shape->dim; c++) {
    columns[c] = ft_number(ft_output_dtype(&problem->options.request), o, c);
  }
  return status;
}

/* ---- which keys ------------------------------------------------------------------------------ */

struct range {
  int64_t begin, end;
};

static int measure_range(struct ft_weights *weights, struct ft_problem *problem,
                         struct ft_runner *runner, struct range range) {
  const int dim = problem->options.request.head_dim_v;
  double columns[FT_REFERENCE_DIM];
  weights->begin = range.begin;
  for (int64_t begin = range.begin; begin < range.end; begin += dim) {
    const struct probe probe = {.begin = begin, .group = 1};
    FT_TRY(run_probe(problem, runner, weights->row, probe, columns));
    for (int64_t j = begin; j < begin + dim && j < weights->count; j++) {
      weights->used[j] = columns[j - begin];
      weights->looked[j] = true;
    }
  }
  return FT_OK;
}

/* Error over allowance of a group's sum; infinite if a group whose weights are 0 gives something.
 */
static double group_ratio(const struct ft_weights *weights, struct range group, enum ft_dtype dtype,
                          double used) {
  double expected = 0, allowed = 0;
  for (int64_t j = group.begin; j < group.end; j++) {
    expected += weights->expected[j];
    allowed += weights->allowed[j];
  }
  const double error = fabs(used - expected);
  if (error == 0) return 0;
  return expected > 0 && isfinite(error) ? error / (allowed + ft_half_ulp(dtype, expected))
                                         : INFINITY;
}

/* Divides the keys into as many groups as V has columns and returns the group whose sum is worst;
 * empty: all are right. */
static int worst_group(const struct ft_weights *weights, struct ft_problem *problem,
                       struct ft_runner *runner, struct range range, struct range *worst) {
  const struct ft_request *request = &problem->options.request;
  const int64_t group = (range.end - range.begin + request->head_dim_v - 1) / request->head_dim_v;
  const struct probe probe = {.begin = range.begin, .group = group};
  double columns[FT_REFERENCE_DIM], worst_ratio = 1;
  *worst = (struct range){0, 0};
  FT_TRY(run_probe(problem, runner, weights->row, probe, columns));
  for (int c = 0; c < request->head_dim_v; c++) {
    struct range one = {range.begin + c * group, range.begin + (c + 1) * group};
    if (one.begin >= range.end) break;
    if (one.end > range.end) one.end = range.end;
    const double ratio = group_ratio(weights, one, ft_output_dtype(request), columns[c]);
    if (ratio <= worst_ratio) continue;
    worst_ratio = ratio;
    *worst = one;
  }
  return FT_OK;
}

/* The keys around the last one that the row sees, where masks are applied and most loops end. */
static struct range around_edge(const struct ft_weights *weights, int64_t keys) {
  int64_t edge = weights->count;
  while (edge > 0 && weights->keys[edge - 1] == FT_KEY_HIDDEN) edge -= 1;
  struct range range = {edge - keys / 2, edge + keys / 2};
  if (range.end > weights->count) range.begin -= range.end - weights->count;
  if (range.begin < 0) range.begin = 0;
  range.end = range.begin + keys;
  return range.end > weights->count ? (struct range){range.begin, weights->count} : range;
}

int ft_weights_measure(struct ft_weights *weights, struct ft_problem *problem,
                       struct ft_runner *runner) {
  const int dim = problem->options.request.head_dim_v;
  struct range range = {0, weights->count};
  while ((range.end - range.begin + dim - 1) / dim > runner->left) {
    struct range group;
    FT_TRY(worst_group(weights, problem, runner, range, &group));
    if (group.begin == group.end) group = around_edge(weights, (int64_t)(runner->left - 1) * dim);
    range = group;
  }
  return measure_range(weights, problem, runner, range);
}

int ft_weights_elsewhere(const struct ft_weights *weights, struct ft_problem *problem,
                         struct ft_runner *runner, int64_t j, double *used) {
  const int dim = problem->options.request.head_dim_v;
  const int column = (int)((j - weights->begin) % dim + dim / 2) % dim;
  const struct probe probe = {.begin = j, .group = 1, .turn = column};
  double columns[FT_REFERENCE_DIM];
  FT_TRY(run_probe(problem, runner, weights->row, probe, columns));
  *used = columns[column];
  return FT_OK;
}
