/* visible_mask.c: block masks that a mask function makes.
 * in -> out: options + score -> a mask with room for its lists; what the function captures ->
 * struct ft_block_mask_params -> kernels on a stream. */
#include <stdlib.h>
#include <string.h>

#include "generator/families/block_mask.h"
#include "generator/status.h"
#include "runtime/emulator/driver_module.h"
#include "runtime/families/block_mask.h"
#include "runtime/launch_score.h"
#include "runtime/mask.h"
#include "runtime/own_kernels.h"
#include "runtime/scores.h"
#include "runtime/session.h"
#include "runtime/sized_struct.h"

struct ft_visible_mask {
  const struct ft_own_kernel *kernel;
  const struct ft_known_score *known;
  struct ft_request request;          /* of the kernels */
  struct ft_run run;                  /* sizes */
  struct ft_block_mask_params params; /* all but what is captured */
  size_t bytes;
};

static const fatune_visible_options initial = FATUNE_VISIBLE_OPTIONS_INIT;
static const struct ft_sized_struct form =
    FT_SIZED_STRUCT("options", fatune_visible_options, memory, &initial);

/* ---- options ---- */

static int read_extent(const char *name, int64_t value, int64_t fallback, int64_t *extent) {
  *extent = value ? value : fallback;
  if (*extent >= 1 && *extent <= INT32_MAX) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "options.%s is %lld; allowed: 1 .. 2^31 - 1", name,
                 (long long)value);
}

static int check_switch(const char *name, int value) {
  if (value == 0 || value == 1) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "options.%s is %d; allowed: 0, 1", name, value);
}

/* Whether the mask function speaks of one of these symbols. */
static bool speaks_of(const struct ft_known_score *known, enum ft_symbol a, enum ft_symbol b) {
  const struct ft_score *const score = &known->score;
  return (ft_node(&score->expression, score->visible)->sources &
          (ft_source_symbol((int)a) | ft_source_symbol((int)b))) != 0;
}

static int read_sizes(struct ft_visible_mask *made, const fatune_visible_options *options) {
  struct ft_block_mask_params *const params = &made->params;
  int64_t batch, heads_q, heads_kv, nq, nk;
  FT_TRY(ft_mask_check_block("mask_rows", options->mask_rows));
  FT_TRY(ft_mask_check_block("mask_cols", options->mask_cols));
  FT_TRY(check_switch("same_for_batch", options->same_for_batch));
  FT_TRY(check_switch("same_for_heads", options->same_for_heads));
  FT_TRY(read_extent("batch", options->batch, 1, &batch));
  FT_TRY(read_extent("heads_q", options->heads_q, 1, &heads_q));
  FT_TRY(read_extent("heads_kv", options->heads_kv, 1, &heads_kv));
  FT_TRY(read_extent("seqlen_q", options->seqlen_q, 0, &nq));
  FT_TRY(read_extent("seqlen_k", options->seqlen_k, 0, &nk));
  FT_TRY(ft_score_check_length("options.seqlen_q", nq));
  FT_TRY(ft_score_check_length("options.seqlen_k", nk));
  if (heads_q % heads_kv != 0)
    return ft_fail(FT_E_ARGUMENT, "options.heads_q is %lld; allowed: a multiple of heads_kv, %lld",
                   (long long)heads_q, (long long)heads_kv);
  made->run = (struct ft_run){
      .batch = batch, .nq = nq, .nk = nk, .heads_q = (int)heads_q, .heads_kv = (int)heads_kv};
  const bool by_batch =
      !options->same_for_batch && speaks_of(made->known, FT_SYMBOL_B, FT_SYMBOL_B);
  const bool by_head =
      !options->same_for_heads && speaks_of(made->known, FT_SYMBOL_H, FT_SYMBOL_KV);
  params->batch = by_batch ? (int32_t)batch : 1;
  params->heads = by_head ? (int32_t)heads_q : 1;
  params->row_blocks = (int32_t)((nq + options->mask_rows - 1) / options->mask_rows);
  params->col_blocks = (int32_t)((nk + options->mask_cols - 1) / options->mask_cols);
  params->nq = (int32_t)nq;
  params->nk = (int32_t)nk;
  params->batch_size = (int32_t)batch;
  params->heads_q = (int32_t)heads_q;
  params->heads_kv = (int32_t)heads_kv;
  return FT_OK;
}

/* ---- memory ---- */

/* Places `count` elements behind what is placed already. */
static uint64_t place(size_t *bytes, int64_t count, size_t element) {
  const uint64_t at = *bytes;
  *bytes += (size_t)count * element;
  return at;
}

