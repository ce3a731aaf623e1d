/* params.h: the one argument of an emitted forward kernel, as the device sees it.
 * in -> out: plan + fatune_arguments -> one of these structs, passed by value to the kernel: of the
 * mma family ft_forward_params, of wgmma ft_tiled_forward_params.
 * The same structs stand in templates/parts/params.cu.in and tiled_params.cu.in (grep "ORDER
 * PARAMS"); both sides assert their sizes. Strides are in elements. */
#ifndef RUNTIME_PARAMS_H
#define RUNTIME_PARAMS_H

#include <stdint.h>

struct ft_stride {
  int64_t batch, row, head;
};

/* ORDER PARAMS: the kept column blocks of one row block. */
struct ft_mask_list {
  int32_t row_block;
  int32_t count;
  int64_t start; /* of the list in mask_blocks */
};

/* ORDER PARAMS */
struct ft_forward_params {
  uint64_t q, k, v; /* device addresses, 16-byte aligned */
  uint64_t o;
  uint64_t lse; /* float [batch, heads_q, nq], or 0 */
  struct ft_stride q_stride, k_stride, v_stride, o_stride;
  uint64_t seed, offset; /* of the dropout mask, used where the pointers below are 0 */
  uint64_t seed_address, offset_address; /* device addresses of uint64_t, or 0 */
  uint64_t mask_lists;      /* struct ft_mask_list, one for each row block, the longest first */
  uint64_t mask_blocks;     /* int32_t: kept column blocks, ascending within a list */
  int64_t mask_batch_lists; /* lists from one batch to the next; 0: broadcast */
  int64_t mask_head_lists;  /* lists from one query head to the next; 0: broadcast */
  int32_t nq, nk;
  int32_t heads_q;
  int32_t group; /* query heads per kv head */
  int32_t batch;
  int32_t q_tiles;       /* ceil(nq / block_m) */
  int32_t section_heads; /* (batch, query head) pairs whose tiles run together, longest first */
  int32_t causal_shift;  /* key j is visible to query i when j <= i + causal_shift */
  float scale;           /* softmax scale, > 0 */
  float scale_log2;      /* scale * log2(e) */
  uint32_t dropout_threshold; /* of 2^14: an element is dropped when its 14 bits are below */
  float dropout_rescale;      /* 1 / (1 - threshold / 2^14); 0 when everything is dropped */
};

_Static_assert(sizeof(struct ft_forward_params) == 248, "the device side counts on 248 bytes");

/* CUtensorMap: how TMA finds its way in a tensor. */
struct ft_tensor_map {
  _Alignas(64) uint64_t opaque[16];
};

/* ORDER PARAMS */
struct ft_tiled_forward_params {
  struct ft_tensor_map q, k, v, o; /* boxes of block_m, block_n, block_n and 64 rows */
  struct ft_forward_params rest;
};

_Static_assert(sizeof(struct ft_tiled_forward_params) == 768,
               "the device side counts on 768 bytes");

#endif
