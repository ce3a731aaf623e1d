/* ragged.c: what the launches of all families do for sequences of different lengths.
 * in -> out: fatune_arguments -> struct ft_arg_ragged, the list of work tiles and its kernel. */
#include "runtime/families/ragged.h"

#include "generator/status.h"

enum { ALIGNMENT = 256, WORDS_OF_ENTRY = sizeof(struct ft_work_entry) / sizeof(int32_t) };

int64_t ft_ragged_numbers(const struct ft_run *run, int64_t rows, int block) {
  return rows / block + run->batch;
}

size_t ft_ragged_bytes(const struct ft_run *run, int64_t numbers, bool adds_steps) {
  if (!run->ragged) return 0;
  size_t list = (size_t)numbers * sizeof(struct ft_work_entry);
  if (adds_steps) list += (size_t)(numbers + 1) * sizeof(int32_t);
  return ALIGNMENT + (list + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static struct ft_arg_diagonals diagonals_of(const struct ft_diagonals *seen) {
  return (struct ft_arg_diagonals){(int32_t)seen->first, (int32_t)seen->last};
}

int ft_ragged_read(struct ft_arg_ragged *ragged, const struct ft_run *run, int64_t numbers,
                   uint64_t workspace, const fatune_arguments *arguments) {
  *ragged = (struct ft_arg_ragged){.top_left = diagonals_of(&run->alignments.top_left),
                                   .bottom_right = diagonals_of(&run->alignments.bottom_right)};
  if (!run->ragged) return FT_OK;
  if (workspace == 0 || workspace % ALIGNMENT != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.workspace is %p; allowed: a multiple of 256, the plan's request is "
                   "ragged",
                   arguments->workspace);
  ragged->starts_q = (uintptr_t)arguments->cu_seqlens_q;
  ragged->starts_k = (uintptr_t)arguments->cu_seqlens_k;
  ragged->used_q = (uintptr_t)arguments->seqused_q;
  ragged->used_k = (uintptr_t)arguments->seqused_k;
  ragged->entries = workspace;
  ragged->list = workspace + ALIGNMENT;
  ragged->sequences = (int32_t)run->batch;
  ragged->numbers = (int32_t)numbers;
  ragged->rows_q = (int32_t)run->nq;
  return FT_OK;
}

struct ft_launch_kernel ft_ragged_list(const struct ft_arg_ragged *ragged) {
  enum { THREADS = 1024, WORD = 4 }; /* LIST_THREADS, a count for each */
  if (ragged->list == 0) return (struct ft_launch_kernel){0};
  return (struct ft_launch_kernel){.grid = 1, .threads = THREADS, .smem_bytes = THREADS * WORD};
}

void ft_ragged_describe(const struct ft_arg_ragged *ragged, bool adds_steps, bool written,
                        struct ft_launch_tensors *tensors) {
  if (ragged->list == 0) return;
  const int64_t sequences = ragged->sequences;
  ft_add_work(tensors, "cu_seqlens_q", ragged->starts_q, 1, sequences + 1);
  if (ragged->starts_k) ft_add_work(tensors, "cu_seqlens_k", ragged->starts_k, 1, sequences + 1);
  if (ragged->used_q) ft_add_work(tensors, "seqused_q", ragged->used_q, 1, sequences);
  if (ragged->used_k) ft_add_work(tensors, "seqused_k", ragged->used_k, 1, sequences);
  const int entries = adds_steps ? 2 : 1; /* adds_steps: of the longest walk, and tiles in order */
  ft_add_work(tensors, "the length of the list", ragged->entries, 1, entries)->writable = written;
  ft_add_work(tensors, "the list of work tiles", ragged->list, ragged->numbers, WORDS_OF_ENTRY)
      ->writable = written;
  const uint64_t steps = ragged->list + (uint64_t)ragged->numbers * sizeof(struct ft_work_entry);
  if (adds_steps)
    ft_add_work(tensors, "the steps before each work tile", steps, 1, ragged->numbers + 1)
        ->writable = written;
}
