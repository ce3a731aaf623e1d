/* pages.h: what the launches of forward families do for K and V in pages.
 * in -> out: fatune_arguments -> struct ft_arg_pages, the pool as batch entries, its memory. */
#ifndef RUNTIME_FAMILIES_PAGES_H
#define RUNTIME_FAMILIES_PAGES_H

#include "runtime/launch_checks.h"
#include "runtime/launch_family.h"

/* Checks and reads the page table. Where there are no pages, all is 0. */
int ft_pages_read(struct ft_arg_pages *pages, const struct ft_run *run,
                  const fatune_arguments *arguments);

/* Pages and heads of a pool as one dimension (struct ft_arg_slots): its stride in elements, and how
 * many there are. heads: of the pool, then that number. FT_E_ARGUMENT where TMA cannot count them.
 */
int ft_pages_slots(int64_t *stride, int *heads, struct ft_arg_slots *slots, const char *name,
                   const struct ft_arg_tensor *pool, int64_t pages);

/* The table; of none nothing. */
void ft_pages_describe_table(const struct ft_arg_pages *pages, int64_t batch,
                             struct ft_launch_tensors *tensors);

/* K and V; where they are in pages the pools, the table and the lengths. in_halves: see
 * ft_forward_describe, of K and V. */
void ft_pages_describe(const struct ft_forward_params *params, const struct ft_request *request,
                       bool in_halves, struct ft_launch_tensors *tensors);

#endif
