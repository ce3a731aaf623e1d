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
    ck_assert_ptr_nonnull(knob);
    ck_assert(knob->name[0] != '\0' && knob->meaning[0] != '\0' && knob->value_count > 0);
    for (int j = 0; j < i; ++j) ck_assert_str_ne(knob->name, ft_knob(j)->name);
    for (int j = 0; j < knob->value_count; ++j)
      for (int k = 0; k < j; ++k) ck_assert_int_ne(knob->values[j], knob->values[k]);
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
      "mma block_m=128 block_n=64 warps=4 stages=2 q_in_regs=0 overlap=1 ctas_per_sm=2");
  const struct ft_config b = known_config("  mma\t ctas_per_sm=2 overlap=1 q_in_regs=0 stages=2 "
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
    {"wgmma block_m=64", "'wgmma'"},
    {"mma", "'block_m' is missing"},
    {"mma block_m=128 block_n=64 warps=4 stages=2 q_in_regs=0 overlap=1",
     "'ctas_per_sm' is missing"},
    {"+block_m=128", "'block_m' is given twice"},
    {"+colour=3", "'colour=3'"},
    {"+block=3", "'block=3'"},
    {"+block_mm=3", "'block_mm=3'"},
    {"+=3", "'=3'"},
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
  tcase_add_test(tests, text_survives_a_round_trip);
  tcase_add_test(tests, words_come_in_any_order);
  tcase_add_loop_test(tests, bad_text_is_named, 0, sizeof bad_texts / sizeof bad_texts[0]);
  tcase_add_test(tests, compare_is_a_total_order);
  suite_add_tcase(suite, tests);
  return suite;
}
