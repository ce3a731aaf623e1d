/* page_table.h: the page table of a problem whose K and V are in pages.
 * in -> out: lengths + seed -> the page of every so many rows; host copies that agree with it. */
#ifndef TUNER_PAGE_TABLE_H
#define TUNER_PAGE_TABLE_H

#include "tuner/verify/shape.h"

/* A number that no kernel may use: what a table has behind the last page of a batch entry. */
enum { FT_NO_PAGE = INT32_MIN / 2 };

/* Pages in random order for sequences of so many rows, of which none has more than `most`. shares:
 * some begin with pages of others. */
int ft_page_table_make(struct ft_page_table *table, int page, const int32_t *used,
                       int64_t sequences, int64_t most, bool shares, uint64_t *state);
void ft_page_table_free(struct ft_page_table *table);

/* Makes the rows in shared pages alike: the host copy has `rows` rows of `row_bytes` each for every
 * sequence, of which `used` count. */
void ft_page_table_share(const struct ft_page_table *table, const int32_t *used, int64_t sequences,
                         char *dense, int64_t rows, int64_t row_bytes);

#endif
