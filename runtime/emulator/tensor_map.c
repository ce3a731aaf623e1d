/* tensor_map.c: tensor maps of the emulated driver, and boxes.
 * in -> out: cuTensorMapEncodeTiled -> struct ft_map in the opaque bytes, or what the documentation
 * forbids; map, coordinates -> rows. */
#include "runtime/emulator/tensor_map.h"

#include <stdio.h>
#include <string.h>

#include "runtime/emulator/memory_check.h"
#include "runtime/emulator/result.h"

/* ---- making one ---- */

/* Bytes of an element of this CUtensorMapDataType; 0: not emulated. */
static int element_bytes_of(int type) {
  enum { UINT8 = 0, UINT16 = 1, FLOAT16 = 6, BFLOAT16 = 9 };
  if (type == UINT8) return 1;
  return type == UINT16 || type == FLOAT16 || type == BFLOAT16 ? 2 : 0;
}

static cu_result check_modes(int type, unsigned rank, int interleave, int swizzle, int fill) {
  if (element_bytes_of(type) == 0)
    return ft_emulator_refuse(
        CU_NOT_SUPPORTED, "a tensor map of data type %d; emulated: 0 (8 bits), 1, 6, 9 (16 bits)",
        type);
  if (rank < 1 || rank > FT_MAP_DIMS)
    return ft_emulator_refuse(CU_INVALID_VALUE, "a tensor map of rank %u; allowed: 1 to %d", rank,
                              FT_MAP_DIMS);
  if (interleave != 0 || fill != 0)
    return ft_emulator_refuse(CU_NOT_SUPPORTED,
                              "a tensor map with interleave %d and fill %d; emulated: 0, 0",
                              interleave, fill);
  if (swizzle != FT_SWIZZLE_NONE && swizzle != FT_SWIZZLE_128B)
    return ft_emulator_refuse(
        CU_NOT_SUPPORTED, "a tensor map with swizzle %d; emulated: 0 and 3 (128 bytes)", swizzle);
  return 0;
}

static cu_result check_tensor(const struct ft_map *map, const uint64_t *extents) {
  if (map->address % FT_CHUNK != 0)
    return ft_emulator_refuse(CU_INVALID_VALUE,
                              "a tensor map for address 0x%llx, which is no multiple of %d",
                              (unsigned long long)map->address, FT_CHUNK);
  for (int dim = 0; dim < map->rank; dim++)
    if (extents[dim] < 1 || extents[dim] > UINT64_C(1) << 32)
      return ft_emulator_refuse(CU_INVALID_VALUE,
                                "extent %d of a tensor map is %llu; allowed: 1 to 2^32", dim,
                                (unsigned long long)extents[dim]);
  for (int dim = 0; dim < map->rank - 1; dim++)
    if (map->strides[dim] % FT_CHUNK != 0 || map->strides[dim] >= UINT64_C(1) << 40)
      return ft_emulator_refuse(
          CU_INVALID_VALUE,
          "stride %d of a tensor map is %llu bytes; allowed: multiples of %d below 2^40", dim,
          (unsigned long long)map->strides[dim], FT_CHUNK);
  return 0;
}

static cu_result check_box(const struct ft_map *map, const unsigned *box,
                           const unsigned *element_strides) {
  enum { BOX_MOST = 256, ROW_MOST = 128 };
  for (int dim = 0; dim < map->rank; dim++) {
    if (box[dim] < 1 || box[dim] > BOX_MOST)
      return ft_emulator_refuse(CU_INVALID_VALUE,
                                "box extent %d of a tensor map is %u; allowed: 1 to %d", dim,
                                box[dim], BOX_MOST);
    if (element_strides[dim] != 1)
      return ft_emulator_refuse(CU_NOT_SUPPORTED,
                                "element stride %d of a tensor map is %u; emulated: 1", dim,
                                element_strides[dim]);
  }
  const unsigned row = box[0] * map->element_bytes;
  if (row % FT_CHUNK != 0)
    return ft_emulator_refuse(CU_INVALID_VALUE,
                              "a tensor map's box has rows of %u bytes; allowed: multiples of %d",
                              row, FT_CHUNK);
  if (map->swizzle == FT_SWIZZLE_128B && row > ROW_MOST)
    return ft_emulator_refuse(
        CU_INVALID_VALUE,
        "a tensor map's box has rows of %u bytes; allowed with 128-byte swizzle: up to %d", row,
        ROW_MOST);
  return 0;
}

cu_result ft_emulator_tensor_map_encode(void *opaque, int type, unsigned rank, void *address,
                                        const uint64_t *extents, const uint64_t *strides,
                                        const unsigned *box, const unsigned *element_strides,
                                        int interleave, int swizzle, int l2_promotion, int fill) {
  enum { MAP_ALIGNMENT = 64, PROMOTIONS = 4 };
  if (!opaque || (uintptr_t)opaque % MAP_ALIGNMENT != 0)
    return ft_emulator_refuse(CU_INVALID_VALUE, "a tensor map at %p, which is no multiple of %d",
                              opaque, MAP_ALIGNMENT);
  if (l2_promotion < 0 || l2_promotion >= PROMOTIONS)
    return ft_emulator_refuse(CU_INVALID_VALUE,
                              "a tensor map with L2 promotion %d; allowed: 0 to %d", l2_promotion,
                              PROMOTIONS - 1);
  cu_result result = check_modes(type, rank, interleave, swizzle, fill);
  if (result) return result;
  struct ft_map map = {.magic = FT_MAP_MAGIC,
                       .address = (uintptr_t)address,
                       .rank = (uint8_t)rank,
                       .element_bytes = (uint8_t)element_bytes_of(type),
                       .swizzle = (uint8_t)swizzle};
  for (unsigned dim = 0; dim + 1 < rank; dim++) map.strides[dim] = strides[dim];
  result = check_tensor(&map, extents);
  if (!result) result = check_box(&map, box, element_strides);
  if (result) return result;
  for (unsigned dim = 0; dim < rank; dim++) {
    map.last[dim] = (uint32_t)(extents[dim] - 1);
    map.box[dim] = (uint16_t)box[dim];
  }
  memset(opaque, 0, FT_MAP_BYTES);
  memcpy(opaque, &map, sizeof map);
  return 0;
}

