/* test_template_faults.c: a folder of templates is read while each call for memory or files fails.
 * in -> out: kind, n -> all of the folder, or a message and nothing -> Check suite. */
#include "generator/status.h"
#include "generator/template_files.h"
#include "tests/faulty/fault_calls.h"
#include "tests/suites.h"
#include "tests/template_folder.h"

/* Whether there was an n-th call. A text that cannot be made shorter is kept as it is. */
static bool reads_or_tells(const struct template_folder *folder, enum fault_kind kind, long n,
                           bool ever, const struct ft_digest *whole) {
  struct ft_template_files files;
  fault_calls_arm(kind, n, ever);
  const int status = ft_template_files_open(&files, folder->path);
  const bool fired = fault_calls_disarm() >= n;
  if (status == FT_OK) {
    const struct ft_digest digest = ft_template_files_digest(&files);
    ck_assert_msg(ft_digest_equal(&digest, whole), "call %ld: other templates without a word", n);
    ft_template_files_close(&files);
    return fired;
  }
  ck_assert_msg(fired, "call %ld: %d %s", n, status, ft_detail());
  ck_assert_int_eq(status, kind == FAULT_MEMORY ? FT_E_MEMORY : FT_E_IO);
  ck_assert_msg(strstr(ft_detail(), "template") != NULL, "%s", ft_detail());
  ck_assert_uint_eq(files.count, 0);
  ck_assert_ptr_null(files.rows);
  return true;
}

START_TEST(a_folder_is_read_whole_or_not_at_all) {
  const enum fault_kind kind = (enum fault_kind)_i;
  const struct template_folder folder = make_folder("//@ local one = 1\n");
  struct ft_template_files files;
  ck_assert_int_eq(ft_template_files_open(&files, folder.path), FT_OK);
  const struct ft_digest whole = ft_template_files_digest(&files);
  const long count = (long)files.count;
  ft_template_files_close(&files);
  for (int ever = 0; ever < 2; ever++) {
    long n = 1;
    while (n < 1000 && reads_or_tells(&folder, kind, n, ever, &whole)) n++;
    ck_assert_int_gt(n, count); /* each file is opened, and asks for memory */
    ck_assert_int_lt(n, 1000);
  }
  remove_folder(&folder);
}
END_TEST

START_TEST(the_embedded_ones_need_memory) {
  struct ft_template_files files;
  fault_calls_arm(FAULT_MEMORY, 1, false);
  const int status = ft_template_files_open(&files, NULL);
  fault_calls_disarm();
  ck_assert_int_eq(status, FT_E_MEMORY);
  ck_assert_ptr_null(files.rows);
}
END_TEST

Suite *make_template_faults_suite(void) {
  Suite *const suite = suite_create("template_faults");
  TCase *const tests = tcase_create("folder");
  tcase_add_loop_test(tests, a_folder_is_read_whole_or_not_at_all, FAULT_MEMORY, FAULT_FILES + 1);
  tcase_add_test(tests, the_embedded_ones_need_memory);
  suite_add_tcase(suite, tests);
  return suite;
}
