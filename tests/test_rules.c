/* test_rules.c: every legality rule rejects what it is for, and is named.
 * in -> out: generator/rules.h -> Check suite. */
#include <check.h>
#include <string.h>

#include "tests/generator_cases.h"
#include "tests/suites.h"

/* Legal but for the one rule. */
static const struct {
  const char *rule; /* "" when the config is legal */
  const char *request, *gpu, *config;
} cases[] = {
#define CONFIG(m, n, w, s, q, o, c)                                                                \
  "mma_forward block_m=" #m " block_n=" #n " warps=" #w " stages=" #s " q_in_regs=" #q             \
  " overlap_qk=" #o " ctas_per_sm=" #c
#define FEW CONFIG(16, 64, 4, 2, 0, 0, 1) " key_warps=4"
    {"", "fp16 d128 nq4096", "h200", CONFIG(128, 64, 4, 2, 0, 0, 2)},
    {"", "fp16 d64 nq4096", "t4", CONFIG(128, 64, 4, 1, 0, 0, 1)},
    {"", "d64 nq4096 mask=48x48", "a100", CONFIG(48, 48, 1, 2, 0, 0, 1)},
    {"", "d64 nq20", "a100", CONFIG(16, 64, 1, 2, 0, 0, 1)},
    {"knob-range", "d128 nq4096", "h200", CONFIG(0, 64, 4, 2, 0, 0, 2)},
    {"knob-range", "d128 nq4096", "h200", CONFIG(128, 64, 0, 2, 0, 0, 2)},
    {"knob-range", "d128 nq4096", "h200", CONFIG(2000000000, 64, 4, 2, 0, 0, 2)},
    {"knob-range", "d128 nq4096", "h200", CONFIG(128, 64, 4, 2, 2, 0, 2)},
    {"knob-range", "d128 nq4096", "h200", CONFIG(128, 64, 4, 2, 0, 3, 2)},
    {"knob-range", "d128 nq4096", "h200", CONFIG(128, 64, 4, 2, 0, 0, 0)},
    {"warp-rows", "d64 nq4096", "h200", CONFIG(128, 64, 1, 2, 0, 0, 1)},
    {"warp-rows", "d64 nq4096", "h200", CONFIG(96, 64, 4, 2, 0, 0, 1)},
    {"warp-rows", "d64 nq4096", "h200", CONFIG(128, 64, 5, 2, 0, 0, 1)},
    {"block-n", "d64 nq4096", "h200", CONFIG(128, 40, 4, 2, 0, 0, 1)},
    {"no-cp-async", "fp16 d64 nq4096", "t4", CONFIG(64, 32, 4, 2, 0, 0, 1)},
    {"overlap", "d64 nq4096", "h200", CONFIG(64, 32, 4, 1, 0, 1, 1)},
    {"draw-early", "d64 nq4096", "h200", CONFIG(128, 64, 4, 2, 0, 0, 1) " draw_early=1"},
    {"draw-early", "d64 nq4096 dropout", "h200", CONFIG(64, 32, 4, 2, 0, 1, 1) " draw_early=1"},
    {"", "d64 nq4096 dropout", "h200", CONFIG(64, 32, 4, 2, 0, 0, 1) " draw_early=1"},
    {"knob-range", "d64 nq4096", "h200", CONFIG(128, 64, 4, 2, 0, 0, 1) " draw_early=2"},
    {"mask-rows", "d64 nq4096 mask=64x64", "h200", CONFIG(128, 64, 4, 2, 0, 0, 1)},
    {"mask-cols", "d64 nq4096 mask=128x32", "h200", CONFIG(128, 64, 4, 2, 0, 0, 1)},
    {"thread-limit", "d64 nq4096", "h200", CONFIG(512, 32, 32, 1, 0, 0, 3)},
    {"smem-limit", "fp16 d128 nq4096", "t4", CONFIG(128, 96, 4, 1, 0, 0, 1)},
    {"smem-occupancy", "d128 nq4096", "h200", CONFIG(128, 64, 4, 3, 0, 0, 2)},
    {"register-limit", "d64 nq4096", "l4", CONFIG(128, 64, 4, 2, 1, 1, 1)},
    {"short-tile", "d64 nq4096", "h200", CONFIG(32, 32, 2, 2, 0, 0, 2)},
    {"short-tile", "d64 nq4096 mask=64x64", "h200", CONFIG(32, 32, 2, 2, 0, 0, 2)},
    {"long-tile", "d64 nq40", "h200", CONFIG(128, 64, 4, 2, 0, 0, 1)},
    {"enough-tiles", "d64 hq67 nq512", "h200", CONFIG(128, 64, 4, 2, 0, 0, 1) " split_keys=1"},
    {"", "d64 hq67 b9 nq1 nk8192 pages=16", "h200", FEW " split_keys=1"},
    {"shared-steps", "d64 hq9 b9 nq1 nk65536 pages=16", "h200", FEW},
    {"idle-quarters", "d64 nq4096", "h200", CONFIG(64, 32, 2, 2, 0, 0, 1)},
    {"ragged", "d64 nq4096 ragged", "h200", CONFIG(128, 64, 4, 2, 0, 0, 1) " split_keys=1"},
    {"", "d64 hq8 hkv2 nq4", "a100", FEW " pack_gqa=1"},
    {"key-warps", "d64 nq4", "a100", CONFIG(32, 64, 4, 2, 0, 0, 1) " key_warps=2"},
    {"key-warps", "d64 nq4", "a100", CONFIG(16, 32, 4, 2, 0, 0, 1) " key_warps=4"},
    {"key-warps", "d64 nq4", "a100", CONFIG(16, 64, 4, 2, 0, 1, 1) " key_warps=4"},
    {"key-warps", "d64 nq4", "a100", CONFIG(16, 64, 4, 1, 0, 0, 1) " key_warps=4"},
    {"pack-gqa", "d64 hq8 hkv2 nq4", "a100", CONFIG(16, 64, 1, 2, 0, 0, 1) " pack_gqa=1"},
    {"pack-gqa", "fp32 d64 hq8 hkv2 nq4", "a100", FEW " pack_gqa=1"},
    {"cluster-parts", "d64 nq4", "a100", FEW " split_keys=8"},
    {"cluster-parts", "d64 nq4", "h200", FEW " split_keys=3"},
    {"cluster-parts", "d64 nq4", "h200", CONFIG(16, 64, 1, 2, 0, 0, 1) " split_keys=8"},
    {"packed-group", "d64 hq6 hkv2 nq5", "a100", FEW " pack_gqa=1"},
    {"shared-rows", "d64 nq33", "a100", FEW},
    {"", "e4m3 d64 nq4096", "l4", CONFIG(128, 64, 4, 2, 1, 0, 2)},
    {"", "e4m3 d128 nq4096", "h200", CONFIG(128, 32, 4, 2, 0, 0, 2)},
    {"", "e4m3 d128 nq4", "rtx5090", CONFIG(16, 128, 4, 2, 0, 0, 1) " key_warps=4"},
    {"whole-depths", "e4m3 d64 nq4096", "l4", CONFIG(128, 48, 4, 2, 0, 0, 2)},
    {"whole-depths", "e4m3 d64 nq4", "l4", FEW},
    {"", "e4m3 d128 nq4096 descales=64", "l4", CONFIG(128, 64, 4, 1, 0, 0, 1)},
    {"", "e4m3 d64 nq4 descales=64", "h200", CONFIG(16, 128, 4, 2, 0, 0, 1) " key_warps=4"},
    {"descale-blocks", "e4m3 d64 nq4096 descales=64", "l4", CONFIG(128, 128, 4, 1, 0, 0, 1)},
    {"descale-blocks", "e4m3 d64 nq4096 descales=128", "l4", CONFIG(128, 96, 4, 1, 0, 0, 1)},
    {"descale-blocks", "e4m3 d64 nq4096 descales=64", "l4", CONFIG(192, 32, 4, 2, 0, 0, 1)},
    {"two-level", "d64 nq4096", "l4", CONFIG(128, 64, 4, 2, 0, 0, 1) " two_level=1"},
    {"pack-gqa", "e4m3 d64 hq8 hkv2 nq4", "l4", FEW " pack_gqa=1"},
    {"flat-tile", "d64 nq4096", "h200", CONFIG(64, 144, 4, 1, 0, 0, 2)},
    {"thin-tile", "d64 nq4096", "h200", CONFIG(64, 16, 4, 2, 0, 0, 1)},
#undef CONFIG
#define CONFIG(m, n, s, q, o, a)                                                                   \
  "wgmma_forward block_m=" #m " block_n=" #n " stages=" #s " q_stages=" #q " overlap_tiles=" #o    \
  " pingpong=" #a " lazy_rescale=1"
    {"", "bf16 d128 nq4096", "h200", CONFIG(128, 128, 2, 2, 1, 0)},
    {"", "bf16 d64 nq4096", "h100", CONFIG(192, 128, 2, 2, 1, 0)},
    {"", "fp16 d256 nq4096", "h200", CONFIG(128, 80, 2, 1, 0, 1)},
    {"", "d40 dv16 nq40", "h200", CONFIG(64, 256, 2, 2, 1, 0)},
    {"", "d128 nq4096 mask=64x80", "h200", CONFIG(64, 80, 2, 1, 0, 0)},
    {"family", "d128 nq4096", "a100", CONFIG(128, 128, 2, 2, 1, 0)},
    {"family", "d128 nq4096", "b200", CONFIG(128, 128, 2, 2, 1, 0)},
    {"knob-range", "d128 nq4096", "h200", CONFIG(0, 128, 2, 2, 1, 0)},
    {"knob-range", "d128 nq4096", "h200", CONFIG(128, 2000000000, 2, 2, 1, 0)},
    {"knob-range", "d128 nq4096", "h200", CONFIG(128, 128, 2, 0, 0, 0)},
    {"knob-range", "d128 nq4096", "h200", CONFIG(128, 128, 2, 3, 0, 0)},
    {"knob-range", "d128 nq4096", "h200", CONFIG(128, 128, 2, 2, 2, 0)},
    {"warpgroup-rows", "d64 nq4096", "h200", CONFIG(32, 128, 2, 1, 0, 0)},
    {"warpgroup-rows", "d64 nq4096", "h200", CONFIG(96, 128, 2, 1, 0, 0)},
    {"warpgroup-rows", "d64 nq4096", "h200", CONFIG(320, 64, 2, 1, 0, 0)},
    {"block-n", "d64 nq4096", "h200", CONFIG(128, 72, 2, 1, 0, 0)},
    {"wgmma-n", "d64 nq4096", "h200", CONFIG(128, 272, 2, 1, 0, 0)},
    {"", "d16 nq4096", "h200", CONFIG(256, 128, 2, 1, 0, 0) " p_in_smem=1"},
    {"accumulators", "d16 nq4096", "h200", CONFIG(256, 144, 2, 1, 0, 0) " p_in_smem=1"},
    {"accumulators", "d16 dv200 nq4096", "h200", CONFIG(192, 32, 2, 1, 0, 0)},
    {"", "e4m3 d128 nq4096", "h200", CONFIG(128, 192, 2, 1, 0, 1) " direct_store=1"},
    {"e4m3-form", "e4m3 d128 nq4096", "h200", CONFIG(128, 128, 2, 1, 0, 1)},
    {"e4m3-form", "e4m3 d128 nq4096", "h200", CONFIG(128, 80, 2, 1, 0, 1) " direct_store=1"},
    {"v-by-columns", "d128 nq4096", "h200", CONFIG(128, 128, 2, 1, 0, 1) " v_by_columns=1"},
    {"e4m3-form", "e4m3 d16 nq9", "h100", CONFIG(64, 64, 2, 1, 0, 0) " direct_store=1 multicast=1"},
    {"e4m3-form", "e4m3 d128 nq4096", "h200",
     CONFIG(128, 128, 2, 1, 0, 1) " p_in_smem=1 direct_store=1"},
    {"e4m3-form", "e4m3 d128 hq8 hkv2 nq4096", "h200",
     CONFIG(128, 128, 2, 1, 0, 1) " direct_store=1 pack_gqa=1"},
    {"", "e4m3 d128 nq4096 descales=128", "h200", CONFIG(128, 128, 2, 1, 0, 1) " direct_store=1"},
    {"", "e4m3 d128 nq4096 descales=64", "h200", CONFIG(128, 192, 2, 1, 0, 1) " direct_store=1"},
    {"descale-blocks", "e4m3 d128 nq4096 descales=128", "h200",
     CONFIG(128, 192, 2, 1, 0, 1) " direct_store=1"},
    {"descale-blocks", "e4m3 d128 nq4096 descales=128", "h200",
     CONFIG(128, 96, 2, 1, 0, 1) " direct_store=1"},
    {"descale-blocks", "e4m3 d128 nq4096 score=366b727be7878 descales=64", "h200",
     CONFIG(128, 128, 2, 1, 0, 1) " direct_store=1"},
    {"wide-outputs", "o=fp32 d128 nq4096", "h200", CONFIG(128, 128, 2, 1, 0, 1)},
    {"", "bf16 d128 nq4096 score=18d408ab1c4fe", "h200",
     CONFIG(128, 128, 2, 2, 1, 1) " score_in_smem=1"},
    {"score-in-smem", "bf16 d128 nq4096 score=366b727be7878", "h200",
     CONFIG(128, 128, 2, 1, 0, 1) " score_in_smem=1"},
    {"score-in-smem", "bf16 d128 nq4096", "h200", CONFIG(128, 128, 2, 1, 0, 1) " score_in_smem=1"},
    {"smem-limit", "bf16 d128 nq4096 score=18d408ab1c4fe", "h200",
     CONFIG(192, 128, 2, 2, 0, 1) " score_in_smem=1"},
    {"", "bf16 d128 nq4096 score=366b727be7878", "h200",
     CONFIG(128, 128, 2, 2, 1, 1) " keys_in_product=1"},
    {"keys-in-product", "e4m3 d128 nq4096 score=366b727be7878", "h200",
     CONFIG(128, 128, 2, 1, 0, 1) " direct_store=1 keys_in_product=1"},
    {"keys-in-product", "bf16 d128 hq8 hkv2 nq4096 score=366b727be7878", "h200",
     CONFIG(128, 128, 2, 1, 0, 1) " pack_gqa=1 keys_in_product=1"},
    {"", "bf16 d128 nq4096 causal score=366b727be7878", "h200",
     CONFIG(128, 128, 2, 2, 1, 1) " skip_far=1"},
    {"skip-far", "bf16 d128 nq4096 window score=366b727be7878", "h200",
     CONFIG(128, 128, 2, 1, 0, 1) " skip_far=1"},
    {"skip-far", "bf16 d128 nq4096 score=18d408ab1c4fe", "h200",
     CONFIG(128, 128, 2, 1, 0, 1) " skip_far=1"},
    {"skip-far", "bf16 d128 nq4096 score=366b727be7878", "h200",
     CONFIG(128, 128, 2, 1, 0, 1) " multicast=1 skip_far=1"},
    {"skip-far", "bf16 d128 nq4096 score=366b727be7878", "h200",
     CONFIG(128, 128, 2, 1, 0, 1) " ascending_keys=1 skip_far=1"},
    {"e4m3-form", "e4m3 d128 nq4096 score=18d408ab1c4fe", "h200",
     CONFIG(128, 128, 2, 1, 0, 1) " direct_store=1 score_in_smem=1"},
    {"two-level", "d128 nq4096", "h200", CONFIG(128, 128, 2, 1, 0, 1) " two_level=1"},
    {"", "e4m3 d64 nq4096", "h200", CONFIG(128, 128, 2, 1, 0, 1) " direct_store=1 two_level=4"},
    {"family", "e4m3 d128 nq4096", "a100",
     "mma_forward block_m=128 block_n=64 warps=4 stages=2 ctas_per_sm=2"},
    {"one-stage", "d64 nq4096", "h200", CONFIG(128, 128, 1, 1, 0, 0)},
    {"overlap-tiles", "d64 nq4096", "h200", CONFIG(128, 128, 2, 1, 1, 0)},
    {"", "d64 nq4096", "h200", CONFIG(128, 128, 2, 2, 0, 0)},
    {"needless-q", "d64 nq4096", "h200", CONFIG(128, 128, 2, 2, 0, 0) " direct_store=1"},
    {"deep-pipeline", "d64 nq4096", "h200", CONFIG(128, 144, 3, 2, 1, 0)},
    {"deep-pipeline", "d64 nq4096", "h200", CONFIG(128, 112, 4, 2, 1, 0)},
    {"", "d64 nq4096 causal", "h200", CONFIG(256, 64, 4, 2, 1, 1)},
    {"skipped-stages", "d64 nq4096 causal", "h200", CONFIG(256, 64, 3, 2, 1, 1)},
    {"skipped-stages", "d64 nq4096 causal=top-left", "h200", CONFIG(192, 64, 2, 2, 1, 1)},
    {"", "d64 nq4096 causal mask=256x128", "h200", CONFIG(256, 64, 2, 2, 1, 1)},
    {"pingpong", "d64 nq4096", "h200", CONFIG(64, 64, 2, 2, 1, 1)},
    {"pingpong", "d64 nq4096", "h200", CONFIG(64, 64, 2, 2, 1, 2)},
    {"", "d64 nq4096", "h200", CONFIG(128, 64, 2, 2, 1, 2)},
    {"knob-range", "d64 nq4096", "h200", CONFIG(128, 64, 2, 2, 1, 3)},
    {"mask-rows", "d128 nq4096 mask=64x128", "h200", CONFIG(128, 128, 2, 2, 1, 0)},
    {"mask-cols", "d128 nq4096 mask=128x48", "h200", CONFIG(128, 64, 2, 2, 1, 0)},
    {"smem-limit", "d128 nq4096", "h200", CONFIG(128, 176, 2, 2, 1, 0)},
    {"smem-limit", "d256 nq4096", "h200", CONFIG(128, 96, 2, 1, 0, 0)},
    {"smem-limit", "d64 dv256 nq4096", "h200", CONFIG(128, 96, 2, 2, 1, 0)},
    {"consumer-registers", "d128 nq4096", "h200", CONFIG(192, 112, 2, 1, 0, 0)},
    {"consumer-registers", "d16 dv192 nq4096", "h200", CONFIG(64, 176, 2, 1, 0, 0)},
    {"consumer-registers", "d64 nq4096", "h200", CONFIG(192, 160, 2, 1, 0, 0)},
    {"", "d64 nq4096", "h200", CONFIG(192, 160, 2, 1, 0, 0) " p_in_smem=1"},
    {"consumer-registers", "d64 nq4096", "h200", CONFIG(256, 112, 2, 1, 0, 0) " p_in_smem=1"},
    {"smem-limit", "d128 nq4096", "h200", CONFIG(192, 128, 2, 2, 1, 0) " p_in_smem=1"},
    {"long-tile", "d128 nq64", "h200", CONFIG(128, 128, 2, 2, 1, 0)},
    {"long-tile", "d64 nq96", "h200", CONFIG(192, 128, 2, 2, 1, 0)},
#undef CONFIG
#define CONFIG(m, n, w, s, c, p, r, l, q)                                                          \
  "mma_backward block_m=" #m " block_n=" #n " warps=" #w " stages=" #s " column_warps=" #c         \
  " query_parts=" #p " kv_in_regs=" #r " deferred_dq=" #l " dq_mode=" #q " ctas_per_sm=1"
    {"", "backward bf16 d128 nq4096", "h200", CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 0)},
    {"", "backward bf16 d64 nq4096", "h200", CONFIG(128, 128, 8, 2, 1, 2, 1, 1, 0)},
    {"", "backward d256 nq4096 deterministic", "h200", CONFIG(64, 64, 8, 2, 2, 1, 0, 1, 1)},
    {"", "backward d64 nq4096 mask=16x48", "h200", CONFIG(16, 16, 2, 2, 1, 1, 0, 1, 0)},
    {"", "backward d64 nq32", "h200", CONFIG(32, 128, 8, 2, 1, 1, 0, 1, 0)},
    {"family", "d128 nq4096", "h200", CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 0)},
    {"family", "backward d128 nq4096", "h200",
     "mma_forward block_m=128 block_n=64 warps=4 stages=2 ctas_per_sm=2"},
    {"family", "backward d128 nq4096", "h200",
     "wgmma_forward block_m=128 block_n=128 stages=2 q_stages=2"},
    {"knob-range", "backward d64 nq4096", "h200", CONFIG(64, 128, 8, 3, 1, 1, 0, 1, 0)},
    {"knob-range", "backward d64 nq4096", "h200", CONFIG(64, 128, 8, 2, 0, 1, 0, 1, 0)},
    {"knob-range", "backward d64 nq4096", "h200", CONFIG(64, 128, 8, 2, 1, 0, 0, 1, 0)},
    {"knob-range", "backward d64 nq4096", "h200", CONFIG(64, 128, 8, 2, 1, 1, 2, 1, 0)},
    {"knob-range", "backward d64 nq4096", "h200", CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 3)},
    {"warp-keys", "backward d64 nq4096", "h200", CONFIG(64, 192, 8, 2, 1, 1, 0, 1, 0)},
    {"warp-keys", "backward d64 nq4096", "h200", CONFIG(64, 128, 12, 2, 1, 1, 0, 1, 0)},
    {"warp-keys", "backward d64 nq4096", "h200", CONFIG(64, 64, 2, 2, 2, 1, 0, 1, 0)},
    {"warp-keys", "backward d64 nq4096", "h200", CONFIG(64, 256, 2, 2, 1, 1, 0, 1, 0)},
    {"part-queries", "backward d64 nq4096", "h200", CONFIG(64, 64, 4, 2, 1, 3, 0, 1, 0)},
    {"part-queries", "backward d64 nq4096", "h200", CONFIG(96, 64, 4, 2, 1, 1, 0, 1, 0)},
    {"named-barriers", "backward d64 nq4096", "h200", CONFIG(128, 256, 16, 2, 1, 2, 0, 1, 0)},
    {"deterministic", "backward d64 nq4096 deterministic", "h200",
     CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 0)},
    {"ordered-dq", "backward d64 nq4096", "h200", CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 1)},
    {"ordered-mask", "backward d64 nq4096 deterministic mask=128x128", "h200",
     CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 1)},
    {"second-pass", "backward d64 nq4096", "h200", CONFIG(64, 128, 8, 2, 1, 1, 0, 0, 2)},
    {"deferred-dq", "backward d64 nq4096 deterministic", "h200",
     CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 2)},
    {"no-cp-async", "backward fp16 d64 nq4096", "t4", CONFIG(64, 64, 8, 2, 1, 1, 0, 0, 0)},
    {"mask-rows", "backward d64 nq4096 mask=64x128", "h200", CONFIG(128, 128, 8, 2, 1, 2, 0, 1, 0)},
    {"mask-cols", "backward d64 nq4096 mask=128x64", "h200", CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 0)},
    {"smem-limit", "backward d128 nq4096", "l4", CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 0)},
    {"long-tile", "backward d64 nq40", "h200", CONFIG(128, 128, 8, 2, 1, 2, 1, 1, 0)},
    {"sum-registers", "backward d128 nq4096", "h200", CONFIG(64, 256, 8, 1, 1, 1, 0, 0, 0)},
    {"short-step", "backward d64 nq4096", "h200", CONFIG(32, 128, 8, 2, 1, 1, 0, 1, 0)},
    {"few-keys", "backward d64 nq4096", "h200", CONFIG(64, 32, 4, 2, 1, 1, 0, 1, 0)},
    {"thin-parts", "backward d64 nq4096", "h200", CONFIG(64, 128, 8, 2, 2, 2, 0, 1, 0)},
    {"shared-keys", "backward d64 nq4096", "h200", CONFIG(64, 64, 16, 2, 2, 1, 0, 1, 0)},
    {"few-warps", "backward d64 nq4096", "h200", CONFIG(64, 64, 4, 2, 1, 1, 0, 1, 0)},
