/* wgmma_operand.c: operands of wgmma in shared memory.
 * in -> out: descriptor -> addresses, checks, numbers; whether they are a tile of a tensor.
 * Layouts as in the PTX manual, "Matrix Descriptor Format" and "Strides" of wgmma, for the 128-byte
 * swizzle: groups of eight rows of 128 bytes, their chunks exchanged by address bits 7-9. */
#include "runtime/emulator/wgmma_operand.h"

#include <stdio.h>

#include "runtime/emulator/numbers.h"
#include "runtime/emulator/tensor_map.h"

enum { ROW_BYTES = 128, ATOM_ROWS = 8, ATOM_BYTES = ATOM_ROWS * ROW_BYTES };
enum { WIDE_DEPTH = FT_WGMMA_DEPTH_BYTES / 2, ROW_CHUNKS = ROW_BYTES / FT_CHUNK };
enum { HALVES = FT_CHUNK / 2 }; /* 16-bit numbers of a chunk */

static uint32_t field(uint64_t descriptor, int bit) {
  return (uint32_t)(descriptor >> bit & 0x3FFF) << 4;
}

const char *ft_operand_decode(struct ft_operand *operand, char name, uint64_t descriptor,
                              bool across, int outer, char what[FT_OPERAND_WORDS]) {
  enum { SWIZZLE_128 = 1 };
  const int swizzle = (int)(descriptor >> 62), base = (int)(descriptor >> 49 & 7);
  *operand = (struct ft_operand){.name = name,
                                 .begin = field(descriptor, 0),
                                 .leading = field(descriptor, 16),
                                 .stride = field(descriptor, 32),
                                 .across = across,
                                 .rows = across ? WIDE_DEPTH : outer,
                                 .chunks = (across ? outer * 2 : FT_WGMMA_DEPTH_BYTES) / FT_CHUNK};
  if (swizzle != SWIZZLE_128 || base != 0) {
    snprintf(what, FT_OPERAND_WORDS,
             "has %c with swizzle %d and base offset %d in its descriptor; emulated: 1 (128 bytes) "
             "and 0",
             name, swizzle, base);
    return what;
  }
  /* The depth along the rows is 32 bytes of a row. Across the rows an operand that begins inside of
   * the first row may be no longer than the row. */
  const int columns = across ? operand->chunks : 2;
  const uint32_t inside = operand->begin % ATOM_BYTES;
  const uint32_t most = columns < ROW_CHUNKS ? ROW_BYTES - (uint32_t)columns * FT_CHUNK : 0;
  if (inside > most) {
    snprintf(
        what, FT_OPERAND_WORDS,
        "has %c begin at shared address %u; emulated: multiples of %d, and up to %u bytes into "
        "the row that is there",
        name, operand->begin, ATOM_BYTES, most);
    return what;
  }
  return NULL;
}

static uint32_t address_of(const struct ft_operand *operand, int row, int chunk) {
  const uint32_t panel = operand->across ? (uint32_t)(chunk / ROW_CHUNKS) * operand->leading : 0;
  return ft_swizzle_128(operand->begin + panel + (uint32_t)(row / ATOM_ROWS) * operand->stride +
                        (uint32_t)(row % ATOM_ROWS * ROW_BYTES) +
                        (uint32_t)(chunk % ROW_CHUNKS * FT_CHUNK));
}

const char *ft_operand_read(const struct ft_operand *operand, struct ft_shared_memory *shared,
                            const struct ft_accessor *by, char what[FT_OPERAND_WORDS]) {
  char words[256];
  for (int row = 0; row < operand->rows; row++)
    for (int chunk = 0; chunk < operand->chunks; chunk++)
      if (ft_shared_read_by(shared, by, address_of(operand, row, chunk), FT_CHUNK, words)) {
        snprintf(what, FT_OPERAND_WORDS, "%s; %c's row %d, byte %d there", words, operand->name,
                 row, chunk * FT_CHUNK);
        return what;
      }
  return NULL;
}

