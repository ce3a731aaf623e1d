/* test_mask.c: bitmap -> lists, and the mask object on the fake GPU.
 * in -> out: random bitmaps -> lists that name exactly the kept blocks; bad options -> their names.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "generator/status.h"
#include "runtime/mask.h"
#include "generator/arguments.h"
#include "runtime/session.h"
#include "tests/fake_lab.h"
#include "tests/suites.h"

static struct fake_lab lab;

static void open_session(void) {
  use_fake_nvrtc();
  lab = fake_lab_open();
  ck_assert(lab.session->has_device);
}

static void close_session(void) {
  fake_lab_close(&lab);
}

static uint8_t *random_bitmap(unsigned seed, int64_t count, int percent) {
  uint8_t *const bitmap = malloc((size_t)count);
  srand(seed);
  for (int64_t i = 0; i < count; i++)
    bitmap[i] = (uint8_t)(rand() % 100 < percent ? 1 + rand() % 255 : 0);
  return bitmap;
}

/* The lists of a (batch, head) name every row block once, longest first, and of each exactly the
 * kept columns, in order. */
static void check_lists(unsigned seed, const uint8_t *bitmap, int64_t heads, int64_t rows,
                        int64_t cols, const struct ft_mask_list *lists, const int32_t *blocks) {
  for (int64_t head = 0; head < heads; head++) {
    bool seen[64] = {false};
    for (int64_t n = 0; n < rows; n++) {
      const struct ft_mask_list *const list = &lists[head * rows + n];
      ck_assert_msg(list->block >= 0 && list->block < rows, "seed %u", seed);
      ck_assert_msg(!seen[list->block], "seed %u: row %d twice", seed, list->block);
      seen[list->block] = true;
      ck_assert_msg(n == 0 || list->count <= list[-1].count, "seed %u: not longest first", seed);
      int64_t at = list->start;
      for (int64_t col = 0; col < cols; col++)
        if (bitmap[(head * rows + list->block) * cols + col])
          ck_assert_msg(blocks[at++] == col, "seed %u", seed);
      ck_assert_msg(at == list->start + list->count, "seed %u row %d", seed, list->block);
    }
  }
}

static void check_columns(unsigned seed, const uint8_t *bitmap, int64_t heads, int64_t rows,
                          int64_t cols, const struct ft_mask_list *lists, const int32_t *blocks) {
  for (int64_t n = 0; n < heads * cols; n++) {
    const struct ft_mask_list *const list = &lists[n];
    ck_assert_msg(list->block == n % cols, "seed %u: out of order", seed);
    int64_t at = list->start;
    for (int64_t row = 0; row < rows; row++)
      if (bitmap[(n / cols * rows + row) * cols + n % cols])
        ck_assert_msg(blocks[at++] == row, "seed %u", seed);
    ck_assert_msg(at == list->start + list->count, "seed %u column %lld", seed, (long long)n);
  }
}

START_TEST(lists_name_the_kept_blocks) {
  static const int percents[] = {0, 3, 50, 100};
  for (int i = 0; i < 4; i++) {
    const unsigned seed = (unsigned)time(NULL) + (unsigned)i;
    const int64_t heads = 1 + seed % 3, rows = 1 + seed % 20, cols = 1 + seed % 17;
    uint8_t *const bitmap = random_bitmap(seed, heads * rows * cols, percents[i]);
    struct ft_mask_list lists[64];
    const int64_t kept = ft_mask_lists(bitmap, heads, rows, cols, lists, NULL);
    int32_t *const blocks = malloc((size_t)(kept + 1) * sizeof *blocks);
    ck_assert_int_eq(ft_mask_lists(bitmap, heads, rows, cols, lists, blocks), kept);
    check_lists(seed, bitmap, heads, rows, cols, lists, blocks);
    ck_assert_int_eq(ft_mask_columns(bitmap, heads, rows, cols, lists, blocks), kept);
    check_columns(seed, bitmap, heads, rows, cols, lists, blocks);
    free(blocks);
    free(bitmap);
  }
}
END_TEST

/* Every column of a head once, those with most kept blocks first. */
static void check_order(const struct ft_mask_list *lists, int64_t heads, int64_t cols,
                        const int32_t *order, const int32_t *counts) {
  for (int64_t head = 0; head < heads; head++) {
    bool seen[64] = {false};
    for (int64_t n = 0; n < cols; n++) {
      const int32_t column = order[head * cols + n];
      const int32_t kept = lists[head * cols + column].count;
      ck_assert(!seen[column]);
      seen[column] = true;
      ck_assert_int_le(kept, counts[n]);
      ck_assert(n == 0 || kept <= lists[head * cols + order[head * cols + n - 1]].count);
    }
  }
  for (int64_t n = 0; n < cols; n++) {
    int32_t most = 0;
    for (int64_t head = 0; head < heads; head++) {
      const int32_t kept = lists[head * cols + order[head * cols + n]].count;
      most = kept > most ? kept : most;
    }
    ck_assert_int_eq(counts[n], most);
  }
}

