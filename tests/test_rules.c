/* test_rules.c: every legality rule rejects what it is for, and is named.
 * in -> out: generator/rules.h -> Check suite. */
#include <check.h>
#include <string.h>

#include "generator/rules.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

/* Legal but for the one rule. */
static const struct {
  const char *rule; /* "" when the config is legal */
  const char *request, *gpu, *config;
} cases[] = {
#define CONFIG(m, n, w, s, q, o, c)                                                                \
  "mma block_m=" #m " block_n=" #n " warps=" #w " stages=" #s " q_in_regs=" #q " overlap_qk=" #o   \
  " ctas_per_sm=" #c
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
    {"smem-occupancy", "d128 nq4096", "h200", CONFIG(128, 128, 8, 2, 0, 0, 2)},
    {"register-limit", "d64 nq4096", "l4", CONFIG(128, 64, 4, 2, 1, 1, 1)},
    {"short-tile", "d64 nq4096", "h200", CONFIG(32, 32, 2, 2, 0, 0, 2)},
    {"short-tile", "d64 nq4096 mask=64x64", "h200", CONFIG(32, 32, 2, 2, 0, 0, 2)},
    {"long-tile", "d64 nq40", "h200", CONFIG(128, 64, 4, 2, 0, 0, 1)},
    {"idle-quarters", "d64 nq4096", "h200", CONFIG(64, 32, 2, 2, 0, 0, 1)},
    {"flat-tile", "d64 nq4096", "h200", CONFIG(64, 144, 4, 1, 0, 0, 2)},
    {"thin-tile", "d64 nq4096", "h200", CONFIG(64, 16, 4, 2, 0, 0, 1)},
#undef CONFIG
#define CONFIG(m, n, s, q, o, a)                                                                   \
  "wgmma block_m=" #m " block_n=" #n " stages=" #s " q_stages=" #q " overlap_tiles=" #o            \
  " pingpong=" #a " lazy_rescale=1 ctas_per_sm=1"
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
    {"knob-range", "d128 nq4096", "h200",
     "wgmma block_m=128 block_n=64 stages=2 q_stages=1 ctas_per_sm=2"},
    {"warpgroup-rows", "d64 nq4096", "h200", CONFIG(32, 128, 2, 1, 0, 0)},
    {"warpgroup-rows", "d64 nq4096", "h200", CONFIG(96, 128, 2, 1, 0, 0)},
    {"warpgroup-rows", "d64 nq4096", "h200", CONFIG(320, 64, 2, 1, 0, 0)},
    {"block-n", "d64 nq4096", "h200", CONFIG(128, 72, 2, 1, 0, 0)},
    {"wgmma-n", "d64 nq4096", "h200", CONFIG(128, 272, 2, 1, 0, 0)},
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
     "mma block_m=128 block_n=64 warps=4 stages=2 ctas_per_sm=2"},
    {"family", "backward d128 nq4096", "h200",
     "wgmma block_m=128 block_n=128 stages=2 q_stages=2 ctas_per_sm=1"},
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
    {"ordered-dq", "backward d64 nq4096 deterministic mask=128x128", "h200",
     CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 1)},
    {"second-pass", "backward d64 nq4096", "h200", CONFIG(64, 128, 8, 2, 1, 1, 0, 0, 2)},
    {"deferred-dq", "backward d64 nq4096 deterministic", "h200",
     CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 2)},
    {"no-cp-async", "backward fp16 d64 nq4096", "t4", CONFIG(64, 64, 8, 2, 1, 1, 0, 0, 0)},
    {"mask-rows", "backward d64 nq4096 mask=64x128", "h200", CONFIG(128, 128, 8, 2, 1, 2, 0, 1, 0)},
    {"mask-cols", "backward d64 nq4096 mask=128x64", "h200", CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 0)},
    {"smem-limit", "backward d128 nq4096", "l4", CONFIG(64, 128, 8, 2, 1, 1, 0, 1, 0)},
    {"sum-registers", "backward d128 nq4096", "h200", CONFIG(64, 256, 8, 1, 1, 1, 0, 0, 0)},
    {"short-step", "backward d64 nq4096", "h200", CONFIG(32, 128, 8, 2, 1, 1, 0, 1, 0)},
    {"few-keys", "backward d64 nq4096", "h200", CONFIG(64, 32, 4, 2, 1, 1, 0, 1, 0)},
    {"thin-parts", "backward d64 nq4096", "h200", CONFIG(64, 128, 8, 2, 2, 2, 0, 1, 0)},
    {"shared-keys", "backward d64 nq4096", "h200", CONFIG(64, 64, 16, 2, 2, 1, 0, 1, 0)},
    {"few-warps", "backward d64 nq4096", "h200", CONFIG(64, 64, 4, 2, 1, 1, 0, 1, 0)},
