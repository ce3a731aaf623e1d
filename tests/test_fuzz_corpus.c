/* test_fuzz_corpus.c: the inputs in tests/corpus, as they are and with a few bytes changed.
 * in -> out: files -> fuzz_input.h. `make fuzz` looks for new ones. */
#include "tests/suites.h"

#include <check.h>
#include <dirent.h>

#include "tests/fuzz_input.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"

static void change(struct dice *dice, struct bytes *input, size_t head) {
  for (int n = 1 + dice_below(dice, 4); n > 0 && input->size > head; n--) {
    const size_t place = head + (size_t)dice_below(dice, (int)(input->size - head));
    if (dice_below(dice, 4) == 0)
      memmove(input->data + place, input->data + place + 1, --input->size - place);
    else
      input->data[place] = (unsigned char)dice_below(dice, 256);
  }
}

START_TEST(kept_inputs_and_their_neighbours_are_read) {
  struct dice dice = dice_new();
  int files = 0;
  DIR *const corpus = opendir(FATUNE_TESTS_DIR "/corpus");
  ck_assert_ptr_nonnull(corpus);
  for (const struct dirent *entry; (entry = readdir(corpus));) {
    char name[512];
    if (entry->d_name[0] == '.') continue;
    snprintf(name, sizeof name, FATUNE_TESTS_DIR "/corpus/%s", entry->d_name);
    const struct bytes kept = read_bytes(name);
    const unsigned char *const end = memchr(kept.data, '\n', kept.size);
    ck_assert_msg(fuzz_input(kept.data, kept.size), "%s names no kind", name);
    for (int n = 0; n < (tests_are_slow() ? 20000 : 60); n++) {
      struct bytes changed = {malloc(kept.size), kept.size};
      memcpy(changed.data, kept.data, kept.size);
      change(&dice, &changed, (size_t)(end - kept.data) + 1);
      ck_assert(fuzz_input(changed.data, changed.size));
      free(changed.data);
    }
    free(kept.data);
    files++;
  }
  closedir(corpus);
  ck_assert_int_ge(files, 8);
}
END_TEST

Suite *make_fuzz_corpus_suite(void) {
  Suite *const suite = suite_create("fuzz_corpus");
  TCase *const tests = tcase_create("corpus");
  tcase_set_timeout(tests, tests_are_slow() ? 3600 : 120);
  tcase_add_test(tests, kept_inputs_and_their_neighbours_are_read);
  suite_add_tcase(suite, tests);
  return suite;
}
