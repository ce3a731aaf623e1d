/* claims.h: of all processes that need a kernel, one at a time makes it.
 * in -> out: store + key -> a claim, which ends with its owner's process if not before.
 *
 * A claim is a lock on one byte of kernels.claims, beside kernels.db: which byte, the key says. The
 * lock belongs to an open file description, so that threads of a process exclude each other, too,
 * and the kernel of the operating system drops it when its owner dies, however it dies. */
#ifndef CACHE_CLAIMS_H
#define CACHE_CLAIMS_H

#include "cache/store.h"

struct ft_claim {
  int file; /* -1: nothing can be claimed here */
  int64_t place;
};

/* Where the store has no folder to write to (in memory, read-only, not to be trusted), or its file
 * system has no locks, there are no claims and every try succeeds. */
void ft_claim_open(struct ft_claim *claim, const struct ft_store *store,
                   const struct ft_digest *key);
/* Never waits. false: another one has it. */
bool ft_claim_try(struct ft_claim *claim);
/* Gives it back if it is held. */
void ft_claim_close(struct ft_claim *claim);

#endif
