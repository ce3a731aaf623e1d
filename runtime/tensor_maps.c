/* tensor_maps.c: the tensors of a run as TMA wants them described.
 * in -> out: struct ft_launch, prepared -> its four tensor maps: dimensions (column, row, head,
 * batch), boxes of 64 columns, rows of 128 bytes swizzled, zeros beyond the tensor.
 * Numbers are CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion of the CUDA driver
 * API. */
#include "generator/status.h"
#include "runtime/session.h"

enum { DIMENSIONS = 4, BOX_COLUMNS = 64, WARPGROUP_ROWS = 64 };
enum { TYPE_FLOAT16 = 6, TYPE_BFLOAT16 = 9, SWIZZLE_128B = 3, PROMOTE_TO_128B = 2 };

struct extent {
  int columns, rows, heads, batch, box_rows;
};

/* A dimension of one element has any stride, and TMA wants none that is 0 there. */
static uint64_t stride_bytes(int64_t elements, int extent, uint64_t otherwise) {
  return extent == 1 ? otherwise : (uint64_t)elements * 2;
}

static int encode(struct ft_tensor_map *map, const char *name, uint64_t address,
                  const struct ft_stride *stride, const struct extent *extent, enum ft_dtype dtype,
                  const struct ft_driver *driver) {
  const uint64_t row_bytes = (uint64_t)extent->columns * 2;
  const uint64_t extents[DIMENSIONS] = {(uint64_t)extent->columns, (uint64_t)extent->rows,
                                        (uint64_t)extent->heads, (uint64_t)extent->batch};
  const uint64_t strides[DIMENSIONS - 1] = {stride_bytes(stride->row, extent->rows, row_bytes),
                                            stride_bytes(stride->head, extent->heads, row_bytes),
                                            stride_bytes(stride->batch, extent->batch, row_bytes)};
  const unsigned box[DIMENSIONS] = {BOX_COLUMNS, (unsigned)extent->box_rows, 1, 1};
  const unsigned steps[DIMENSIONS] = {1, 1, 1, 1};
  const cu_result result =
      driver->tensor_map_encode(map->opaque, dtype == FT_BF16 ? TYPE_BFLOAT16 : TYPE_FLOAT16,
                                DIMENSIONS, (void *)(uintptr_t)address, extents, strides, box,
                                steps, 0, SWIZZLE_128B, PROMOTE_TO_128B, 0);
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
  const struct extent q = {launch->head_dim, p->nq, p->heads_q, p->batch, config->block_m};
  const struct extent k = {launch->head_dim, p->nk, heads_kv, p->batch, key_rows};
  const struct extent v = {launch->head_dim_v, p->nk, heads_kv, p->batch, key_rows};
  const struct extent o = {launch->head_dim_v, p->nq, p->heads_q, p->batch, WARPGROUP_ROWS};
  FT_TRY(encode(&tiled->q, "q", p->q, &p->q_stride, &q, launch->dtype, driver));
  FT_TRY(encode(&tiled->k, "k", p->k, &p->k_stride, &k, launch->dtype, driver));
  FT_TRY(encode(&tiled->v, "v", p->v, &p->v_stride, &v, launch->dtype, driver));
  return encode(&tiled->o, "o", p->o, &p->o_stride, &o, launch->dtype, driver);
}