/* Offsets in the mask's memory, in the fields for addresses; larger elements first. */
static void lay_out(struct ft_visible_mask *made) {
  struct ft_block_mask_params *const params = &made->params;
  const int64_t sets = (int64_t)params->batch * params->heads;
  const int64_t rows = sets * params->row_blocks, cols = sets * params->col_blocks;
  const int64_t blocks = rows * params->col_blocks;
  const struct ft_range_values values = made->known->visible_values;
  made->bytes = 0;
  params->row_lists = place(&made->bytes, rows, sizeof(struct ft_mask_list));
  params->column_lists = place(&made->bytes, cols, sizeof(struct ft_mask_list));
  params->kept_columns = place(&made->bytes, blocks, sizeof(int32_t));
  params->kept_rows = place(&made->bytes, blocks, sizeof(int32_t));
  params->column_order = place(&made->bytes, cols, sizeof(int32_t));
  params->row_counts = place(&made->bytes, rows, sizeof(int32_t));
  params->row_ranges = place(&made->bytes, rows * (values.of_row + 1), 2 * sizeof(int32_t));
  params->column_ranges = place(&made->bytes, cols * (values.of_column + 1), 2 * sizeof(int32_t));
  params->states = place(&made->bytes, blocks, 1);
}

static void move_to(struct ft_block_mask_params *params, cu_address memory) {
  params->row_lists += memory;
  params->column_lists += memory;
  params->kept_columns += memory;
  params->kept_rows += memory;
  params->column_order += memory;
  params->row_counts += memory;
  params->row_ranges += memory;
  params->column_ranges += memory;
  params->states += memory;
}

/* Kernels count their warps by 32 bits: one for each line, and for each 32 mask blocks of a row,
 * of which 2^31 are 600 GB of lists. */
static int check_count(const struct ft_block_mask_params *params) {
  const double rows = (double)params->batch * params->heads * params->row_blocks;
  const double columns = (double)params->batch * params->heads * params->col_blocks;
  const int words = params->col_blocks / 32 + 1;
  if (rows + columns < 0x1p31 && rows * words < 0x1p31) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "options: batch %d x heads %d x %d x %d blocks is more than memory can hold",
                 params->batch, params->heads, params->row_blocks, params->col_blocks);
}

/* ---- making ---- */

static int read_options(struct ft_visible_mask *made, fatune_session *session,
                        const fatune_visible_options *given, fatune_visible_options *options) {
  const void *whole;
  if (!session) return ft_fail(FT_E_ARGUMENT, "session is NULL");
  if (!given) return ft_fail(FT_E_ARGUMENT, "options is NULL");
  FT_TRY(ft_sized_read(&form, given, options, &whole));
  memmove(options, whole, sizeof *options);
  if (options->score == 0)
    return ft_fail(FT_E_ARGUMENT, "options.score is 0; it is fatune_score_add's");
  FT_TRY(ft_session_score(session, options->score, &made->known));
  if (!made->known->has_visible)
    return ft_fail(FT_E_ARGUMENT,
                   "options.score is '%s', which hides no key; allowed: one that states `visible`",
                   made->known->score.name);
  FT_TRY(read_sizes(made, options));
  FT_TRY(check_count(&made->params));
  lay_out(made);
  made->request = ft_block_mask_request(options->score, options->mask_rows, options->mask_cols);
  return FT_OK;
}

int fatune_visible_memory_size(fatune_session *session, const fatune_visible_options *options,
                               size_t *bytes) {
  struct ft_visible_mask made = {0};
  fatune_visible_options room;
  if (!bytes) return ft_fail(FT_E_ARGUMENT, "bytes is NULL; it takes the size");
  *bytes = 0;
  FT_TRY(read_options(&made, session, options, &room));
  *bytes = made.bytes;
  return FT_OK;
}

static int take_memory(struct fatune_mask *mask, const fatune_visible_options *options) {
  enum { ALIGNMENT = 256 };
  struct ft_visible_mask *const made = mask->visible;
  const struct ft_driver *const driver = &mask->session->driver;
  const uintptr_t lent = (uintptr_t)options->memory;
  if (lent % ALIGNMENT != 0)
    return ft_fail(FT_E_ARGUMENT, "options.memory is %p; allowed: a multiple of %d, or NULL",
                   options->memory, ALIGNMENT);
  mask->lent = lent;
  mask->lent_bytes = lent ? made->bytes : 0;
  if (!lent)
    FT_TRY(
        ft_driver_status(driver, driver->memory_alloc(&mask->memory, made->bytes), "cuMemAlloc"));
  move_to(&made->params, lent ? lent : mask->memory);
  return FT_OK;
}

