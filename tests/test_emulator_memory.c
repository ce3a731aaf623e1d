/* test_emulator_memory.c: which bytes of global memory an emulated kernel may touch.
 * in -> out: random tensors, each byte of which is worked out one by one -> the same verdict of
 * ft_memory_check; faults of each kind -> the words that name the place. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/memory.h"
#include "runtime/emulator/memory_check.h"
#include "runtime/emulator/tensor.h"
#include "tests/fresh_seed.h"
#include "tests/suites.h"

enum { BATCH, ROW, HEAD, COLUMN };

static char what[256];

static bool touch(const struct ft_emulated_tensor *tensors, int count, uint64_t address, int bytes,
                  enum fe_access access) {
  strcpy(what, "nothing is wrong");
  return ft_memory_check(tensors, count, address, bytes, access, what, sizeof what);
}

/* ---- a tensor, byte by byte -------------------------------------------------------------------*/

enum { ROOM = 1 << 16 };

struct picture {
  uint64_t base; /* of an allocation of ROOM bytes, all written */
  struct ft_emulated_tensor tensor;
  int run[ROOM]; /* which row of columns this byte is of; 0: none */
};

static void draw_picture(struct picture *picture) {
  const struct ft_emulated_tensor *tensor = &picture->tensor;
  memset(picture->run, 0, sizeof picture->run);
  int64_t at[FT_TENSOR_DIMS];
  for (at[0] = 0; at[0] < tensor->extents[0]; at[0]++) {
    for (at[1] = 0; at[1] < tensor->extents[1]; at[1]++) {
      for (at[2] = 0; at[2] < tensor->extents[2]; at[2]++) {
        for (at[3] = 0; at[3] < tensor->extents[3]; at[3]++) {
          int64_t element = 0;
          int run = 1;
          for (int dim = 0; dim < FT_TENSOR_DIMS; dim++) {
            element += at[dim] * tensor->strides[dim];
            if (tensor->strides[dim] > 1) run = run * 16 + (int)at[dim];
          }
          uint64_t byte = tensor->address - picture->base;
          byte += (uint64_t)element * (uint64_t)tensor->element_bytes;
          for (int n = 0; n < tensor->element_bytes; n++) picture->run[byte + (uint64_t)n] = run;
        }
      }
    }
  }
}

/* Dims in any order, with gaps; now and then one of stride 0, now and then rows of one column. */
static void random_tensor(struct picture *picture) {
  struct ft_emulated_tensor *tensor = &picture->tensor;
  memset(tensor, 0, sizeof *tensor);
  tensor->name = "K";
  tensor->element_bytes = 1 << rand() % 3;
  tensor->address = picture->base + 256 * (uint64_t)(rand() % 3);
  const int innermost = rand() % 4 ? COLUMN : ROW;
  int order[FT_TENSOR_DIMS] = {BATCH, ROW, HEAD, COLUMN};
  for (int n = 3; n > 0; n--) {
    const int other = rand() % (n + 1), kept = order[n];
    order[n] = order[other];
    order[other] = kept;
  }
  tensor->extents[COLUMN] = 1;
  tensor->extents[innermost] = 1 + rand() % 20;
  tensor->strides[innermost] = 1;
  int64_t span = tensor->extents[innermost];
  for (int n = 0; n < FT_TENSOR_DIMS; n++) {
    const int dim = order[n];
    if (dim == innermost || dim == COLUMN) continue;
    tensor->extents[dim] = 1 + rand() % 5;
    if (rand() % 6 == 0) continue; /* stride 0 */
    tensor->strides[dim] = span + (rand() % 2 ? rand() % 9 : 0);
    span += (tensor->extents[dim] - 1) * tensor->strides[dim];
  }
  tensor->writable = rand() % 2;
  if (tensor->extents[COLUMN] == 1 && rand() % 2) tensor->strides[COLUMN] = 1;
}

static bool picture_allows(const struct picture *picture, int begin, int bytes,
                           enum fe_access access) {
  if (begin % bytes != 0) return false;
  if (access != FE_READ && !picture->tensor.writable) return false;
  for (int n = 0; n < bytes; n++) {
    if (!picture->run[begin + n] || picture->run[begin + n] != picture->run[begin]) return false;
  }
  return true;
}

