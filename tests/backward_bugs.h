/* backward_bugs.h: a suite of bugs planted into copies of the backward's templates, each caught.
 * in -> out: edits of templates -> tests: the fault of a run, with the kernel it was in, or a wrong
 * result with the gradients that are wrong. Requests run through without an edit. */
#ifndef TESTS_BACKWARD_BUGS_H
#define TESTS_BACKWARD_BUGS_H

#include <check.h>
#include <stddef.h>

/* The configs, requests and template files that bugs name. */
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

struct backward_bug {
  const char *name, *request, *config; /* NULL: what most have */
  const char *file, *piece, *other;    /* in this file the one becomes the other */
  const char *words[3];                /* of the fault, or of the explanation */
  const char *score;                   /* a built-in one, or NULL */
  int gradients;                       /* of what it captures: ft_request.score_gradients */
};

/* Of a suite: bugs by which a run has a fault that names their words; bugs by which its gradients
 * are wrong, with their words in the explanation; runs without an edit, which are right. */
struct backward_bugs {
  const struct backward_bug *faults, *wrong_results, *absent;
  size_t fault_count, wrong_count, absent_count;
};

/* use: calls backward_bugs_use with the same bugs. It runs before each test: suites share these. */
Suite *backward_bugs_suite(const char *name, const struct backward_bugs *bugs, void (*use)(void));
void backward_bugs_use(const struct backward_bugs *bugs);

#endif