static fatune_mask_options options_of(const uint8_t *blocks) {
  fatune_mask_options options = FATUNE_MASK_OPTIONS_INIT;
  options.blocks = blocks;
  options.mask_rows = 128;
  options.mask_cols = 64;
  options.batch = 2;
  options.heads = 3;
  options.seqlen_q = 500; /* 4 row blocks */
  options.seqlen_k = 650; /* 11 column blocks */
  return options;
}

enum { HEADS = 2 * 3, ROWS = 4, LISTS = HEADS * ROWS, COLS = 11 };

/* The fake's device memory is host memory, so the test can look. */
static void check_mask(unsigned seed, const fatune_mask *mask, const uint8_t *bitmap) {
  const struct ft_mask_list *const lists = (const struct ft_mask_list *)(uintptr_t)mask->lists;
  const int32_t *const blocks = (const int32_t *)(uintptr_t)mask->blocks;
  check_lists(seed, bitmap, HEADS, ROWS, COLS, lists, blocks);
  check_columns(seed, bitmap, HEADS, ROWS, COLS,
                (const struct ft_mask_list *)(uintptr_t)mask->column_lists,
                (const int32_t *)(uintptr_t)mask->column_blocks);
  check_order((const struct ft_mask_list *)(uintptr_t)mask->column_lists, HEADS, COLS,
              (const int32_t *)(uintptr_t)mask->column_order, mask->column_counts);
  int kept = 0;
  for (int n = 0; n < LISTS * COLS; n++) kept += bitmap[n] != 0;
  ck_assert_double_eq_tol(fatune_mask_density(mask), (double)kept / (LISTS * COLS), 1e-12);
  ck_assert_int_eq(mask->row_blocks, 4);
  ck_assert_int_eq(mask->col_blocks, COLS);
}

START_TEST(masks_come_from_host_and_device) {
  const unsigned seed = (unsigned)time(NULL);
  uint8_t *const bitmap = random_bitmap(seed, LISTS * COLS, 40);
  for (int on_device = 0; on_device < 2; on_device++) {
    fatune_mask *mask;
    fatune_mask_options options = options_of(bitmap);
    options.on_device = on_device;
    ck_assert_status(fatune_mask_make(&mask, lab.session, &options, NULL), FATUNE_OK);
    check_mask(seed, mask, bitmap);
    ck_assert_int_eq(lab.cuda.calls("cuMemcpyDtoHAsync_v2"), on_device);
    fatune_mask_free(mask);
  }
  free(bitmap);
}
END_TEST

/* Every head has 4 rows of 11 blocks and keeps the first block of each row. Head 0 keeps all of row
 * 2 as well. 34 of 264 blocks are kept. */
START_TEST(the_longest_row_and_column_are_told) {
  uint8_t bitmap[LISTS * COLS] = {0};
  for (int list = 0; list < LISTS; list++) bitmap[list * COLS] = 1;
  memset(bitmap + 2 * COLS, 7, COLS);
  fatune_mask *mask;
  const fatune_mask_options options = options_of(bitmap);
  ck_assert_status(fatune_mask_make(&mask, lab.session, &options, NULL), FATUNE_OK);
  ck_assert_int_eq(fatune_mask_longest(mask, FATUNE_FORWARD), 7);  /* 11 / 1.42 = 7.76 */
  ck_assert_int_eq(fatune_mask_longest(mask, FATUNE_BACKWARD), 7); /* 4 / 0.515 = 7.76 */
  fatune_mask_free(mask);
  memset(bitmap, 1, sizeof bitmap);
  ck_assert_status(fatune_mask_make(&mask, lab.session, &options, NULL), FATUNE_OK);
  ck_assert_int_eq(fatune_mask_longest(mask, FATUNE_FORWARD), 1);
  ck_assert_int_eq(fatune_mask_longest(NULL, FATUNE_FORWARD), 1);
  fatune_mask_free(mask);
}
END_TEST

START_TEST(an_empty_mask_is_a_mask) {
  static const uint8_t bitmap[LISTS * COLS];
  fatune_mask *mask;
  const fatune_mask_options options = options_of(bitmap);
  ck_assert_status(fatune_mask_make(&mask, lab.session, &options, NULL), FATUNE_OK);
  ck_assert_double_eq(fatune_mask_density(mask), 0);
  ck_assert_int_eq(fatune_mask_longest(mask, FATUNE_FORWARD), 1);
  check_mask(0, mask, bitmap);
  fatune_mask_free(mask);
}
END_TEST

static void expect_bad(const fatune_mask_options *options, const char *part) {
  fatune_mask *mask = (fatune_mask *)(uintptr_t)1;
  ck_assert_status(fatune_mask_make(&mask, lab.session, options, NULL), FATUNE_E_ARGUMENT);
  ck_assert_detail(part);
  ck_assert_ptr_null(mask);
  ck_assert_int_eq(lab.cuda.depth(), 0);
}

