/* test_emulator_wide.c: outputs in fp32 of 16-bit operands, by every way they take to memory.
 * in -> out: request with o=fp32, config -> every row against float64; bugs planted. */
#include "tests/emulator_lab.h"
#include "tests/suites.h"

#define WGMMA "wgmma_forward block_m=64 block_n=64 stages=2 q_stages=1 direct_store=1"
#define ROWS  "mma_forward block_m=16 block_n=64 warps=4 stages=2 ctas_per_sm=1 key_warps=4"
#define FLAT  "mma_forward block_m=64 block_n=32 warps=4 stages=2 ctas_per_sm=1"
#define BACKWARD                                                                                   \
  "mma_backward block_m=64 block_n=64 warps=8 stages=2 column_warps=1 query_parts=1 ctas_per_sm=1"
#define HOPPER                                                                                     \
  "wgmma_backward block_m=64 block_n=64 q_stages=2 do_stages=2 ds_stages=2 direct_store=1"

/* Without a config the default one. */
static const struct {
  const char *request, *config;
} runs[] = {
    {"bf16 o=fp32 d64 hq2 hkv1 b2 nq130 nk190 causal", WGMMA " overlap_tiles=1"},
    {"fp16 o=fp32 d72 dv40 hq4 hkv2 nq70 nk150 sinks", WGMMA " pack_gqa=1"},
    {"bf16 o=fp32 d64 hq4 hkv2 nq5 nk600", WGMMA " split_keys=1 pack_gqa=1"},
    {"bf16 o=fp32 d32 hq4 hkv2 nq3 nk600", WGMMA " split_keys=2"},
    {"fp16 o=fp32 d64 hq2 b2 nq3 nk300 pages=16", NULL},
    {"bf16 o=fp32 d32 hq2 b3 nq200 nk300 ragged causal", NULL},
    {"fp16 o=fp32 d40 hq2 nq70 nk150 dropout", FLAT},
    {"bf16 o=fp32 d64 hq4 hkv2 nq60 nk400", FLAT " split_keys=1"},
    {"bf16 o=fp32 d64 hq4 hkv2 nq3 nk400", ROWS " pack_gqa=1"},
    {"bf16 o=fp32 d64 hq4 hkv2 nq3 nk400", ROWS " pack_gqa=1 split_keys=2"},
    {"backward bf16 o=fp32 d64 dv40 hq2 hkv1 nq100 nk150 causal", HOPPER},
    {"backward fp16 o=fp32 d32 hq2 b3 nq200 nk190 ragged causal", NULL},
    {"backward bf16 o=fp32 d32 nq300 nk300 mask=64x64@0.5", HOPPER " part_steps=1"},
    {"backward fp16 o=fp32 d136 dv72 nq100 nk150 causal", NULL},
    {"backward bf16 o=fp32 d40 dv24 hq2 hkv1 nq100 nk150 causal=top-left", BACKWARD " dq_mode=0"},
    {"backward fp16 o=fp32 d24 nq100 nk150 window@20,5", BACKWARD " dq_mode=2"},
};

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  emulator_row_by_row(runs[number].request, (enum ft_layout)(number % 3), 0, runs[number].config);
}
END_TEST

/* Where a row has one key P is 1 and the plain computation exact, but for what dropout scales it
 * by: so an O that lost its low bits is seen. */
START_TEST(no_output_is_rounded_to_16_bits) {
  const struct planted planted =
      emulator_plant("parts/outputs_fp32.cu.in", "u64(__float_as_uint(second)) << 32",
                     "u64(__float_as_uint(second) & 0xffff0000u) << 32");
  struct emulator_run run;
  const struct ft_problem_options options =
      emulator_options("bf16 o=fp32 d64 hq4 nq60 nk1 dropout", FT_LAYOUT_PADDED, emulator_seed());
  emulator_run_alone(&run, planted.folder, &options, FLAT);
  emulator_expect_wrong("O whose low bits are lost", &run);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

Suite *make_emulator_wide_suite(void) {
  Suite *const suite = suite_create("emulator_wide");
  TCase *const tests = tcase_create("wide");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_test(tests, no_output_is_rounded_to_16_bits);
  suite_add_tcase(suite, tests);
  return suite;
}
