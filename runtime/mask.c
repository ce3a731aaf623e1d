/* mask.c: block-sparse masks.
 * in -> out: bitmap on host or device -> index lists on the device (compressed sparse rows).
 * List number ((batch * heads) + head) * row_blocks + row_block holds the kept column blocks,
 * ascending. */
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/session.h"

static int check_block(const char *name, int value) {
  if (value >= 16 && value % 16 == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "options.%s is %d; allowed: multiples of 16", name, value);
}

static int check_extent(const char *name, int64_t value) {
  if (value >= 1 && value <= INT32_MAX) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "options.%s is %lld; allowed: 1 .. 2^31 - 1", name,
                 (long long)value);
}

static int check_options(const fatune_mask_options *options) {
  FT_TRY(ft_check_size("options", options->size, sizeof *options));
  if (!options->blocks) return ft_fail(FT_E_ARGUMENT, "options.blocks is NULL");
  if (options->on_device != 0 && options->on_device != 1)
    return ft_fail(FT_E_ARGUMENT, "options.on_device is %d; allowed: 0, 1", options->on_device);
  FT_TRY(check_block("mask_rows", options->mask_rows));
  FT_TRY(check_block("mask_cols", options->mask_cols));
  FT_TRY(check_extent("batch", options->batch));
  FT_TRY(check_extent("heads", options->heads));
  FT_TRY(check_extent("seqlen_q", options->seqlen_q));
  return check_extent("seqlen_k", options->seqlen_k);
}

/* *lists and the bitmap's size in bytes, both small enough to be allocated eight times over. */
static int count(const struct fatune_mask *mask, int64_t *lists, int64_t *bitmap_size) {
  const int64_t most = INT64_MAX / 16;
  if (__builtin_mul_overflow(mask->batch * mask->heads, mask->row_blocks, lists) ||
      __builtin_mul_overflow(*lists, mask->col_blocks, bitmap_size) || *bitmap_size < 1 ||
      *bitmap_size > most)
    return ft_fail(
        FT_E_ARGUMENT,
        "options: batch %lld x heads %d x %lld x %lld blocks is more than memory can hold",
        (long long)mask->batch, mask->heads, (long long)mask->row_blocks,
        (long long)mask->col_blocks);
  return FT_OK;
}

void ft_mask_lists(const uint8_t *bitmap, int64_t lists, int64_t col_blocks, int64_t *starts,
                   int32_t *blocks) {
  int64_t kept = 0;
  for (int64_t list = 0; list < lists; list++) {
    const uint8_t *const row = bitmap + list * col_blocks;
    starts[list] = kept;
    for (int64_t col = 0; col < col_blocks; col++) {
      if (!row[col]) continue;
      if (blocks) blocks[kept] = (int32_t)col;
      kept++;
    }
  }
  starts[lists] = kept;
}

/* ---- to and from the device; the context is current ---- */

static int copy_and_wait(const struct ft_driver *driver, cu_address device, void *host,
                         size_t bytes, bool to_device, cu_stream stream) {
  if (bytes == 0) return FT_OK;
  if (to_device)
    FT_TRY(ft_driver_status(driver, driver->copy_to_device(device, host, bytes, stream),
                            "cuMemcpyHtoDAsync"));
  else
    FT_TRY(ft_driver_status(driver, driver->copy_to_host(host, device, bytes, stream),
                            "cuMemcpyDtoHAsync"));
  return ft_driver_status(driver, driver->stream_synchronize(stream), "cuStreamSynchronize");
}

/* Copying and waiting would end a capture with an error deep in the driver; better to say so first.
 */
static int refuse_capture(const struct ft_driver *driver, cu_stream stream) {
  int capturing = 0;
  FT_TRY(ft_driver_status(driver, driver->stream_capturing(stream, &capturing),
                          "cuStreamIsCapturing"));
  if (!capturing) return FT_OK;
  return ft_fail(FT_E_NOT_PREPARED, "stream is being captured; make the mask before the capture");
}

/* The bitmap's copy in host memory, to be freed by the caller. */
static int fetch_bitmap(const struct ft_driver *driver, const uint8_t *blocks, int64_t size,
                        cu_stream stream, uint8_t **bitmap) {
  *bitmap = malloc((size_t)size + 1);
  if (!*bitmap) return ft_fail(FT_E_MEMORY, "no memory for a mask of %lld blocks", (long long)size);
  return copy_and_wait(driver, (uintptr_t)blocks, *bitmap, (size_t)size, false, stream);
}

