/* tensor.h: the memory that a launch may touch, as tensors. */
#ifndef RUNTIME_EMULATOR_TENSOR_H
#define RUNTIME_EMULATOR_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

/* What a launch may touch: elements address + (sum of index * stride) * element_bytes and nothing
 * between them. Extents and strides by dimension: batch, row, head, column. */
enum { FT_TENSOR_DIMS = 4, FT_TENSORS_MOST = 72 };
struct ft_emulated_tensor {
  const char *name; /* "K"; static */
  uint64_t address;
  int element_bytes;
  int64_t extents[FT_TENSOR_DIMS], strides[FT_TENSOR_DIMS]; /* strides in elements */
  bool writable;
  int packed_heads; /* whose rows stand beside each other in tiles; 0: as 1, each for itself */
  int packed_rows;  /* of a query in a tile, at least as many */
  bool paged;       /* batch entries are pages: behind the last row of one a tile goes on in any */
};

#endif
