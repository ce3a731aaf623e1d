/* wgmma_operand.h: operands of wgmma in shared memory.
 * in -> out: descriptor -> where its elements lie; what lies there, or what is wrong. */
#ifndef RUNTIME_EMULATOR_WGMMA_OPERAND_H
#define RUNTIME_EMULATOR_WGMMA_OPERAND_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/emulator/memory_check.h"
#include "runtime/emulator/shared_memory.h"
#include "runtime/emulator/tensor.h"

enum { FT_WGMMA_ROWS = 64, FT_WGMMA_DEPTH_BYTES = 32, FT_WGMMA_COLUMNS_MOST = 256 };
enum { FT_WGMMA_DEPTH_MOST = 32 }; /* of e4m3; of 16-bit numbers it is half */
enum { FT_OPERAND_WORDS = 512 };   /* room for what is wrong */

/* An operand by descriptor: rows of 128 bytes with chunks of 16, as TMA lays a tensor's rows out.
 * Along: the depth runs along a row, which are A's rows or B's columns. Across: it runs from row to
 * row, and B's columns along them. */
struct ft_operand {
  char name;                       /* 'A', 'B' */
  uint32_t begin, leading, stride; /* address; bytes: from 64 columns to the next, from 8 rows */
  bool across;
  int rows, chunks;
};

/* NULL, or what is wrong with the descriptor. outer: rows of A, columns of B. */
const char *ft_operand_decode(struct ft_operand *operand, char name, uint64_t descriptor,
                              bool across, int outer, char what[FT_OPERAND_WORDS]);
/* NULL, or what is wrong with reading it. */
const char *ft_operand_read(const struct ft_operand *operand, struct ft_shared_memory *shared,
                            const struct ft_accessor *by, char what[FT_OPERAND_WORDS]);
/* What lies there now: element (row, column) to to[row * row_step + column * column_step]. */
void ft_operand_gather(const struct ft_operand *operand, const struct ft_shared_memory *shared,
                       enum fe_wgmma_dtype dtype, float *to, int row_step, int column_step);
/* NULL, or in which way it is no tile of a tensor. first: where its first row and column lie in the
 * tensor, as far as known: tensor NULL where it is not. */
const char *ft_operand_tile(const struct ft_operand *operand, const struct ft_shared_memory *shared,
                            const struct ft_emulated_tensor *tensors, int count,
                            struct ft_place *first, char what[FT_OPERAND_WORDS]);

#endif
