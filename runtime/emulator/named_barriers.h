/* named_barriers.h: bar.sync and bar.arrive. */
#ifndef RUNTIME_EMULATOR_NAMED_BARRIERS_H
#define RUNTIME_EMULATOR_NAMED_BARRIERS_H

#include <stdbool.h>

#include "runtime/emulator/block.h"

/* bar.sync and bar.arrive of a warp that has come together. */
void ft_named_barrier(struct ft_warp *warp, bool waits, int line);
void ft_barriers_reset(struct ft_block *block);
void ft_barriers_free(struct ft_block *block);

#endif
