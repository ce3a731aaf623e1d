/* descales_check.c: whether the descales of a run, which lie on the device, are above 0 and finite.
 * in -> out: arguments -> FT_OK, or FT_E_ARGUMENT with the batch entry, head and block. */
#include "runtime/descales_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "generator/status.h"

/* Of Q, or of K or V. */
struct side {
  const char *name;
  const fatune_descale *given;
  int heads;
  int64_t blocks; /* of a head */
  bool related;   /* those of a head's blocks lie within 2^60 of its first */
};

/* `first`: of the head's first block. A NaN is not above 0 either. */
static const char *what_is_wrong(const struct side *side, double factor, double first) {
  enum { OCTAVES = 60 };
  if (!(factor > 0 && isfinite(factor))) return "above 0 and finite";
  if (!side->related || fabs(log2(factor) - log2(first)) <= OCTAVES) return NULL;
  return "within a factor of 2^60 of that of the head's first block";
}

/* `factors` are those of a batch entry, by the stride of heads. */
static int check_factors(const struct side *side, const float *factors, int heads, int64_t entry) {
  for (int64_t n = 0; n < heads * side->blocks; n++) {
    const int64_t head = n / side->blocks, block = n % side->blocks;
    const float *const of_head = &factors[head * side->given->stride_head];
    const double factor = (double)of_head[block];
    const char *const allowed = what_is_wrong(side, factor, (double)of_head[0]);
    if (!allowed) continue;
    char of_block[32] = "";
    if (side->blocks > 1)
      (void)snprintf(of_block, sizeof of_block, "block %lld of ", (long long)block);
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.%s has %g for %shead %lld of batch entry %lld; allowed: %s",
                   side->name, factor, of_block, (long long)head, (long long)entry, allowed);
  }
  return FT_OK;
}

static int check(const struct side *side, int64_t batch, const struct ft_driver *driver,
                 cu_stream stream) {
  const fatune_descale *const given = side->given;
  if (!given->data) return FT_OK;
  const int64_t entries = given->stride_batch == 0 ? 1 : batch;
  const int heads = given->stride_head == 0 ? 1 : side->heads;
  const size_t span = (size_t)(heads - 1) * (size_t)given->stride_head + (size_t)side->blocks;
  float *const factors = malloc(span * sizeof *factors);
  if (!factors) return ft_fail(FT_E_MEMORY, "no memory for %zu descales", span);
  int status = FT_OK;
  for (int64_t n = 0; n < entries && status == FT_OK; n++) {
    status = ft_driver_fetch(driver, factors, (uintptr_t)(given->data + n * given->stride_batch),
                             span * sizeof *factors, stream);
    if (status == FT_OK) status = check_factors(side, factors, heads, n);
  }
  free(factors);
  return status;
}

int ft_descales_check(const struct ft_request *request, const fatune_arguments *arguments,
                      const struct ft_driver *driver, cu_stream stream) {
  struct ft_run run;
  const bool given =
      arguments->descale_q.data || arguments->descale_k.data || arguments->descale_v.data;
  if (!given) return FT_OK;
  FT_TRY(ft_run_read_lengths(&run, request, arguments));
  if (ft_driver_is_capturing(driver, stream)) return FT_OK;
  const int64_t of_q = ft_descale_blocks(request->descale_rows, run.nq),
                of_k = ft_descale_blocks(request->descale_rows, run.nk);
  const struct side sides[] = {{"descale_q", &arguments->descale_q, run.heads_q, of_q, false},
                               {"descale_k", &arguments->descale_k, run.heads_kv, of_k, false},
                               {"descale_v", &arguments->descale_v, run.heads_kv, of_k, true}};
  for (int n = 0; n < 3; n++) FT_TRY(check(&sides[n], run.batch, driver, stream));
  return FT_OK;
}
