/* test_space.c: the default config.
 * in -> out: generator/space.h over all GPUs of the table -> Check suite. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "generator/space.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

/* wgmma wherever it has a legal config; under fine masks it has none. */
START_TEST(defaults_are_of_the_best_family) {
  static const struct {
    const char *request, *gpu, *family;
  } defaults[] = {
      {"bf16 d128 nq4096 causal", "h200", "wgmma_forward"},
      {"fp16 d64 nq40", "h100", "wgmma_forward"},
      {"fp16 d256 nq4096 mask=64x96", "gh200", "wgmma_forward"},
      {"bf16 d128 nq4096 mask=16x128", "h200", "mma_forward"},
      {"bf16 d128 nq4096 mask=128x32", "h200", "mma_forward"},
      {"bf16 d128 nq4096", "a100", "mma_forward"},
      {"bf16 d128 nq4096", "b200", "mma_forward"},
      {"backward bf16 d128 nq4096", "h200", "wgmma_backward"},
      {"backward fp16 d64 hq8 hkv2 nq4096 causal", "h200", "wgmma_backward"},
      {"backward fp16 d80 dv64 nq4096 mask=128x64", "h200", "wgmma_backward"},
      {"backward bf16 d128 nq4096 mask=64x32", "h200", "mma_backward"},
      {"backward bf16 d128 b8 nq4096 causal ragged", "h200", "wgmma_backward"},
      {"backward bf16 d256 nq4096", "h200", "wgmma_backward_roles"},
      {"backward bf16 d256 b8 nq4096 causal ragged", "h200", "wgmma_backward_roles"},
      {"backward bf16 d192 dv128 nq4096 causal", "h200", "wgmma_backward_roles"},
      {"backward fp16 d72 dv136 hq8 hkv2 nq4096 mask=64x128", "h200", "wgmma_backward_roles"},
      {"backward bf16 d64 dv256 nq4096", "h200", "mma_backward"},
      {"backward bf16 d256 nq4096 mask=64x64", "h200", "mma_backward"},
      {"backward bf16 d256 nq4096 dropout deterministic", "h200", "wgmma_backward_roles"},
      {"backward bf16 d128 nq4096 dropout", "h200", "wgmma_backward"},
      {"backward bf16 d128 nq4096 deterministic", "h200", "wgmma_backward"},
      {"backward bf16 d128 nq4096 deterministic mask=128x128", "h200", "mma_backward"},
      {"backward bf16 d128 nq4096", "b200", "mma_backward"},
      {"backward fp16 d128 nq4096", "t4", "mma_backward"},
  };
  for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; ++i) {
    const struct ft_request request = known_request(defaults[i].request);
    const struct ft_arch arch = known_gpu(defaults[i].gpu);
    struct ft_config config;
    ck_assert_int_eq(ft_default_config(&request, &arch, &config), FT_OK);
    ck_assert_msg(strcmp(config.family->name, defaults[i].family) == 0, "%s on %s: %s",
                  defaults[i].request, defaults[i].gpu, config.family->name);
  }
}
END_TEST

/* Every head dim with every V head dim, on one GPU of every compute capability, for masks at which
 * something changes. Of the lengths at which something changes each of these meets one, another in
 * other runs; each of them meets every head dim with every mask. */
START_TEST(every_served_request_has_a_legal_default) {
  static const char *const gpus[] = {"t4", "a30", "a10", "l4", "h200", "b200", "rtx5090"};
  static const char *const passes[] = {"fp16 d16 nq1", "backward fp16 d16 nq1",
                                       "backward fp16 d16 nq1 deterministic"};
  static const int masks[] = {0, 16, 48, 64, 80, 96, 128, 256, 4096};
  static const int64_t lengths[] = {1, 32, 33, 100, 4096};
  enum { MASKS = sizeof masks / sizeof masks[0] };
  const struct ft_arch arch = known_gpu(gpus[_i % 7]);
  struct ft_request request = known_request(passes[_i / 7]);
  seed_cases();
  const int turn = random_int(0, 4);
  for (int d = 16; d <= 256; d += 8)
    for (int dv = 16; dv <= 256; dv += 8)
      for (int mask = 0; mask < MASKS * MASKS; ++mask) {
        request.head_dim = d;
        request.head_dim_v = dv;
        request.mask_rows = masks[mask % MASKS];
        request.mask_cols = masks[mask / MASKS];
        if ((request.mask_rows == 0) != (request.mask_cols == 0)) continue;
        request.seqlen_q = lengths[(turn + d / 8 + dv / 8 + mask) % 5];
        struct ft_config config;
        ck_assert_msg(ft_default_config(&request, &arch, &config) == FT_OK,
                      "%s on %s: d%d dv%d mask=%dx%d nq%d: %s", passes[_i / 7], gpus[_i % 7], d, dv,
                      request.mask_rows, request.mask_cols, (int)request.seqlen_q, ft_detail());
        ck_assert_ptr_null(rule_broken(&request, &arch, &config));
      }
}
END_TEST

