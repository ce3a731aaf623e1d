/* tensor_map.h: what a tensor map (CUtensorMap) says to the emulated TMA, and the boxes that it
 * cuts out of a tensor. in -> out: cuTensorMapEncodeTiled's arguments -> 128 bytes; those and
 * coordinates -> rows of a box: where they are in global and in shared memory. */
#ifndef RUNTIME_EMULATOR_TENSOR_MAP_H
#define RUNTIME_EMULATOR_TENSOR_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/driver.h"
#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/tensor.h"

enum { FT_MAP_DIMS = 5, FT_MAP_BYTES = 128 };
enum { FT_CHUNK = 16 }; /* bytes that a swizzle moves together */

/* CUtensorMapSwizzle */
enum ft_swizzle { FT_SWIZZLE_NONE = 0, FT_SWIZZLE_128B = 3 };

/* What the emulated driver writes into the opaque bytes. */
struct ft_map {
  char magic[8];
  uint64_t address;
  uint64_t strides[FT_MAP_DIMS - 1]; /* bytes; of all dimensions but the innermost */
  uint32_t last[FT_MAP_DIMS];        /* extent - 1; the innermost dimension first */
  uint16_t box[FT_MAP_DIMS];
  uint8_t rank, element_bytes, swizzle;
};
_Static_assert(sizeof(struct ft_map) <= FT_MAP_BYTES, "fits into a CUtensorMap");
#define FT_MAP_MAGIC "ftmap\0\0" /* and its NUL */

/* The 128-byte pattern: address bits 4-6 change by bits 7-9. */
static inline uint32_t ft_swizzle_128(uint32_t address) {
  return address ^ (address >> 7 & 7) << 4;
}

struct ft_box {
  struct ft_map map;
  int at[FT_MAP_DIMS]; /* may lie outside of the tensor */
  uint32_t shared;     /* address of the first row */
  int rows, row_bytes;
};

/* A row of a box: elements along the innermost dimension. */
struct ft_box_row {
  uint64_t global; /* of the row's first element that is in the tensor */
  int first, end;  /* bytes of the row that are in the tensor; nothing when they are the same */
  uint32_t shared; /* before the swizzle */
};

/* NULL, or what is wrong. */
const char *ft_box_make(struct ft_box *box, const void *map, uint32_t shared,
                        const struct fe_place *at, char what[256]);
/* One row of fp32 numbers that lie side by side, of so many bytes. */
const char *ft_box_line(struct ft_box *box, uint64_t global, uint32_t shared, uint32_t bytes,
                        char what[256]);
struct ft_box_row ft_box_row(const struct ft_box *box, int row);
/* The shared address of 16 bytes at this byte of a row. */
uint32_t ft_box_chunk(const struct ft_box *box, const struct ft_box_row *row, int byte);
/* Whether a kernel may access all of the box that is in the tensor; else what is wrong. */
bool ft_box_check(const struct ft_box *box, const struct ft_emulated_tensor *tensors, int count,
                  enum fe_access access, char *what, size_t size);

/* Of the driver's table. */
cu_result ft_emulator_tensor_map_encode(void *opaque, int type, unsigned rank, void *address,
                                        const uint64_t *extents, const uint64_t *strides,
                                        const unsigned *box, const unsigned *element_strides,
                                        int interleave, int swizzle, int l2_promotion, int fill);

#endif
