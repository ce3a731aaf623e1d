/* test_store_repair.c: damage is mended, and what is only out of reach is left alone.
 * in -> out: spoilt files, failing reads -> what is saved, what is kept -> Check suite. */
#include "tests/suites.h"

#include <glob.h>

#include "tests/fault_files.h"
#include "tests/slow_tests.h"
#include "tests/store_fixture.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"

enum { KERNELS = 20, TRIALS = 60, IMAGE = 9000, FILES = 6 };

static struct fixture fixture;
static struct ft_kernel kernels[KERNELS];
static struct bytes sound[FILES]; /* of the files below; empty: none */
static const char *const names[FILES] = {"tuning.db",      "kernels.db",    "tuning.db-wal",
                                         "kernels.db-wal", "tuning.db-shm", "kernels.db-shm"};

static void path_of(const char *name, char path[192]) {
  snprintf(path, 192, "%s/%s", fixture.folder, name);
}

static void put_rows(struct ft_store *store, int first) {
  for (int i = first; i < KERNELS; i += 2) assert_ok(ft_store_kernel_put(store, &kernels[i]));
  for (int i = first; i < TRIALS; i += 2) {
    const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, i, 10 + i);
    assert_ok(ft_store_trial_put(store, &trial));
  }
}

/* A store with half of its rows in the write-ahead log. */
static void set_up(void) {
  char path[192];
  fixture_open(&fixture);
  for (int i = 0; i < KERNELS; i++) kernels[i] = make_kernel(&fixture.dice, IMAGE);
  struct ft_store *store = open_store(&fixture);
  put_rows(store, 0);
  ft_store_close(store);
  store = open_store(&fixture);
  put_rows(store, 1);
  for (int i = 0; i < FILES; i++) {
    path_of(names[i], path);
    sound[i] = access(path, F_OK) == 0 ? read_bytes(path) : (struct bytes){NULL, 0};
  }
  ft_store_close(store);
  ck_assert_uint_gt(sound[2].size, 0);
  ck_assert_uint_gt(sound[3].size, 0);
}

static void tear_down(void) {
  for (int i = 0; i < FILES; i++) free(sound[i].data);
  for (int i = 0; i < KERNELS; i++) ft_kernel_free(&kernels[i]);
  fixture_close(&fixture);
}