START_TEST(default_depends_on_limits_not_on_names) {
  const struct ft_request request = known_request("bf16 d128 hq32 nq4096 causal");
  const struct ft_arch arch = known_gpu("h200");
  struct ft_arch renamed = arch;
  strcpy(renamed.name, "another");
  struct ft_config a, b;
  ck_assert_int_eq(ft_default_config(&request, &arch, &a), FT_OK);
  ck_assert_int_eq(ft_default_config(&request, &renamed, &b), FT_OK);
  ck_assert_int_eq(ft_config_compare(&a, &b), 0);
}
END_TEST

/* A score of a kind, by its number, and what the default on an H200 has. */
static const char *const by_kind[][2] = {
    {"e4m3 d64 hq32 b4 nq4096 score=1000000000001", "block_n="},
    {"d64 hq32 b4 nq4096 score=1000000000001", "block_m=192 block_n=64 stages=4 q_stages=2 "},
    {"d64 hq32 b4 nq4096 causal score=1000000000001",
     "block_m=128 block_n=128 stages=3 q_stages=2 overlap_tiles=1 pingpong=2"},
    {"d64 hq32 b4 nq4096 score=1000000000001", "score_in_smem=2"},
    {"d128 hq32 b4 nq4096 score=1000000000001",
     "pingpong=2 integer_max=1 lazy_rescale=1 score_in_smem=2"},
    {"d64 hq32 b4 nq4096 score=2000000000001",
     "block_m=192 block_n=128 stages=2 q_stages=2 overlap_tiles=1 pingpong=1"},
    {"d64 hq32 b4 nq4096 causal score=2000000000001",
     "block_m=256 block_n=64 stages=4 q_stages=2 overlap_tiles=1 pingpong=2"},
    {"d64 hq32 b4 nq4096 causal score=3000000000001",
     "block_m=256 block_n=64 stages=4 q_stages=2 overlap_tiles=1 pingpong=1"},
    {"d64 hq32 b4 nq4096 score=4000000000001",
     "block_m=192 block_n=128 stages=2 q_stages=2 overlap_tiles=1 pingpong=2"},
    {"d128 hq32 b4 nq4096 score=4000000000001", "overlap_tiles=1 pingpong=2"},
    {"d128 hq32 b4 nq4096 causal score=4000000000001", "overlap_tiles=1 pingpong=1"},
    {"d64 hq32 b4 nq4096 score=5000000000001", "overlap_tiles=1 pingpong=1"},
    {"d64 hq32 b4 nq4096 score=5000000000001", "keys_in_product=1"},
    {"d128 hq32 b4 nq4096 score=5000000000001", "stages=2 q_stages=2 integer_max=1"},
    {"d64 hq32 b4 nq4096 score=3000000000001", "keys_in_product=1"},
    {"d64 hq32 b4 nq4096 mask=128x128@0.5 score=000000000001", "overlap_tiles=1 integer_max=1"},
    {"d128 hq32 b4 nq4096 score=5000000000001", "keys_in_product=1"},
    {"d128 hq32 b4 nq4096 causal score=5000000000001", "overlap_tiles=1 pingpong=1"},
    {"d64 hq32 b4 nq4096 score=7000000000001", "block_m=256 block_n=64 stages=4 q_stages=2 "},
    {"d64 hq32 b4 nq4096 causal score=6000000000001", "block_m=256 block_n=64 "},
    {"d128 hq32 b4 nq4096 score=7000000000001", "block_m=128 block_n=128 stages=2 q_stages=2 "},
    {"d128 hq32 b4 nq4096 causal score=6000000000001", "block_m=128 block_n=64 "},
    {"d64 hq32 b4 nq4096 score=000000000001",
     "block_m=192 block_n=128 stages=2 q_stages=2 overlap_tiles=1 pingpong=1"},
};

