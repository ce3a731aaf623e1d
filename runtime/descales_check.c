/* descales_check.c: whether the descales of a run, which lie on the device, are above 0 and finite.
 * in -> out: arguments -> FT_OK, or FT_E_ARGUMENT with the batch entry and head. */
#include "runtime/descales_check.h"

#include <math.h>
#include <stdlib.h>

#include "generator/status.h"

/* Of Q, or of K or V. */
struct side {
  const char *name;
  const fatune_descale *given;
  int heads;
};

/* `factors` are those of a batch entry, by the stride of heads. A NaN is not above 0 either. */
static int check_factors(const struct side *side, const float *factors, int heads, int64_t entry) {
  for (int head = 0; head < heads; head++) {
    const double factor = (double)factors[head * side->given->stride_head];
    if (!(factor > 0 && isfinite(factor)))
      return ft_fail(FT_E_ARGUMENT,
                     "arguments.%s has %g for head %d of batch entry %lld; allowed: above 0 and "
                     "finite",
                     side->name, factor, head, (long long)entry);
  }
  return FT_OK;
}

static int check(const struct side *side, int64_t batch, const struct ft_driver *driver,
                 cu_stream stream) {
  const fatune_descale *const given = side->given;
  if (!given->data) return FT_OK;
  const int64_t entries = given->stride_batch == 0 ? 1 : batch;
  const int heads = given->stride_head == 0 ? 1 : side->heads;
  const size_t span = (size_t)(heads - 1) * (size_t)given->stride_head + 1;
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
  int captured = 0;
  struct ft_run run;
  const bool given =
      arguments->descale_q.data || arguments->descale_k.data || arguments->descale_v.data;
  if (!given) return FT_OK;
  FT_TRY(ft_run_read_lengths(&run, request, arguments));
  if (driver->stream_capturing(stream, &captured) != 0 || captured) return FT_OK;
  const struct side sides[] = {{"descale_q", &arguments->descale_q, run.heads_q},
                               {"descale_k", &arguments->descale_k, run.heads_kv},
                               {"descale_v", &arguments->descale_v, run.heads_kv}};
  for (int n = 0; n < 3; n++) FT_TRY(check(&sides[n], run.batch, driver, stream));
  return FT_OK;
}
