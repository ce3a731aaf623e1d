/* pipeline_lab.c: the pipeline into which bugs are planted.
 * in -> out: tensors, body -> launch -> O against the sums; or the fault. */
#include "tests/pipeline_lab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void fill(struct hopper_tensor *tensor) {
  static const uint16_t numbers[] = {0, 0x3F80, 0xBF80, 0x4000, 0xC000}; /* 0, 1, -1, 2, -2 */
  hopper_tensor_make(tensor, FT_BF16, 8);
  for (uint64_t i = 0; i < hopper_tensor_size(tensor); i++) tensor->host[i] = numbers[below(5)];
}

struct pipeline_tensors pipeline_make(uint64_t q_rows, uint64_t y_rows, uint64_t o_rows,
                                      const unsigned box_rows[3]) {
  struct pipeline_tensors tensors = {
      .q = {.name = "Q", .extents = {PIPELINE_TILE, q_rows, 2, 1}, .box_rows = box_rows[0]},
      .y = {.name = "Y", .extents = {PIPELINE_TILE, y_rows, 1, 2}, .box_rows = box_rows[1]},
      .o = {.name = "O",
            .extents = {PIPELINE_TILE, o_rows, 3, 1},
            .box_rows = box_rows[2],
            .writable = true}};
  fill(&tensors.q);
  fill(&tensors.y);
  fill(&tensors.o);
  return tensors;
}

void pipeline_free(struct pipeline_tensors *tensors) {
  free(tensors->q.host);
  free(tensors->y.host);
  free(tensors->o.host);
}

int pipeline_launch(struct pipeline_tensors *tensors, const char *clusters, unsigned grid,
                    const char *body) {
  enum { THREADS = 384 };
  struct hopper_tensor all[] = {tensors->q, tensors->y, tensors->o};
  struct small_kernel kernel;
  const uint32_t in[1] = {0};
  uint32_t out[1];
  hopper_open_clusters(&kernel, FT_BF16, clusters, body);
  const int status = hopper_launch(&kernel, grid, THREADS, all, 3, in, 1, out, 1);
  small_kernel_close(&kernel);
  return status;
}

static double number(const struct hopper_tensor *tensor, int column, int row, int head, int batch) {
  return number_of(FT_BF16, hopper_at(tensor, column, row, head, batch));
}

static void check_row(const struct pipeline_tensors *tensors, int row) {
  double sums[PIPELINE_TILE] = {0};
  for (int j = 0; j < (int)tensors->y.extents[1]; j++) {
    double product = 0;
    for (int k = 0; k < PIPELINE_TILE; k++)
      product += number(&tensors->q, k, row, 1, 0) * number(&tensors->y, k, j, 0, 1);
    for (int k = 0; k < PIPELINE_TILE; k++) sums[k] += product * number(&tensors->y, k, j, 0, 1);
  }
  for (int k = 0; k < PIPELINE_TILE; k++) {
    const double got = number(&tensors->o, k, row, 2, 0);
    ck_assert_msg(fabs(got - sums[k]) <= fabs(sums[k]) / 256,
                  "row %d, column %d: %g, not %g (FATUNE_TEST_SEED=%llu)", row, k, got, sums[k],
                  (unsigned long long)random_seed);
  }
}

void pipeline_check(const struct pipeline_tensors *tensors) {
  for (int row = 0; row < (int)tensors->o.extents[1]; row++) check_row(tensors, row);
}

void pipeline_catch(struct pipeline_tensors *tensors, const char *clusters, unsigned grid,
                    const char *body, const struct pipeline_bug *bug) {
  char *const edited = hopper_edited(body, bug->piece, bug->other);
  if (bug->plain) setenv("FATUNE_EMULATOR_HOOKS", "1", 1);
  tensors->y.rows_beyond = bug->rows_beyond;
  const int status = pipeline_launch(tensors, clusters, grid, edited);
  ck_assert_msg(status == FT_E_DEVICE, "%s: status %d", bug->name, status);
  hopper_expect_fault(bug->name, edited, bug->at, bug->words, 3);
  free(edited);
}
