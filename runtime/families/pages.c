/* pages.c: what the launches of forward families do for K and V in pages.
 * in -> out: fatune_arguments -> struct ft_arg_pages, the pool as batch entries, its memory. */
#include "runtime/families/pages.h"

#include "generator/status.h"

/* The last entry of the table must be less than 2^63 bytes behind its first, and have an address.
 */
static int check_reach(const struct ft_run *run, const fatune_page_table *table) {
  int64_t of_batch, of_page, bytes;
  uintptr_t end;
  if (!__builtin_mul_overflow(run->batch - 1, table->stride_batch, &of_batch) &&
      !__builtin_mul_overflow(table->columns - 1, table->stride_page, &of_page) &&
      !__builtin_add_overflow(of_batch, of_page, &of_batch) &&
      !__builtin_mul_overflow(of_batch, (int64_t)sizeof(int32_t), &bytes) &&
      !__builtin_add_overflow((uintptr_t)table->data, (uintptr_t)bytes, &end))
    return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "arguments.page_table reaches past the address space: stride_batch %lld, "
                 "stride_page %lld over %lld batch entries, %lld columns",
                 (long long)table->stride_batch, (long long)table->stride_page,
                 (long long)run->batch, (long long)table->columns);
}

/* The numbers of a table that a run may be given. */
static int check_table(const struct ft_run *run, const fatune_page_table *table) {
  enum { KEYS_MOST = 1 << 30 };
  const struct {
    const char *name;
    int64_t value, least, most;
  } numbers[] = {{"stride_batch", table->stride_batch, 0, INT64_MAX},
                 {"stride_page", table->stride_page, 0, INT64_MAX},
                 {"columns", table->columns, 1, KEYS_MOST / run->page},
                 {"pages", table->pages, 1, INT32_MAX}};
  if (!table->data || (uintptr_t)table->data % sizeof(int32_t) != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.page_table.data is %p; allowed: a device address, a multiple of 4, "
                   "the plan's request has pages",
                   (const void *)table->data);
  for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
    if (numbers[n].value < numbers[n].least || numbers[n].value > numbers[n].most)
      return ft_fail(FT_E_ARGUMENT, "arguments.page_table.%s is %lld; allowed: %lld .. %lld",
                     numbers[n].name, (long long)numbers[n].value, (long long)numbers[n].least,
                     (long long)numbers[n].most);
  FT_TRY(check_reach(run, table));
  if (run->ragged || run->nk <= table->columns * run->page) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "arguments.seqlen_k is %lld; allowed: at most page_table.columns x %d rows of a "
                 "page, %lld",
                 (long long)run->nk, run->page, (long long)(table->columns * run->page));
}

int ft_pages_read(struct ft_arg_pages *pages, const struct ft_run *run,
                  const fatune_arguments *arguments) {
  const fatune_page_table *const table = &arguments->page_table;
  *pages = (struct ft_arg_pages){0};
  if (run->page == 0) {
    if (!table->data) return FT_OK;
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.page_table.data is %p; allowed: NULL, the plan's request has no "
                   "pages",
                   (const void *)table->data);
  }
  FT_TRY(check_table(run, table));
  pages->table = (uintptr_t)table->data;
  pages->lengths = (uintptr_t)arguments->seqused_k;
  pages->batch = table->stride_batch;
  pages->column = table->stride_page;
  pages->columns = (int32_t)table->columns;
  pages->count = (int32_t)table->pages;
  return FT_OK;
}

static int64_t greatest_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

int ft_pages_slots(int64_t *stride, int *heads, struct ft_arg_slots *slots, const char *name,
                   const struct ft_arg_tensor *pool, int64_t pages) {
  const int64_t page = pool->stride.batch, head = pool->stride.head;
  const int64_t divisor = greatest_divisor(page, head), apart = divisor > 0 ? divisor : 1;
  int64_t last;
  const bool beyond = __builtin_mul_overflow(page / apart, pages - 1, &last) ||
                      __builtin_add_overflow(last, head / apart * (*heads - 1), &last);
  if (beyond || last >= INT32_MAX)
    return ft_fail(FT_E_ARGUMENT,
                   "arguments.%s: %lld pages, stride_batch %lld, stride_head %lld; allowed: less "
                   "than 2^31 places of %lld elements, the divisor of both strides",
                   name, (long long)pages, (long long)page, (long long)head, (long long)apart);
  *stride = divisor;
  *heads = (int)last + 1;
  *slots = (struct ft_arg_slots){.page = (int32_t)(page / apart), .head = (int32_t)(head / apart)};
  return FT_OK;
}

static void describe_pool(const struct ft_arg_pages *pages, int page, const char *name,
                          const struct ft_arg_tensor *pool, int dim, bool in_halves,
                          struct ft_launch_tensors *tensors) {
  struct ft_emulated_tensor *const added =
      ft_add_tensor(tensors, name, pool, FT_OF_KEYS, in_halves ? dim / 2 : dim);
  if (page == 0) return;
  added->extents[0] = pages->count;
  added->extents[1] = page;
  added->paged = true;
}

void ft_pages_describe_table(const struct ft_arg_pages *pages, int64_t batch,
                             struct ft_launch_tensors *tensors) {
  if (pages->table == 0) return;
  struct ft_emulated_tensor *const table =
      ft_add_work(tensors, "the page table", pages->table, 1, 1);
  table->extents[0] = pages->batch == 0 ? 1 : batch;
  table->strides[0] = pages->batch;
  table->extents[2] = pages->column == 0 ? 1 : pages->columns;
  table->strides[2] = pages->column;
}

void ft_pages_describe(const struct ft_forward_params *params, const struct ft_request *request,
                       bool in_halves, struct ft_launch_tensors *tensors) {
  const struct ft_arg_pages *const pages = &params->pages;
  const int64_t batch = params->sequence.batch;
  describe_pool(pages, request->pages, "K", &params->k, request->head_dim, in_halves, tensors);
  describe_pool(pages, request->pages, "V", &params->v, request->head_dim_v, in_halves, tensors);
  ft_pages_describe_table(pages, batch, tensors);
  if (request->pages > 0 && !request->ragged)
    ft_add_work(tensors, "seqused_k", pages->lengths, 1, batch);
}