#undef CONFIG
#define CONFIG(more) "wgmma block_m=128 block_n=64 stages=2 q_stages=1 " more " ctas_per_sm=1"
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
    {"multicast", "d64 nq128", "h200", CONFIG("multicast=1")},
    {"", "d64 hq8 hkv4 nq40 nk4096 causal", "h200", CONFIG("pack_gqa=1")},
    {"", "d64 hq64 hkv2 nq5 nk4096", "h200",
     CONFIG("overlap_tiles=1 direct_store=1 multicast=1 pack_gqa=1")},
    {"pack-gqa", "d64 hq8 hkv4 nq5 dropout", "h200", CONFIG("pack_gqa=1")},
    {"pack-gqa", "d64 hq8 hkv4 nq128 mask=128x128", "h200", CONFIG("pack_gqa=1")},
    {"packed-group", "d64 hq4 hkv4 nq128", "h200", CONFIG("pack_gqa=1")},
    {"packed-group", "d64 hq12 hkv4 nq128", "h200", CONFIG("pack_gqa=1")},
    {"packed-length", "d64 hq8 hkv4 nq1025 causal", "h200", CONFIG("pack_gqa=1")},
    {"", "d64 hq8 hkv4 nq1025", "h200", CONFIG("pack_gqa=1")},
    {"long-tile", "d64 hq8 hkv4 nq32", "h200", CONFIG("pack_gqa=1")},
    {"multicast", "d64 hq8 hkv4 nq64", "h200",
     CONFIG("overlap_tiles=1 direct_store=1 multicast=1 pack_gqa=1")},
    {"knob-range", "d64 nq4096", "h200", CONFIG("pack_gqa=2")},
    {"knob-range", "d64 nq4096", "h200", CONFIG("multicast=2")},
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

START_TEST(every_rule_has_name_reason_and_case) {
  int count = 0;
  for (const struct ft_rule *rule; (rule = ft_rules_at(count)) != NULL; ++count) {
    ck_assert(rule->name[0] != '\0' && strlen(rule->reason) > 20);
    for (int i = 0; i < count; ++i) ck_assert_str_ne(rule->name, ft_rules_at(i)->name);
    int tried = 0;
    for (int i = 0; i < CASES; ++i) tried += strcmp(cases[i].rule, rule->name) == 0;
    ck_assert_msg(tried > 0, "no case breaks rule %s", rule->name);
  }
  ck_assert_int_gt(count, 10);
  ck_assert_ptr_null(ft_rules_at(-1));
}
END_TEST

/* What a request may use its kernel class may use: lengths never make an emission illegal. */
START_TEST(class_allows_what_its_requests_allow) {
  int legal[FT_FAMILY_COUNT] = {0};
  seed_cases();
  const struct ft_arch arch = known_gpu("h200");
  for (int round = 0; round < 20000; ++round) {
    const struct ft_request request = random_request();
    const struct ft_request class = ft_request_kernel_class(&request);
    const struct ft_config config = random_candidate();
    if (rule_broken(&request, &arch, &config) != NULL) continue;
    ck_assert_msg(rule_broken(&class, &arch, &config) == NULL, "seed %llu",
                  (unsigned long long)cases_seed);
    ++legal[config.family];
  }
  for (int family = 0; family < FT_FAMILY_COUNT; ++family) ck_assert_int_gt(legal[family], 0);
}
END_TEST