#undef CONFIG
#define CONFIG(m, n, q, o, s)                                                                      \
  "wgmma_backward block_m=" #m " block_n=" #n " q_stages=" #q " do_stages=" #o " ds_stages=" #s
    {"", "backward bf16 d128 nq4096", "h200", CONFIG(64, 128, 2, 2, 2)},
    {"", "backward d64 nq4096", "h200",
     CONFIG(64, 192, 3, 3, 2) " loads_beside_dq=1 early_scores=1 pacing=2"},
    {"", "backward d64 nq4096 mask=64x64", "h200", CONFIG(64, 64, 2, 2, 2)},
    {"", "backward d64 nq4096 score=366b727be7878", "h200", CONFIG(64, 128, 2, 2, 2)},
    {"family", "backward d64 nq4096", "a100", CONFIG(64, 128, 2, 2, 2)},
    {"family", "backward d136 nq4096", "h200", CONFIG(64, 64, 2, 2, 2)},
    {"knob-range", "backward d64 nq4096", "h200", CONFIG(64, 128, 2, 2, 2) " pacing=3"},
    {"warpgroup-keys", "backward d64 nq4096", "h200", CONFIG(64, 96, 2, 2, 2)},
    {"warpgroup-keys", "backward d64 nq4096", "h200", CONFIG(64, 320, 2, 2, 2)},
    {"step-queries", "backward d64 nq4096", "h200", CONFIG(96, 128, 2, 2, 2)},
    {"step-queries", "backward d64 nq4096", "h200", CONFIG(320, 64, 2, 2, 2)},
    {"accumulators", "backward d64 nq4096", "h200", CONFIG(256, 128, 2, 2, 2)},
    {"one-stage", "backward d64 nq4096", "h200", CONFIG(64, 128, 1, 1, 2)},
    {"stages-beside-dq", "backward d64 nq4096", "h200",
     CONFIG(64, 128, 2, 3, 2) " loads_beside_dq=1"},
    {"stages-beside-dq", "backward d64 nq4096", "h200",
     CONFIG(64, 128, 2, 2, 2) " loads_beside_dq=1 early_scores=1"},
    {"", "backward d64 nq4096", "h200", CONFIG(64, 128, 2, 2, 2) " loads_beside_dq=1"},
    {"adders", "backward d64 nq4096 deterministic", "h200",
     CONFIG(64, 128, 2, 2, 2) " loads_beside_dq=1"},
    {"takes-tiles", "backward d64 nq4096", "h200", CONFIG(64, 128, 2, 2, 2) " persistent=1"},
    {"", "backward d64 nq4096", "h200", CONFIG(64, 128, 2, 2, 2) " persistent=2"},
    {"streamed", "backward d64 dv128 nq4096", "h200", CONFIG(64, 128, 2, 2, 2) " persistent=2"},
    {"streamed", "backward d64 nq4096 dropout", "h200",
     CONFIG(64, 128, 2, 2, 2) " direct_store=1 persistent=2"},
    {"streamed", "backward d64 nq4096", "h200",
     CONFIG(64, 128, 2, 2, 2) " early_scores=1 direct_store=1 persistent=2"},
    {"streamed", "backward d64 nq4096", "h200",
     CONFIG(64, 128, 5, 5, 3) " direct_store=1 persistent=2"},
    {"", "backward d64 nq4096 mask=128x128", "h200",
     CONFIG(64, 128, 2, 2, 2) " direct_store=1 persistent=2 early_dq=1 part_steps=32"},
    {"streamed-walks", "backward d128 hq16 nq4096", "h200",
     CONFIG(64, 128, 2, 2, 2) " direct_store=1 persistent=2"},
    {"", "backward d128 hq16 nq1024", "h200",
     CONFIG(64, 128, 2, 2, 2) " direct_store=1 persistent=2"},
    {"wide-outputs", "backward o=fp32 d64 nq4096", "h200", CONFIG(64, 128, 2, 2, 2)},
    {"early-dq", "backward d64 nq4096 ragged", "h200", CONFIG(64, 128, 2, 2, 2) " early_dq=1"},
    {"early-dq", "backward d64 nq4096 sinks", "h200", CONFIG(64, 128, 2, 2, 2) " early_dq=1"},
    {"early-dq", "backward d64 nq4096", "h200",
     CONFIG(64, 128, 2, 2, 2) " direct_store=1 persistent=1 early_dq=1"},
    {"", "backward d64 nq4096 deterministic", "h200", CONFIG(64, 128, 2, 2, 2) " early_dq=1"},
    {"", "backward d64 nq4096", "h200", CONFIG(128, 128, 2, 2, 2) " dq_adds=1"},
    {"", "backward d64 nq4096 dropout", "h200", CONFIG(128, 128, 2, 2, 2) " dq_adds=1"},
    {"red-steps", "backward d64 nq4096", "h200", CONFIG(64, 128, 2, 2, 2) " dq_adds=1"},
    {"adds", "backward d64 nq4096 deterministic", "h200", CONFIG(64, 128, 2, 2, 2) " dq_adds=1"},
    {"", "backward d64 nq4096 ragged", "h200", CONFIG(64, 128, 2, 2, 2) " dq_adds=2"},
    {"adds", "backward d64 nq4096 dropout", "h200", CONFIG(64, 128, 2, 2, 2) " dq_adds=2"},
    {"adds", "backward d64 nq4096", "h200",
     CONFIG(64, 128, 2, 2, 2) " loads_beside_dq=1 dq_adds=2"},
    {"adds", "backward d64 nq4096", "h200", CONFIG(64, 128, 2, 2, 2) " persistent=2 dq_adds=2"},
    {"", "backward d64 dv96 nq4096 deterministic", "h200", CONFIG(64, 128, 2, 2, 2) " dq_turned=1"},
    {"turned", "backward d72 nq4096", "h200", CONFIG(64, 128, 2, 2, 2) " dq_turned=1"},
    {"turned", "backward o=fp32 d64 nq4096", "h200",
     CONFIG(64, 128, 2, 2, 2) " direct_store=1 dq_turned=1"},
    {"turned", "backward d64 nq4096", "h200",
     CONFIG(64, 128, 2, 2, 2) " direct_store=1 persistent=1 dq_turned=1"},
    {"parts", "backward d64 nq4096", "h200", CONFIG(64, 128, 2, 2, 2) " part_steps=32"},
    {"", "backward d64 nq4096 mask=128x128", "h200", CONFIG(64, 128, 2, 2, 2) " part_steps=32"},
    {"parts", "backward d64 nq4096 mask=128x128", "h200",
     CONFIG(64, 128, 2, 2, 2) " direct_store=1 persistent=1 part_steps=32"},
    {"pacing", "backward d64 nq4096", "h200", CONFIG(64, 64, 2, 2, 2) " pacing=1"},
    {"", "backward d64 hq4 hkv2 nq4096 causal", "h200", CONFIG(64, 128, 2, 2, 2) " heads_inner=1"},
    {"heads-inner", "backward d64 hq4 hkv2 nq4096 causal mask=128x128", "h200",
     CONFIG(64, 128, 2, 2, 2) " heads_inner=1"},
    {"heads-inner", "backward d64 hq4 hkv2 nq4096 causal ragged", "h200",
     CONFIG(64, 128, 2, 2, 2) " heads_inner=1"},
    {"heads-inner", "backward d64 hq4 hkv2 nq4096 causal deterministic", "h200",
     CONFIG(64, 128, 2, 2, 2) " heads_inner=1"},
    {"lone-heads", "backward d64 hq4 nq4096 causal", "h200",
     CONFIG(64, 128, 2, 2, 2) " heads_inner=1"},
    {"lone-heads", "backward d64 hq4 hkv2 nq4096", "h200",
     CONFIG(64, 128, 2, 2, 2) " heads_inner=1"},
    {"lone-heads", "backward d64 hq4 hkv2 nq4096 causal dropout", "h200",
     CONFIG(64, 128, 2, 2, 2) " heads_inner=1"},
    {"lone-heads", "backward d64 hq4 hkv2 nq4096 window", "h200",
     CONFIG(64, 128, 2, 2, 2) " heads_inner=1"},
    {"uneven-stages", "backward d64 nq4096", "h200", CONFIG(64, 128, 3, 2, 2)},
    {"smem-limit", "backward d128 nq4096", "h200", CONFIG(64, 128, 4, 4, 2)},
    {"consumer-registers", "backward d128 nq4096", "h200",
     CONFIG(64, 128, 2, 2, 2) " kv_in_regs=1"},
    {"consumer-registers", "backward d64 nq4096", "h200", CONFIG(64, 192, 2, 2, 2) " kv_in_regs=1"},
    {"consumer-registers", "backward d64 nq4096", "h200",
     CONFIG(128, 128, 2, 2, 2) " loads_beside_dq=1 kv_in_regs=1"},
    {"long-tile", "backward d64 nq40", "h200", CONFIG(128, 64, 2, 2, 2)},
    {"long-tile", "backward d64 nq4096 nk64", "h200", CONFIG(64, 128, 2, 2, 2)},
    {"mask-cols", "backward d64 nq4096 mask=128x64", "h200", CONFIG(64, 128, 2, 2, 2)},
    {"mask-rows", "backward d64 nq4096 mask=32x64", "h200", CONFIG(64, 64, 2, 2, 2)},
