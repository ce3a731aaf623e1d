/* test_emulator_cluster_reads.c: reads from the shared memory of other blocks of a cluster, and
 * bugs planted into a kernel that has them, each caught with its place; clusters of more than 8
 * blocks. in -> out: random words -> what the blocks have read; an edit of the kernel -> the fault,
 * in words, with its line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hopper_kernel.h"
#include "tests/suites.h"

enum { BLOCKS = 16, CLUSTERS = 2, THREADS = 64, GRID = CLUSTERS * BLOCKS };
enum { IN = GRID * THREADS, OUT = 2 * IN };

/* Each block writes its words. Each thread reads a word of some block, and one of the next. */
static const char reads[] =
    "const unsigned own = smem + 1024, rank = cluster_rank();\n"
    "store_shared_4(own + thread * 4, in[blockIdx.x * 64 + thread]);\n"
    "cluster_sync(); // all words are there\n"
    "unsigned r[4];\n"
    "load_cluster_16(r, own + thread / 4 * 16, (rank + thread) % 16);\n"
    "out[blockIdx.x * 128 + thread] = r[thread % 4];\n"
    "const float other = load_cluster_4(own + thread * 4, (rank + 1) % 16);\n"
    "out[blockIdx.x * 128 + 64 + thread] = __float_as_uint(other);\n"
    "cluster_sync(); // all words have been read\n"
    "store_shared_4(own + thread * 4, 0);\n";

static int launch(const char *body, const uint32_t in[IN], uint32_t out[OUT]) {
  struct small_kernel kernel;
  hopper_open_clusters(&kernel, FT_BF16, "__cluster_dims__(16, 1, 1)", body);
  const int status = hopper_launch(&kernel, GRID, THREADS, NULL, 0, in, IN, out, OUT);
  small_kernel_close(&kernel);
  return status;
}

/* Words that are numbers: a NaN may be made quiet on its way through a float. */
static void make_words(uint32_t in[IN]) {
  for (int n = 0; n < IN; n++) in[n] = random_word() & 0x3fffffff;
}

START_TEST(words_come_from_other_blocks) {
  static uint32_t in[IN], out[OUT];
  make_words(in);
  const int status = launch(reads, in, out);
  ck_assert_msg(status == FT_OK, "%s", ft_detail());
  for (int block = 0; block < GRID; block++)
    for (int thread = 0; thread < THREADS; thread++) {
      const int first = block / BLOCKS * BLOCKS, rank = block % BLOCKS;
      const int some = first + (rank + thread) % BLOCKS, next = first + (rank + 1) % BLOCKS;
      ck_assert_uint_eq(out[block * 128 + thread], in[some * THREADS + thread]);
      ck_assert_uint_eq(out[block * 128 + 64 + thread], in[next * THREADS + thread]);
    }
}
END_TEST

/* ---- bugs ---- */

#define THERE "cluster_sync(); // all words are there\n"
#define READ  "cluster_sync(); // all words have been read\n"
#define STORE "store_shared_4(own + thread * 4, 0);\n"
#define NEXT  "load_cluster_4(own + thread * 4, (rank + 1) % 16)"

static const struct {
  const char *name, *piece, *other; /* the one becomes the other */
  const char *at;                   /* what stands in the line of the fault */
  const char *words[2];
} bugs[] = {
    {"words read before they are there",
     THERE,
     "__syncthreads();\n",
     "load_cluster_16(",
     {"reads shared memory at offset 1", "which was never written"}},
    {"words written while they may be read",
     READ STORE,
     STORE "cluster_sync();\n",
     "store_shared_4(own + thread * 4, 0)",
     {"writes shared memory at offset 1", "(race)"}},
    {"a block that ends while it may be read",
     READ STORE,
     "if (rank != 0) cluster_sync();\n",
     "load_cluster_4(",
     {"reads shared memory of block 0 (rank 0 of its cluster), which may have ended by then",
      "no cluster_sync keeps it"}},
    {"a block that has ended",
     READ STORE,
     "",
     "load_cluster_",
     {"reaches for shared memory of block ", "which has ended: no cluster_sync keeps it"}},
    {"a block beyond the cluster",
     NEXT,
     "load_cluster_4(own + thread * 4, rank + 1)",
     "load_cluster_4(",
     {"reaches for rank 16 of its cluster, which has 16 blocks", NULL}},
    {"half a word",
     NEXT,
     "load_cluster_4(own + thread * 4 + 2, (rank + 1) % 16)",
     "load_cluster_4(",
     {"reads 4 bytes of shared memory at offset 1", "which is no multiple of 4"}},
    {"memory that no block has",
     NEXT,
     "load_cluster_4(smem + 160 * 1024, (rank + 1) % 16)",
     "load_cluster_4(",
     {"reads 4 bytes of shared memory at offset 163840", NULL}},
};

START_TEST(a_bug_is_caught_with_its_place) {
  static uint32_t in[IN], out[OUT];
  char *const edited = hopper_edited(reads, bugs[_i].piece, bugs[_i].other);
  make_words(in);
  const int status = launch(edited, in, out);
  ck_assert_msg(status == FT_E_DEVICE, "%s: status %d", bugs[_i].name, status);
  hopper_expect_fault(bugs[_i].name, edited, bugs[_i].at, bugs[_i].words, 2);
  free(edited);
}
END_TEST

Suite *make_emulator_cluster_reads_suite(void) {
  Suite *const suite = suite_create("emulator_cluster_reads");
  TCase *const tests = tcase_create("reads");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, words_come_from_other_blocks);
  tcase_add_loop_test(tests, a_bug_is_caught_with_its_place, 0, (int)(sizeof bugs / sizeof *bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