/* ---- boxes ---- */

const char *ft_box_make(struct ft_box *box, const void *map, uint32_t shared,
                        const struct fe_place *at, char what[256]) {
  enum { BOX_ALIGNMENT = 128 };
  struct ft_map *const kept = &box->map;
  memcpy(kept, map, sizeof *kept);
  if (memcmp(kept->magic, FT_MAP_MAGIC, sizeof kept->magic) != 0) {
    snprintf(what, 256, "takes a tensor map that cuTensorMapEncodeTiled has not made");
    return what;
  }
  if (kept->rank != at->rank) {
    snprintf(what, 256, "takes %d coordinates, but the tensor map has rank %d", at->rank,
             kept->rank);
    return what;
  }
  box->row_bytes = kept->box[0] * kept->element_bytes;
  if (kept->swizzle == FT_SWIZZLE_128B && box->row_bytes != BOX_ALIGNMENT) {
    snprintf(what, 256, "swizzles rows of %d bytes; emulated: 128", box->row_bytes);
    return what;
  }
  if (shared % BOX_ALIGNMENT != 0) {
    snprintf(what, 256, "has its box at shared address %u, which is no multiple of %d", shared,
             BOX_ALIGNMENT);
    return what;
  }
  box->shared = shared;
  box->rows = 1;
  for (int dim = 0; dim < at->rank; dim++) {
    box->at[dim] = at->index[dim];
    if (dim > 0) box->rows *= kept->box[dim];
  }
  return NULL;
}

const char *ft_box_line(struct ft_box *box, uint64_t global, uint32_t shared, uint32_t bytes,
                        char what[256]) {
  enum { NUMBER_BYTES = 4, BYTES_MOST = UINT16_MAX / FT_CHUNK * FT_CHUNK };
  if (bytes == 0 || bytes > BYTES_MOST || (global | shared | bytes) % FT_CHUNK != 0) {
    snprintf(
        what, 256,
        "copies %u bytes between shared address %u and 0x%llx; allowed: multiples of %d, up to "
        "%d bytes",
        bytes, shared, (unsigned long long)global, FT_CHUNK, BYTES_MOST);
    return what;
  }
  const uint32_t numbers = bytes / NUMBER_BYTES;
  *box = (struct ft_box){.map = {.address = global,
                                 .last = {numbers - 1},
                                 .box = {(uint16_t)numbers},
                                 .rank = 1,
                                 .element_bytes = NUMBER_BYTES,
                                 .swizzle = FT_SWIZZLE_NONE},
                         .shared = shared,
                         .rows = 1,
                         .row_bytes = (int)bytes};
  return NULL;
}

struct ft_box_row ft_box_row(const struct ft_box *box, int number) {
  const struct ft_map *const map = &box->map;
  struct ft_box_row row = {.global = map->address,
                           .shared = box->shared + (uint32_t)(number * box->row_bytes)};
  bool inside = true;
  for (int dim = 1; dim < map->rank; dim++) {
    const int64_t index = (int64_t)box->at[dim] + number % map->box[dim];
    number /= map->box[dim];
    if (index < 0 || index > map->last[dim]) inside = false;
    row.global += (uint64_t)index * map->strides[dim - 1];
  }
  const int64_t column = box->at[0], extent = (int64_t)map->last[0] + 1;
  const int64_t first = column < 0 ? -column : 0;
  const int64_t end = extent - column < map->box[0] ? extent - column : map->box[0];
  if (!inside || first >= end) return row;
  row.global += (uint64_t)((column + first) * map->element_bytes);
  row.first = (int)first * map->element_bytes;
  row.end = (int)end * map->element_bytes;
  return row;
}

uint32_t ft_box_chunk(const struct ft_box *box, const struct ft_box_row *row, int byte) {
  const uint32_t address = row->shared + (uint32_t)byte;
  return box->map.swizzle == FT_SWIZZLE_128B ? ft_swizzle_128(address) : address;
}

/* ft_memory_check asks accesses of a power of two bytes to be aligned, which elements are and rows
 * need not be: a row is checked in up to two pieces, and element by element to tell what is wrong.
 */
static bool check_row(const struct ft_box_row *row, int element,
                      const struct ft_emulated_tensor *tensors, int count, enum fe_access access,
                      char *what, size_t size) {
  const int bytes = row->end - row->first;
  const int tail = (bytes & (bytes - 1)) == 0 && bytes > element ? element : 0;
  const uint64_t end = row->global + (uint64_t)bytes;
  if (ft_memory_check(tensors, count, row->global, bytes - tail, access, what, size) &&
      ft_memory_check(tensors, count, end - (uint64_t)tail, tail, access, what, size))
    return true;
  for (uint64_t at = row->global; at < end; at += (uint64_t)element)
    if (!ft_memory_check(tensors, count, at, element, access, what, size)) return false;
  return false;
}

bool ft_box_check(const struct ft_box *box, const struct ft_emulated_tensor *tensors, int count,
                  enum fe_access access, char *what, size_t size) {
  for (int number = 0; number < box->rows; number++) {
    const struct ft_box_row row = ft_box_row(box, number);
    if (!check_row(&row, box->map.element_bytes, tensors, count, access, what, size)) return false;
  }
  return true;
}
