/* mask.c: block-sparse masks.
 * in -> out: bitmap on host or device -> index lists on the device.
 * The lists of one batch_head stand together. The list with the most kept blocks is the first, so
 * that a launch starts its longest work tiles first. Lists of columns stand in the order of the
 * columns, since a backward looks up the list of one column in several heads. */
#include "runtime/mask.h"

#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/session.h"
#include "runtime/sized_struct.h"

static const fatune_mask_options initial = FATUNE_MASK_OPTIONS_INIT;
static const struct ft_sized_struct form =
    FT_SIZED_STRUCT("options", fatune_mask_options, seqlen_k, &initial);

int ft_mask_check_block(const char *name, int value) {
  if (value >= 16 && value % 16 == 0) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "options.%s is %d; allowed: multiples of 16", name, value);
}

static int check_extent(const char *name, int64_t value) {
  if (value >= 1 && value <= INT32_MAX) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "options.%s is %lld; allowed: 1 .. 2^31 - 1", name,
                 (long long)value);
}

static int check_options(const fatune_mask_options *options) {
  if (!options->blocks) return ft_fail(FT_E_ARGUMENT, "options.blocks is NULL");
  if (options->on_device != 0 && options->on_device != 1)
    return ft_fail(FT_E_ARGUMENT, "options.on_device is %d; allowed: 0, 1", options->on_device);
  FT_TRY(ft_mask_check_block("mask_rows", options->mask_rows));
  FT_TRY(ft_mask_check_block("mask_cols", options->mask_cols));
  FT_TRY(check_extent("batch", options->batch));
  FT_TRY(check_extent("heads", options->heads));
  FT_TRY(check_extent("seqlen_q", options->seqlen_q));
  return check_extent("seqlen_k", options->seqlen_k);
}

/* The number of lists and the bitmap's bytes. Eight times as much of both fits into 63 bits. */
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

static int longer_first(const void *left, const void *right) {
  const struct ft_mask_list *const a = left, *const b = right;
  if (a->count != b->count) return a->count > b->count ? -1 : 1;
  return a->block < b->block ? -1 : 1;
}

/* The lines of a bitmap, which are its rows or its columns. A flag is `line_step` bytes from the
 * same flag of the next line, and `step` bytes from the next flag of its own line. */
struct lines {
  int64_t count, length, line_step, step;
};

static int64_t list_lines(const uint8_t *flags, const struct lines *lines,
                          struct ft_mask_list *lists, int32_t *blocks, int64_t kept) {
  for (int64_t line = 0; line < lines->count; line++) {
    lists[line] = (struct ft_mask_list){.block = (int32_t)line, .start = kept};
    for (int64_t n = 0; n < lines->length; n++) {
      if (!flags[line * lines->line_step + n * lines->step]) continue;
      if (blocks) blocks[kept] = (int32_t)n;
      kept++;
    }
    lists[line].count = (int32_t)(kept - lists[line].start);
  }
  return kept;
}

int64_t ft_mask_lists(const uint8_t *bitmap, int64_t batch_heads, int64_t row_blocks,
                      int64_t col_blocks, struct ft_mask_list *lists, int32_t *blocks) {
  const struct lines rows = {row_blocks, col_blocks, col_blocks, 1};
  int64_t kept = 0;
  for (int64_t head = 0; head < batch_heads; head++) {
    struct ft_mask_list *const own = lists + head * row_blocks;
    kept = list_lines(bitmap + head * row_blocks * col_blocks, &rows, own, blocks, kept);
    qsort(own, (size_t)row_blocks, sizeof *own, longer_first);
  }
  return kept;
}

int64_t ft_mask_columns(const uint8_t *bitmap, int64_t batch_heads, int64_t row_blocks,
                        int64_t col_blocks, struct ft_mask_list *lists, int32_t *blocks) {
  const struct lines columns = {col_blocks, row_blocks, 1, col_blocks};
  int64_t kept = 0;
  for (int64_t head = 0; head < batch_heads; head++)
    kept = list_lines(bitmap + head * row_blocks * col_blocks, &columns, lists + head * col_blocks,
                      blocks, kept);
  return kept;
}