#undef CONFIG
#define CONFIG(m, n, q, o, s)                                                                      \
  "wgmma_backward_roles block_m=" #m " block_n=" #n " q_stages=" #q " do_stages=" #o               \
  " ds_stages=" #s " dq_stages=2"
    {"", "backward bf16 d256 nq4096", "h200", CONFIG(64, 128, 2, 1, 1)},
    {"", "backward d160 dv72 nq4096 mask=64x128", "h200", CONFIG(64, 128, 2, 2, 2)},
    {"", "backward d256 nq4096 score=366b727be7878", "h200", CONFIG(64, 128, 2, 1, 1)},
    {"family", "backward d256 nq4096", "a100", CONFIG(64, 128, 2, 1, 1)},
    {"family", "backward d128 nq4096", "h200", CONFIG(64, 128, 2, 1, 1)},
    {"family", "backward d64 dv256 nq4096", "h200", CONFIG(64, 128, 2, 1, 1)},
    {"", "backward d256 nq4096 dropout", "h200", CONFIG(64, 128, 2, 1, 1)},
    {"family", "backward d256 nq4096 deterministic mask=64x128", "h200", CONFIG(64, 128, 2, 1, 1)},
    {"cluster-keys", "backward d256 nq4096", "h200", CONFIG(64, 64, 2, 1, 1)},
    {"role-queries", "backward d160 nq4096", "h200", CONFIG(128, 128, 1, 1, 1)},
    {"idle-stages", "backward d160 nq4096", "h200", CONFIG(64, 128, 1, 2, 1)},
    {"", "backward d160 nq4096 deterministic", "h200", CONFIG(64, 128, 2, 1, 1) " early_dq=1"},
    {"roles-early-dq", "backward d160 nq4096 sinks", "h200",
     CONFIG(64, 128, 2, 1, 1) " early_dq=1"},
    {"roles-early-dq", "backward d160 nq4096 ragged", "h200",
     CONFIG(64, 128, 2, 1, 1) " early_dq=1"},
    {"", "backward d192 nq4096", "h200", CONFIG(64, 128, 2, 1, 1) " multicast=1"},
    {"multicast", "backward d192 nq4096 ragged", "h200", CONFIG(64, 128, 2, 1, 1) " multicast=1"},
    {"", "backward d256 hq4 hkv2 nq4096 causal", "h200",
     CONFIG(64, 128, 2, 1, 1) " multicast=1 heads_inner=1"},
    {"heads-inner", "backward d256 hq4 hkv2 nq4096 causal deterministic", "h200",
     CONFIG(64, 128, 2, 1, 1) " heads_inner=1"},
    {"lone-heads", "backward d256 hq4 hkv2 nq4096", "h200",
     CONFIG(64, 128, 2, 1, 1) " heads_inner=1"},
    {"smem-limit", "backward d256 nq4096", "h200", CONFIG(64, 128, 2, 2, 1)},
    {"mask-cols", "backward d256 nq4096 mask=128x64", "h200", CONFIG(64, 128, 2, 1, 1)},
