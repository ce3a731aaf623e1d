/* power_loss.h: SQLite's file layer that remembers what a disk would have lost.
 * in -> out: writes and syncs of one folder -> its files as they may lie there after the power
 * went. A write counts from the next sync of its file on. Of those that were not synced yet, each
 * is kept, lost or torn. Making and deleting a file counts at once, as on a journalling file
 * system. */
#ifndef TESTS_POWER_LOSS_H
#define TESTS_POWER_LOSS_H

#include <stdint.h>

/* Makes it the file layer of this process. */
void power_loss_begin(void);

/* Forgets all it has remembered; files as they lie now are taken for synced. */
void power_loss_reset(void);

/* Operations so far that change files. */
long power_loss_count(void);

/* The power goes at this operation and all later ones change nothing; 0: never. */
void power_loss_at(long operation);

/* Makes the files what a disk may have kept of them; seed decides over what was not synced. The
 * databases must be closed. */
void power_loss_happen(uint64_t seed);

#endif
