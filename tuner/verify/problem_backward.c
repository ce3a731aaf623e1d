/* problem_backward.c: what a backward is given: O and LSE of the forward, dO and dLSE.
 * in -> out: problem with Q, K, V, dO, mask -> O and LSE, from float64 or from a forward's kernel
 * -> device buffers, host copies. */
#include "tuner/verify/problem_backward.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generator/status.h"
#include "tuner/verify/gradients.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem_memory.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/random_inputs.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/shape.h"
#include "tuner/verify/stopwatch.h"
#include "tuner/verify/threads.h"

/* Most multiply-adds of a forward in float64, some seconds of a core; the least that are worth a
 * thread. */
static const double WORK_MOST = 5e9, WORK_OF_A_THREAD = 2e8;

/* Rows of host copies, with those that sequences shorter than the longest one do not have. */
static int64_t count_rows(const struct ft_problem *problem) {
  return ft_gradient_rows(&problem->host.request, FT_GRADIENT_Q);
}

static double work_of(const struct ft_problem *problem) {
  const struct ft_request *r = &problem->host.request;
  return (double)count_rows(problem) * (double)r->seqlen_k * (r->head_dim + r->head_dim_v);
}

/* ---- statistics of sequences ---- */

/* Calls `each` with the place of every row in a host copy and in the device's memory, which has
 * rows of sequences one behind the other: [head, row]. */
static void walk_statistic(const struct ft_problem *problem,
                           void (*each)(float *host, float *device), float *host, float *device) {
  const struct ft_packed_rows *const rows = &problem->sequences.q;
  const int64_t heads = problem->host.request.heads_q, longest = problem->host.request.seqlen_q;
  for (int64_t b = 0; b < problem->sequences.count; b++)
    for (int64_t head = 0; head < heads; head++)
      for (int64_t i = 0; i < rows->used[b]; i++)
        each(&host[(b * heads + head) * longest + i],
             &device[head * rows->total + rows->starts[b] + i]);
}

static void to_device(float *host, float *device) {
  *device = *host;
}

static void to_host(float *host, float *device) {
  *host = *device;
}

/* NaN where no sequence has a row. */
static int copy_statistic_in(struct ft_problem *problem, int buffer, float *host) {
  if (!problem->options.request.ragged) return ft_problem_copy_in(problem, buffer, host);
  float *const image = malloc(problem->bytes[buffer]);
  if (!image) return ft_fail(FT_E_MEMORY, "no memory for a copy of LSE");
  memset(image, 0xFF, problem->bytes[buffer]);
  walk_statistic(problem, to_device, host, image);
  const int status = ft_problem_copy_in(problem, buffer, image);
  free(image);
  return status;
}

/* ---- in float64 ---- */

struct work {
  struct ft_problem *problem;
  atomic_llong next;
  atomic_int failed;
};

static void forward_row(struct work *work, int64_t index, struct ft_row_scratch *scratch) {
  struct ft_problem *problem = work->problem;
  const struct ft_request *r = &problem->host.request;
  const struct ft_row row = ft_gradient_row_at(r, FT_GRADIENT_Q, index);
  double o[FT_REFERENCE_DIM], lse;
  if (!ft_row_exists(&problem->host, row)) return;
  const int64_t count = ft_row_scores(&problem->host, row, scratch);
  ft_row_exact(&problem->host, row, scratch, count, o, &lse);
  const int64_t to = ((row.batch * r->seqlen_q + row.i) * r->heads_q + row.head) * r->head_dim_v;
  for (int d = 0; d < r->head_dim_v; d++)
    ft_set_number(r->dtype, problem->dense[FT_O], to + d, o[d]);
  problem->lse[index] = (float)lse;
}

static void *forward_rows(void *payload) {
  struct work *work = payload;
  struct ft_row_scratch scratch;
  const int64_t all = count_rows(work->problem);
  if (ft_row_scratch_make(&scratch, &work->problem->host) != FT_OK) {
    work->failed = 1;
    return NULL;
  }
  for (int64_t n = work->next++; n < all; n = work->next++) forward_row(work, n, &scratch);
  ft_row_scratch_free(&scratch);
  return NULL;
}

static int forward_in_float64(struct ft_problem *problem) {
  struct work work = {.problem = problem};
  const double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
  const double threads = fmin(ceil(work_of(problem) / WORK_OF_A_THREAD), cores);
  ft_work_together((int)threads, forward_rows, &work);
  if (work.failed) return ft_fail(FT_E_MEMORY, "no memory for the forward in float64");
  FT_TRY(ft_problem_upload(problem, FT_O, problem->dense[FT_O]));
  return copy_statistic_in(problem, FT_LSE, problem->lse);
}

/* ---- by a kernel ---- */

static int make_plan(struct ft_problem *problem, fatune_plan **plan) {
  struct ft_request forward = problem->options.request;
  struct ft_text text = FT_TEXT_INIT;
  fatune_request request = FATUNE_REQUEST_INIT;
  forward.pass = FT_FORWARD;
  forward.deterministic = false;
  forward.dtype_o = FT_O_DEFAULT;
  forward.score_gradients = 0;
  ft_request_print(&forward, &text);
  int status = ft_text_status(&text);
  if (status == FT_OK) status = fatune_request_parse(&request, text.data);
  if (status == FT_OK) status = fatune_plan_make(plan, problem->session, &request);
  ft_text_free(&text);
  return status;
}