START_TEST(defaults_are_by_kind_of_score) {
  const struct ft_arch arch = known_gpu("h200");
  default_has(&arch, by_kind[_i][0], by_kind[_i][1], NULL);
}
END_TEST

/* On an H200 with 132 multiprocessors. Where adds have an order, 33 tiles of 64 keys are few, and
 * walks of four times as many rows as there are keys are long. */
START_TEST(defaults_of_few_key_tiles_are_narrow) {
  static const struct {
    const char *request;
    int block_m, block_n, early_dq;
  } cases[] = {{"backward d128 hq8 hkv1 nq2048", 64, 64, 1},
               {"backward d128 hq8 hkv1 nq2048 deterministic", 64, 64, 1},
               {"backward d128 hq33 hkv11 nq192 deterministic", 64, 128, 0},
               {"backward d128 hq44 hkv11 nq192 deterministic", 64, 64, 1},
               {"backward d128 hq48 hkv12 nq192 deterministic", 64, 128, 0},
               {"backward d64 hq8 hkv1 nq2048", 128, 64, 1},
               {"backward d128 hq8 nq1024 causal", 64, 64, 0},
               {"backward d128 hq9 nq1024 causal", 64, 128, 0},
               {"backward d128 hq8 nq1024 dropout", 64, 64, 1},
               {"backward d128 hq9 nq1024 dropout", 64, 128, 1},
               /* Walks of 1024 queries, of 1536. */
               {"backward d64 hq2 hkv1 b8 nq512", 64, 64, 0},
               {"backward d64 hq3 hkv1 b8 nq512", 128, 64, 1},
               {"backward d64 hq3 hkv1 b8 nq512 dropout", 64, 64, 0},
               {"backward d64 hq8 hkv1 nq2048 dropout deterministic", 128, 64, 1},
               {"backward d128 hq8 hkv1 nq2048 dropout deterministic", 64, 64, 1},
               {"backward d128 hq8 nq1024 dropout deterministic", 64, 128, 0},
               /* Two rounds: of 64 tiles and 2 more in each of four heads, of 65. */
               {"backward d128 hq4 nq4096 causal dropout", 64, 64, 1},
               {"backward d128 hq4 nq4160 causal dropout", 64, 128, 1},
               {"backward d128 hq4 nq4096 causal", 64, 128, 1},
               {"backward d128 hq4 nq4096 dropout", 64, 128, 1},
               {"backward d128 hq4 nq8192 nk4096 causal dropout", 64, 128, 1},
               {"backward d128 hq4 nq4096 causal window@64,0 dropout", 64, 128, 1},
               /* All at once and short, in a second round, longer. */
               {"backward d64 hq8 b4 nq512 dropout", 64, 128, 0},
               {"backward d64 hq8 b5 nq512 dropout", 64, 128, 1},
               {"backward d64 hq8 b4 nq576 dropout", 64, 128, 1},
               {"backward d64 hq8 b8 nq2048 dropout", 128, 128, 1},
               {"backward d128 hq8 nq1024 mask=128x128", 64, 128, 1},
               /* 224 tiles: two rounds; 308: three */
               {"backward d64 hq8 hkv4 b8 nq777 deterministic", 64, 128, 1},
               {"backward d64 hq8 hkv4 b11 nq777 deterministic", 64, 128, 0},
               {"backward d64 hq12 b16 nq1024", 128, 128, 1},
               {"backward d64 hq12 b16 nq1024 causal", 64, 128, 0},
               {"backward d64 hq12 b16 nq1023", 64, 128, 1},
               {"backward d64 hq12 b8 nq2048", 128, 128, 1},
               {"backward d64 hq12 b16 nq1024 window@64,0", 128, 128, 1}};
  const struct ft_arch arch = known_gpu("h200");
  for (size_t n = 0; n < sizeof cases / sizeof *cases; ++n) {
    const struct ft_request request = known_request(cases[n].request);
    struct ft_config config;
    ck_assert_int_eq(ft_default_config(&request, &arch, &config), FT_OK);
    ck_assert_msg(ft_config_block_m(&config) == cases[n].block_m &&
                      ft_config_block_n(&config) == cases[n].block_n &&
                      *knob_of(&config, "early_dq") == cases[n].early_dq,
                  "%s: %dx%d", cases[n].request, ft_config_block_m(&config),
                  ft_config_block_n(&config));
  }
}
END_TEST