#undef CONFIG
#define CONFIG(more) "wgmma_forward block_m=128 block_n=64 stages=2 q_stages=1 " more
#define FEW_ROWS     "wgmma_forward block_m=64 block_n=64 stages=2 q_stages=1 direct_store=1"
    {"", "d64 nq4096", "h200", CONFIG("overlap_tiles=1 direct_store=1 multicast=1")},
    {"", "d64 nq4096", "h200", CONFIG("lazy_rescale=1 exp2_poly=1")},
    {"", "d64 nq4096 causal", "h200", CONFIG("lpt=1")},
    {"", "d64 nq4096", "h200", CONFIG("direct_store=1")},
    {"exp2-poly", "d64 nq4096", "h200", CONFIG("lazy_rescale=1 exp2_poly=1 integer_max=1")},
    {"exp2-poly", "d64 nq4096", "h200", CONFIG("exp2_poly=1")},
    {"exp2-poly", "d72 nq4096", "h200", CONFIG("lazy_rescale=1 exp2_poly=1")},
    {"exp2-poly", "d16 dv72 nq4096", "h200", CONFIG("lazy_rescale=1 exp2_poly=1")},
    {"lpt", "d64 nq4096", "h200", CONFIG("lpt=1")},
    {"p-in-smem", "d64 nq4096", "h200", CONFIG("p_in_smem=1")},
    {"multicast", "d64 nq4096 causal", "h200", CONFIG("multicast=1")},
    {"multicast", "d64 nq4096 mask=128x128", "h200", CONFIG("multicast=1")},
    {"lone-tile", "d64 nq128", "h200", CONFIG("multicast=1")},
    {"pairs-of-heads", "d64 hq8 hkv4 nq4096 causal", "h200", CONFIG("multicast=2")},
    {"", "d64 hq8 hkv4 nq128 nk4096 pages=64", "h200", CONFIG("multicast=2")},
    {"multicast", "d64 hq8 hkv4 nq4096", "h200", CONFIG("multicast=2")},
    {"multicast", "d64 hq8 hkv4 nq4096 causal mask=128x128", "h200", CONFIG("multicast=2")},
    {"multicast", "d64 hq8 hkv4 nq4096 causal ragged", "h200", CONFIG("multicast=2")},
    {"multicast", "d64 hq8 hkv4 nq4096 causal", "h200", CONFIG("lpt=1 multicast=2")},
    {"multicast", "d64 hq8 hkv4 nq128 causal", "h200", CONFIG("multicast=2 pack_gqa=1")},
    {"whole-pages", "d64 hq8 hkv4 nq128 pages=16", "h200",
     "wgmma_forward block_m=128 block_n=80 stages=2 q_stages=1 multicast=2"},
    {"pairs-of-heads", "d64 hq6 hkv2 nq4096 pages=64", "h200", CONFIG("multicast=2")},
    {"", "d64 nq128 nk4096", "h200", CONFIG("direct_store=1 split_keys=1")},
    {"split-keys", "d64 nq128 nk4096", "h200", CONFIG("split_keys=1")},
    {"", "d64 hq3 b132 nq16384 mask=128x128", "h200", CONFIG("direct_store=1 split_keys=1")},
    {"enough-tiles", "d64 hq3 b132 nq16384 mask=128x128", "h200", FEW_ROWS " split_keys=8"},
    {"cluster-parts", "d64 nq128 nk4096", "h200", CONFIG("direct_store=1 split_keys=8")},
    {"", "d64 nq64 nk4096", "h200", FEW_ROWS " split_keys=16"},
    {"cluster-parts", "d64 nq64 nk4096", "h200", FEW_ROWS " split_keys=6"},
    {"cluster-parts", "d64 nq64 nk4096", "h200", FEW_ROWS " overlap_tiles=1 split_keys=8"},
    {"knob-range", "d64 nq64 nk4096", "h200", FEW_ROWS " split_keys=32"},
    {"split-keys", "d64 nq256 nk4096", "h200",
     CONFIG("overlap_tiles=1 direct_store=1 multicast=1 split_keys=1")},
    {"split-keys", "d64 nq128 causal", "h200", CONFIG("direct_store=1 lpt=1 split_keys=1")},
    {"ragged", "d64 nq128 ragged", "h200", CONFIG("direct_store=1 split_keys=1")},
    {"", "d64 nq128 pages=16", "h200", CONFIG("")},
    {"", "d64 nq128 pages=128", "h200", CONFIG("")},
    {"family", "d64 nq128 pages=4", "h200", CONFIG("")},
    {"whole-pages", "d64 nq128 pages=64", "h200",
     "wgmma_forward block_m=128 block_n=96 stages=2 q_stages=1"},
    {"ragged", "d64 hq4 hkv2 nq128 ragged", "h200", CONFIG("pack_gqa=1")},
    {"", "d64 hq2 b132 nq128 nk4096", "h200", CONFIG("direct_store=1 split_keys=1")},
    {"enough-tiles", "d64 hq3 b132 nq128 nk4096", "h200", CONFIG("direct_store=1 split_keys=1")},
    {"", "d64 hq8 hkv4 nq40 nk4096 causal", "h200", CONFIG("pack_gqa=1")},
    {"shared-steps", "d64 hq8 hkv4 b9 nq3 nk4096 pages=64", "h200",
     "wgmma_forward block_m=64 block_n=64 stages=2 q_stages=1"},
    {"", "d64 hq8 hkv4 b999 nq3 nk4096 pages=64", "h200",
     "wgmma_forward block_m=64 block_n=64 stages=2 q_stages=1 direct_store=1 split_keys=1"},
    {"", "d64 hq64 hkv2 nq5 nk4096", "h200",
     CONFIG("overlap_tiles=1 direct_store=1 multicast=1 pack_gqa=1")},
    {"packed-group", "d64 hq4 hkv4 nq128", "h200", CONFIG("pack_gqa=1")},
    {"packed-group", "d64 hq12 hkv4 nq128", "h200", CONFIG("pack_gqa=1")},
    {"packed-length", "d64 hq8 hkv4 nq1025 causal", "h200", CONFIG("pack_gqa=1")},
    {"", "d64 hq8 hkv4 nq1025", "h200", CONFIG("pack_gqa=1")},
    {"long-tile", "d64 hq8 hkv4 nq32", "h200", CONFIG("pack_gqa=1")},
    {"lone-tile", "d64 hq8 hkv4 nq64", "h200",
     CONFIG("overlap_tiles=1 direct_store=1 multicast=1 pack_gqa=1")},
    {"knob-range", "d64 nq4096", "h200", CONFIG("pack_gqa=2")},
    {"knob-range", "d64 nq4096", "h200", CONFIG("multicast=3")},
    {"knob-range", "d64 nq4096", "h200", CONFIG("p_in_smem=2")},
    {"knob-range", "d64 nq4096", "h200", CONFIG("exp2_poly=2")},