START_TEST(elements_and_nothing_else) {
  const uint64_t seed = fresh_seed();
  srand((unsigned)seed);
  struct picture *picture = malloc(sizeof *picture);
  picture->base = ft_memory_allocate(ROOM);
  ck_assert_uint_ne(picture->base, 0);
  ck_assert_uint_eq(picture->base % 256, 0);
  ft_memory_written(picture->base, ROOM);
  int taken = 0, refused = 0;
  for (int tensor = 0; tensor < 300; tensor++) {
    random_tensor(picture);
    draw_picture(picture);
    int end = ROOM - 64;
    while (end > 64 && !picture->run[end - 1]) end -= 1;
    for (int n = 0; n < 400; n++) {
      const int bytes = 1 << rand() % 5;
      const int begin = rand() % (end + 32) / (rand() % 8 ? bytes : 1) * (rand() % 8 ? bytes : 1);
      const enum fe_access access = rand() % 4 ? FE_READ : rand() % 2 ? FE_WRITE : FE_ATOMIC;
      if (begin + bytes > ROOM) continue;
      const bool allowed = picture_allows(picture, begin, bytes, access);
      const uint64_t address = picture->base + (uint64_t)begin;
      ck_assert_msg(touch(&picture->tensor, 1, address, bytes, access) == allowed,
                    "seed %llu: tensor %d, byte %d, %d bytes, access %d: %s",
                    (unsigned long long)seed, tensor, begin, bytes, access, what);
      ck_assert_msg(allowed == (strcmp(what, "nothing is wrong") == 0), "seed %llu: %s",
                    (unsigned long long)seed, what);
      taken += allowed;
      refused += !allowed;
    }
  }
  ck_assert_int_gt(taken, 10000);
  ck_assert_int_gt(refused, 10000);
  ck_assert(ft_memory_free(picture->base));
  free(picture);
}
END_TEST

/* ---- tensors among tensors --------------------------------------------------------------------*/

/* Q, K, V of one array [batch, row, 3, head, column]: each lies in the gaps of the others. */
START_TEST(packed_tensors_share_a_span) {
  enum { BATCHES = 2, ROWS = 5, HEADS = 3, DIM = 24, GAP = 8, ROW_OF = 3 * HEADS * DIM + GAP };
  const size_t bytes = BATCHES * ROWS * ROW_OF * 2;
  const uint64_t base = ft_memory_allocate(bytes);
  ft_memory_written(base, bytes);
  struct ft_emulated_tensor tensors[3];
  static const char *const names[] = {"Q", "K", "V"};
  for (int n = 0; n < 3; n++) {
    tensors[n] = (struct ft_emulated_tensor){names[n],
                                             base + (uint64_t)n * HEADS * DIM * 2,
                                             2,
                                             {BATCHES, ROWS, HEADS, DIM},
                                             {ROWS * ROW_OF, ROW_OF, DIM, 1},
                                             n == 2,
                                             1,
                                             1,
                                             false};
  }
  for (size_t at = 0; at < bytes; at += 16) {
    const size_t column = at / 2 % ROW_OF;
    const bool last_gap = at / 2 >= bytes / 2 - GAP;
    const bool v = column >= 2 * HEADS * DIM && column < 3 * HEADS * DIM;
    ck_assert_msg(touch(tensors, 3, base + at, 16, FE_READ) == (column < 3 * HEADS * DIM),
                  "byte %zu: %s", at, what);
    ck_assert_msg(touch(tensors, 3, base + at, 16, FE_WRITE) == v, "byte %zu: %s", at, what);
    if (column >= 3 * HEADS * DIM) {
      ck_assert_msg(strstr(what, last_gap ? "past the end of V (rows 0 to 4)" : "padding of V"),
                    "%s", what);
    }
  }
  ck_assert(!touch(tensors, 3, base + 16, 16, FE_WRITE));
  ck_assert_str_eq(what, "writes 16 bytes to Q[batch 0, row 0, head 0, column 8], an input");
  ck_assert(ft_memory_free(base));
}
END_TEST

