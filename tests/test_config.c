/* test_config.c: the text form of configs.
 * in -> out: generator/config.h -> Check suite. */
#include <check.h>
#include <string.h>

#include "generator/config.h"
#include "generator/status.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

/* A text with every knob at a value of its own, and what is printed: the same without zeros. */
START_TEST(a_text_leaves_switches_out_that_are_zero) {
  const struct ft_config config =
      known_config("wgmma_forward block_m=128 block_n=176 stages=2 q_stages=2 overlap_tiles=1 "
                   "pingpong=0 integer_max=1 exp2_poly=0 multicast=1 pack_gqa=1");
  struct ft_text text = FT_TEXT_INIT;
  ft_config_print(&config, &text);
  ck_assert_str_eq(text.data, "wgmma_forward block_m=128 block_n=176 stages=2 q_stages=2 "
                              "overlap_tiles=1 integer_max=1 multicast=1 pack_gqa=1");
  ft_text_free(&text);
}
END_TEST

START_TEST(a_family_has_a_target) {
  const struct ft_arch h200 = known_gpu("h200"), a10 = known_gpu("a10");
  const struct ft_config mma = FT_CONFIG(mma_forward, .block_m = 64);
  const struct ft_config wgmma = FT_CONFIG(wgmma_forward, .block_m = 64);
  char target[16];
  ft_config_target(&mma, &h200, target);
  ck_assert_str_eq(target, "sm_90");
  ft_config_target(&wgmma, &h200, target);
  ck_assert_str_eq(target, "sm_90a");
  ft_config_target(&mma, &a10, target);
  ck_assert_str_eq(target, "sm_86");
}
END_TEST

START_TEST(switches_may_be_left_out) {
  const struct ft_config a =
      known_config("wgmma_forward block_m=64 block_n=80 stages=3 q_stages=1");
  struct ft_config b;
  ck_assert_int_eq(ft_config_parse(&b, "wgmma_forward q_stages=1 stages=3 block_n=80 block_m=64"),
                   FT_OK);
  ck_assert_int_eq(ft_config_compare(&a, &b), 0);
  const struct ft_wgmma_forward_knobs *const k = ft_wgmma_forward_knobs(&b);
  ck_assert(k->overlap_tiles == 0 && k->pingpong == 0 && k->lazy_rescale == 0);
}
END_TEST

START_TEST(text_survives_a_round_trip) {
  seed_cases();
  for (int round = 0; round < 2000; ++round) {
    const struct ft_config config = random_config();
    struct ft_config again;
    struct ft_text first = FT_TEXT_INIT, second = FT_TEXT_INIT;
    ft_config_print(&config, &first);
    ck_assert_msg(ft_config_parse(&again, first.data) == FT_OK, "seed %llu: %s",
                  (unsigned long long)cases_seed, ft_detail());
    ck_assert_int_eq(ft_config_compare(&config, &again), 0);
    ft_config_print(&again, &second);
    ck_assert_str_eq(first.data, second.data);
    ft_text_free(&first);
    ft_text_free(&second);
  }
}
END_TEST

START_TEST(words_come_in_any_order) {
  const struct ft_config a = known_config(
      "mma_forward block_m=128 block_n=64 warps=4 stages=2 q_in_regs=0 overlap_qk=1 ctas_per_sm=2");
  const struct ft_config b =
      known_config("  mma_forward\t ctas_per_sm=2 overlap_qk=1 q_in_regs=0 stages=2 "
                   "\n warps=4  block_n=64 block_m=128");
  ck_assert_int_eq(ft_config_compare(&a, &b), 0);
  struct ft_text text = FT_TEXT_INIT;
  ft_config_print(&b, &text);
  ck_assert_ptr_eq(strstr(text.data, "mma_forward block_m=128 block_n=64 warps=4 "), text.data);
  ft_text_free(&text);
}
END_TEST

