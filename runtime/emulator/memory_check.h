/* memory_check.h: may a kernel touch these bytes of global memory?
 * in -> out: tensors + an access -> yes, or what is wrong. For the one launch that runs. */
#ifndef RUNTIME_EMULATOR_MEMORY_CHECK_H
#define RUNTIME_EMULATOR_MEMORY_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/tensor.h"

/* Whether a kernel may do this; else what is wrong with it, in words, without the place: "reads 16
 * bytes, 32 past the end of K[batch 0, row 99, head 1] ...". Marks what is written. */
bool ft_memory_check(const struct ft_emulated_tensor *tensors, int count, uint64_t address,
                     int bytes, enum fe_access access, char *what, size_t size);

/* The element of a tensor that lies at an address. */
struct ft_place {
  const struct ft_emulated_tensor *tensor;
  int64_t index[FT_TENSOR_DIMS];
};
/* false when it is in no tensor, between elements, or in one whose elements overlap. */
bool ft_memory_place(const struct ft_emulated_tensor *tensors, int count, uint64_t address,
                     struct ft_place *place);
/* Whether an element is where a tile has it that is in pages, so many rows and columns from that
 * other one: in the same page, or, beyond an end of it, in any. */
bool ft_place_in_pages(const struct ft_place *first, const struct ft_place *found, int64_t rows,
                       int64_t columns);
/* "K[batch 0, row 3, head 1, column 8]" */
const char *ft_place_text(const struct ft_place *place, char text[128]);

/* Moves the place down a tile by so many rows. With packed heads consecutive rows of a tile belong
 * to one head after the other. */
void ft_place_move_down(struct ft_place *place, int64_t rows);

#endif