int ft_mask_order(const struct ft_mask_list *lists, int64_t batch_heads, int64_t col_blocks,
                  int32_t *order, int32_t *counts) {
  struct ft_mask_list *const sorted = malloc((size_t)col_blocks * sizeof *sorted);
  if (!sorted) return -1;
  memset(counts, 0, (size_t)col_blocks * sizeof *counts);
  for (int64_t head = 0; head < batch_heads; head++) {
    memcpy(sorted, lists + head * col_blocks, (size_t)col_blocks * sizeof *sorted);
    qsort(sorted, (size_t)col_blocks, sizeof *sorted, longer_first);
    for (int64_t place = 0; place < col_blocks; place++) {
      order[head * col_blocks + place] = sorted[place].block;
      if (counts[place] < sorted[place].count) counts[place] = sorted[place].count;
    }
  }
  free(sorted);
  return 0;
}

/* ---- to and from the device; the context is current ---- */

/* In a capture the copies below would fail with an error that names no cause. */
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
  return ft_driver_fetch(driver, *bitmap, (uintptr_t)blocks, (size_t)size, stream);
}

/* The lists of a mask in host memory. */
struct built {
  struct ft_mask_list *lists, *column_lists;
  int32_t *blocks, *column_blocks, *column_order;
  int64_t count, column_count; /* of lists */
  int64_t kept;                /* blocks */
};

static int order_columns(struct built *built, struct fatune_mask *mask) {
  const int64_t heads = mask->batch * mask->heads;
  built->column_order = malloc((size_t)built->column_count * sizeof *built->column_order);
  mask->column_counts = malloc((size_t)mask->col_blocks * sizeof *mask->column_counts);
  if (built->column_order && mask->column_counts &&
      ft_mask_order(built->column_lists, heads, mask->col_blocks, built->column_order,
                    mask->column_counts) == 0)
    return FT_OK;
  return ft_fail(FT_E_MEMORY, "no memory for the order of %lld columns",
                 (long long)built->column_count);
}

/* The lists of each head have been sorted. */
static int count_rows(const struct built *built, struct fatune_mask *mask) {
  mask->row_counts = calloc((size_t)mask->row_blocks, sizeof *mask->row_counts);
  if (!mask->row_counts)
    return ft_fail(FT_E_MEMORY, "no memory for the lengths of %lld rows",
                   (long long)mask->row_blocks);
  for (int64_t list = 0; list < built->count; list++) {
    int32_t *const most = &mask->row_counts[list % mask->row_blocks];
    if (*most < built->lists[list].count) *most = built->lists[list].count;
  }
  return FT_OK;
}

static int build_lists(struct built *built, struct fatune_mask *mask, const uint8_t *bitmap) {
  const int64_t heads = mask->batch * mask->heads;
  const int64_t rows = mask->row_blocks, cols = mask->col_blocks;
  built->column_count = heads * cols;
  built->lists = calloc((size_t)built->count, sizeof *built->lists);
  built->column_lists = malloc((size_t)built->column_count * sizeof *built->lists);
  if (!built->lists || !built->column_lists)
    return ft_fail(FT_E_MEMORY, "no memory for %lld lists",
                   (long long)(built->count + built->column_count));
  built->kept = ft_mask_lists(bitmap, heads, rows, cols, built->lists, NULL);
  const size_t bytes = (size_t)(built->kept ? built->kept : 1) * sizeof *built->blocks;
  built->blocks = malloc(bytes);
  built->column_blocks = malloc(bytes);
  if (!built->blocks || !built->column_blocks)
    return ft_fail(FT_E_MEMORY, "no memory for %lld kept blocks", (long long)built->kept);
  ft_mask_lists(bitmap, heads, rows, cols, built->lists, built->blocks);
  ft_mask_columns(bitmap, heads, rows, cols, built->column_lists, built->column_blocks);
  FT_TRY(count_rows(built, mask));
  return order_columns(built, mask);
}

