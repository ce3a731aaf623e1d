/* fragment.h: where the values in a thread's registers come from, to check that a product takes its
 * operands from one tile.
 * in -> out: ldmatrix notes, for each register it fills, the global addresses of the two elements;
 * mma looks them up. A register is known by its place in the thread's stack, as long as it still
 * holds what was loaded. Registers that are not known are not checked. */
#ifndef RUNTIME_EMULATOR_FRAGMENT_H
#define RUNTIME_EMULATOR_FRAGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/tensor.h"

enum { FT_FRAGMENT_SLOTS = 1024 }; /* a power of two */
enum { FT_FRAGMENT_WORDS = 512 };  /* room for what is wrong */

struct ft_fragment {
  const uint32_t *home;
  uint32_t value;
  uint64_t origins[2]; /* of the low and the high half; 0 unknown */
};

struct ft_fragments {
  struct ft_fragment *slots; /* [FT_FRAGMENT_SLOTS] by home; the block's */
};

void ft_fragment_note(struct ft_fragments *fragments, const uint32_t *home,
                      const uint64_t origins[2]);
/* NULL when nothing is known of the value. */
const struct ft_fragment *ft_fragment_find(const struct ft_fragments *fragments,
                                           const uint32_t *home);

/* One lane's operand registers of a product, where known. */
struct ft_operands {
  const struct ft_fragment *a[4], *b[2];
};

/* Whether A and B of an m16n8k16 product are tiles: A[r][k] at row i + r, column c + k of a tensor,
 * B[k][n] at row j + n, column c + k (K) or at row j + k, column c + n (V); and where A and B both
 * run along columns at k, from the same column. NULL, or what is wrong. */
const char *ft_fragment_fault(const struct ft_operands lanes[FE_WARP],
                              const struct ft_emulated_tensor *tensors, int count,
                              char what[FT_FRAGMENT_WORDS]);

#endif
