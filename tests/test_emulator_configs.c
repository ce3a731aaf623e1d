/* test_emulator_configs.c: what --config may ask for is right: configs that the search does not
 * try, and every switch of every family.
 * in -> out: request, config -> every row against float64 on an emulated H200. */
#include <string.h>

#include "generator/family.h"
#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"

#define MMA(m, n, w, s, c)                                                                         \
  "mma_forward block_m=" #m " block_n=" #n " warps=" #w " stages=" #s " ctas_per_sm=" #c
#define WGMMA(m, n, s, q) "wgmma_forward block_m=" #m " block_n=" #n " stages=" #s " q_stages=" #q
#define BACKWARD(m, n, w, c, p, q)                                                                 \
  "mma_backward block_m=" #m " block_n=" #n " warps=" #w " stages=2 column_warps=" #c              \
  " query_parts=" #p " dq_mode=" #q " ctas_per_sm=1"

#define HOPPER(m, n, q, o, s)                                                                      \
  "wgmma_backward block_m=" #m " block_n=" #n " q_stages=" #q " do_stages=" #o " ds_stages=" #s

#define ROLES(q, o, s, p)                                                                          \
  "wgmma_backward_roles block_m=64 block_n=128 q_stages=" #q " do_stages=" #o " ds_stages=" #s     \
  " dq_stages=" #p

/* The number of the built-in score bias_bf16, which is the only one here. */
#define BIAS  "18d408ab1c4fe"
#define ALIBI "366b727be7878"