static int build_lists(const uint8_t *bitmap, int64_t lists, int64_t col_blocks, int64_t **starts,
                       int32_t **blocks) {
  *starts = malloc((size_t)(lists + 1) * sizeof **starts);
  if (!*starts) return ft_fail(FT_E_MEMORY, "no memory for %lld lists", (long long)lists);
  ft_mask_lists(bitmap, lists, col_blocks, *starts, NULL);
  const int64_t kept = (*starts)[lists];
  *blocks = malloc((size_t)(kept ? kept : 1) * sizeof **blocks);
  if (!*blocks) return ft_fail(FT_E_MEMORY, "no memory for %lld kept blocks", (long long)kept);
  ft_mask_lists(bitmap, lists, col_blocks, *starts, *blocks);
  return FT_OK;
}

static int upload(struct fatune_mask *mask, const struct ft_driver *driver, int64_t lists,
                  int64_t *starts, int32_t *blocks, cu_stream stream) {
  const size_t starts_bytes = (size_t)(lists + 1) * sizeof *starts;
  const size_t blocks_bytes = (size_t)starts[lists] * sizeof *blocks;
  FT_TRY(ft_driver_status(driver, driver->memory_alloc(&mask->memory, starts_bytes + blocks_bytes),
                          "cuMemAlloc"));
  mask->starts = mask->memory;
  mask->blocks = mask->memory + starts_bytes;
  FT_TRY(copy_and_wait(driver, mask->starts, starts, starts_bytes, true, stream));
  return copy_and_wait(driver, mask->blocks, blocks, blocks_bytes, true, stream);
}

static int fill(struct fatune_mask *mask, const fatune_mask_options *options, cu_stream stream) {
  const struct ft_driver *const driver = &mask->session->driver;
  int64_t lists = 0, size = 0, *starts = NULL;
  int32_t *blocks = NULL;
  uint8_t *fetched = NULL;
  int status;
  FT_CHECK(count(mask, &lists, &size));
  FT_CHECK(refuse_capture(driver, stream));
  if (options->on_device) FT_CHECK(fetch_bitmap(driver, options->blocks, size, stream, &fetched));
  FT_CHECK(
      build_lists(fetched ? fetched : options->blocks, lists, mask->col_blocks, &starts, &blocks));
  FT_CHECK(upload(mask, driver, lists, starts, blocks, stream));
  mask->density = (double)starts[lists] / (double)size;

done:
  free(fetched);
  free(starts);
  free(blocks);
  return status;
}

int fatune_mask_make(fatune_mask **out, fatune_session *session, const fatune_mask_options *options,
                     void *stream) {
  if (!out) return ft_fail(FT_E_ARGUMENT, "mask is NULL; it takes the new mask");
  *out = NULL;
  if (!session) return ft_fail(FT_E_ARGUMENT, "session is NULL");
  if (!options) return ft_fail(FT_E_ARGUMENT, "options is NULL");
  FT_TRY(check_options(options));
  FT_TRY(ft_session_enter(session));

  int status = FT_OK;
  struct fatune_mask *const mask = malloc(sizeof *mask);
  if (!mask) {
    status = ft_fail(FT_E_MEMORY, "no memory for a mask");
    goto done;
  }
  *mask = (struct fatune_mask){
      .session = session,
      .rows = options->mask_rows,
      .cols = options->mask_cols,
      .batch = options->batch,
      .heads = options->heads,
      .seqlen_q = options->seqlen_q,
      .seqlen_k = options->seqlen_k,
      .row_blocks = (options->seqlen_q + options->mask_rows - 1) / options->mask_rows,
      .col_blocks = (options->seqlen_k + options->mask_cols - 1) / options->mask_cols};
  FT_CHECK(fill(mask, options, stream));
  *out = mask;

done:
  if (status != FT_OK && mask) {
    if (mask->memory) session->driver.memory_free(mask->memory);
    free(mask);
  }
  ft_session_leave(session);
  return status;
}

double fatune_mask_density(const fatune_mask *mask) {
  return mask ? mask->density : 0;
}

void fatune_mask_free(fatune_mask *mask) {
  if (!mask) return;
  /* Freed even where the context cannot be entered: there is no later try. */
  const bool entered = ft_session_enter(mask->session) == FT_OK;
  mask->session->driver.memory_free(mask->memory);
  if (entered) ft_session_leave(mask->session);
  free(mask);
}