/* Rows that begin every 8 elements but are 24 long: only the span is known. */
START_TEST(windows_that_overlap) {
  const uint64_t base = ft_memory_allocate(4096);
  ft_memory_written(base, 4096);
  const struct ft_emulated_tensor windows = {"Q",   base + 512, 2, {1, 10, 1, 24}, {0, 8, 24, 1},
                                             false, 1,          1, false};
  const uint64_t end = windows.address + (9 * 8 + 24) * 2;
  for (uint64_t at = base; at < base + 4096; at += 16) {
    ck_assert(touch(&windows, 1, at, 16, FE_READ) == (at >= windows.address && at < end));
  }
  ck_assert(!touch(&windows, 1, windows.address + 32, 8, FE_WRITE));
  ck_assert_str_eq(what, "writes 8 bytes to Q, byte 32 of 192, an input");
  ck_assert(ft_memory_free(base));
}
END_TEST

/* The same array of tensors with other contents, as two launches of one thread hand it in. */
START_TEST(other_tensors_at_the_same_place) {
  const uint64_t base = ft_memory_allocate(4096);
  ft_memory_written(base, 4096);
  struct ft_emulated_tensor tensor = {"K",   base, 2, {1, 4, 1, 64}, {0, 64, 0, 1},
                                      false, 1,    1, false};
  ck_assert(touch(&tensor, 1, base + 384, 16, FE_READ));
  tensor.extents[ROW] = 3;
  ck_assert(!touch(&tensor, 1, base + 384, 16, FE_READ));
  ck_assert_str_eq(what, "reads 16 bytes right past the end of K (rows 0 to 2)");
  tensor.extents[ROW] = 4;
  ck_assert(touch(&tensor, 1, base + 384, 16, FE_READ));
  ck_assert(touch(NULL, 0, base + 2048, 16, FE_READ));
  ck_assert(ft_memory_free(base));
}
END_TEST

/* ---- words ------------------------------------------------------------------------------------*/

struct fault {
  int64_t offset; /* from the tensor's first byte */
  int bytes;
  enum fe_access access;
  const char *what;
};

START_TEST(faults_name_the_place) {
  /* [1, 100, 2, 128] of 2 bytes, a row of 2 * 136 + 16 elements: gaps behind heads and rows */
  static const struct fault faults[] = {
      {3 * 576 + 272 + 16, 16, FE_WRITE,
       "writes 16 bytes to K[batch 0, row 3, head 1, column 8], an input"},
      {3 * 576 + 272 + 16, 4, FE_ATOMIC,
       "updates 4 bytes of K[batch 0, row 3, head 1, column 8], an input"},
      {3 * 576 + 272 + 256, 16, FE_READ,
       "reads 16 bytes of padding of K, after [batch 0, row 3, head 1], column 128 of 128"},
      {3 * 576 + 256, 8, FE_READ,
       "reads 8 bytes of padding of K, after [batch 0, row 3, head 0], column 128 of 128"},
      {3 * 576 + 252, 16, FE_READ,
       "reads 16 bytes at K[batch 0, row 3, head 0, column 126], 12 of them past column 127, the "
       "last"},
      {99 * 576 + 272 + 256, 16, FE_READ, "reads 16 bytes right past the end of K (rows 0 to 99)"},
      {99 * 576 + 272 + 288, 16, FE_WRITE,
       "writes 16 bytes 32 bytes past the end of K (rows 0 to 99)"},
      {99 * 576 + 272 + 248, 16, FE_READ,
       "reads 16 bytes, 8 of them past the end of K (rows 0 to 99)"},
      {-32, 16, FE_READ, "reads 16 bytes 32 bytes before the begin of K (rows 0 to 99)"},
      {-8, 16, FE_READ, "reads 16 bytes 8 bytes before the begin of K (rows 0 to 99)"},
  };
  const uint64_t base = ft_memory_allocate(65536);
  ft_memory_written(base, 65536);
  const struct ft_emulated_tensor k = {
      "K", base + 1024, 2, {1, 100, 2, 128}, {0, 288, 136, 1}, false, 1, 1, false};
  for (size_t n = 0; n < sizeof faults / sizeof *faults; n++) {
    const uint64_t address = k.address + (uint64_t)faults[n].offset;
    ck_assert(!touch(&k, 1, address, faults[n].bytes, faults[n].access));
    ck_assert_str_eq(what, faults[n].what);
  }
  char expected[100];
  ck_assert(!touch(&k, 1, base + 1024 + 8, 16, FE_READ));
  snprintf(expected, sizeof expected, "reads 16 bytes at 0x%llx, which is not a multiple of 16",
           (unsigned long long)base + 1024 + 8);
  ck_assert_str_eq(what, expected);

  ck_assert(ft_memory_free(base)); /* the process's own memory may be a tensor, too */
  ck_assert(touch(&k, 1, k.address, 16, FE_READ));
}
END_TEST