/* Nothing lies there but the files as they were, shared memory left out. */
static void restore(bool logs) {
  char pattern[192], path[192];
  glob_t found;
  path_of("*", pattern);
  if (glob(pattern, 0, NULL, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; i++) unlink(found.gl_pathv[i]);
  globfree(&found);
  for (int i = 0; i < (logs ? 4 : 2); i++) {
    path_of(names[i], path);
    write_bytes(path, sound[i].data, sound[i].size);
    chmod(path, 0600);
  }
}

static int count_files(const char *name) {
  char pattern[192];
  glob_t found;
  path_of(name, pattern);
  const int count = glob(pattern, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
  globfree(&found);
  return count;
}

/* -- mutants -------------------------------------------------------------------------------- */

static void flip(unsigned char *data, size_t size, int count) {
  for (int i = 0; i < count; i++)
    data[dice_below(&fixture.dice, (int)size)] ^=
        (unsigned char)(1 << dice_below(&fixture.dice, 8));
}

static void mutate(const char *name, const struct bytes *from) {
  struct dice *const dice = &fixture.dice;
  char path[192];
  if (from->size == 0) return;
  struct bytes file = {malloc(from->size), from->size};
  memcpy(file.data, from->data, from->size);
  const size_t begin = file.size < 100 ? file.size : 100;
  switch (dice_below(dice, 9)) {
  case 0: file.size = (size_t)dice_below(dice, (int)file.size); break;
  case 1: {
    const size_t page = 8192 * (size_t)dice_below(dice, (int)(file.size / 8192));
    memset(file.data + page, 0, file.size - page < 8192 ? file.size - page : 8192);
    break;
  }
  case 2: flip(file.data, file.size, 1); break;
  case 3: flip(file.data, file.size, 200); break;
  case 4: flip(file.data, begin, 1 + dice_below(dice, 5)); break;
  case 5: flip(file.data, file.size < 8192 ? file.size : 8192, 1 + dice_below(dice, 20)); break;
  case 6:
    for (size_t i = 0; i < begin; i++) file.data[i] = (unsigned char)dice_bits(dice);
    break;
  case 7: { /* a page in the place of another */
    const size_t pages = file.size / 8192;
    memmove(file.data + 8192 * (size_t)dice_below(dice, (int)pages),
            file.data + 8192 * (size_t)dice_below(dice, (int)pages), 8192);
    break;
  }
  default: flip(file.data + 8192 * (size_t)dice_below(dice, (int)(file.size / 8192)), 16, 4);
  }
  path_of(name, path);
  write_bytes(path, file.data, file.size);
  free(file.data);
}

static void assert_no_wrong_image(struct ft_store *store, int *served) {
  struct ft_kernel back;
  for (int i = 0; i < KERNELS; i++) {
    const int status = ft_store_kernel_get(store, &kernels[i].key, &back);
    ck_assert_msg(status == FT_OK || status == FT_E_NOT_FOUND, "seed %llu: %d %s",
                  (unsigned long long)fixture.dice.seed, status, ft_detail());
    if (status != FT_OK) continue;
    ck_assert_msg(same_kernel(&kernels[i], &back), "seed %llu",
                  (unsigned long long)fixture.dice.seed);
    ft_kernel_free(&back);
    *served += 1;
  }
}

static void write_and_verify(int mutant) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_kernel kernel = make_kernel(&fixture.dice, IMAGE);
  const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, TRIALS + 1, 3);
  struct ft_store_verdict verdict;
  const unsigned long long seed = fixture.dice.seed;
  int status = ft_store_kernel_put(store, &kernel);
  ck_assert_msg(status == FT_OK, "seed %llu, mutant %d: kernel refused: %s", seed, mutant,
                ft_detail());
  status = ft_store_trial_put(store, &trial);
  ck_assert_msg(status == FT_OK, "seed %llu, mutant %d: trial refused: %s", seed, mutant,
                ft_detail());
  status = ft_store_verify(store, false, &verdict);
  ck_assert_msg(status == FT_OK && verdict.damaged == 0,
                "seed %llu, mutant %d: %d, %lld damaged: %s", seed, mutant, status,
                (long long)verdict.damaged, ft_detail());
  ft_store_verdict_free(&verdict);
  assert_has(&fixture, store, &kernel);
  ft_kernel_free(&kernel);
  ft_store_close(store);
}

START_TEST(mutants_are_mended_and_written_to) {
  const int mutants = tests_are_slow() ? 20000 : 200;
  int served = 0, after = 0, mended = 0;
  for (int mutant = 0; mutant < mutants; mutant++) {
    const bool logs = mutant % 3 == 0;
    restore(logs);
    for (int i = 0; i < (logs ? 4 : 2); i++)
      if (!logs || dice_below(&fixture.dice, 2)) mutate(names[i], &sound[i]);
    fixture.warning_count = 0;
    struct ft_store *store = open_store(&fixture);
    assert_no_wrong_image(store, &served);
    struct ft_store_verdict verdict;
    const int status = ft_store_verify(store, true, &verdict);
    ck_assert_msg(status == FT_OK && verdict.left == 0, "seed %llu, mutant %d: %d, %lld left: %s",
                  (unsigned long long)fixture.dice.seed, mutant, status, (long long)verdict.left,
                  ft_detail());
    mended += (verdict.mended[0].kept != NULL) + (verdict.mended[1].kept != NULL);
    ck_assert_int_ge(count_files("*.damaged"),
                     (verdict.mended[0].kept != NULL) + (verdict.mended[1].kept != NULL));
    ft_store_verdict_free(&verdict);
    assert_no_wrong_image(store, &after);
    ft_store_close(store);
    write_and_verify(mutant);
    ck_assert_int_eq(count_files("*.db.??????"), 0); /* temporary files */
  }
  ck_assert_int_gt(served, mutants); /* or the test shows nothing */
  ck_assert_int_gt(after, served);
  ck_assert_int_gt(mended, mutants / 2);
}
END_TEST

/* -- what is saved -------------------------------------------------------------------------- */

