/* ragged.h: what the launches of all families do for sequences of different lengths.
 * in -> out: fatune_arguments -> struct ft_arg_ragged, room for the list of work tiles, the kernel
 * that makes it. Nothing here waits for the device: grid and workspace depend on totals alone. */
#ifndef RUNTIME_FAMILIES_RAGGED_H
#define RUNTIME_FAMILIES_RAGGED_H

#include "runtime/launch_checks.h"
#include "runtime/launch_family.h"

/* Tiles of `block` rows that a head has at most, of so many rows of all sequences together. */
int64_t ft_ragged_numbers(const struct ft_run *run, int64_t rows, int block);

/* Bytes of a list of so many tiles; 0 where the request is not ragged. adds_steps: behind it are
 * the steps of the walks before each tile's, and those of all. */
size_t ft_ragged_bytes(const struct ft_run *run, int64_t numbers, bool adds_steps);

/* Checks and reads the lengths, and lays a list of so many tiles out at `workspace`. What is not
 * ragged has the diagonals alone. */
int ft_ragged_read(struct ft_arg_ragged *ragged, const struct ft_run *run, int64_t numbers,
                   uint64_t workspace, const fatune_arguments *arguments);

/* The kernel that makes the list; of no blocks where there is none. */
struct ft_launch_kernel ft_ragged_list(const struct ft_arg_ragged *ragged);

/* The lengths, and the list. written: whether the kernel that is described writes the list. */
void ft_ragged_describe(const struct ft_arg_ragged *ragged, bool adds_steps, bool written,
                        struct ft_launch_tensors *tensors);

#endif
