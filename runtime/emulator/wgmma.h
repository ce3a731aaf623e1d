/* wgmma.h: products of a warpgroup, done as late as the wait that orders them allows.
 * in -> out: 128 records, waits -> accumulators, or a fault. */
#ifndef RUNTIME_EMULATOR_WGMMA_H
#define RUNTIME_EMULATOR_WGMMA_H

#include "runtime/emulator/products.h"

void ft_wgmma_issue(int warpgroup, int line);
void ft_wgmma_wait(int warpgroup, int youngest, int line);
void ft_products_reset(struct ft_products *products);
void ft_products_free(struct ft_products *products);

#endif