static int upload(struct fatune_mask *mask, const struct ft_driver *driver,
                  const struct built *built, cu_stream stream) {
  const size_t lists_bytes = (size_t)built->count * sizeof *built->lists;
  const size_t columns_bytes = (size_t)built->column_count * sizeof *built->lists;
  const size_t blocks_bytes = (size_t)built->kept * sizeof *built->blocks;
  const size_t order_bytes = (size_t)built->column_count * sizeof *built->column_order;
  const size_t bytes = lists_bytes + columns_bytes + 2 * blocks_bytes + order_bytes;
  FT_TRY(ft_driver_status(driver, driver->memory_alloc(&mask->memory, bytes), "cuMemAlloc"));
  mask->lists = mask->memory; /* lists first: they are aligned to 16 bytes */
  mask->column_lists = mask->lists + lists_bytes;
  mask->blocks = mask->column_lists + columns_bytes;
  mask->column_blocks = mask->blocks + blocks_bytes;
  mask->column_order = mask->column_blocks + blocks_bytes;
  FT_TRY(ft_driver_send(driver, mask->lists, built->lists, lists_bytes, stream));
  FT_TRY(ft_driver_send(driver, mask->column_lists, built->column_lists, columns_bytes, stream));
  FT_TRY(ft_driver_send(driver, mask->blocks, built->blocks, blocks_bytes, stream));
  FT_TRY(ft_driver_send(driver, mask->column_order, built->column_order, order_bytes, stream));
  return ft_driver_send(driver, mask->column_blocks, built->column_blocks, blocks_bytes, stream);
}

static int fill(struct fatune_mask *mask, const fatune_mask_options *options, cu_stream stream) {
  const struct ft_driver *const driver = &mask->session->driver;
  struct built built = {0};
  int64_t size = 0;
  uint8_t *fetched = NULL;
  int status;
  FT_CHECK(count(mask, &built.count, &size));
  FT_CHECK(refuse_capture(driver, stream));
  if (options->on_device) FT_CHECK(fetch_bitmap(driver, options->blocks, size, stream, &fetched));
  FT_CHECK(build_lists(&built, mask, fetched ? fetched : options->blocks));
  FT_CHECK(upload(mask, driver, &built, stream));
  mask->density = (double)built.kept / (double)size;

done:
  free(fetched);
  free(built.lists);
  free(built.column_lists);
  free(built.blocks);
  free(built.column_blocks);
  free(built.column_order);
  return status;
}

int fatune_mask_make(fatune_mask **out, fatune_session *session, const fatune_mask_options *given,
                     void *stream) {
  if (!out) return ft_fail(FT_E_ARGUMENT, "mask is NULL; it takes the new mask");
  *out = NULL;
  if (!session) return ft_fail(FT_E_ARGUMENT, "session is NULL");
  if (!given) return ft_fail(FT_E_ARGUMENT, "options is NULL");
  fatune_mask_options room;
  const void *whole;
  FT_TRY(ft_sized_read(&form, given, &room, &whole));
  const fatune_mask_options *const options = whole;
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
    free(mask->column_counts);
    free(mask->row_counts);
    free(mask);
  }
  ft_session_leave(session);
  return status;
}

double fatune_mask_density(const fatune_mask *mask) {
  return mask ? mask->density : 0;
}

int64_t fatune_mask_longest(const fatune_mask *mask, fatune_pass pass) {
  if (!mask) return 1;
  const bool of_columns = pass == FATUNE_BACKWARD;
  const int32_t *const counts = of_columns ? mask->column_counts : mask->row_counts;
  const double all = (double)(of_columns ? mask->row_blocks : mask->col_blocks);
  if (!counts || !(mask->density > 0)) return 1;
  const double ratio = counts[0] / (mask->density * all);
  return ratio < 1 ? 1 : (int64_t)ratio;
}

void fatune_mask_free(fatune_mask *mask) {
  if (!mask) return;
  /* The memory is freed even where the context cannot be entered: nobody tries again. */
  const bool entered = ft_session_enter(mask->session) == FT_OK;
  if (mask->memory) mask->session->driver.memory_free(mask->memory);
  if (entered) ft_session_leave(mask->session);
  free(mask->visible);
  free(mask->column_counts);
  free(mask->row_counts);
  free(mask);
}