#undef CONFIG
};
enum { CASES = sizeof cases / sizeof cases[0] };

START_TEST(rule_is_named) {
  struct ft_request request;
  const struct ft_config config = known_config(cases[_i].config);
  ck_assert_msg(ft_request_parse(&request, cases[_i].request) == FT_OK, "%s", ft_detail());
  const struct ft_arch arch = known_gpu(cases[_i].gpu);
  const struct ft_rule *const broken = rule_broken(&request, &arch, &config);
  ck_assert_msg(strcmp(broken ? broken->name : "", cases[_i].rule) == 0,
                "%s on %s, %s: '%s' expected, '%s' found", cases[_i].request, cases[_i].gpu,
                cases[_i].config, cases[_i].rule, broken ? broken->name : "");
}
END_TEST

/* The last case that breaks the rule by a config of the family, or -1. */
static int case_of(const struct ft_family *family, const struct ft_rule *rule) {
  int n = CASES - 1;
  while (n >= 0 &&
         (strcmp(cases[n].rule, rule->name) != 0 || known_config(cases[n].config).family != family))
    --n;
  return n;
}

START_TEST(every_rule_has_name_reason_and_case) {
  const struct ft_family *family;
  for (int f = 0; (family = ft_family_at(f)) != NULL; ++f) {
    int count = 0;
    for (const struct ft_rule *rule; (rule = ft_rules_at(family, count)) != NULL; ++count) {
      ck_assert(rule->name[0] != '\0' && strlen(rule->reason) > 20);
      ck_assert(rule->kind == FT_CANNOT_RUN || rule->kind == FT_NOT_WORTH_TRYING);
      for (int i = 0; i < count; ++i) ck_assert_str_ne(rule->name, ft_rules_at(family, i)->name);
      bool own = false;
      for (int i = 0; i < family->rule_count; ++i) own = own || rule == &family->rules[i];
      ck_assert_msg(!own || case_of(family, rule) >= 0, "no case of %s breaks rule %s",
                    family->name, rule->name);
    }
    ck_assert_int_gt(count, family->rule_count);
    ck_assert_ptr_null(ft_rules_at(family, -1));
  }
}
END_TEST