static const struct {
  const char *rule; /* that the search passes the config over for; "": it is tried */
  const char *request, *config;
} runs[] = {
    {"register-limit", "fp16 d32 nq70 causal", MMA(192, 96, 4, 1, 4)},
    {"short-tile", "bf16 d32 nq70 dropout", MMA(32, 32, 2, 2, 2)},
    {"long-tile", "fp16 d16 nq50 nk70", MMA(128, 32, 4, 2, 1)},
    {"idle-quarters", "fp16 d16 nq70 causal", MMA(64, 32, 2, 2, 1)},
    {"flat-tile", "fp16 d16 nq70 nk200", MMA(64, 144, 4, 1, 1)},
    {"thin-tile", "fp16 d16 nq70", MMA(64, 16, 4, 3, 1)},
    {"smem-occupancy", "fp16 d64 nq70", MMA(64, 64, 4, 4, 4)},
    {"deep-pipeline", "fp16 d32 nq70 nk500", WGMMA(64, 96, 5, 1)},
    {"needless-q", "fp16 d16 nq70", WGMMA(64, 64, 2, 2) " direct_store=1"},
    {"lpt", "fp16 d16 nq130", WGMMA(64, 64, 2, 1) " lpt=1"},
    {"exp2-poly", "bf16 d16 nq70", WGMMA(64, 64, 2, 1) " exp2_poly=1"},
    {"exp2-poly", "fp16 d72 nq70", WGMMA(64, 64, 2, 1) " integer_max=1 exp2_poly=1 lazy_rescale=1"},
    {"p-in-smem", "fp16 d32 nq70 dropout", WGMMA(64, 64, 2, 1) " p_in_smem=1"},
    {"lone-tile", "fp16 d16 hq3 nq60 nk130", WGMMA(64, 64, 2, 1) " multicast=1"},
    {"pairs-of-heads", "fp16 d16 hq3 nq300 causal", WGMMA(64, 64, 2, 1) " multicast=2"},
    {"packed-group", "fp16 d16 hq3 hkv1 nq70", WGMMA(64, 64, 2, 1) " pack_gqa=1"},
    {"packed-length", "fp16 d16 hq2 hkv1 nq520 nk70 causal", WGMMA(64, 64, 2, 1) " pack_gqa=1"},
    {"consumer-registers", "fp16 d64 nq140", WGMMA(256, 112, 2, 1)},
    {"long-tile", "fp16 d16 nq50 nk130 causal", WGMMA(128, 64, 2, 1) " pingpong=1"},
    {"shared-steps", "fp16 d16 hq5 b10 nq4 nk70 pages=16", WGMMA(64, 64, 2, 1)},
    {"enough-tiles", "fp16 d16 hq5 b100 nq4 nk70", MMA(64, 32, 4, 2, 1) " split_keys=1"},
    {"packed-group", "fp16 d16 hq3 hkv1 nq5 nk70", MMA(16, 64, 4, 2, 1) " key_warps=4 pack_gqa=1"},
    {"shared-rows", "fp16 d16 nq40 nk70", MMA(16, 64, 4, 2, 1) " key_warps=4"},
    {"enough-tiles", "fp16 d16 hq5 b100 nq4 nk70",
     WGMMA(64, 64, 2, 1) " direct_store=1 split_keys=1"},
    {"ordered-dq", "backward fp16 d16 nq130", BACKWARD(64, 64, 8, 1, 1, 1)},
    {"second-pass", "backward fp16 d16 nq130 causal", BACKWARD(64, 64, 8, 1, 1, 2)},
    {"sum-registers", "backward fp16 d64 nq70", BACKWARD(64, 256, 8, 1, 1, 0)},
    {"long-tile", "backward fp16 d16 nq50", BACKWARD(128, 64, 8, 1, 1, 0)},
    {"short-step", "backward fp16 d16 nq70 dropout", BACKWARD(32, 64, 8, 1, 1, 0)},
    {"few-keys", "backward fp16 d16 nq70", BACKWARD(64, 32, 4, 1, 1, 0)},
    {"thin-parts", "backward fp16 d16 nq70 causal", BACKWARD(64, 64, 8, 2, 2, 0)},
    {"shared-keys", "backward fp16 d16 nq70", BACKWARD(64, 64, 16, 2, 1, 0)},
    {"uneven-stages", "backward fp16 d16 nq200 nk130", HOPPER(64, 128, 2, 1, 1)},
    {"uneven-stages", "backward fp16 d16 nq330 nk70", HOPPER(64, 64, 2, 1, 1) " early_scores=1"},
    {"uneven-stages", "backward fp16 d16 nq500 nk70 dropout",
     HOPPER(64, 64, 4, 3, 2) " kv_in_regs=1 early_scores=1"},
    {"consumer-registers", "backward bf16 d64 nq200", HOPPER(64, 192, 2, 2, 2) " kv_in_regs=1"},
    {"long-tile", "backward fp16 d16 nq50 nk70 causal", HOPPER(128, 128, 2, 2, 2)},
    {"idle-stages", "backward fp16 d136 nq130 nk70 causal", ROLES(1, 2, 1, 1)},
    {"few-warps", "backward fp16 d16 nq70", BACKWARD(64, 64, 4, 1, 1, 0)},
    {"", "bf16 d16 nq130 causal dropout", MMA(64, 32, 4, 2, 1) " q_in_regs=1 overlap_qk=1"},
    {"", "bf16 d16 nq130 dropout", MMA(64, 32, 4, 2, 1) " draw_early=1"},
    {"", "bf16 d16 nq130 causal", WGMMA(64, 64, 2, 2) " overlap_tiles=1 ascending_keys=1"},
    {"", "bf16 d72 dv40 hq2 nq33 nk700 causal dropout", MMA(64, 32, 4, 2, 1) " split_keys=1"},
    {"", "bf16 d64 nq70 nk500 window@100,30 mask=64x64@0.5",
     WGMMA(64, 64, 2, 1) " direct_store=1 split_keys=1"},
    {"", "e4m3 d64 nq130 nk300 causal", WGMMA(64, 64, 2, 1) " direct_store=1 two_level=1"},
    {"", "e4m3 d64 nq130 nk300 causal", MMA(64, 64, 4, 2, 1) " two_level=1"},
    {"", "e4m3 d64 nq130 nk300 causal", WGMMA(64, 64, 2, 1) " direct_store=1 v_by_columns=1"},
    {"", "e4m3 d64 nq130 nk300 causal descales=64",
     WGMMA(64, 128, 2, 1) " direct_store=1 lazy_rescale=1"},
    {"", "fp16 d256 hq8 hkv2 nq3 nk500 causal",
     WGMMA(64, 64, 2, 1) " overlap_tiles=1 direct_store=1 pack_gqa=1 split_keys=1"},
    {"", "backward bf16 d16 nq70 causal", BACKWARD(64, 64, 8, 1, 1, 0) " kv_in_regs=1"},
    {"", "backward bf16 d16 nq70", BACKWARD(64, 64, 8, 1, 1, 0) " deferred_dq=1"},
    {"", "backward bf16 d24 nq200 nk130 causal", HOPPER(64, 128, 2, 2, 2) " loads_beside_dq=1"},
    {"", "backward bf16 d16 dv40 hq4 hkv2 nq70 nk130", HOPPER(64, 128, 2, 2, 2) " kv_in_regs=1"},
    {"", "backward fp16 d16 hq2 nq130 nk200 causal dropout", HOPPER(64, 192, 2, 2, 1)},
    {"", "backward fp16 d16 hq4 hkv1 nq200 causal",
     HOPPER(64, 192, 3, 3, 2) " loads_beside_dq=1 direct_store=1 pacing=1"},
    {"", "backward fp16 d16 nq400 nk130",
     HOPPER(64, 128, 3, 3, 2) " loads_beside_dq=1 kv_in_regs=1 early_scores=1 pacing=2"},
    {"", "backward fp16 d16 nq200 nk200 causal=top-left",
     HOPPER(128, 128, 2, 2, 2) " direct_store=1 pacing=1"},
    {"", "backward bf16 d64 dv48 hq4 hkv2 nq200 nk300 causal dropout",
     HOPPER(128, 128, 2, 2, 2) " direct_store=1 pacing=2"},
    {"", "backward fp16 d24 hq6 hkv3 b2 nq100 nk300 causal=top-left",
     HOPPER(64, 128, 2, 2, 2) " early_dq=1 pacing=1"},
    {"", "backward bf16 d72 dv40 hq4 hkv2 b2 nq300 nk330 dropout mask=64x128@0.4",
     HOPPER(64, 128, 3, 3, 2) " loads_beside_dq=1 early_dq=1 part_steps=1"},
    {"", "backward bf16 d16 hq3 b3 nq130 nk260 deterministic",
     HOPPER(64, 128, 2, 2, 2) " early_dq=1 pacing=2"},
    /* More key tiles than the GPU has multiprocessors. */
    {"", "backward bf16 d16 hq29 b3 nq70 nk200 mask=64x128@0.5",
     HOPPER(64, 128, 2, 2, 2) " direct_store=1 persistent=1 pacing=1"},
    {"", "backward fp16 d16 hq29 b3 nq150 nk200 causal dropout",
     HOPPER(64, 128, 2, 2, 2) " direct_store=1 persistent=1 pacing=2"},
    /* And some that no query sees. */
    {"", "backward fp16 d32 hq4 hkv2 b2 nq124 nk229 causal=top-left dropout",
     HOPPER(64, 128, 2, 2, 2) " kv_in_regs=1 direct_store=1 persistent=1"},
    {"", "backward fp16 d24 dv16 hq72 hkv36 b2 nq100 nk190 causal=top-left",
     HOPPER(64, 128, 3, 3, 2) " kv_in_regs=1 direct_store=1 persistent=1 pacing=2"},
    {"", "backward fp16 d16 hq36 b2 nq1 nk229 window@64,0",
     HOPPER(64, 128, 2, 2, 2) " direct_store=1 persistent=1 pacing=2"},
    /* In one loop over the steps of all key tiles. */
    {"", "backward bf16 d16 hq29 b3 nq70 nk200 mask=64x128@0.5",
     HOPPER(64, 128, 2, 2, 2) " direct_store=1 persistent=2 early_dq=1 pacing=1 part_steps=1"},
    {"streamed-walks", "backward fp16 d24 dv16 hq72 hkv36 b2 nq100 nk190 causal=top-left",
     HOPPER(64, 128, 3, 3, 3) " direct_store=1 persistent=2 pacing=2"},
    {"", "backward bf16 d16 hq29 b3 nq70 nk200 mask=64x192@0.5",
     HOPPER(64, 192, 4, 4, 3) " direct_store=1 persistent=2 part_steps=1"},
    {"streamed-walks", "backward bf16 d72 dv40 hq4 hkv2 nq400 nk330 window",
     HOPPER(64, 128, 2, 2, 2) " direct_store=1 persistent=2 early_dq=1"},
    /* The heads of a group as the inner loop, in L2 sections that walk down and up. */
    {"", "backward fp16 d24 dv16 hq108 hkv36 b2 nq130 nk190 causal",
     HOPPER(64, 128, 2, 2, 2) " early_dq=1 pacing=1 heads_inner=1"},
    {"", "backward bf16 d16 hq87 hkv29 b3 nq150 nk200 causal=top-left",
     HOPPER(64, 192, 2, 2, 2) " direct_store=1 persistent=1 pacing=2 heads_inner=1"},
    {"streamed-walks", "backward fp16 d24 dv16 hq108 hkv36 b2 nq100 nk190 causal",
     HOPPER(64, 128, 3, 3, 3) " direct_store=1 persistent=2 pacing=2 heads_inner=1"},
    {"lone-heads", "backward bf16 d32 hq3 nq300 nk330 causal",
     HOPPER(128, 128, 2, 2, 2) " heads_inner=1"},
    {"lone-heads", "backward bf16 d72 dv40 hq6 hkv2 nq300 nk330 window dropout",
     HOPPER(64, 128, 2, 2, 2) " heads_inner=1"},
    /* Sums staged where K was. */
    {"", "backward bf16 d16 hq29 b3 nq70 nk200 mask=64x128@0.5",
     HOPPER(64, 128, 2, 2, 2) " persistent=2 early_dq=1 pacing=1 part_steps=1"},
    {"streamed-walks", "backward fp16 d24 dv16 hq72 hkv36 b2 nq100 nk190 causal=top-left",
     HOPPER(64, 128, 3, 3, 3) " persistent=2 pacing=2"},
    {"consumer-registers", "backward bf16 d64 hq40 nq200 nk600 mask=64x192@0.6",
     HOPPER(64, 192, 2, 2, 2) " persistent=2 pacing=1"},
    {"", "backward bf16 d72 dv40 hq4 hkv2 nq400 nk330 dropout mask=64x128@0.6",
     HOPPER(64, 128, 2, 2, 2) " part_steps=1"},
    {"", "backward bf16 d64 hq2 nq500 nk300 mask=128x256@0.6",
     HOPPER(128, 128, 2, 2, 2) " part_steps=2"},
    /* dQ from registers, by a warp of its own, transposed. */
    {"red-steps", "backward bf16 d72 dv40 hq4 hkv2 nq300 nk330 causal",
     HOPPER(64, 128, 3, 3, 2) " kv_in_regs=1 early_dq=1 dq_adds=1 pacing=2"},
    {"red-steps", "backward bf16 d16 hq29 b3 nq70 nk200 mask=64x128@0.5",
     HOPPER(64, 128, 2, 2, 2) " persistent=2 early_dq=1 dq_adds=1 pacing=1 part_steps=1"},
    {"", "backward fp16 d96 dv16 hq3 nq200 nk330 window",
     HOPPER(64, 128, 2, 2, 2) " early_dq=1 dq_adds=2 pacing=1"},
    {"", "backward bf16 d24 b2 nq200 nk330 causal ragged", HOPPER(64, 128, 2, 2, 2) " dq_adds=2"},
    {"", "backward bf16 d64 dv48 hq4 hkv2 nq200 nk300 causal dropout",
     HOPPER(128, 128, 2, 2, 2) " direct_store=1 dq_turned=1 pacing=2"},
    {"", "backward fp16 d64 hq2 nq300 nk330 mask=128x128@0.6",
     HOPPER(128, 128, 2, 2,
            2) " direct_store=1 persistent=2 early_dq=1 dq_adds=1 dq_turned=1 part_steps=1"},
    {"", "backward bf16 d64 hq2 nq300 nk260 deterministic",
     HOPPER(64, 128, 3, 3, 2) " kv_in_regs=1 dq_turned=1 pacing=1"},
    {"", "backward bf16 d144 nq330 nk200", ROLES(2, 2, 2, 1)},
    {"", "backward bf16 d136 hq3 b2 nq200 nk330 causal=top-left", ROLES(2, 2, 2, 1) " early_dq=1"},
    {"", "backward bf16 d144 hq2 nq330 nk200 deterministic", ROLES(1, 1, 1, 2) " early_dq=1"},
    {"", "backward fp16 d136 dv72 hq4 hkv2 nq200 nk130 causal", ROLES(3, 1, 2, 2)},
    {"", "backward bf16 d72 dv256 nq200 nk330 mask=64x128@0.5", ROLES(1, 1, 1, 2)},
    {"", "backward bf16 d136 hq2 nq200 nk330 causal dropout deterministic", ROLES(2, 2, 1, 2)},
    {"", "backward bf16 d160 nq330 nk200 causal", ROLES(2, 2, 2, 1)},
    {"", "backward fp16 d152 dv136 nq200 nk330 dropout", ROLES(3, 2, 1, 1) " multicast=1"},
    {"", "backward bf16 d192 hq4 hkv2 nq200 nk330", ROLES(2, 1, 1, 2) " multicast=1"},
    {"", "backward fp16 d136 dv72 hq108 hkv36 b2 nq130 nk140 causal",
     ROLES(2, 2, 1, 2) " heads_inner=1"},
    {"lone-heads", "backward bf16 d144 hq6 hkv2 nq200 nk330",
     ROLES(2, 2, 1, 2) " multicast=1 heads_inner=1"},
    {"", "bf16 d64 hq2 nq200 nk264 causal score=" BIAS, WGMMA(128, 64, 2, 1) " score_in_smem=1"},
    {"", "bf16 d64 hq2 nq200 nk264 causal score=" BIAS, WGMMA(128, 64, 2, 1) " score_in_smem=2"},
    {"", "bf16 d64 hq2 nq200 nk264 causal score=" ALIBI, WGMMA(128, 64, 2, 1) " keys_in_product=1"},
    {"", "bf16 d64 hq2 nq200 nk264 causal score=" ALIBI, WGMMA(128, 64, 2, 1) " skip_far=1"},
};
enum { RUNS = sizeof runs / sizeof *runs };

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  fatune_session *const session = emulator_open("h200", NULL);
  const struct ft_problem_options options =
      emulator_options(runs[number].request, FT_LAYOUT_BHSD, emulator_seed());
  if (options.request.score != 0) {
    int64_t bias, alibi;
    ck_assert_int_eq(fatune_score_add(&bias, session, "bias_bf16", NULL), FT_OK);
    ck_assert_int_eq(fatune_score_add(&alibi, session, "alibi", NULL), FT_OK);
    ck_assert(bias == options.request.score || alibi == options.request.score);
  }
  struct ft_config config;
  ck_assert_msg(ft_config_parse(&config, runs[number].config) == FT_OK, "%s", ft_detail());
  const struct ft_rule *const broken =
      ft_rules_broken(&options.request, &session->device.arch, &config, FT_EVERY_RULE);
  ck_assert_str_eq(broken ? broken->name : "", runs[number].rule);
  struct emulator_run run;
  emulator_run(&run, session, &options, runs[number].config);
  emulator_expect_right(runs[number].config, &run);
  emulator_run_free(&run);
  fatune_session_close(session);
}
END_TEST

