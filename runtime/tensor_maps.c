/* tensor_maps.c: the tensors of a run as TMA wants them described.
 * in -> out: struct ft_launch, prepared -> its four tensor maps: dimensions (column, row, head,
 * batch), of Q and O with pack_gqa (column, head in a pack, row, pack, batch), boxes of 64 columns,
 * rows of 128 bytes swizzled, zeros beyond the tensor.
 * Numbers are CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion of the CUDA driver
 * API. */
#include "generator/families/wgmma_forward.h"
#include "runtime/tensor_maps.h"

#include "generator/status.h"
#include "runtime/map_cache.h"
#include "generator/arguments.h"

enum { BOX_COLUMNS = 64, WARPGROUP_ROWS = 64 };
enum { TYPE_FLOAT16 = 6, TYPE_BFLOAT16 = 9, SWIZZLE_128B = 3, PROMOTE_TO_128B = 2 };

struct extent {
  int columns, rows, heads, batch, box_rows;
  int packed; /* heads whose rows lie beside each other in a box; 0: four dimensions do */
};

/* A tensor of the launch, and where its map goes. */
struct mapped {
  const char *name;
  struct ft_tensor_map *map;
  uint64_t address;
  const struct ft_stride *stride;
  struct extent extent;
};

/* A dimension of one element has any stride, and TMA wants none that is 0 there. */
static uint64_t stride_bytes(int64_t elements, int extent, uint64_t otherwise) {
  return extent == 1 ? otherwise : (uint64_t)elements * 2;
}

static void add_dimension(struct ft_map_key *key, int extent, int64_t stride, int box) {
  const uint64_t row_bytes = key->extents[0] * 2;
  key->extents[key->dimensions] = (uint64_t)extent;
  key->strides[key->dimensions - 1] = stride_bytes(stride, extent, row_bytes);
  key->box[key->dimensions++] = (unsigned)box;
}

static struct ft_map_key key_of(const struct mapped *tensor, enum ft_dtype dtype) {
  const struct extent *const extent = &tensor->extent;
  const struct ft_stride *const stride = tensor->stride;
  struct ft_map_key key = {.address = tensor->address,
                           .extents = {(uint64_t)extent->columns},
                           .box = {BOX_COLUMNS},
                           .dimensions = 1,
                           .type = dtype == FT_BF16 ? TYPE_BFLOAT16 : TYPE_FLOAT16,
                           .swizzle = SWIZZLE_128B};
  const int packed = extent->packed ? extent->packed : 1;
  if (extent->packed) add_dimension(&key, packed, stride->head, packed);
  add_dimension(&key, extent->rows, stride->row, extent->box_rows / packed);
  add_dimension(&key, extent->heads / packed, stride->head * packed, 1);
  add_dimension(&key, extent->batch, stride->batch, 1);
  return key;
}

static int encode(const struct mapped *tensor, const struct ft_map_key *key,
                  const struct ft_driver *driver) {
  const unsigned steps[FT_MAP_DIMENSIONS] = {1, 1, 1, 1, 1};
  const struct ft_stride *const stride = tensor->stride;
  const cu_result result = driver->tensor_map_encode(
      tensor->map->opaque, key->type, key->dimensions, (void *)(uintptr_t)key->address,
      key->extents, key->strides, key->box, steps, 0, key->swizzle, PROMOTE_TO_128B, 0);
  if (!result) return FT_OK;
  ft_driver_status(driver, result, "cuTensorMapEncodeTiled");
  return ft_fail_within(FT_E_ARGUMENT,
                        "arguments.%s with strides %lld, %lld, %lld (batch, seq, head) is nothing "
                        "TMA can load",
                        tensor->name, (long long)stride->batch, (long long)stride->row,
                        (long long)stride->head);
}

static int map_tensor(const struct mapped *tensor, int number, enum ft_dtype dtype,
                      struct ft_map_cache *cache, const struct ft_driver *driver) {
  const struct ft_map_key key = key_of(tensor, dtype);
  if (cache && ft_map_cache_find(cache, number, &key, tensor->map)) return FT_OK;
  FT_TRY(encode(tensor, &key, driver));
  if (cache) ft_map_cache_keep(cache, number, &key, tensor->map);
  return FT_OK;
}

int ft_launch_map_tensors(struct ft_launch *launch, const struct ft_config *config,
                          const struct ft_driver *driver) {
  if (launch->family != &ft_wgmma_forward_family) return FT_OK;
  const struct ft_wgmma_forward_knobs *const k = ft_wgmma_forward_knobs(config);
  struct ft_tiled_forward_params *const tiled = &launch->tiled;
  const struct ft_forward_params *const p = &tiled->rest;
  const int heads_kv = p->sequence.heads_q / p->sequence.group,
            key_rows = k->block_n / (1 + k->multicast);
  const int nq = p->sequence.nq >> p->sequence.pack_bits,
            heads_q = p->sequence.heads_q << p->sequence.pack_bits;
  const int packed = k->pack_gqa ? 1 << p->sequence.pack_bits : 0;
  const int d = launch->head_dim, dv = launch->head_dim_v;
  const struct mapped tensors[FT_MAP_TENSORS] = {
      {"q",
       &tiled->q,
       p->q.data,
       &p->q.stride,
       {d, nq, heads_q, p->sequence.batch, k->block_m, packed}},
      {"k",
       &tiled->k,
       p->k.data,
       &p->k.stride,
       {d, p->sequence.nk, heads_kv, p->sequence.batch, key_rows, 0}},
      {"v",
       &tiled->v,
       p->v.data,
       &p->v.stride,
       {dv, p->sequence.nk, heads_kv, p->sequence.batch, key_rows, 0}},
      {"o",
       &tiled->o,
       p->o.data,
       &p->o.stride,
       {dv, nq, heads_q, p->sequence.batch, WARPGROUP_ROWS, packed}}};
  for (int i = 0; i < FT_MAP_TENSORS; i++)
    FT_TRY(map_tensor(&tensors[i], i, launch->dtype, launch->maps, driver));
  return FT_OK;
}
