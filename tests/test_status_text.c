/* test_status_text.c: status sentences, the thread's detail, the text buffer, digests.
 * in -> out: generator/{status,text,digest} -> Check suite. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "generator/digest.h"
#include "generator/status.h"
#include "generator/text.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

START_TEST(every_status_has_its_own_sentence) {
  for (int a = 0; a >= FT_E_NO_CXX; --a) {
    ck_assert_str_ne(ft_status_text(a), "unknown status");
    for (int b = 0; b > a; --b) ck_assert_str_ne(ft_status_text(a), ft_status_text(b));
  }
  ck_assert_str_eq(ft_status_text(1), "unknown status");
  ck_assert_str_eq(ft_status_text(FT_E_NO_CXX - 1), "unknown status");
}
END_TEST

START_TEST(detail_can_quote_itself) {
  ck_assert_int_eq(ft_fail(FT_E_IO, "x is %d", 7), FT_E_IO);
  ck_assert_int_eq(ft_fail(FT_E_CACHE, "again: %s (%s)", ft_detail(), ft_detail()), FT_E_CACHE);
  ck_assert_str_eq(ft_detail(), "again: x is 7 (x is 7)");
  ck_assert_int_eq(ft_fail_within(FT_E_CACHE, "file %s", "a.db"), FT_E_CACHE);
  ck_assert_str_eq(ft_detail(), "file a.db: again: x is 7 (x is 7)");
}
END_TEST

START_TEST(detail_is_cut_not_overrun) {
  struct ft_text log = FT_TEXT_INIT;
  for (int i = 0; i < 20000; ++i) ft_text_append(&log, "y", 1);
  ft_fail(FT_E_COMPILE, "%s", log.data);
  const size_t length = strlen(ft_detail());
  ck_assert_uint_gt(length, 4000);
  ck_assert_uint_lt(length, 20000);
  for (int i = 0; i < 4; ++i) ft_fail_within(FT_E_COMPILE, "%s", "prefix");
  ck_assert_uint_eq(strlen(ft_detail()), length);
  ck_assert_int_eq(strncmp(ft_detail(), "prefix: prefix: ", 16), 0);
  ft_fail_within(FT_E_COMPILE, "%s", log.data);
  ck_assert_uint_eq(strlen(ft_detail()), length);
  ft_text_free(&log);
}
END_TEST

static void *fail_elsewhere(void *out) {
  *(size_t *)out = strlen(ft_detail());
  ft_fail(FT_E_IO, "elsewhere");
  return NULL;
}

START_TEST(detail_belongs_to_its_thread) {
  ft_fail(FT_E_IO, "here");
  pthread_t thread;
  size_t length_there = 99;
  ck_assert_int_eq(pthread_create(&thread, NULL, fail_elsewhere, &length_there), 0);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_uint_eq(length_there, 0);
  ck_assert_str_eq(ft_detail(), "here");
}
END_TEST

START_TEST(text_is_the_sum_of_its_pieces) {
  seed_cases();
  struct ft_text text = FT_TEXT_INIT;
  char expected[4096] = "";
  size_t length = 0;
  while (length < 3000) {
    char piece[128];
    const int size = random_int(0, 120);
    for (int i = 0; i < size; ++i) piece[i] = (char)random_int('!', '~');
    piece[size] = '\0';
    if (random_int(0, 1))
      ft_text_add(&text, "%s", piece);
    else
      ft_text_append(&text, piece, (size_t)size);
    memcpy(expected + length, piece, (size_t)size + 1);
    length += (size_t)size;
    ck_assert_msg(text.length == length, "seed %llu", (unsigned long long)cases_seed);
  }
  ck_assert_msg(strcmp(text.data, expected) == 0, "seed %llu", (unsigned long long)cases_seed);
  ck_assert_int_eq(ft_text_status(&text), FT_OK);
  ft_text_clear(&text);
  ck_assert_str_eq(text.data, "");
  ft_text_append(&text, "a\0b", 3);
  ck_assert_mem_eq(text.data, "a\0b", 4);
  ft_text_free(&text);
  ck_assert_ptr_null(text.data);
}
END_TEST

START_TEST(text_reports_that_memory_ran_out) {
  struct ft_text text = FT_TEXT_INIT;
  ft_text_add(&text, "kept");
  ft_text_append(&text, "", (size_t)-1 / 2); /* refused before a byte is read */
  ft_text_add(&text, "lost");
  ck_assert_int_eq(ft_text_status(&text), FT_E_MEMORY);
  ck_assert_str_eq(text.data, "kept");
  ft_text_free(&text);
}
END_TEST

static struct ft_digest digest_of_two(const char *a, const char *b) {
  struct ft_hasher hasher;
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "tag", a, strlen(a));
  ft_hasher_section(&hasher, "tag", b, strlen(b));
  return ft_hasher_final(&hasher);
}

START_TEST(digest_is_blake2b) { /* RFC 7693 gives BLAKE2b-512; this is BLAKE2b-256 of "abc" */
  const struct ft_digest digest = ft_digest_of("abc", 3);
  char hex[FT_DIGEST_HEX];
  ft_digest_hex(&digest, hex);
  ck_assert_str_eq(hex, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}
END_TEST

START_TEST(digest_sections_do_not_run_together) {
  const struct ft_digest a = digest_of_two("a", "bc"), b = digest_of_two("ab", "c");
  const struct ft_digest c = digest_of_two("a", "bc"), d = digest_of_two("", "abc");
  ck_assert(!ft_digest_equal(&a, &b));
  ck_assert(!ft_digest_equal(&a, &d));
  ck_assert(ft_digest_equal(&a, &c));
  /* Tags count, and do not run into the data. */
  struct ft_hasher hasher;
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "taga", "", 0);
  ft_hasher_section(&hasher, "tag", "bc", 2);
  const struct ft_digest e = ft_hasher_final(&hasher);
  ck_assert(!ft_digest_equal(&a, &e));
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "tag", "a", 1);
  ft_hasher_section(&hasher, "gat", "bc", 2);
  const struct ft_digest f = ft_hasher_final(&hasher);
  ck_assert(!ft_digest_equal(&a, &f));
}
END_TEST

Suite *make_status_text_suite(void) {
  Suite *const suite = suite_create("status_text");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, every_status_has_its_own_sentence);
  tcase_add_test(tests, detail_can_quote_itself);
  tcase_add_test(tests, detail_is_cut_not_overrun);
  tcase_add_test(tests, detail_belongs_to_its_thread);
  tcase_add_test(tests, text_is_the_sum_of_its_pieces);
  tcase_add_test(tests, text_reports_that_memory_ran_out);
  tcase_add_test(tests, digest_is_blake2b);
  tcase_add_test(tests, digest_sections_do_not_run_together);
  suite_add_tcase(suite, tests);
  return suite;
}