static int prepare(struct fatune_mask *mask, const fatune_visible_options *given) {
  struct ft_visible_mask *const made = mask->visible;
  fatune_visible_options options;
  FT_TRY(read_options(made, mask->session, given, &options));
  FT_TRY(ft_session_needs_device(mask->session));
  FT_TRY(ft_own_kernel(&made->kernel, mask->session, &made->request, &ft_block_mask_family,
                       "make the mask before the capture"));
  FT_TRY(ft_session_enter(mask->session));
  const int status = take_memory(mask, &options);
  ft_session_leave(mask->session);
  FT_TRY(status);
  mask->lists = made->params.row_lists;
  mask->blocks = made->params.kept_columns;
  mask->column_lists = made->params.column_lists;
  mask->column_blocks = made->params.kept_rows;
  mask->column_order = made->params.column_order;
  mask->rows = options.mask_rows;
  mask->cols = options.mask_cols;
  mask->batch = made->params.batch;
  mask->heads = made->params.heads;
  mask->seqlen_q = made->run.nq;
  mask->seqlen_k = made->run.nk;
  mask->row_blocks = made->params.row_blocks;
  mask->col_blocks = made->params.col_blocks;
  mask->density = -1;
  mask->score = options.score;
  return FT_OK;
}

int fatune_visible_mask(fatune_mask **out, fatune_session *session,
                        const fatune_visible_options *options) {
  if (!out) return ft_fail(FT_E_ARGUMENT, "mask is NULL; it takes the new mask");
  *out = NULL;
  if (!session) return ft_fail(FT_E_ARGUMENT, "session is NULL");
  struct fatune_mask *const mask = calloc(1, sizeof *mask);
  if (!mask) return ft_fail(FT_E_MEMORY, "no memory for a mask");
  mask->session = session;
  mask->visible = calloc(1, sizeof *mask->visible);
  const int status =
      mask->visible ? prepare(mask, options) : ft_fail(FT_E_MEMORY, "no memory for a mask");
  if (status == FT_OK) {
    *out = mask;
    return FT_OK;
  }
  free(mask->visible);
  free(mask);
  return status;
}

/* ---- filling ---- */

static unsigned blocks_of(int64_t threads, int of_block) {
  return (unsigned)((threads + of_block - 1) / of_block);
}

/* For each kernel, in the order of the family's entries. */
static void count_blocks(unsigned *grids, const struct ft_block_mask_params *params, int threads) {
  enum { WARP = 32 };
  const int64_t sets = (int64_t)params->batch * params->heads;
  const int64_t rows = sets * params->row_blocks, groups = (params->col_blocks + WARP - 1) / WARP;
  const int64_t lines = sets * ((int64_t)params->row_blocks + params->col_blocks);
  grids[0] = grids[2] = blocks_of(lines * WARP, threads);
  grids[1] = blocks_of(rows * groups * WARP, threads);
  grids[3] = blocks_of(lines, threads);
}

static void tell_emulator(const struct fatune_mask *mask,
                          const struct ft_block_mask_params *params) {
  const struct ft_arg_sequence sequence = {
      .batch = 1, .nq = 1, .heads_q = 1, .heads_kv = 1, .nk = 1};
  struct ft_launch_tensors all;
  ft_launch_tensors_begin(&all, mask->visible->request.dtype, &sequence);
  ft_add_captured(&all, &params->score, mask->visible->known);
  const int before = all.count;
  ft_add_lent_mask(&all, mask);
  if (all.count > before) all.tensors[before].writable = true;
  ft_emulator_expect(all.tensors, all.count);
}

int fatune_mask_update(fatune_mask *mask, const fatune_captured *captured, int captured_count,
                       void *stream) {
  if (!mask) return ft_fail(FT_E_ARGUMENT, "mask is NULL");
  const struct ft_visible_mask *const made = mask->visible;
  if (!made)
    return ft_fail(FT_E_ARGUMENT, "mask has a bitmap; allowed: one of fatune_visible_mask");
  const struct ft_driver *const driver = &mask->session->driver;
  const struct ft_launch_plan plan = {.request = &made->request, .score = made->known};
  struct ft_block_mask_params params = made->params;
  struct ft_arg_softmax unused;
  fatune_arguments arguments = FATUNE_ARGUMENTS_INIT;
  unsigned grids[FT_KERNELS_MOST];
  arguments.captured = captured;
  arguments.captured_count = captured_count;
  FT_TRY(ft_score_arguments_read(&params.score, &unused, &plan, &made->run, &arguments, 0));
  count_blocks(grids, &params, made->kernel->source.budget.threads);
  for (int n = 0; n < ft_block_mask_launch.kernel_count; n++) {
    if (driver->emulated) tell_emulator(mask, &params);
    FT_TRY(ft_own_kernel_launch(made->kernel, n, grids[n], 0, &params, driver, stream));
  }
  return FT_OK;
}
