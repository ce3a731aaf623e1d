/* tensor_maps.c: the tensors of a run as TMA wants them described.
 * in -> out: tensors -> tensor maps: dimensions (column, row, head, batch), of tensors with packed
 * heads (column, head in a pack, row, pack, batch), of sequences of different lengths (column, row,
 * head, first row, carry), boxes of rows of 128 bytes, swizzled, zeros beyond the tensor. Numbers
 * are CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion of the CUDA driver API. */
#include "runtime/tensor_maps.h"

#include "generator/status.h"

enum { ROW_BYTES = 128, STRIDE_BYTES = 16 };  /* strides are multiples */
enum { LINE_BYTES = 128, SECTOR_BYTES = 32 }; /* of L2: a line has four sectors */
enum { TYPE_UINT8 = 0, TYPE_FLOAT16 = 6, TYPE_BFLOAT16 = 9, SWIZZLE_128B = 3 };
enum { PROMOTE_TO_64B = 1, PROMOTE_TO_128B = 2 };

/* A dimension of one element has any stride, and TMA wants none that is 0 there. */
static uint64_t stride_bytes(int64_t bytes, int extent, uint64_t otherwise) {
  return extent == 1 ? otherwise : (uint64_t)bytes;
}

static int type_of(enum ft_dtype dtype) {
  switch (dtype) {
  case FT_FP16: return TYPE_FLOAT16;
  case FT_BF16: return TYPE_BFLOAT16;
  case FT_E4M3:
  case FT_FP32: /* no family takes it by TMA */
  case FT_TF32: break;
  }
  return TYPE_UINT8;
}

/* How much L2 reads from memory where a part of a line is asked for: the line, or half of it. A
 * head's row may end inside a line, and then the next head's row begins there. If the blocks that
 * read these two heads run far apart in time, L2 reads the line for each of them, and half lines
 * are faster. They are not faster if the row ends inside a sector. Measured: bench/ledger.md,
 * "Lines that two heads share". bytes: of an element. */
static int promotion_of(const struct ft_mapped *tensor, int bytes) {
  const int row = tensor->columns * bytes;
  const bool rows_adjoin = tensor->tensor->stride.row == tensor->columns;
  const bool shares_lines = !rows_adjoin && row % LINE_BYTES != 0 && row % SECTOR_BYTES == 0;
  return tensor->heads_apart && shares_lines ? PROMOTE_TO_64B : PROMOTE_TO_128B;
}

/* Strides are in bytes. */
static void add_dimension(struct ft_map_key *key, int extent, int64_t stride, int box) {
  const uint64_t bytes = key->extents[0] * (key->type == TYPE_UINT8 ? 1 : 2);
  const uint64_t row_bytes = (bytes + STRIDE_BYTES - 1) / STRIDE_BYTES * STRIDE_BYTES;
  key->extents[key->dimensions] = (uint64_t)extent;
  key->strides[key->dimensions - 1] = stride_bytes(stride, extent, row_bytes);
  key->box[key->dimensions++] = (unsigned)box;
}

/* The first of three dimensions along the rows is that of the box and ends at BEYOND. The others
 * take a sequence's first row and BEYOND back (templates/parts/rows_of_sequences.cu.in). */
static void add_rows_of_sequences(struct ft_map_key *key, const struct ft_mapped *tensor,
                                  int bytes) {
  const int beyond = 1 << 30, any = INT32_MAX;
  const struct ft_stride *const stride = &tensor->tensor->stride;
  const int64_t row = tensor->rows == 1 ? tensor->columns * bytes : stride->row * bytes;
  add_dimension(key, beyond, row, tensor->box_rows);
  add_dimension(key, tensor->heads, stride->head * bytes, 1);
  add_dimension(key, any, row, 1);
  add_dimension(key, any, (INT64_C(1) << 34) - row, 1);
}

static struct ft_map_key key_of(const struct ft_mapped *tensor) {
  const int bytes = ft_dtype_bytes(tensor->dtype);
  const struct ft_stride *const stride = &tensor->tensor->stride;
  struct ft_map_key key = {.address = tensor->tensor->data,
                           .extents = {(uint64_t)tensor->columns},
                           .box = {(unsigned)(ROW_BYTES / bytes)},
                           .dimensions = 1,
                           .type = type_of(tensor->dtype),
                           .promotion = promotion_of(tensor, bytes)};
  const int packed = tensor->packed ? tensor->packed : 1;
  if (tensor->ragged) {
    add_rows_of_sequences(&key, tensor, bytes);
    return key;
  }
  if (tensor->packed) add_dimension(&key, packed, stride->head * bytes, tensor->of_query);
  add_dimension(&key, tensor->rows, stride->row * bytes, tensor->box_rows / tensor->of_query);
  add_dimension(&key, tensor->heads / packed, stride->head * packed * bytes, 1);
  add_dimension(&key, tensor->batch, stride->batch * bytes, 1);
  return key;
}

enum { CU_INVALID_VALUE = 1 };

static int encode(const struct ft_mapped *tensor, const struct ft_map_key *key,
                  const struct ft_driver *driver) {
  const unsigned steps[FT_MAP_DIMENSIONS] = {1, 1, 1, 1, 1};
  const struct ft_stride *const stride = &tensor->tensor->stride;
  const cu_result result = driver->tensor_map_encode(
      tensor->map->opaque, key->type, key->dimensions, (void *)(uintptr_t)key->address,
      key->extents, key->strides, key->box, steps, 0, SWIZZLE_128B, key->promotion, 0);
  if (!result) return FT_OK;
  const int status = ft_driver_status(driver, result, "cuTensorMapEncodeTiled");
  if (result != CU_INVALID_VALUE) return status; /* what went wrong before, not these arguments */
  return ft_fail_within(FT_E_ARGUMENT,
                        "arguments.%s with strides %lld, %lld, %lld (batch, seq, head) is nothing "
                        "TMA can load",
                        tensor->name, (long long)stride->batch, (long long)stride->row,
                        (long long)stride->head);
}

static int map_tensor(const struct ft_mapped *tensor, int number, struct ft_map_cache *cache,
                      const struct ft_driver *driver) {
  const struct ft_map_key key = key_of(tensor);
  if (cache && ft_map_cache_find(cache, number, &key, tensor->map)) return FT_OK;
  FT_TRY(encode(tensor, &key, driver));
  if (cache) ft_map_cache_keep(cache, number, &key, tensor->map);
  return FT_OK;
}

int ft_map_tensors(const struct ft_mapped *tensors, int count, struct ft_map_cache *cache,
                   const struct ft_driver *driver) {
  for (int i = 0; i < count; i++) FT_TRY(map_tensor(&tensors[i], i, cache, driver));
  return FT_OK;
}