void ft_operand_gather(const struct ft_operand *operand, const struct ft_shared_memory *shared,
                       enum fe_wgmma_dtype dtype, float *to, int row_step, int column_step) {
  const int elements = dtype == FE_OF_E4M3 ? FT_CHUNK : HALVES;
  for (int row = 0; row < operand->rows; row++)
    for (int chunk = 0; chunk < operand->chunks; chunk++) {
      uint16_t bits[HALVES];
      uint8_t bytes[FT_CHUNK];
      memcpy(bits, ft_shared_at(shared, address_of(operand, row, chunk)), sizeof bits);
      memcpy(bytes, bits, sizeof bytes);
      float *const first = to + row * row_step + chunk * elements * column_step;
      if (dtype == FE_OF_E4M3)
        for (int i = 0; i < FT_CHUNK; i++) first[i * column_step] = ft_from_e4m3(bytes[i]);
      else if (dtype == FE_OF_BF16)
        for (int i = 0; i < HALVES; i++) first[i * column_step] = ft_from_bf16(bits[i]);
      else
        for (int i = 0; i < HALVES; i++) first[i * column_step] = ft_from_fp16(bits[i]);
    }
}

/* ---- tiles ---- */

static const char *no_tile(const struct ft_operand *operand, int row, int chunk, uint64_t found,
                           uint64_t expected, const struct ft_emulated_tensor *tensors, int count,
                           char what[FT_OPERAND_WORDS]) {
  struct ft_place place = {0};
  char is[128] = "no element", be[128] = "no element";
  if (ft_memory_place(tensors, count, found, &place)) ft_place_text(&place, is);
  if (ft_memory_place(tensors, count, expected, &place)) ft_place_text(&place, be);
  const int bytes = place.tensor ? place.tensor->element_bytes : 1;
  snprintf(what, FT_OPERAND_WORDS,
           "multiplies by %s %c that is no tile: %d rows and %d columns from its begin stands %s, "
           "not %s",
           operand->name == 'A' ? "an" : "a", operand->name, row, chunk * FT_CHUNK / bytes, is, be);
  return what;
}

/* Of the element so many rows and bytes of a row from there. */
static uint64_t address_in_tile(const struct ft_place *first, int row, int byte) {
  struct ft_place place = *first;
  ft_place_move_down(&place, row);
  int64_t elements = 0;
  for (int dim = 0; dim < FT_TENSOR_DIMS; dim++)
    elements += place.index[dim] * first->tensor->strides[dim];
  return first->tensor->address + (uint64_t)(elements * first->tensor->element_bytes + byte);
}

static bool goes_on_in_page(const struct ft_place *first, int row, int chunk, uint64_t origin,
                            const struct ft_emulated_tensor *tensors, int count) {
  struct ft_place found;
  return first->tensor->paged && ft_memory_place(tensors, count, origin, &found) &&
         ft_place_in_pages(first, &found, row, chunk * FT_CHUNK / first->tensor->element_bytes);
}

const char *ft_operand_tile(const struct ft_operand *operand, const struct ft_shared_memory *shared,
                            const struct ft_emulated_tensor *tensors, int count,
                            struct ft_place *first, char what[FT_OPERAND_WORDS]) {
  *first = (struct ft_place){0};
  for (int n = 0; n < operand->rows * operand->chunks; n++) {
    const int row = n / operand->chunks, chunk = n % operand->chunks;
    const uint64_t origin = ft_shared_origin(shared, address_of(operand, row, chunk));
    if (!origin) continue;
    if (!first->tensor) {
      if (!ft_memory_place(tensors, count, origin, first)) return NULL;
      ft_place_move_down(first, -row);
      first->index[3] -= chunk * FT_CHUNK / first->tensor->element_bytes;
    }
    const uint64_t expected = address_in_tile(first, row, chunk * FT_CHUNK);
    if (origin != expected && !goes_on_in_page(first, row, chunk, origin, tensors, count))
      return no_tile(operand, row, chunk, origin, expected, tensors, count, what);
  }
  return NULL;
}