/* What is wrong, after all knobs ("+") or instead of them, and what the message must name. */
static const char *const bad_texts[][2] = {
    {"", "family ''"},
    {"wmma block_m=64", "family 'wmma'"},
    {"mma block_m=64", "allowed: mma_forward, wgmma_forward, mma_backward, wgmma_backward, "
                       "wgmma_backward_roles"},
    {"mma_forward", "'block_m' is missing"},
    {"wgmma_forward block_m=64", "'block_n' is missing"},
    {"wgmma_forward block_m=64 block_n=64 stages=2", "'q_stages' is missing"},
    {"wgmma_forward warps=4", "config: wgmma_forward has no knob 'warps'"},
    {"wgmma_forward colour=3",
     "allowed: block_m, block_n, stages, q_stages, overlap_tiles, pingpong, "},
    {"mma_forward q_stages=1", "config: mma_forward has no knob 'q_stages'"},
    {"mma_forward q_stages", "allowed: block_m, block_n, warps, stages, q_in_regs, overlap_qk, "
                             "draw_early, key_warps, two_level, pack_gqa, split_keys, ctas_per_sm"},
    {"mma_forward block_m=128 block_n=64 warps=4 stages=2 q_in_regs=0 overlap_qk=1",
     "'ctas_per_sm' is missing"},
    {"+block_m=128", "'block_m' is given twice"},
    {"+colour=3", "'colour'"},
    {"+block=3", "'block'"},
    {"+block_mm=3", "'block_mm'"},
    {"+=3", "no knob ''"},
    {"+mma_forward", "'mma_forward'"},
    {"mma_forward block_m", "'block_m'"},
    {"mma_forward block_m=", "'block_m='"},
    {"mma_forward block_m=-1", "'block_m=-1'"},
    {"mma_forward block_m=+1", "'block_m=+1'"},
    {"mma_forward block_m=0x40", "'block_m=0x40'"},
    {"mma_forward block_m=64.0", "'block_m=64.0'"},
    {"mma_forward block_m=2147483648", "'block_m=2147483648'"},
    {"mma_forward block_m=99999999999999999999999", "'block_m=99999999999999999999999'"},
};

START_TEST(bad_text_is_named) {
  const char *const *const bad = bad_texts[_i];
  const struct ft_config before = FT_CONFIG(mma_forward, .warps = 77);
  struct ft_config config = before;
  struct ft_text text = FT_TEXT_INIT;
  if (bad[0][0] == '+')
    ft_text_add(&text, "mma_forward block_m=64 block_n=64 warps=4 stages=2 ctas_per_sm=1");
  ft_text_add(&text, " %s", bad[0][0] == '+' ? bad[0] + 1 : bad[0]);
  ck_assert_msg(ft_config_parse(&config, text.data) == FT_E_ARGUMENT, "'%s' was taken", text.data);
  ck_assert_msg(strstr(ft_detail(), bad[1]) != NULL, "'%s': '%s' lacks %s", text.data, ft_detail(),
                bad[1]);
  ck_assert_int_eq(ft_config_compare(&config, &before), 0); /* untouched on failure */
  ft_text_free(&text);
}
END_TEST

START_TEST(compare_is_a_total_order) {
  seed_cases();
  for (int round = 0; round < 2000; ++round) {
    const struct ft_config a = random_candidate(), b = random_candidate(), c = random_candidate();
    const int ab = ft_config_compare(&a, &b), bc = ft_config_compare(&b, &c);
    ck_assert_int_eq(ft_config_compare(&a, &a), 0);
    ck_assert_int_eq(ft_config_compare(&b, &a), -ab);
    if (ab <= 0 && bc <= 0)
      ck_assert_msg(ft_config_compare(&a, &c) <= 0, "seed %llu", (unsigned long long)cases_seed);
  }
}
END_TEST

Suite *make_config_suite(void) {
  Suite *const suite = suite_create("config");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, a_text_leaves_switches_out_that_are_zero);
  tcase_add_test(tests, a_family_has_a_target);
  tcase_add_test(tests, switches_may_be_left_out);
  tcase_add_test(tests, text_survives_a_round_trip);
  tcase_add_test(tests, words_come_in_any_order);
  tcase_add_loop_test(tests, bad_text_is_named, 0, sizeof bad_texts / sizeof bad_texts[0]);
  tcase_add_test(tests, compare_is_a_total_order);
  suite_add_tcase(suite, tests);
  return suite;
}