static void mend(int64_t saved_kernels, int64_t saved_trials) {
  struct ft_store_verdict verdict;
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_verify(store, true, &verdict));
  ck_assert_int_eq(verdict.left, 0);
  ck_assert_ptr_nonnull(verdict.mended[FT_STORE_KERNELS].kept);
  ck_assert_ptr_nonnull(verdict.mended[FT_STORE_TUNING].kept);
  ck_assert_int_ge(verdict.mended[FT_STORE_KERNELS].saved, saved_kernels);
  ck_assert_int_ge(verdict.mended[FT_STORE_TUNING].saved, saved_trials);
  ft_store_verdict_free(&verdict);
  ft_store_close(store);
}

/* A spoilt header costs no row, be they in the file or in its log; nor does one that names another
 * application, before a schema that cannot be read or has a format that no SQLite knows. */
START_TEST(a_spoilt_header_costs_nothing) {
  static const struct {
    bool logs;
    size_t begin, end;
  } spoilt[] = {{false, 0, 8192}, {true, 0, 100}, {false, 68, 8192}, {false, 44, 72}};
  char path[192];
  for (int n = 0; n < 4; n++) {
    const bool logs = spoilt[n].logs;
    restore(logs);
    for (int i = 0; i < 2; i++) {
      path_of(names[i], path);
      struct bytes file = read_bytes(path);
      for (size_t k = spoilt[n].begin; k < spoilt[n].end; k++)
        file.data[k] = (unsigned char)dice_bits(&fixture.dice);
      write_bytes(path, file.data, file.size);
      free(file.data);
    }
    mend(logs ? KERNELS : KERNELS / 2, logs ? TRIALS : TRIALS / 2);
    write_and_verify(n);
  }
}
END_TEST

/* A page size other than that of the file, beside a write-ahead log. */
START_TEST(a_wrong_page_size_is_mended) {
  char path[192];
  restore(true);
  for (int i = 0; i < 2; i++) {
    path_of(names[i], path);
    struct bytes file = read_bytes(path);
    file.data[16] = 0x10;
    file.data[17] = 0;
    file.data[18] = 0xFF;
    write_bytes(path, file.data, file.size);
    free(file.data);
  }
  mend(KERNELS, TRIALS);
  write_and_verify(0);
}
END_TEST

/* Repair saves the rows before the cut of a truncated file. A second repair keeps its damaged file
 * beside that of the first. */
START_TEST(a_cut_costs_what_is_cut_off) {
  char path[192];
  for (int round = 0; round < 2; round++) {
    if (round == 0) restore(false);
    for (int i = 0; i < 2; i++) {
      path_of(names[i], path);
      ck_assert_int_eq(truncate(path, (off_t)sound[i].size - 2 * 8192), 0);
    }
    mend(1, 5);
    write_and_verify(round);
  }
  ck_assert_int_eq(count_files("*.db.damaged"), 2);
  ck_assert_int_eq(count_files("*.db.damaged.2"), 2);
}
END_TEST

/* A file with few rows ends in the first pages of tables and indexes. What lies before a cut is
 * saved though a table after it is gone. */
START_TEST(a_cut_among_the_first_pages_spares_the_rows_before_it) {
  enum { FEW = 3, PAGE = 8192 };
  char path[192];
  restore(false);
  path_of(names[0], path);
  ck_assert_int_eq(unlink(path), 0);
  struct ft_store *const store = open_store(&fixture);
  for (int i = 0; i < FEW; i++) {
    const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, i, 10 + i);
    assert_ok(ft_store_trial_put(store, &trial));
  }
  ft_store_close(store);
  const struct bytes whole = read_bytes(path);
  const size_t rows_end = PAGE * (size_t)number_of(path, "SELECT rootpage FROM sqlite_schema "
                                                         "WHERE name='trials'");
  ck_assert_uint_lt(rows_end, whole.size);
  for (size_t size = rows_end; size + PAGE <= whole.size; size += PAGE / 2) {
    write_bytes(path, whole.data, size);
    struct ft_store_verdict verdict;
    struct ft_store *const damaged = open_store(&fixture);
    assert_ok(ft_store_verify(damaged, true, &verdict));
    ck_assert_msg(verdict.mended[FT_STORE_TUNING].kept && verdict.left == 0, "cut to %zu", size);
    ck_assert_int_eq(verdict.mended[FT_STORE_TUNING].saved, FEW);
    ft_store_verdict_free(&verdict);
    ft_store_close(damaged);
    write_and_verify((int)size);
  }
  free(whole.data);
}
END_TEST

