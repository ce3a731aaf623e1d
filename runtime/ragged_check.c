/* ragged_check.c: whether the lengths of a ragged run, which lie on the device, are what they may
 * be.
 * in -> out: arguments -> FT_OK, or FT_E_ARGUMENT with the batch entry. */
#include "runtime/ragged_check.h"

#include <stdlib.h>

#include "generator/status.h"

/* The rows of Q, or of K and V. */
struct side {
  const char *starts_name, *used_name, *total_name;
  const int32_t *starts, *used; /* on the device */
  int64_t sequences, total;
};

static int check_starts(const struct side *side, const int32_t *starts) {
  if (starts[0] != 0)
    return ft_fail(FT_E_ARGUMENT, "arguments.%s[0] is %d; allowed: 0", side->starts_name,
                   starts[0]);
  for (int64_t n = 0; n < side->sequences; n++) {
    if (starts[n + 1] < starts[n])
      return ft_fail(FT_E_ARGUMENT,
                     "arguments.%s[%lld] is %d, and the one before is %d; allowed: not to fall "
                     "(batch entry %lld)",
                     side->starts_name, (long long)n + 1, starts[n + 1], starts[n], (long long)n);
    if (starts[n + 1] > side->total)
      return ft_fail(FT_E_ARGUMENT,
                     "arguments.%s[%lld] is %d; allowed: at most %s, %lld (batch entry %lld)",
                     side->starts_name, (long long)n + 1, starts[n + 1], side->total_name,
                     (long long)side->total, (long long)n);
  }
  return FT_OK;
}

static int check_used(const struct side *side, const int32_t *starts, const int32_t *used) {
  for (int64_t n = 0; n < side->sequences; n++)
    if (used[n] < 0 || used[n] > starts[n + 1] - starts[n])
      return ft_fail(
          FT_E_ARGUMENT, "arguments.%s[%lld] is %d; allowed: 0 .. %d, the rows of batch entry %lld",
          side->used_name, (long long)n, used[n], starts[n + 1] - starts[n], (long long)n);
  return FT_OK;
}

static int check(const struct side *side, int32_t *room, const struct ft_driver *driver,
                 cu_stream stream) {
  int32_t *const used = room + side->sequences + 1;
  FT_TRY(ft_driver_fetch(driver, room, (uintptr_t)side->starts,
                         ((size_t)side->sequences + 1) * sizeof *room, stream));
  FT_TRY(check_starts(side, room));
  if (!side->used) return FT_OK;
  FT_TRY(ft_driver_fetch(driver, used, (uintptr_t)side->used,
                         (size_t)side->sequences * sizeof *used, stream));
  return check_used(side, room, used);
}

int ft_ragged_check(const struct ft_request *request, const fatune_arguments *arguments,
                    const struct ft_driver *driver, cu_stream stream) {
  struct ft_run run;
  if (!request->ragged) return FT_OK;
  FT_TRY(ft_run_read_lengths(&run, request, arguments));
  if (ft_driver_is_capturing(driver, stream)) return FT_OK;
  const struct side sides[] = {{"cu_seqlens_q", "seqused_q", "seqlen_q", arguments->cu_seqlens_q,
                                arguments->seqused_q, run.batch, run.nq},
                               {"cu_seqlens_k", "seqused_k", "seqlen_k", arguments->cu_seqlens_k,
                                arguments->seqused_k, run.batch, run.nk}};
  int32_t *const room = malloc((2 * (size_t)run.batch + 1) * sizeof *room);
  if (!room)
    return ft_fail(FT_E_MEMORY, "no memory for the lengths of %lld sequences",
                   (long long)run.batch);
  int status = check(&sides[0], room, driver, stream);
  if (status == FT_OK && request->pages == 0) status = check(&sides[1], room, driver, stream);
  free(room);
  return status;
}
