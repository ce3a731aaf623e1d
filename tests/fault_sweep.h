/* fault_sweep.h: one command line, with the n-th call of each kind failing, once and for ever.
 * in -> out: a line of fault_lines.h -> assertions: an exit code and a message, a sound store, a
 * next run that works. Kinds are calls for memory, for files, of SQLite (out of memory, busy, an
 * I/O error), of the driver and of NVRTC.
 * Few n of each, others each time, for a few seconds; with FATUNE_TEST_SLOW=1 every n, and with
 * FATUNE_TEST_PLACES=FILE besides, of the calls for memory, for files and of SQLite by one chain of
 * callers the first and the last, unless the file names the chain, as it does afterwards. With
 * FATUNE_TEST_CALLERS=n only the n innermost callers tell chains apart. FATUNE_TEST_CASE=n: the
 * n-th line of a suite alone; FATUNE_TEST_PART=2/10: of its n's the second, the twelfth, ...;
 * FATUNE_TEST_KIND=files: of the kinds that one; FATUNE_TEST_SEED draws the same n's again. */
#ifndef TESTS_FAULT_SWEEP_H
#define TESTS_FAULT_SWEEP_H

#include "tests/fault_lines.h"

/* Around all sweeps of a suite: a store that was tuned, what was exported of it, and copies of both
 * to begin each run with. on_gpu: the fake GPU is there. */
void fault_sweep_begin(bool on_gpu);
void fault_sweep_end(void);

void fault_sweep(const struct fault_line *line, int index);

#endif
