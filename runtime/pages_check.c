/* pages_check.c: whether the page table of a run, which lies on the device, is what it may be.
 * in -> out: arguments -> FT_OK, or FT_E_ARGUMENT with the batch entry. */
#include "runtime/pages_check.h"

#include <stdlib.h>

#include "generator/status.h"

static int check_length(int32_t length, int64_t most, int64_t entry) {
  if (length >= 0 && length <= most) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "arguments.seqused_k[%lld] is %d; allowed: 0 .. %lld, the keys that batch entry "
                 "%lld may have",
                 (long long)entry, length, (long long)most, (long long)entry);
}

/* The numbers of a batch entry, which lie in `numbers` by the table's stride. */
static int check_numbers(const fatune_page_table *table, const int32_t *numbers, int64_t count,
                         int64_t entry) {
  for (int64_t n = 0; n < count; n++) {
    const int32_t page = numbers[n * table->stride_page];
    if (page < 0 || page >= table->pages)
      return ft_fail(FT_E_ARGUMENT,
                     "arguments.page_table has page %d in column %lld of batch entry %lld; "
                     "allowed: 0 .. %lld",
                     page, (long long)n, (long long)entry, (long long)table->pages - 1);
  }
  return FT_OK;
}

static int check_entry(const struct ft_run *run, const fatune_page_table *table, int32_t length,
                       int64_t entry, const struct ft_driver *driver, cu_stream stream) {
  const int64_t of_table = table->columns * run->page;
  FT_TRY(check_length(length, run->ragged || of_table < run->nk ? of_table : run->nk, entry));
  const int64_t count = (length + (int64_t)run->page - 1) / run->page;
  if (count == 0) return FT_OK;
  const int64_t span = (count - 1) * table->stride_page + 1;
  int32_t *const numbers = malloc((size_t)span * sizeof *numbers);
  if (!numbers) return ft_fail(FT_E_MEMORY, "no memory for %lld page numbers", (long long)span);
  int status =
      ft_driver_fetch(driver, numbers, (uintptr_t)(table->data + entry * table->stride_batch),
                      (size_t)span * sizeof *numbers, stream);
  if (status == FT_OK) status = check_numbers(table, numbers, count, entry);
  free(numbers);
  return status;
}

int ft_pages_check(const struct ft_request *request, const fatune_arguments *arguments,
                   const struct ft_driver *driver, cu_stream stream) {
  struct ft_run run;
  if (request->pages == 0) return FT_OK;
  FT_TRY(ft_run_read_lengths(&run, request, arguments));
  if (ft_driver_is_capturing(driver, stream)) return FT_OK;
  int32_t *const lengths = malloc((size_t)run.batch * sizeof *lengths);
  if (!lengths) return ft_fail(FT_E_MEMORY, "no memory for %lld lengths", (long long)run.batch);
  int status = ft_driver_fetch(driver, lengths, (uintptr_t)arguments->seqused_k,
                               (size_t)run.batch * sizeof *lengths, stream);
  for (int64_t n = 0; n < run.batch && status == FT_OK; n++)
    status = check_entry(&run, &arguments->page_table, lengths[n], n, driver, stream);
  free(lengths);
  return status;
}
