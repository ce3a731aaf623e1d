/* backward_bugs.h: the configs, requests and template files that planted bugs of the backward name.
 */
#ifndef TESTS_BACKWARD_BUGS_H
#define TESTS_BACKWARD_BUGS_H

#define MMA                                                                                        \
  "mma_backward block_m=64 block_n=128 warps=8 stages=2 column_warps=1 query_parts=1 "             \
  "kv_in_regs=1 deferred_dq=0 ctas_per_sm=1 "
#define ATOMIC  MMA "dq_mode=0"
#define ORDERED MMA "dq_mode=1"
#define HOPPER  "wgmma_backward block_m=64 block_n=128 q_stages=2 do_stages=2 ds_stages=2 pacing=1"
#define HOPPER_BESIDE                                                                              \
  "wgmma_backward block_m=64 block_n=128 q_stages=3 do_stages=3 ds_stages=2 loads_beside_dq=1 "    \
  "early_scores=1"
#define DIVIDED HOPPER " part_steps=1"
#define MASKED  "backward bf16 d64 nq500 nk250 hq4 hkv2 mask=128x128@0.7"
#define ROLES                                                                                      \
  "wgmma_backward_roles block_m=64 block_n=128 q_stages=2 do_stages=2 ds_stages=1 dq_stages=2"
#define WIDE "backward bf16 d136 nq200 nk250 hq2"

#define PREPARE       "parts/backward_prepare.cu.in"
#define KEY_TILE      "parts/key_tile.cu.in"
#define TICKETS       "parts/dq_tickets.cu.in"
#define ADDS          "parts/dq_adds.cu.in"
#define ADDERS        "parts/backward_adders.cu.in"
#define SUMS          "parts/dq_sums.cu.in"
#define CONSUMER      "parts/backward_consumer.cu.in"
#define CONSUMER_WALK "parts/backward_consumer_walk.cu.in"
#define ROLES_MAIN    "wgmma_backward_roles.cu.in"
#define VALUES        "parts/roles_values.cu.in"
#define KEYS          "parts/roles_keys.cu.in"
#define QUERIES       "parts/roles_queries.cu.in"
#define ENDING        "parts/epilogue_backward.cu.in"

#endif