/* K and V in registers, and what goes with it. */
START_TEST(defaults_of_short_backwards_keep_keys_in_registers) {
  static const char *const cases[][2] = {
      {"backward d64 hq4 b4 nq512",
       "block_m=64 block_n=64 q_stages=2 do_stages=2 ds_stages=2 kv_in_regs=1 early_scores=1 "
       "direct_store=1"},
      {"backward d64 hq2 b2 nq2127 causal dropout",
       "block_m=64 block_n=64 q_stages=2 do_stages=2 ds_stages=2 kv_in_regs=1 early_scores=1 "
       "direct_store=1"},
      {"backward d64 hq8 b4 nq512 dropout",
       "block_m=64 block_n=128 q_stages=2 do_stages=2 ds_stages=2 kv_in_regs=1 direct_store=1 "
       "pacing=2"},
      {"backward d72 hq4 b8 nq808", "q_stages=3 do_stages=3 ds_stages=2 kv_in_regs=1 "},
      {"backward d72 hq4 b8 nq808 deterministic",
       "q_stages=2 do_stages=2 ds_stages=2 kv_in_regs=1 "}};
  const struct ft_arch arch = known_gpu("h200");
  for (size_t n = 0; n < sizeof cases / sizeof *cases; ++n)
    default_has(&arch, cases[n][0], cases[n][1], NULL);
}
END_TEST

/* The same of fp32 and tf32, whose key blocks fill 132 multiprocessors or not. */
START_TEST(defaults_of_few_key_blocks_are_narrow) {
  static const char *const cases[][2] = {
      {"backward tf32 d64 hq8 nq4096", "block_m=32 block_n=64 "},
      {"backward tf32 d64 hq9 nq4096", "block_m=32 block_n=256 "},
      {"backward tf32 d128 hq4 hkv1 b4 nq4096", "block_m=32 block_n=64 "},
      {"backward tf32 d128 hq4 hkv1 b5 nq4096", "block_m=32 block_n=128 "},
      {"backward fp32 d64 hq4 nq197", "block_m=32 block_n=64 "},
      {"backward fp32 d64 hq8 b4 nq1024", "block_m=32 block_n=128 "},
      {"backward fp32 d128 hq4 nq197", "block_m=64 block_n=64 "}};
  const struct ft_arch arch = known_gpu("h200");
  for (size_t n = 0; n < sizeof cases / sizeof *cases; ++n)
    default_has(&arch, cases[n][0], cases[n][1], NULL);
}
END_TEST

/* Of small forwards, on an H200 with 132 multiprocessors, by how many tiles there are and how far
 * these walk: has, lacks. */