/* Of every rule of this kind there is a run. */
START_TEST(every_rule_has_a_run) {
  const struct ft_family *family;
  const struct ft_rule *rule;
  for (int f = 0; (family = ft_family_at(f)) != NULL; f++)
    for (int i = 0; (rule = ft_rules_at(family, i)) != NULL; i++) {
      bool run = rule->kind == FT_CANNOT_RUN;
      for (int n = 0; n < RUNS && !run; n++) run = strcmp(runs[n].rule, rule->name) == 0;
      ck_assert_msg(run, "no run breaks rule %s of %s", rule->name, family->name);
    }
}
END_TEST

/* The recipe of a switch (generator/README.md) ends here. */
START_TEST(every_switch_has_a_run) {
  const struct ft_family *family;
  for (int f = 0; (family = ft_family_at(f)) != NULL; f++)
    for (int knob = 0; knob < family->knob_count; knob++) {
      bool on = family->knobs[knob].least > 0; /* no switch */
      for (int n = 0; n < RUNS && !on; n++) {
        struct ft_config config;
        ck_assert_msg(ft_config_parse(&config, runs[n].config) == FT_OK, "%s", ft_detail());
        on = config.family == family && config.knobs[knob] > 0;
      }
      ck_assert_msg(on, "no run has %s of %s on", family->knobs[knob].name, family->name);
    }
}
END_TEST

Suite *make_emulator_configs_suite(void) {
  Suite *const suite = suite_create("emulator_configs");
  TCase *const tests = tcase_create("all");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_test(tests, every_rule_has_a_run);
  tcase_add_test(tests, every_switch_has_a_run);
  suite_add_tcase(suite, tests);
  return suite;
}
