/* gpu_outputs.c: raw outputs of a problem, kept to be compared with those of another device.
 * in -> out: problem after a run -> O, LSE; two of them -> largest difference over the allowed. */
#include "tests/gpu/gpu_outputs.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tests/gpu/gpu_compare.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/philox.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/shape.h"
#include "tuner/verify/stopwatch.h"

/* ---- outputs ---- */

static int allocate(struct gpu_output *output) {
  output->o = malloc(output->o_count * sizeof *output->o);
  output->lse = malloc((output->lse_count + 1) * sizeof *output->lse);
  if (output->o && output->lse) return FT_OK;
  gpu_output_free(output);
  return ft_fail(FT_E_MEMORY, "no memory for outputs of %zu elements", output->o_count);
}

static int fetch(const struct ft_problem *problem, int buffer, void *to) {
  const struct ft_driver *const driver = &problem->session->driver;
  if (!problem->memory[buffer]) return FT_OK;
  FT_TRY(ft_driver_status(
      driver, driver->copy_to_host(to, problem->data[buffer], problem->bytes[buffer], NULL),
      "cuMemcpyDtoHAsync"));
  return ft_stream_wait(problem->session, NULL);
}

int gpu_output_fetch(struct gpu_output *output, const struct ft_problem *problem) {
  output->o_count = problem->bytes[FT_O] / sizeof *output->o;
  output->lse_count = problem->bytes[FT_LSE] / sizeof *output->lse;
  FT_TRY(allocate(output));
  int status;
  FT_CHECK(fetch(problem, FT_O, output->o));
  FT_CHECK(fetch(problem, FT_LSE, output->lse));
done:
  if (status != FT_OK) gpu_output_free(output);
  return status;
}

int gpu_output_save(const struct gpu_output *output, const char *path) {
  FILE *const file = fopen(path, "wb");
  if (!file) return ft_fail(FT_E_IO, "cannot write %s", path);
  const bool written =
      fwrite(output->o, sizeof *output->o, output->o_count, file) == output->o_count &&
      fwrite(output->lse, sizeof *output->lse, output->lse_count, file) == output->lse_count;
  if (fclose(file) == 0 && written) return FT_OK;
  return ft_fail(FT_E_IO, "cannot write %s", path);
}

int gpu_output_load(struct gpu_output *output, const char *path) {
  FILE *const file = fopen(path, "rb");
  if (!file) return ft_fail(FT_E_IO, "there is no %s", path);
  int status = allocate(output);
  if (status == FT_OK &&
      (fread(output->o, sizeof *output->o, output->o_count, file) != output->o_count ||
       fread(output->lse, sizeof *output->lse, output->lse_count, file) != output->lse_count ||
       fgetc(file) != EOF)) {
    gpu_output_free(output);
    status = ft_fail(FT_E_IO, "%s has another size than the outputs here", path);
  }
  (void)fclose(file); /* only read */
  return status;
}

/* ---- what the bounds are made of ---- */

static int copy_numbers(int32_t **copy, const int32_t *numbers, int64_t count) {
  *copy = malloc((size_t)count * sizeof **copy);
  if (!*copy) return ft_fail(FT_E_MEMORY, "no memory for %lld lengths", (long long)count);
  memcpy(*copy, numbers, (size_t)count * sizeof **copy);
  return FT_OK;
}

/* The problem's shape of O; lengths of sequences are copied, for the measure outlives the problem.
 */
static int copy_shape(struct gpu_measure *measure, const struct ft_shape *shape) {
  const struct ft_packed_rows *const packed = shape->packed;
  measure->shape = *shape;
  if (!packed) return FT_OK;
  measure->packed = *packed;
  measure->packed.used = NULL;
  measure->shape.packed = &measure->packed;
  FT_TRY(copy_numbers(&measure->packed.starts, packed->starts, shape->batch + 1));
  return copy_numbers(&measure->packed.used, packed->used, shape->batch);
}

static int measure_v(struct gpu_measure *measure, const struct ft_problem *problem) {
  const struct ft_request *const r = &measure->request;
  const struct ft_shape *const shape = &problem->shapes[FT_V];
  const int columns = r->heads_kv * r->head_dim_v;
  measure->largest_v = calloc((size_t)r->batch * (size_t)columns, sizeof *measure->largest_v);
  if (!measure->largest_v) return ft_fail(FT_E_MEMORY, "no memory for the largest of V");
  for (int64_t b = 0; b < r->batch; b++) {
    double *const largest = measure->largest_v + b * columns;
    int64_t row = b * shape->rows * columns;
    for (int64_t key = 0; key < ft_shape_rows(shape, b); key++, row += columns)
      for (int n = 0; n < columns; n++)
        largest[n] = fmax(largest[n],
                          fabs(ft_number(ft_kept_dtype(r->dtype), problem->dense[FT_V], row + n)));
  }
  return FT_OK;
}