static const char *const small_forwards[][3] = {
    /* Tiles of 64 rows: one round of them, and more rounds where larger tiles would not fill one.
     */
    {"d64 hq8 b2 nq256 causal", "block_m=64 block_n=64 stages=3 q_stages=2 overlap_tiles=1 lazy",
     "integer_max"},
    {"d64 hq8 b2 nq256 causal", " lpt=1", "split_keys"},
    {"d64 hq4 b8 nq384 causal", "block_m=64 block_n=64 ", "lpt"},
    {"d64 hq8 b2 nq1024 causal", "block_m=64 block_n=64 stages=3 q_stages=2 overlap_tiles=1 integ",
     "lpt"},
    {"d128 hq8 b4 nq256 dropout", "block_m=64 block_n=64 ", "lpt"},
    {"e4m3 d128 hq8 b2 nq256 causal", "block_m=64 block_n=64 ", "split_keys"},
    {"d256 hq8 b2 nq300 causal", "block_m=64 block_n=64 stages=2 q_stages=2 overlap_tiles=1",
     "pack_gqa"},
    {"d256 hq16 b4 nq300 causal", "block_m=128 ", "lpt"},
    {"d256 hq8 b2 nq300", "block_m=64 block_n=64 stages=3 q_stages=1", "overlap_tiles"},
    /* Long walks, in steps of more keys. */
    {"d128 hq8 hkv2 nq1024 causal", "block_m=64 block_n=128 stages=3 q_stages=1 ", "overlap_tiles"},
    {"d64 hq4 b2 nq3458 causal", "block_m=128 block_n=112 ", "block_m=256"},
    {"d64 hq4 b4 nq3458 causal", "block_m=256 block_n=64 ", "block_m=128"},
    /* Tiles of more rows, where as many rounds suffice, and of as many keys as leave few unused. */
    {"d64 hq16 b4 nq200", "block_m=128 block_n=112 stages=3 q_stages=2 overlap_tiles=1 pingpong=2",
     "lpt"},
    {"d64 hq12 b16 nq237", "block_m=128 block_n=80 ", "block_m=64"},
    {"d128 hq4 b32 nq367 causal", "block_m=192 block_n=64 ", "pingpong=2"},
    {"d128 hq64 hkv8 nq197 dropout", "block_m=128 block_n=64 ", "pingpong=2"},
    {"d64 hq8 hkv4 b32 nq197", "block_m=256 block_n=64 ", "pack_gqa"},
    /* Heads are packed where the tiles then walk over fewer keys. */
    {"d128 hq32 hkv8 b2 nq400 causal", "block_m=128 block_n=64 ", "lpt"},
    {"d128 hq32 hkv8 b2 nq400 causal", "pack_gqa=1", "split_keys"},
    {"d128 hq24 hkv12 nq256 causal dropout", "block_m=64 block_n=64 ", "pack_gqa"},
    /* Requests that are not small, or whose defaults other tables have. */
    {"d64 hq8 b2 nq256 causal score=2000000000001", "block_n=128 ", "lpt"},
    {"d64 hq12 b64 nq1024 causal", "block_m=256 block_n=64 ", "lpt"},
    {"d128 nq64 nk2048", "split_keys=8", "lpt"},
    {"tf32 d64 hq12 b2 nq384 causal", "block_m=64 block_n=64 warps=4 stages=2 q_in_regs=1 overlap",
     "split_keys"},
    {"tf32 d128 hq8 b2 nq256", "block_m=64 block_n=32 warps=4 stages=3 q_in_regs=1 ctas",
     "split_keys"},
    {"tf32 d128 hq16 b4 nq512 causal", "block_m=128 block_n=32 ", "q_in_regs"},
    /* 64 tiles, whose keys are divided among twice as many multiprocessors. */
    {"fp32 d64 hq8 b2 nq256 causal", "block_m=64 block_n=32 warps=4 stages=3 split_keys=1",
     "q_in_regs"},
};

START_TEST(defaults_of_small_forwards_fill_the_gpu) {
  const char *const *const of = small_forwards[_i];
  const struct ft_arch arch = known_gpu("h200");
  default_has(&arch, of[0], of[1], of[2]);
}
END_TEST

Suite *make_space_suite(void) {
  Suite *const suite = suite_create("space");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, defaults_are_of_the_best_family);
  tcase_add_loop_test(tests, every_served_request_has_a_legal_default, 0, 3 * 7);
  tcase_add_test(tests, default_depends_on_limits_not_on_names);
  tcase_add_loop_test(tests, defaults_are_by_kind_of_score, 0, sizeof by_kind / sizeof by_kind[0]);
  tcase_add_test(tests, defaults_of_few_key_tiles_are_narrow);
  tcase_add_test(tests, defaults_of_short_backwards_keep_keys_in_registers);
  tcase_add_test(tests, defaults_of_few_key_blocks_are_narrow);
  tcase_add_loop_test(tests, defaults_of_small_forwards_fill_the_gpu, 0,
                      sizeof small_forwards / sizeof small_forwards[0]);
  suite_add_tcase(suite, tests);
  return suite;
}