/* Rows of another version are sound: a repair keeps them, whatever else is damaged. One that lacks
 * what no row may lack is damaged. */
START_TEST(rows_of_another_version_are_saved) {
  char path[192];
  restore(false);
  path_of("tuning.db", path);
  add_strange_trial(path, "strange", "x'00'");
  if (_i == 1) add_strange_trial(path, "stranger", "NULL");
  run_sql(path, "UPDATE trials SET text = text || ' ' WHERE id = 3");
  struct ft_store *const store = open_store(&fixture);
  struct ft_store_verdict verdict;
  assert_ok(ft_store_verify(store, true, &verdict));
  ck_assert_int_eq(verdict.left, 0);
  ck_assert_int_eq(verdict.mended[FT_STORE_TUNING].saved, TRIALS / 2);
  ft_store_verdict_free(&verdict);
  ft_store_close(store);
  ck_assert_int_eq(number_of(path, "SELECT count(*) FROM trials WHERE device = 'd'"), 1);
}
END_TEST

/* A row larger than any of ours, in a file with a damaged header. */
START_TEST(a_row_too_large_is_left_out) {
  char path[192];
  struct ft_store_verdict verdict;
  restore(false);
  path_of("kernels.db", path);
  run_sql(path, "UPDATE kernels SET image = zeroblob(70000000) WHERE id = 2");
  const int file = open(path, O_WRONLY);
  ck_assert_int_eq(pwrite(file, "\xFF", 1, 18), 1);
  close(file);
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_verify(store, true, &verdict));
  ck_assert_int_eq(verdict.left, 0);
  ck_assert_int_eq(verdict.mended[FT_STORE_KERNELS].saved, KERNELS / 2 - 1);
  ft_store_verdict_free(&verdict);
  ft_store_close(store);
}
END_TEST

/* Every file has all tables. One that is not of its kind is no kernel to be deleted. */
START_TEST(a_damaged_trial_among_kernels_is_mended) {
  char path[192], sql[400];
  struct ft_store_verdict verdict;
  restore(false);
  path_of("tuning.db", path);
  snprintf(sql, sizeof sql,
           "ATTACH '%s' AS theirs; INSERT INTO main.trials SELECT * FROM theirs.trials "
           "WHERE id = 1; UPDATE main.trials SET text = text || ' '",
           path);
  path_of("kernels.db", path);
  run_sql(path, sql);
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_verify(store, true, &verdict));
  ck_assert(verdict.damaged == 1 && verdict.left == 0);
  ck_assert_int_eq(verdict.mended[FT_STORE_KERNELS].saved, KERNELS / 2);
  ft_store_verdict_free(&verdict);
  ft_store_close(store);
}
END_TEST

/* -- what is out of reach ------------------------------------------------------------------- */

static void assert_untouched(long n, const struct ft_store_verdict *verdict, int status) {
  ck_assert_msg(status == FT_OK || status == FT_E_IO || status == FT_E_MEMORY,
                "operation %ld: status %d %s", n, status, ft_detail());
  ck_assert_msg(!verdict->mended[0].kept && !verdict->mended[1].kept,
                "operation %ld: a sound store was mended", n);
  ck_assert_msg(count_files("*.damaged*") == 0, "operation %ld: a sound store was set aside", n);
  if (status == FT_OK && verdict->damaged == 0)
    ck_assert_msg(verdict->checked == KERNELS + TRIALS, "operation %ld: %lld rows", n,
                  (long long)verdict->checked);
}

/* Every n-th file operation of a repair fails, once or from then on: a sound store stays as it is.
 */