/* What is not worth trying is emitted when asked for; what cannot run is not. */
START_TEST(kinds_of_rules_differ_by_what_may_be_asked_for) {
  for (int n = 0; n < CASES; ++n) {
    const struct ft_request request = known_request(cases[n].request);
    const struct ft_config config = known_config(cases[n].config);
    const struct ft_arch arch = known_gpu(cases[n].gpu);
    const struct ft_rule *const any = ft_rules_broken(&request, &arch, &config, FT_EVERY_RULE);
    const bool runs = ft_rules_broken(&request, &arch, &config, FT_CANNOT_RUN) == NULL;
    ck_assert_int_eq(runs, any == NULL || any->kind == FT_NOT_WORTH_TRYING);
    if (runs) ck_assert_ptr_eq(ft_rules_broken(&request, &arch, &config, FT_NOT_WORTH_TRYING), any);
  }
}
END_TEST

/* What a request may use its kernel class may use: lengths never make an emission illegal. */
static void expect_class_allows(const struct ft_request *request, const struct ft_arch *arch,
                                const struct ft_config *config, enum ft_rule_kind kind) {
  const struct ft_request class = ft_request_kernel_class(request);
  if (ft_rules_broken(request, arch, config, kind) != NULL) return;
  ck_assert_msg(ft_rules_broken(&class, arch, config, kind) == NULL, "seed %llu",
                (unsigned long long)cases_seed);
}

