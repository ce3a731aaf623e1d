/* params.h: the one argument of an emitted kernel, as the device sees it.
 * in -> out: plan + fatune_arguments -> one of these structs, passed by value to the kernel: of the
 * mma family ft_forward_params, of wgmma ft_tiled_forward_params, backward ft_backward_params.
 * The same structs stand in templates/parts/params.cu.in, tiled_params.cu.in and
 * backward_params.cu.in (grep "ORDER PARAMS"); both sides assert their sizes. Strides are in
 * elements. */
#ifndef RUNTIME_PARAMS_H
#define RUNTIME_PARAMS_H

#include <stdint.h>

struct ft_stride {
  int64_t batch, row, head;
};

/* ORDER PARAMS: the kept column blocks of one row block; backward has lists of row blocks, too, one
 * for each column block. */
struct ft_mask_list {
  int32_t row_block; /* whose list it is; in the transposed lists a column block */
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
  int32_t q_tiles;            /* ceil(nq / block_m) */
  int32_t l2_section_heads;   /* batch_heads whose K and V stay in L2 together */
  int32_t remainder_heads;    /* balanced: the last batch_heads, whose work tiles even shares out */
  int32_t causal_shift;       /* key j is visible to query i when j <= i + causal_shift */
  float scale;                /* softmax scale, > 0 */
  float scale_log2;           /* scale * log2(e) */
  uint32_t dropout_threshold; /* of 2^14: an element is dropped when its 14 bits are below */
  float dropout_rescale;      /* 1 / (1 - threshold / 2^14); 0 when everything is dropped */
  int32_t pack_bits;          /* pack_gqa: 2^pack_bits query heads are one of nq 2^pack_bits rows, a
                                 query's beside each other. nq, heads_q, group count these */
};

_Static_assert(sizeof(struct ft_forward_params) == 256, "the device side counts on 256 bytes");

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

/* ORDER PARAMS: for all kernels of a backward plan. */
struct ft_backward_params {
  uint64_t q, k, v, o, dout, dq, dk, dv; /* device addresses, 16-byte aligned */
  uint64_t lse;                          /* float [batch, heads_q, nq] */
  uint64_t dlse;                         /* likewise, or 0 */

  /* Workspace, 16-byte aligned; padded to whole tiles of queries. */
  uint64_t dq_sum; /* float [batch, heads_q, q_tiles, dq_sums, block_m * d_pad]; 0 with dq_mode=2 */
  uint64_t row_stats; /* float [batch, heads_q, q_tiles, 2, block_m] */
  uint64_t counters;  /* int32_t [batch, heads_q, q_tiles, dq_sums, warps] with dq_mode=1, else 0 */

  struct ft_stride q_stride, k_stride, v_stride, o_stride;
  struct ft_stride dout_stride, dq_stride, dk_stride, dv_stride;
  uint64_t seed, offset; /* of the dropout mask, used where the pointers below are 0 */
  uint64_t seed_address, offset_address;
  uint64_t mask_lists;  /* struct ft_mask_list, list c is that of column block c */
  uint64_t mask_blocks; /* int32_t: kept row blocks, ascending within a list */
  int64_t mask_batch_lists, mask_head_lists; /* strides of mask_lists; 0: broadcast */
  uint64_t row_lists, row_blocks;            /* the forward's lists, for dq_mode=2; else 0 */
  int64_t row_batch_lists, row_head_lists;
  int32_t nq, nk;
  int32_t heads_q, heads_kv;
  int32_t group; /* query heads per kv head */
  int32_t batch;
  int32_t q_tiles;            /* of block_m queries; under a mask as many as fill its row blocks */
  int32_t k_tiles;            /* of block_n keys; under a mask as many as fill its column blocks */
  int32_t l2_section_heads;   /* (batch, kv head)s whose key tiles run together */
  int32_t causal_shift;       /* key j is visible to query i when j <= i + causal_shift */
  float scale;                /* softmax scale, > 0 */
  float scale_log2;           /* scale * log2(e) */
  uint32_t dropout_threshold; /* of 2^14 */
  float dropout_rescale;
};

_Static_assert(sizeof(struct ft_backward_params) == 448, "the device side counts on 448 bytes");

#endif