START_TEST(a_failing_disk_is_no_damage) {
  static const int codes[] = {0, SQLITE_IOERR_READ, SQLITE_NOMEM};
  const int step = tests_are_slow() ? 1 : 7;
  long n = 1 + dice_below(&fixture.dice, step);
  int unreachable = 0;
  fault_files_begin();
  for (bool fired = true; fired; n += step) {
    struct ft_store_verdict verdict;
    fault_files_arm(0, false, 0);
    restore(true);
    struct ft_store *store = open_store(&fixture);
    fixture.warning_count = 0;
    fault_files_arm(n, _i % 2 == 1, codes[_i / 2]);
    const int status = ft_store_verify(store, true, &verdict);
    fired = fault_files.failed > 0;
    ft_store_close(store);
    fault_files_arm(0, false, 0);
    assert_untouched(n, &verdict, status);
    unreachable += status != FT_OK;
    ft_store_verdict_free(&verdict);
    store = open_store(&fixture);
    assert_ok(ft_store_verify(store, false, &verdict));
    ck_assert_msg(verdict.damaged == 0 && verdict.checked == KERNELS + TRIALS, "operation %ld", n);
    ft_store_verdict_free(&verdict);
    ft_store_close(store);
  }
  ck_assert_int_gt(unreachable, 0);
}
END_TEST

/* The same for a damaged store: it is mended, or it and its rows are all still there. */
START_TEST(a_failing_disk_spoils_no_repair) {
  const int step = tests_are_slow() ? 1 : 23;
  long n = 1 + dice_below(&fixture.dice, step);
  int mended = 0, failed = 0;
  fault_files_begin();
  for (bool fired = true; fired; n += step) {
    struct ft_store_verdict verdict;
    char path[192];
    fault_files_arm(0, false, 0);
    restore(false);
    path_of("kernels.db", path);
    struct bytes file = read_bytes(path);
    memset(file.data, 0xA5, 100);
    write_bytes(path, file.data, file.size);
    free(file.data);
    struct ft_store *store = open_store(&fixture);
    fault_files_arm(n, _i == 1, 0);
    const int status = ft_store_verify(store, true, &verdict);
    fired = fault_files.failed > 0;
    fault_files_arm(0, false, 0);
    ft_store_close(store);
    const bool kept = verdict.mended[FT_STORE_KERNELS].kept != NULL;
    *(kept ? &mended : &failed) += 1;
    ck_assert_msg(kept || status != FT_OK, "operation %ld: neither mended nor said so", n);
    if (!kept) ck_assert_msg(count_files("*.damaged*") == 0, "operation %ld: a copy is left", n);
    ft_store_verdict_free(&verdict);
    fixture.warning_count = 0;
    store = open_store(&fixture);
    assert_ok(ft_store_verify(store, true, &verdict));
    ck_assert_int_eq(verdict.left, 0);
    if (!kept) ck_assert_int_eq(verdict.mended[FT_STORE_KERNELS].saved, KERNELS / 2);
    if (kept) ck_assert_int_eq(verdict.checked, KERNELS / 2 + TRIALS / 2);
    ft_store_verdict_free(&verdict);
    ft_store_close(store);
  }
  ck_assert_int_gt(mended, 0);
  ck_assert_int_gt(failed, 0);
}
END_TEST

Suite *make_store_repair_suite(void) {
  Suite *const suite = suite_create("store_repair");
  TCase *const tests = tcase_create("repair");
  tcase_set_timeout(tests, tests_are_slow() ? 3600 : 120);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, a_spoilt_header_costs_nothing);
  tcase_add_test(tests, a_wrong_page_size_is_mended);
  tcase_add_test(tests, a_cut_costs_what_is_cut_off);
  tcase_add_test(tests, a_cut_among_the_first_pages_spares_the_rows_before_it);
  tcase_add_loop_test(tests, rows_of_another_version_are_saved, 0, 2);
  tcase_add_test(tests, a_row_too_large_is_left_out);
  tcase_add_test(tests, a_damaged_trial_among_kernels_is_mended);
  tcase_add_loop_test(tests, a_failing_disk_is_no_damage, 0, 6);
  tcase_add_loop_test(tests, a_failing_disk_spoils_no_repair, 0, 2);
  suite_add_tcase(suite, tests);
  TCase *const mutants = tcase_create("mutants");
  tcase_set_timeout(mutants, tests_are_slow() ? 7200 : 120);
  tcase_add_checked_fixture(mutants, set_up, tear_down);
  tcase_add_test(mutants, mutants_are_mended_and_written_to);
  suite_add_tcase(suite, mutants);
  return suite;
}