START_TEST(class_allows_what_its_requests_allow) {
  const struct ft_family *family;
  seed_cases();
  const struct ft_arch arch = known_gpu("h200");
  for (int f = 0; (family = ft_family_at(f)) != NULL; ++f) {
    for (int round = 0; round < 20000; ++round) {
      const struct ft_request request = random_request();
      const struct ft_config config = random_candidate_of(family);
      expect_class_allows(&request, &arch, &config, FT_CANNOT_RUN);
    }
    for (int round = 0, legal = 0; legal < 100; ++round) {
      ck_assert_int_lt(round, 1000000);
      const struct ft_request request = random_request();
      struct ft_config config;
      if (!random_legal_config(&request, &arch, family, &config)) continue;
      expect_class_allows(&request, &arch, &config, FT_CANNOT_RUN);
      expect_class_allows(&request, &arch, &config, FT_EVERY_RULE);
      ++legal;
    }
  }
}
END_TEST

Suite *make_rules_suite(void) {
  Suite *const suite = suite_create("rules");
  TCase *const tests = tcase_create("all");
  tcase_add_loop_test(tests, rule_is_named, 0, CASES);
  tcase_add_test(tests, every_rule_has_name_reason_and_case);
  tcase_add_test(tests, class_allows_what_its_requests_allow);
  tcase_add_test(tests, kinds_of_rules_differ_by_what_may_be_asked_for);
  suite_add_tcase(suite, tests);
  return suite;
}