int gpu_measure_make(struct gpu_measure *measure, const struct ft_problem *problem) {
  int status;
  *measure = (struct gpu_measure){.request = problem->options.request};
  measure->rescale = 1 / (1 - ft_dropout_threshold(problem->host.dropout) * 0x1p-14);
  FT_CHECK(copy_shape(measure, &problem->shapes[FT_O]));
  FT_CHECK(measure_v(measure, problem));
done:
  if (status != FT_OK) gpu_measure_free(measure);
  return status;
}

void gpu_measure_free(struct gpu_measure *measure) {
  free(measure->largest_v);
  free(measure->packed.starts);
  free(measure->packed.used);
  *measure = (struct gpu_measure){0};
}

/* ---- comparison ---- */

__attribute__((format(printf, 3, 4))) static void blame(struct gpu_agreement *agreement,
                                                        double ratio, const char *format, ...) {
  if (ratio <= agreement->ratio) return; /* NaN counts as the largest */
  va_list arguments;
  va_start(arguments, format);
  agreement->ratio = isnan(ratio) ? INFINITY : ratio;
  (void)vsnprintf(agreement->worst, sizeof agreement->worst, format, arguments);
  va_end(arguments);
}

static void compare_row(struct gpu_agreement *agreement, const struct gpu_measure *measure,
                        struct ft_row row, const uint16_t *a, const uint16_t *b) {
  const struct ft_request *const r = &measure->request;
  const double u = ft_half_ulp(r->dtype, 1);
  const int kv_head = row.head / (r->heads_q / r->heads_kv);
  const double *const largest =
      measure->largest_v + (row.batch * r->heads_kv + kv_head) * r->head_dim_v;
  double square = 0, norm = 0, largest_square = 0;
  agreement->elements += r->head_dim_v;
  for (int c = 0; c < r->head_dim_v; c++) {
    const double x = ft_from_dtype(r->dtype, a[c]), y = ft_from_dtype(r->dtype, b[c]);
    const double allowed = (2 * u + GPU_SLACK) * largest[c] * measure->rescale +
                           2 * ft_half_ulp(r->dtype, fmax(fabs(x), fabs(y)));
    square += (x - y) * (x - y);
    norm += fmax(x * x, y * y);
    largest_square += largest[c] * largest[c];
    agreement->differing += a[c] != b[c];
    blame(agreement, fabs(x - y) / allowed, "O of batch %lld head %d row %lld column %d: %g and %g",
          (long long)row.batch, row.head, (long long)row.i, c, x, y);
  }
  if (square == 0) return;
  const double smallest = 2 * ft_half_ulp(r->dtype, 0);
  const double allowed = 4 * u * sqrt(norm) +
                         smallest * (sqrt(r->head_dim_v) + measure->rescale * sqrt(largest_square));
  blame(agreement, sqrt(square) / allowed, "O of batch %lld head %d row %lld is off by %.2g",
        (long long)row.batch, row.head, (long long)row.i, sqrt(square / norm));
}

static void compare_lse(struct gpu_agreement *agreement, struct ft_row row, float a, float b) {
  if (a == b) return; /* of infinities the difference is NaN */
  const double x = (double)a, y = (double)b;
  blame(agreement, fabs(x - y) / (2 * (1e-5 + 2e-6 * fmax(fabs(x), fabs(y)))),
        "LSE of batch %lld head %d row %lld: %.8g and %.8g", (long long)row.batch, row.head,
        (long long)row.i, x, y);
}

/* [batch, head, row]; of sequences one behind the other [head, row]. */
static int64_t lse_place(const struct gpu_measure *measure, struct ft_row row) {
  const struct ft_request *const r = &measure->request;
  if (r->ragged) return row.head * r->seqlen_q + measure->packed.starts[row.batch] + row.i;
  return (row.batch * r->heads_q + row.head) * r->seqlen_q + row.i;
}

void gpu_outputs_compare(struct gpu_agreement *agreement, const struct gpu_measure *measure,
                         const struct gpu_output *a, const struct gpu_output *b) {
  const struct ft_request *const r = &measure->request;
  *agreement = (struct gpu_agreement){0};
  if (a->o_count != b->o_count || a->lse_count != b->lse_count) {
    blame(agreement, INFINITY, "outputs of different sizes");
    return;
  }
  for (int64_t batch = 0; batch < r->batch; batch++) {
    for (int head = 0; head < r->heads_q; head++) {
      for (int64_t i = 0; i < ft_shape_rows(&measure->shape, batch); i++) {
        const struct ft_row row = {batch, head, i};
        const int64_t at = ft_shape_offset(&measure->shape, batch, i, head);
        const int64_t lse_at = lse_place(measure, row);
        compare_row(agreement, measure, row, a->o + at, b->o + at);
        if (a->lse_count > 0) compare_lse(agreement, row, a->lse[lse_at], b->lse[lse_at]);
      }
    }
  }
}
