/* test_fields.c: records of name=value words, and the text of a kernel, which is one.
 * in -> out: words that are none, values beyond what is allowed -> refused, and why; a kernel that
 * is copied without memory -> Check suite. */
#include "tests/suites.h"

#include "cache/database.h"
#include "cache/database_file.h"
#include "cache/fields.h"
#include "cache/place.h"
#include "tests/faulty/fault_calls.h"
#include "tests/store_fixture.h"

struct record {
  char name[8];
  int count;
  struct ft_digest digest;
};

static const struct ft_field fields[] = {
    {"name", &ft_field_string, offsetof(struct record, name), sizeof(((struct record *)0)->name),
     true},
    {"count", &ft_field_int, offsetof(struct record, count), sizeof(int), false},
    {"digest", &ft_field_digest, offsetof(struct record, digest), sizeof(struct ft_digest), false},
};

enum { FIELDS = sizeof fields / sizeof *fields };

static const struct {
  const char *text, *why;
} refused[] = {
    {"name=\"abc", "a quoted value has no end"},
    {"name=\"a\"b", "must be followed by a blank"},
    {"name=\"\\x00\"", "two hex digits, not 00"},
    {"name=\"\\x0G\"", "two hex digits, not 00"},
    {"name=\"\\xG0\"", "two hex digits, not 00"},
    {"name=\"\\q\"", "unknown escape"},
    {"=a", "is not of the form name=value"},
    {"name", "is not of the form name=value"},
    {"a_name_that_is_longer_than_any_of_ours=a", "is not of the form name=value"},
    {"colour=a", "unknown field 'colour'"},
    {"name=a name=b", "field 'name' is given twice"},
    {"count=1", "field 'name' is missing"},
    {"name=abcdefgh", "has 8 characters; at most 7 are allowed"},
    {"name=a count=2147483648", "allowed are whole numbers 0 .. 2147483647"},
    {"name=a count=-1", "allowed are whole numbers"},
    {"name=a digest=00", "allowed are 64 lower-case hex digits"},
};

START_TEST(words_are_refused_and_why_is_said) {
  struct record record = {.count = 0};
  assert_status(ft_fields_parse(fields, FIELDS, &record, refused[_i].text), FT_E_ARGUMENT);
  ck_assert_msg(strstr(ft_detail(), refused[_i].why) != NULL, "%s: %s", refused[_i].text,
                ft_detail());
}
END_TEST

START_TEST(any_bytes_survive_the_round_trip) {
  struct record record = {.count = 2147483647}, back = {.digest = digest_of_text("before")};
  struct ft_text text = FT_TEXT_INIT;
  memcpy(record.name, "\"\\\n\x01\x7f\xc3\xa4", 8);
  ft_fields_print(fields, FIELDS, &record, &text);
  ft_text_add(&text, " digest=\"\""); /* none */
  assert_ok(ft_fields_parse(fields, FIELDS, &back, text.data));
  ck_assert_mem_eq(&back, &record, sizeof record);
  ft_text_free(&text);
}
END_TEST

/* Where a working folder was deleted, and where a copy cannot be written. */
START_TEST(files_that_cannot_be_reached_are_told) {
  struct fixture fixture;
  char place[128], *real = NULL;
  int code = SQLITE_OK;
  struct ft_database database = {0};
  fixture_open(&fixture);
  snprintf(place, sizeof place, "%s/file", fixture.root);
  write_bytes(place, "bytes", 5);
  const int file = open(place, O_RDONLY);
  assert_status(ft_file_copy(place, file, &code), FT_E_CACHE);
  ck_assert_int_eq(code, SQLITE_IOERR);
  close(file);
  assert_status(ft_database_open(&database, "/nowhere/tuning.db", FT_DATABASE_NAMED), FT_E_CACHE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "'/nowhere/tuning.db' cannot be read"));
  snprintf(place, sizeof place, "%s/folder", fixture.root);
  ck_assert_int_eq(mkdir(place, 0700) | chdir(place) | rmdir(place), 0);
  assert_status(ft_place_check("file", &real), FT_E_CACHE);
  ck_assert_int_eq(chdir("/"), 0);
  fixture_close(&fixture);
}
END_TEST

/* -- kernels -------------------------------------------------------------------------------- */

static const struct {
  const char *text, *why;
} no_kernels[] = {
    {"colonel sm_90 nvrtc=13", "does not begin with 'kernel'"},
    {"kernel  nvrtc=13", "allowed are names like sm_90"},
    {"kernel sm-90 nvrtc=13", "allowed are names like sm_90"},
    {"kernel sm_90_of_a_name_that_is_longer_than_any_target nvrtc=13",
     "allowed are names like sm_90"},
    {"kernel sm_90 nvrtc=13", "kernel text: field 'registers' is missing"},
};

START_TEST(texts_of_no_kernel_are_refused) {
  struct ft_kernel kernel;
  assert_status(ft_kernel_parse(&kernel, no_kernels[_i].text), FT_E_ARGUMENT);
  ck_assert_msg(strstr(ft_detail(), no_kernels[_i].why) != NULL, "%s: %s", no_kernels[_i].text,
                ft_detail());
}
END_TEST

/* The image is the first call for memory, the log the second. */
START_TEST(a_kernel_is_copied_whole_or_not_at_all) {
  struct dice dice = dice_new();
  struct ft_kernel kernel = make_kernel(&dice, 500), copy;
  free(kernel.log);
  for (int logged = 0; logged < 2; logged++) {
    kernel.log = logged ? strdup("ptxas info: 168 registers\n") : NULL;
    for (long n = 1; n <= 1 + logged; n++) {
      fault_calls_arm(FAULT_MEMORY, n, false);
      const int status = ft_kernel_copy(&copy, &kernel);
      fault_calls_disarm();
      ck_assert_int_eq(status, FT_E_MEMORY);
      ck_assert(!copy.image && !copy.log);
    }
    assert_ok(ft_kernel_copy(&copy, &kernel));
    ck_assert(same_kernel(&kernel, &copy));
    ft_kernel_free(&copy);
  }
  ft_kernel_free(&kernel);
}
END_TEST

Suite *make_fields_suite(void) {
  Suite *const suite = suite_create("fields");
  TCase *const tests = tcase_create("words");
  tcase_add_loop_test(tests, words_are_refused_and_why_is_said, 0,
                      sizeof refused / sizeof *refused);
  tcase_add_test(tests, any_bytes_survive_the_round_trip);
  tcase_add_test(tests, files_that_cannot_be_reached_are_told);
  tcase_add_loop_test(tests, texts_of_no_kernel_are_refused, 0,
                      sizeof no_kernels / sizeof *no_kernels);
  tcase_add_test(tests, a_kernel_is_copied_whole_or_not_at_all);
  suite_add_tcase(suite, tests);
  return suite;
}