/* Copies O out of its layout. */
static void gather(struct ft_problem *problem, const char *image) {
  const struct ft_shape *shape = &problem->shapes[FT_O];
  const int64_t element = shape->host_bytes, bytes = shape->dim * element;
  char *to = problem->dense[FT_O];
  for (int64_t b = 0; b < shape->batch; b++) {
    for (int64_t row = 0; row < shape->rows; row++) {
      for (int head = 0; head < shape->heads; head++, to += bytes)
        if (row < ft_shape_rows(shape, b))
          memcpy(to, image + ft_shape_offset(shape, b, row, head) * element, (size_t)bytes);
    }
  }
}

static int copy_out(struct ft_problem *problem, int buffer, void *to) {
  const struct ft_driver *driver = &problem->session->driver;
  FT_TRY(ft_driver_status(
      driver, driver->copy_to_host(to, problem->data[buffer], problem->bytes[buffer], NULL),
      "cuMemcpyDtoHAsync"));
  return ft_driver_status(driver, driver->stream_synchronize(NULL), "cuStreamSynchronize");
}

static int copy_lse_out(struct ft_problem *problem) {
  if (!problem->options.request.ragged) return copy_out(problem, FT_LSE, problem->lse);
  float *const image = malloc(problem->bytes[FT_LSE]);
  if (!image) return ft_fail(FT_E_MEMORY, "no memory for a copy of LSE");
  const int status = copy_out(problem, FT_LSE, image);
  if (status == FT_OK) walk_statistic(problem, to_host, problem->lse, image);
  free(image);
  return status;
}

static int forward_by_kernel(struct ft_problem *problem) {
  fatune_plan *plan = NULL;
  char *image = NULL;
  size_t bytes;
  int status;
  FT_CHECK(make_plan(problem, &plan));
  FT_CHECK(fatune_plan_workspace_for(plan, &problem->arguments, &bytes));
  FT_CHECK(ft_problem_make_workspace(problem, bytes));
  fatune_arguments arguments = problem->arguments;
  arguments.dsinks = NULL;
  FT_CHECK(fatune_plan_run(plan, &arguments, NULL));
  FT_CHECK(ft_stream_wait(problem->session, NULL));
  if (!problem->options.keep_host) goto done;
  image = malloc(problem->bytes[FT_O]);
  if (!image) {
    status = ft_fail(FT_E_MEMORY, "no memory for a copy of O");
    goto done;
  }
  FT_CHECK(copy_out(problem, FT_O, image));
  FT_CHECK(copy_lse_out(problem));
  gather(problem, image);
done:
  free(image);
  fatune_plan_free(plan);
  return status == FT_OK ? FT_OK : ft_fail_within(status, "the forward before the backward");
}

/* ---- dLSE ---- */

/* Makes random dLSE, as large as dO . O is. */
static int make_dlse(struct ft_problem *problem) {
  const size_t count = (size_t)count_rows(problem);
  uint64_t state = problem->options.seed ^ 0x9FB21C651E98DF25u;
  problem->dlse = calloc(count, sizeof *problem->dlse);
  if (!problem->dlse) return ft_fail(FT_E_MEMORY, "no memory for the gradient of LSE");
  for (size_t n = 0; n < count; n++)
    problem->dlse[n] = (float)(ft_random_next(&state) >> 40) * 0x1p-22f - 2;
  return copy_statistic_in(problem, FT_DLSE, problem->dlse);
}

/* Whether O and LSE are computed in float64: only if results will be compared, and the problem is
 * small enough. An emulated GPU takes longer than that. */
static bool is_for_the_cpu(const struct ft_problem *problem) {
  const bool compared = problem->options.keep_host || problem->session->driver.emulated;
  return compared && work_of(problem) <= WORK_MOST;
}

static int make_up(struct ft_problem *problem) {
  const struct ft_driver *const driver = &problem->session->driver;
  const uint32_t eight = 0x41000000u;
  FT_TRY(ft_driver_status(
      driver, driver->set_words(problem->data[FT_O], 0, problem->bytes[FT_O] / 4, NULL), "set O"));
  return ft_driver_status(
      driver, driver->set_words(problem->data[FT_LSE], eight, problem->bytes[FT_LSE] / 4, NULL),
      "set LSE");
}

int ft_problem_forward(struct ft_problem *problem) {
  if (problem->options.made_up) return make_up(problem);
  const size_t rows = (size_t)count_rows(problem);
  problem->dense[FT_O] =
      calloc((size_t)problem->shapes[FT_O].count, (size_t)problem->shapes[FT_O].host_bytes);
  problem->lse = calloc(rows, sizeof(float));
  if (!problem->dense[FT_O] || !problem->lse)
    return ft_fail(FT_E_MEMORY, "no memory for O and LSE of %zu rows", rows);
  FT_TRY(is_for_the_cpu(problem) ? forward_in_float64(problem) : forward_by_kernel(problem));
  if (problem->options.want_dlse) FT_TRY(make_dlse(problem));
  problem->host.o = problem->dense[FT_O];
  problem->host.lse = problem->lse;
  problem->host.dlse = problem->dlse;
  return FT_OK;
}