/* A rule for one family says nothing about the other's configs, whatever is in its knobs. */
START_TEST(rules_keep_to_their_families) {
  struct ft_request request;
  ck_assert_int_eq(ft_request_parse(&request, "d64 nq4096"), FT_OK);
  const struct ft_arch arch = known_gpu("h200");
  struct ft_config mma = known_config("mma block_m=128 block_n=64 warps=4 stages=1 ctas_per_sm=1");
  struct ft_config wgmma =
      known_config("wgmma block_m=128 block_n=64 stages=2 q_stages=1 ctas_per_sm=1");
  mma.pingpong = mma.overlap_tiles = 1;
  wgmma.draw_early = wgmma.q_in_regs = 1;
  ck_assert_ptr_null(rule_broken(&request, &arch, &mma));
  ck_assert_ptr_null(rule_broken(&request, &arch, &wgmma));
}
END_TEST

/* The one switch in rules.c and the catalogue of templates say the same. */
START_TEST(families_serve_what_has_a_template) {
  static const char *const gpus[] = {"t4", "a100", "h100", "h200", "b200", "rtx5090"};
  struct ft_request request;
  struct ft_lua *lua;
  const char *name;
  ck_assert_int_eq(ft_request_parse(&request, "fp16 d64 nq4096"), FT_OK);
  ck_assert_int_eq(ft_lua_open(&lua, NULL), FT_OK);
  const bool wgmma = ft_lua_template(lua, "forward", "wgmma", &name) == FT_OK;
  ck_assert_int_eq(ft_lua_template(lua, "backward", "mma_backward", &name), FT_OK);
  ck_assert_int_eq(ft_lua_template(lua, "backward", "mma", &name), FT_E_UNSUPPORTED);
  ft_lua_close(lua);
  for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; ++i) {
    const struct ft_arch arch = known_gpu(gpus[i]);
    ck_assert(ft_family_serves(FT_FAMILY_MMA, &request, &arch));
    ck_assert_int_eq(ft_family_serves(FT_FAMILY_WGMMA, &request, &arch), wgmma && arch.sm == 90);
    ck_assert(!ft_family_serves(FT_FAMILY_MMA_BACKWARD, &request, &arch));
    struct ft_request backward = request;
    backward.pass = FT_BACKWARD;
    ck_assert(ft_family_serves(FT_FAMILY_MMA_BACKWARD, &backward, &arch));
    ck_assert(!ft_family_serves(FT_FAMILY_MMA, &backward, &arch));
    ck_assert(!ft_family_serves(FT_FAMILY_WGMMA, &backward, &arch));
  }
}
END_TEST

START_TEST(targets_serve_what_they_can) {
  static const struct {
    const char *request, *gpu, *reason; /* "" when served */
  } served[] = {
      {"fp16 d64 nq1", "t4", ""},
      {"bf16 d64 nq1", "t4", "bf16 needs sm_80"},
      {"bf16 d64 nq1", "a10", ""},
      {"backward d64 nq1", "h200", ""},
      {"backward bf16 d64 nq1", "t4", "bf16 needs sm_80"},
      {"bf16 d256 nq1", "rtx5090", ""},
      {"fp16 d16 nq1 mask=16x16 dropout", "t4", ""},
  };
  for (size_t i = 0; i < sizeof served / sizeof served[0]; ++i) {
    struct ft_request request;
    ck_assert_int_eq(ft_request_parse(&request, served[i].request), FT_OK);
    const struct ft_arch arch = known_gpu(served[i].gpu);
    const int status = ft_rules_serves(&request, &arch);
    ck_assert_int_eq(status, served[i].reason[0] ? FT_E_UNSUPPORTED : FT_OK);
    if (status != FT_OK) ck_assert_ptr_nonnull(strstr(ft_detail(), served[i].reason));
  }
  struct ft_arch volta = known_gpu("t4");
  volta.sm = 70;
  struct ft_request request;
  ck_assert_int_eq(ft_request_parse(&request, "fp16 d64 nq1"), FT_OK);
  ck_assert_int_eq(ft_rules_serves(&request, &volta), FT_E_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "sm_70"));
}
END_TEST

Suite *make_rules_suite(void) {
  Suite *const suite = suite_create("rules");
  TCase *const tests = tcase_create("all");
  tcase_add_loop_test(tests, rule_is_named, 0, CASES);
  tcase_add_test(tests, every_rule_has_name_reason_and_case);
  tcase_add_test(tests, class_allows_what_its_requests_allow);
  tcase_add_test(tests, rules_keep_to_their_families);
  tcase_add_test(tests, families_serve_what_has_a_template);
  tcase_add_test(tests, targets_serve_what_they_can);
  suite_add_tcase(suite, tests);
  return suite;
}