START_TEST(a_row_of_numbers) {
  const uint64_t base = ft_memory_allocate(4096);
  const struct ft_emulated_tensor lse = {"LSE", base, 4, {2, 37, 3, 1}, {111, 1, 37, 0},
                                         true,  1,    1, false};
  ck_assert(touch(&lse, 1, base + 36 * 4, 4, FE_WRITE));
  ck_assert(!touch(&lse, 1, base + 36 * 4, 8, FE_WRITE)); /* row 0 of the next head */
  ck_assert_str_eq(what, "writes 8 bytes at LSE[batch 0, row 36, head 0], 4 of them past row 36, "
                         "the last");
  ck_assert(!touch(&lse, 1, base + 41 * 4, 4, FE_READ));
  ck_assert_str_eq(what, "reads 4 bytes of LSE[batch 0, row 4, head 1] that were never written");
  ck_assert(touch(&lse, 1, base + 41 * 4, 4, FE_WRITE));
  ck_assert(touch(&lse, 1, base + 41 * 4, 4, FE_ATOMIC));
  ck_assert(ft_memory_free(base));
}
END_TEST

START_TEST(a_tensor_larger_than_its_memory) {
  const uint64_t base = ft_memory_allocate(1000);
  ft_memory_written(base, 1000);
  const struct ft_emulated_tensor v = {"V",   base, 2, {1, 10, 1, 64}, {0, 64, 0, 1},
                                       false, 1,    1, false};
  ck_assert(touch(&v, 1, base + 976, 16, FE_READ));
  ck_assert(!touch(&v, 1, base + 992, 16, FE_READ));
  ck_assert_str_eq(what,
                   "reads 16 bytes, 8 of them past the end of the allocation of V, of 1000 bytes");
  ck_assert(!touch(&v, 1, base + 1024, 16, FE_READ));
  ck_assert_str_eq(what,
                   "reads 16 bytes 24 bytes past the end of the allocation of V, of 1000 bytes");
  ck_assert(ft_memory_free(base));
}
END_TEST

/* ---- allocations without tensors --------------------------------------------------------------*/

START_TEST(written_before_read) {
  enum { BYTES = 3000 };
  const uint64_t seed = fresh_seed();
  srand((unsigned)seed);
  const uint64_t base = ft_memory_allocate(BYTES);
  for (int n = 0; n < BYTES; n++) {
    ck_assert_uint_eq(((const unsigned char *)(uintptr_t)base)[n], 0xCB);
  }
  bool written[BYTES + 64] = {false};
  for (int n = 0; n < 20000; n++) {
    const int bytes = 1 << rand() % 5, at = rand() % (BYTES / bytes) * bytes;
    const uint64_t address = base + (uint64_t)at;
    if (rand() % 50 == 0) {
      if (rand() % 2) {
        ck_assert(touch(NULL, 0, address, bytes, FE_WRITE));
      } else {
        ft_memory_written(address, (size_t)bytes);
      }
      memset(written + at, true, (size_t)bytes);
    }
    bool all = true;
    for (int byte = 0; byte < bytes; byte++) all = all && written[at + byte];
    const enum fe_access access = rand() % 2 ? FE_READ : FE_ATOMIC;
    ck_assert_msg(touch(NULL, 0, address, bytes, access) == all, "seed %llu: %d bytes at %d: %s",
                  (unsigned long long)seed, bytes, at, what);
    if (all) continue;
    char expected[128];
    snprintf(expected, sizeof expected,
             "%s %d byte%s at offset %d of an allocation of 3000 bytes that were never written",
             access == FE_READ ? "reads" : "updates", bytes, bytes == 1 ? "" : "s", at);
    ck_assert_str_eq(what, expected);
  }
  ck_assert(ft_memory_free(base));
}
END_TEST

