/* test_config.c: the knob list and the text form of configs.
 * in -> out: generator/config.h, knobs.def -> Check suite. */
#include <check.h>
#include <string.h>

#include "generator/config.h"
#include "generator/status.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

START_TEST(knobs_are_listed_once) {
  for (int i = 0; i < FT_KNOB_COUNT; ++i) {
    const struct ft_knob *const knob = ft_knob(i);
    int families = 0;
    ck_assert_ptr_nonnull(knob);
    ck_assert(knob->name[0] != '\0' && knob->meaning[0] != '\0');
    for (int j = 0; j < i; ++j) ck_assert_str_ne(knob->name, ft_knob(j)->name);
    for (int family = 0; family < FT_FAMILY_COUNT; ++family) {
      const struct ft_values values = knob->values[family];
      ck_assert_int_gt(values.count, 0);
      for (int j = 0; j < values.count; ++j)
        for (int k = 0; k < j; ++k) ck_assert_int_ne(values.list[j], values.list[k]);
      families += ft_family_has((enum ft_family)family, i);
    }
    ck_assert_int_gt(families, 0);
  }
  ck_assert_ptr_null(ft_knob(-1));
  ck_assert_ptr_null(ft_knob(FT_KNOB_COUNT));
}
END_TEST

START_TEST(every_knob_has_a_place_of_its_own) {
  struct ft_config config = {.family = FT_FAMILY_MMA};
  for (int i = 0; i < FT_KNOB_COUNT; ++i) ft_config_set(&config, i, 100 + i);
  for (int i = 0; i < FT_KNOB_COUNT; ++i) ck_assert_int_eq(ft_config_get(&config, i), 100 + i);
  ck_assert_int_eq(config.block_m, 100 + FT_KNOB_block_m);
  ck_assert_int_eq(config.ctas_per_sm, 100 + FT_KNOB_ctas_per_sm);
}
END_TEST

static const char *const whole_texts[] = {
    "mma block_m=128 block_n=64 warps=4 stages=2 q_in_regs=1 overlap_qk=0 draw_early=1 "
    "ctas_per_sm=2",
    "wgmma block_m=128 block_n=176 stages=2 q_stages=2 overlap_tiles=1 pingpong=0 integer_max=1 "
    "exp2_poly=0 lazy_rescale=1 p_in_smem=0 direct_store=0 ascending_keys=0 lpt=0 multicast=1 "
    "pack_gqa=1 "
    "ctas_per_sm=1",
    "mma_backward block_m=64 block_n=128 warps=8 stages=2 column_warps=1 query_parts=1 "
    "kv_in_regs=0 "
    "deferred_dq=1 dq_mode=2 ctas_per_sm=1",
};

/* The caches hold these texts: neither words nor their order may change. */
START_TEST(a_family_names_its_own_knobs) {
  struct ft_text text = FT_TEXT_INIT;
  struct ft_config config = known_config(whole_texts[_i]);
  ck_assert_int_eq(config.family, _i);
  ft_config_print(&config, &text);
  ck_assert_str_eq(text.data, whole_texts[_i]);

  /* What another family's knob holds is no part of the config. */
  const struct ft_config same = config;
  for (int i = 0; i < FT_KNOB_COUNT; ++i) {
    if (ft_family_has(config.family, i)) continue;
    ck_assert_int_eq(ft_config_get(&config, i), 0);
    ft_config_set(&config, i, 7);
  }
  ck_assert_int_eq(ft_config_compare(&same, &config), 0);
  ft_text_clear(&text);
  ft_config_print(&config, &text);
  ck_assert_str_eq(text.data, whole_texts[_i]);
  ft_text_free(&text);
}
END_TEST

