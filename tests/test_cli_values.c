/* test_cli_values.c: numbers of options, at their limits and wrong in each way.
 * in -> out: texts -> values, or a message that has the text -> Check suite. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "generator/status.h"
#include "tests/suites.h"
#include "tuner/cli/cli_values.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static void assert_refused(int status, const char *text) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "--x is '%s'; allowed: ", text);
  ck_assert_msg(status == FT_E_ARGUMENT, "'%s' is taken (%d)", text, status);
  ck_assert_msg(strncmp(ft_detail(), quoted, strlen(quoted)) == 0, "%s", ft_detail());
}

START_TEST(times_are_above_0_and_have_units) {
  static const struct {
    const char *text;
    double seconds;
  } right[] = {{"90", 90}, {"90s", 90}, {"1.5m", 90}, {"2h", 7200}, {"1e3", 1000}, {".5", 0.5}};
  static const char *const wrong[] = {"",    "s",   "-1",  "0",      "nan", "inf", " 1", "1d",
                                      "1ss", "1 s", "0x9", "1e9999", "2e9", "1e",  "--1"};
  double seconds;
  for (int i = 0; i < COUNT(right); i++) {
    ck_assert_int_eq(cli_duration("--x", right[i].text, &seconds), FT_OK);
    ck_assert_double_eq(seconds, right[i].seconds);
  }
  for (int i = 0; i < COUNT(wrong); i++)
    assert_refused(cli_duration("--x", wrong[i], &seconds), wrong[i]);
}
END_TEST

START_TEST(bytes_have_units) {
  static const struct {
    const char *text;
    int64_t bytes;
  } right[] = {{"0", 0},        {"7", 7},
               {"7B", 7},       {"64k", 65536},
               {"2M", 2097152}, {"8388607T", INT64_C(8388607) << 40},
               {"1g", 1 << 30}, {"9223372036854775807", INT64_MAX}};
  static const char *const wrong[] = {
      "", "K", "-1", "-1K", "5X", "5KB", "8388608T", "9223372036854775808", " 5", "5 ", "5.0"};
  int64_t bytes;
  for (int i = 0; i < COUNT(right); i++) {
    ck_assert_int_eq(cli_bytes("--x", right[i].text, &bytes), FT_OK);
    ck_assert_int_eq(bytes, right[i].bytes);
  }
  for (int i = 0; i < COUNT(wrong); i++)
    assert_refused(cli_bytes("--x", wrong[i], &bytes), wrong[i]);
}
END_TEST

START_TEST(reals_lie_between_their_limits) {
  static const char *const wrong[] = {"", "0.6", "-0.1", "nan", "0.1x", "0x1", " 0.1", "."};
  double value;
  ck_assert_int_eq(cli_real("--x", "0.5", 0, 0.5, &value), FT_OK);
  ck_assert_double_eq(value, 0.5);
  ck_assert_int_eq(cli_real("--x", "0", 0, 0.5, &value), FT_OK);
  for (int i = 0; i < COUNT(wrong); i++)
    assert_refused(cli_real("--x", wrong[i], 0, 0.5, &value), wrong[i]);
}
END_TEST

START_TEST(pairs_are_one_or_two_integers) {
  static const char *const wrong[] = {"",    ":", "1:",  ":1",    "0", "0:1",
                                      "1:0", "9", "1:9", "1:2:3", "1x"};
  int64_t first, second;
  ck_assert_int_eq(cli_pair("--x", "8", 8, &first, &second), FT_OK);
  ck_assert(first == 8 && second == 8);
  ck_assert_int_eq(cli_pair("--x", "1:8", 8, &first, &second), FT_OK);
  ck_assert(first == 1 && second == 8);
  for (int i = 0; i < COUNT(wrong); i++)
    assert_refused(cli_pair("--x", wrong[i], 8, &first, &second), wrong[i]);
}
END_TEST

START_TEST(shares_are_two_integers) {
  static const char *const wrong[] = {"", "/", "1", "1/", "/2", "1/2/3", "1/2 ", "x/2", "1/x"};
  int64_t index, count;
  ck_assert(cli_share("3/20", &index, &count));
  ck_assert(index == 3 && count == 20);
  for (int i = 0; i < COUNT(wrong); i++)
    ck_assert_msg(!cli_share(wrong[i], &index, &count), "'%s' is taken", wrong[i]);
}
END_TEST

Suite *make_cli_values_suite(void) {
  Suite *const suite = suite_create("cli_values");
  TCase *const tests = tcase_create("numbers");
  tcase_add_test(tests, times_are_above_0_and_have_units);
  tcase_add_test(tests, bytes_have_units);
  tcase_add_test(tests, reals_lie_between_their_limits);
  tcase_add_test(tests, pairs_are_one_or_two_integers);
  tcase_add_test(tests, shares_are_two_integers);
  suite_add_tcase(suite, tests);
  return suite;
}