START_TEST(bounds_of_an_allocation) {
  const uint64_t base = ft_memory_allocate(100);
  ck_assert(ft_memory_holds(base, 100));
  ck_assert(ft_memory_holds(base + 99, 1));
  ck_assert(!ft_memory_holds(base, 101));
  ck_assert(!ft_memory_holds(base + 100, 0));
  ck_assert(!ft_memory_holds(base + 99, SIZE_MAX));
  ft_memory_written(base, 101); /* not in it: nothing is written */
  ck_assert(!touch(NULL, 0, base, 1, FE_READ));
  ck_assert(touch(NULL, 0, base + 96, 4, FE_WRITE));
  ck_assert(!touch(NULL, 0, base + 96, 8, FE_WRITE));
  ck_assert_str_eq(what, "writes 8 bytes, 4 of them past the end of an allocation of 100 bytes");
  ck_assert(!touch(NULL, 0, base + 128, 8, FE_READ));
  ck_assert_str_eq(what, "reads 8 bytes 28 bytes past the end of an allocation of 100 bytes");
  ck_assert(!touch(NULL, 0, base - 16, 8, FE_READ));
  ck_assert_str_eq(what, "reads 8 bytes 16 bytes before the begin of an allocation of 100 bytes");
  ck_assert(!touch(NULL, 0, 16, 8, FE_READ));
  ck_assert_str_eq(what, "reads 8 bytes at 0x10, where nothing is allocated");
  ck_assert(!touch(NULL, 0, UINT64_MAX - 7, 16, FE_READ));
  ck_assert_str_eq(what, "reads 16 bytes at 0xfffffffffffffff8, where nothing is allocated");
  ck_assert(!ft_memory_free(base + 1));
  ck_assert(!ft_memory_free(0));
  ck_assert(ft_memory_free(base));
  ck_assert(!ft_memory_free(base));
  ck_assert(!touch(NULL, 0, base + 96, 4, FE_READ)); /* nothing is remembered of what is gone */
  ck_assert_uint_eq(ft_memory_allocate(0), 0);
}
END_TEST

/* ---- other threads ----------------------------------------------------------------------------*/

static atomic_bool stop;

static void *come_and_go(void *payload) {
  unsigned seed = *(const unsigned *)payload;
  uint64_t held[32] = {0};
  for (int n = 0; !stop || n % 32; n++) {
    uint64_t *slot = &held[n % 32];
    if (*slot) ck_assert(ft_memory_free(*slot));
    *slot = stop ? 0 : ft_memory_allocate(1 + (size_t)rand_r(&seed) % 5000);
  }
  for (int n = 0; n < 32; n++) {
    if (held[n]) ck_assert(ft_memory_free(held[n]));
  }
  return NULL;
}

START_TEST(others_allocate_meanwhile) {
  unsigned seeds[2] = {(unsigned)fresh_seed(), (unsigned)fresh_seed() + 1};
  pthread_t others[2];
  for (int n = 0; n < 2; n++) pthread_create(&others[n], NULL, come_and_go, &seeds[n]);
  const uint64_t base = ft_memory_allocate(1 << 16);
  const struct ft_emulated_tensor o = {"O", base, 2,    {1, 256, 1, 64}, {0, 64, 0, 1}, true,
                                       1,   1,    false};
  for (int n = 0; n < 200000; n++) {
    const uint64_t at = (uint64_t)(n * 16 % 32768);
    ck_assert_msg(touch(&o, 1, base + at, 16, FE_WRITE), "%s", what);
    ck_assert_msg(touch(&o, 1, base + at, 16, FE_READ), "%s", what);
  }
  stop = true;
  for (int n = 0; n < 2; n++) pthread_join(others[n], NULL);
  ck_assert(ft_memory_free(base));
}
END_TEST

Suite *make_emulator_memory_suite(void) {
  Suite *suite = suite_create("emulator_memory");
  TCase *tensors = tcase_create("tensors");
  tcase_add_test(tensors, elements_and_nothing_else);
  tcase_add_test(tensors, packed_tensors_share_a_span);
  tcase_add_test(tensors, windows_that_overlap);
  tcase_add_test(tensors, other_tensors_at_the_same_place);
  tcase_add_test(tensors, a_row_of_numbers);
  tcase_add_test(tensors, a_tensor_larger_than_its_memory);
  suite_add_tcase(suite, tensors);
  TCase *words = tcase_create("words");
  tcase_add_test(words, faults_name_the_place);
  suite_add_tcase(suite, words);
  TCase *allocations = tcase_create("allocations");
  tcase_add_test(allocations, written_before_read);
  tcase_add_test(allocations, bounds_of_an_allocation);
  tcase_add_test(allocations, others_allocate_meanwhile);
  suite_add_tcase(suite, allocations);
  return suite;
}