START_TEST(a_family_has_a_target) {
  const struct ft_arch h200 = known_gpu("h200"), a10 = known_gpu("a10");
  const struct ft_config mma = known_config(whole_texts[FT_FAMILY_MMA]);
  const struct ft_config wgmma = known_config(whole_texts[FT_FAMILY_WGMMA]);
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
      known_config("wgmma block_m=64 block_n=80 stages=3 q_stages=1 ctas_per_sm=1");
  struct ft_config b;
  ck_assert_int_eq(
      ft_config_parse(&b, "wgmma ctas_per_sm=1 q_stages=1 stages=3 block_n=80 block_m=64"), FT_OK);
  ck_assert_int_eq(ft_config_compare(&a, &b), 0);
  ck_assert(b.overlap_tiles == 0 && b.pingpong == 0 && b.lazy_rescale == 0);
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
      "mma block_m=128 block_n=64 warps=4 stages=2 q_in_regs=0 overlap_qk=1 ctas_per_sm=2");
  const struct ft_config b = known_config("  mma\t ctas_per_sm=2 overlap_qk=1 q_in_regs=0 stages=2 "
                                          "\n warps=4  block_n=64 block_m=128");
  ck_assert_int_eq(ft_config_compare(&a, &b), 0);
  struct ft_text text = FT_TEXT_INIT;
  ft_config_print(&b, &text);
  ck_assert_ptr_eq(strstr(text.data, "mma block_m=128 block_n=64 warps=4 "), text.data);
  ft_text_free(&text);
}
END_TEST

/* What is wrong, after all knobs ("+") or instead of them, and what the message must name. */
static const char *const bad_texts[][2] = {
    {"", "family ''"},
    {"wmma block_m=64", "family 'wmma'"},
    {"mma", "'block_m' is missing"},
    {"wgmma block_m=64", "'block_n' is missing"},
    {"wgmma block_m=64 block_n=64 stages=2 ctas_per_sm=1", "'q_stages' is missing"},
    {"wgmma warps=4", "config: wgmma has no knob 'warps'"},
    {"wgmma colour=3", "allowed: block_m, block_n, stages, q_stages, overlap_tiles, pingpong, "},
    {"mma q_stages=1", "config: mma has no knob 'q_stages'"},
    {"mma q_stages", "allowed: block_m, block_n, warps, stages, q_in_regs, overlap_qk, draw_early, "
                     "ctas_per_sm"},
    {"mma block_m=128 block_n=64 warps=4 stages=2 q_in_regs=0 overlap_qk=1",
     "'ctas_per_sm' is missing"},
    {"+block_m=128", "'block_m' is given twice"},
    {"+colour=3", "'colour'"},
    {"+block=3", "'block'"},
    {"+block_mm=3", "'block_mm'"},
    {"+=3", "no knob ''"},
    {"+mma", "'mma'"},
    {"mma block_m", "'block_m'"},
    {"mma block_m=", "'block_m='"},
    {"mma block_m=-1", "'block_m=-1'"},
    {"mma block_m=+1", "'block_m=+1'"},
    {"mma block_m=0x40", "'block_m=0x40'"},
    {"mma block_m=64.0", "'block_m=64.0'"},
    {"mma block_m=2147483648", "'block_m=2147483648'"},
    {"mma block_m=99999999999999999999999", "'block_m=99999999999999999999999'"},
};

START_TEST(bad_text_is_named) {
  const char *const *const bad = bad_texts[_i];
  struct ft_config config = {.warps = 77};
  struct ft_text text = FT_TEXT_INIT;
  if (bad[0][0] == '+') complete_config("mma", &text);
  ft_text_add(&text, " %s", bad[0][0] == '+' ? bad[0] + 1 : bad[0]);
  ck_assert_msg(ft_config_parse(&config, text.data) == FT_E_ARGUMENT, "'%s' was taken", text.data);
  ck_assert_msg(strstr(ft_detail(), bad[1]) != NULL, "'%s': '%s' lacks %s", text.data, ft_detail(),
                bad[1]);
  ck_assert_int_eq(config.warps, 77); /* untouched on failure */
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
  tcase_add_test(tests, knobs_are_listed_once);
  tcase_add_test(tests, every_knob_has_a_place_of_its_own);
  tcase_add_loop_test(tests, a_family_names_its_own_knobs, 0, FT_FAMILY_COUNT);
  tcase_add_test(tests, a_family_has_a_target);
  tcase_add_test(tests, switches_may_be_left_out);
  tcase_add_test(tests, text_survives_a_round_trip);
  tcase_add_test(tests, words_come_in_any_order);
  tcase_add_loop_test(tests, bad_text_is_named, 0, sizeof bad_texts / sizeof bad_texts[0]);
  tcase_add_test(tests, compare_is_a_total_order);
  suite_add_tcase(suite, tests);
  return suite;
}