START_TEST(bad_options_are_named) {
  static const uint8_t bitmap[LISTS * COLS];
  const fatune_mask_options good = options_of(bitmap);
  fatune_mask_options bad;
#define BAD(field, value, part)                                                                    \
  bad = good;                                                                                      \
  bad.field = value;                                                                               \
  expect_bad(&bad, part)
  BAD(size, 0, "options.size is 0");
  BAD(blocks, NULL, "options.blocks is NULL");
  BAD(on_device, 2, "options.on_device is 2");
  BAD(mask_rows, 0, "options.mask_rows is 0");
  BAD(mask_rows, 24, "options.mask_rows is 24");
  BAD(mask_rows, -16, "options.mask_rows is -16");
  BAD(mask_cols, 8, "options.mask_cols is 8");
  BAD(batch, 0, "options.batch is 0");
  BAD(batch, -1, "options.batch is -1");
  BAD(batch, INT64_C(1) << 31, "options.batch is 2147483648");
  BAD(heads, 0, "options.heads is 0");
  BAD(seqlen_q, 0, "options.seqlen_q is 0");
  BAD(seqlen_k, -5, "options.seqlen_k is -5");
#undef BAD
  bad = good;
  bad.batch = bad.seqlen_q = bad.seqlen_k = INT32_MAX;
  bad.heads = INT32_MAX;
  expect_bad(&bad, "more than memory can hold");

  ck_assert_status(fatune_mask_make(NULL, lab.session, &good, NULL), FATUNE_E_ARGUMENT);
  fatune_mask *mask;
  ck_assert_status(fatune_mask_make(&mask, NULL, &good, NULL), FATUNE_E_ARGUMENT);
  ck_assert_detail("session is NULL");
  ck_assert_status(fatune_mask_make(&mask, lab.session, NULL, NULL), FATUNE_E_ARGUMENT);
  ck_assert_detail("options is NULL");
  fatune_mask_free(NULL);
  ck_assert_double_eq(fatune_mask_density(NULL), 0);
}
END_TEST

START_TEST(every_failing_call_is_survived) {
  static const uint8_t bitmap[LISTS * COLS] = {1, 0, 1};
  fatune_mask_options options = options_of(bitmap);
  options.on_device = 1;
  for (int n = 1;; n++) {
    char failure[32];
    snprintf(failure, sizeof failure, "*:%d:%d", n, n % 2 ? 999 : 2);
    lab.cuda.reset(failure);
    fatune_mask *mask;
    const int status = fatune_mask_make(&mask, lab.session, &options, NULL);
    const char *failed = lab.cuda.failed();
    if (status != FATUNE_OK) {
      ck_assert_ptr_null(mask);
      ck_assert_str_ne(fatune_detail(), "");
      ck_assert_detail(n % 2 ? "999" : "(2)");
    } else if (*failed) {
      ck_assert_str_eq(failed, "cuCtxPopCurrent_v2"); /* the mask is sound all the same */
    }
    fatune_mask_free(mask);
    failed = lab.cuda.failed();           /* freeing may have met it as well */
    ck_assert_int_eq(lab.cuda.live(), 0); /* since the reset */
    ck_assert_int_eq(lab.cuda.depth(), 0);
    if (!*failed) break;
    ck_assert_int_lt(n, 50);
  }
  lab.cuda.reset(NULL);
  fatune_session_close(lab.session);
}
END_TEST

START_TEST(a_capture_is_refused) {
  static const uint8_t bitmap[LISTS * COLS];
  const fatune_mask_options options = options_of(bitmap);
  const struct fake_gpu capturing = {"NVIDIA H200", 90, 132, 1, 1, 0};
  int stream;
  fatune_mask *mask;
  lab.cuda.gpu(&capturing);
  ck_assert_status(fatune_mask_make(&mask, lab.session, &options, &stream), FATUNE_E_NOT_PREPARED);
  ck_assert_status(fatune_mask_make(&mask, lab.session, &options, NULL), FATUNE_E_NOT_PREPARED);
  ck_assert_ptr_null(mask);
}
END_TEST

Suite *make_mask_suite(void) {
  Suite *const suite = suite_create("mask");
  TCase *const pure = tcase_create("lists");
  tcase_add_test(pure, lists_name_the_kept_blocks);
  suite_add_tcase(suite, pure);
  TCase *const object = tcase_create("object");
  tcase_add_checked_fixture(object, open_session, close_session);
  tcase_add_test(object, masks_come_from_host_and_device);
  tcase_add_test(object, an_empty_mask_is_a_mask);
  tcase_add_test(object, the_longest_row_and_column_are_told);
  tcase_add_test(object, bad_options_are_named);
  tcase_add_test(object, a_capture_is_refused);
  suite_add_tcase(suite, object);
  TCase *const faults = tcase_create("faults");
  tcase_add_checked_fixture(faults, open_session, NULL);
  tcase_add_test(faults, every_failing_call_is_survived);
  suite_add_tcase(suite, faults);
  return suite;
}
