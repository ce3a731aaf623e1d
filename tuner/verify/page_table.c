/* page_table.c: the page table of a problem whose K and V are in pages.
 * in -> out: lengths + seed -> the page of every so many rows; host copies that agree with it. */
#include "tuner/verify/page_table.h"

#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tuner/verify/random_inputs.h"

static int64_t pages_of(const struct ft_page_table *table, int32_t rows) {
  return (rows + (int64_t)table->page - 1) / table->page;
}

/* All numbers below `count`, in random order. */
static int32_t *shuffled(int64_t count, uint64_t *state) {
  int32_t *const numbers = calloc((size_t)count, sizeof *numbers);
  for (int64_t n = 0; n < count && numbers; n++) {
    const int64_t place = (int64_t)(ft_random_next(state) % (uint64_t)(n + 1));
    numbers[n] = numbers[place];
    numbers[place] = (int32_t)n;
  }
  return numbers;
}

/* How many pages from the first on a sequence has in common with that other one: full ones alone.
 */
static int64_t shared_pages(const struct ft_page_table *table, const int32_t *used, int64_t one,
                            int64_t other, uint64_t *state) {
  const int32_t rows = used[one] < used[other] ? used[one] : used[other];
  return (int64_t)(ft_random_next(state) % (uint64_t)(rows / table->page + 1));
}

int ft_page_table_make(struct ft_page_table *table, int page, const int32_t *used,
                       int64_t sequences, int64_t most, bool shares, uint64_t *state) {
  enum { UNUSED = 3 };
  *table = (struct ft_page_table){.page = page, .columns = (most + page - 1) / page};
  table->columns += (int64_t)(ft_random_next(state) % UNUSED);
  table->pages = UNUSED;
  for (int64_t n = 0; n < sequences; n++) table->pages += pages_of(table, used[n]);
  int32_t *const free_pages = shuffled(table->pages, state);
  table->numbers = malloc((size_t)(sequences * table->columns) * sizeof *table->numbers);
  int status = FT_OK;
  if (!free_pages || !table->numbers)
    FT_GIVE_UP(
        ft_fail(FT_E_MEMORY, "no memory for a table of %lld pages", (long long)table->pages));
  int64_t next = 0;
  for (int64_t n = 0; n < sequences; n++) {
    int32_t *const own = table->numbers + n * table->columns;
    int64_t shared = 0;
    if (shares && n > 0 && ft_random_next(state) % 2 == 0) {
      const int64_t other = (int64_t)(ft_random_next(state) % (uint64_t)n);
      shared = shared_pages(table, used, n, other, state);
      memcpy(own, table->numbers + other * table->columns, (size_t)shared * sizeof *own);
    }
    for (int64_t column = shared; column < table->columns; column++)
      own[column] = column < pages_of(table, used[n]) ? free_pages[next++] : FT_NO_PAGE;
  }
done:
  free(free_pages);
  return status;
}

void ft_page_table_free(struct ft_page_table *table) {
  free(table->numbers);
  *table = (struct ft_page_table){0};
}

void ft_page_table_share(const struct ft_page_table *table, const int32_t *used, int64_t sequences,
                         char *dense, int64_t rows, int64_t row_bytes) {
  const int64_t of_page = table->page * row_bytes, of_sequence = rows * row_bytes;
  for (int64_t n = 1; n < sequences; n++)
    for (int64_t column = 0; column < used[n] / table->page; column++)
      for (int64_t other = 0; other < n; other++) {
        if (table->numbers[other * table->columns + column] !=
            table->numbers[n * table->columns + column])
          continue;
        memcpy(dense + n * of_sequence + column * of_page,
               dense + other * of_sequence + column * of_page, (size_t)of_page);
        break;
      }
}
