/* tensor_maps.c: the tensors of a run as TMA wants them described.
 * in -> out: struct ft_launch, prepared -> its four tensor maps: dimensions (column, row, head,
 * batch), of Q and O with pack_gqa (column, head in a pack, row, pack, batch), boxes of 64 columns,
 * rows of 128 bytes swizzled, zeros beyond the tensor.
 * Numbers are CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion of the CUDA driver
 * API. */
#include "generator/status.h"
#include "runtime/session.h"

enum { DIMENSIONS_MOST = 5, BOX_COLUMNS = 64, WARPGROUP_ROWS = 64 };
enum { TYPE_FLOAT16 = 6, TYPE_BFLOAT16 = 9, SWIZZLE_128B = 3, PROMOTE_TO_128B = 2 };

struct extent {
  int columns, rows, heads, batch, box_rows;
  int packed; /* heads whose rows lie beside each other in a box; 0: four dimensions do */
};

/* A tensor as TMA counts it, the innermost dimension first. */
struct shape {
  unsigned dimensions;
  uint64_t extents[DIMENSIONS_MOST], strides[DIMENSIONS_MOST]; /* stride n is of dimension n + 1 */
  unsigned box[DIMENSIONS_MOST];
};

/* A dimension of one element has any stride, and TMA wants none that is 0 there. */
static uint64_t stride_bytes(int64_t elements, int extent, uint64_t otherwise) {
  return extent == 1 ? otherwise : (uint64_t)elements * 2;
}

static void add_dimension(struct shape *shape, int extent, int64_t stride, int box) {
  const uint64_t row_bytes = shape->extents[0] * 2;
  shape->extents[shape->dimensions] = (uint64_t)extent;
  shape->strides[shape->dimensions - 1] = stride_bytes(stride, extent, row_bytes);
  shape->box[shape->dimensions++] = (unsigned)box;
}

static struct shape shape_of(const struct extent *extent, const struct ft_stride *stride) {
  struct shape shape = {1, {(uint64_t)extent->columns}, {0}, {BOX_COLUMNS}};
  const int packed = extent->packed ? extent->packed : 1;
  if (extent->packed) add_dimension(&shape, packed, stride->head, packed);
  add_dimension(&shape, extent->rows, stride->row, extent->box_rows / packed);
  add_dimension(&shape, extent->heads / packed, stride->head * packed, 1);
  add_dimension(&shape, extent->batch, stride->batch, 1);
  return shape;
}

static int encode(struct ft_tensor_map *map, const char *name, uint64_t address,
                  const struct ft_stride *stride, const struct extent *extent, enum ft_dtype dtype,
                  const struct ft_driver *driver) {
  const struct shape shape = shape_of(extent, stride);
  const unsigned steps[DIMENSIONS_MOST] = {1, 1, 1, 1, 1};
  const cu_result result = driver->tensor_map_encode(
      map->opaque, dtype == FT_BF16 ? TYPE_BFLOAT16 : TYPE_FLOAT16, shape.dimensions,
      (void *)(uintptr_t)address, shape.extents, shape.strides, shape.box, steps, 0, SWIZZLE_128B,
      PROMOTE_TO_128B, 0);
  if (!result) return FT_OK;
  ft_driver_status(driver, result, "cuTensorMapEncodeTiled");
  return ft_fail_within(FT_E_ARGUMENT,
                        "arguments.%s with strides %lld, %lld, %lld (batch, seq, head) is nothing "
                        "TMA can load",
                        name, (long long)stride->batch, (long long)stride->row,
                        (long long)stride->head);
}

int ft_launch_map_tensors(struct ft_launch *launch, const struct ft_config *config,
                          const struct ft_driver *driver) {
  if (launch->family != FT_FAMILY_WGMMA) return FT_OK;
  struct ft_tiled_forward_params *const tiled = &launch->tiled;
  const struct ft_forward_params *const p = &tiled->rest;
  const int heads_kv = p->heads_q / p->group, key_rows = config->block_n / (1 + config->multicast);
  const int nq = p->nq >> p->pack_bits, heads_q = p->heads_q << p->pack_bits;
  const int packed = config->pack_gqa ? 1 << p->pack_bits : 0;
  const int d = launch->head_dim, dv = launch->head_dim_v;
  const struct extent q = {d, nq, heads_q, p->batch, config->block_m, packed};
  const struct extent k = {d, p->nk, heads_kv, p->batch, key_rows, 0};
  const struct extent v = {dv, p->nk, heads_kv, p->batch, key_rows, 0};
  const struct extent o = {dv, nq, heads_q, p->batch, WARPGROUP_ROWS, packed};
  FT_TRY(encode(&tiled->q, "q", p->q, &p->q_stride, &q, launch->dtype, driver));
  FT_TRY(encode(&tiled->k, "k", p->k, &p->k_stride, &k, launch->dtype, driver));
  FT_TRY(encode(&tiled->v, "v", p->v, &p->v_stride, &v, launch->dtype, driver));
  return encode(&tiled->o, "o", p->o, &p->o_stride, &o, launch->dtype, driver);
}
