/* cluster.h: what the blocks of a cluster have to do with each other. */
#ifndef RUNTIME_EMULATOR_CLUSTER_H
#define RUNTIME_EMULATOR_CLUSTER_H

#include "runtime/emulator/block.h"

void ft_cluster_reset(struct ft_cluster *cluster, unsigned first_block);
/* The block runs from now on. */
void ft_cluster_turn_to(struct ft_block *block);
/* barrier.cluster of a warp that has come together. */
void ft_cluster_barrier(struct ft_warp *warp, int line);
void ft_cluster_thread_ends(const struct ft_thread *thread);
/* The block of this rank of the running one's cluster, which must be there still. */
struct ft_block *ft_cluster_block(unsigned rank, int line);
/* The running thread arrives at an mbarrier of this block; to be called before it does. */
void ft_cluster_note_arrival(struct ft_block *there, int line);
/* Reads shared memory of the block of this rank, at this address of the shared window. */
void ft_cluster_read(void *to, uint32_t from, int bytes, unsigned rank, int line);
/* As the block ends: an arrival of another block that may come later is a fault. */
void ft_check_arrivals_done(struct ft_block *block);

#endif
