/* test_few_rows.c: forwards whose work tiles do not fill a GPU.
 * in -> out: requests -> their defaults; with a config, into how many parts their walks are
 * divided. */
#include <check.h>

#include "generator/families/mma_forward.h"
#include "generator/families/wgmma_forward.h"
#include "generator/space.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

/* Decoding divides its keys where its batch is small; heads that share keys share tiles. */
START_TEST(defaults_fit_few_rows) {
  static const struct {
    const char *request, *gpu, *has, *lacks;
  } cases[] = {
      {"d128 hq32 hkv8 nq1 nk65536", "h200", "pack_gqa=1 split_keys=1", "block_m=128"},
      {"d128 hq32 hkv8 b16 nq1 nk8192", "h200", "pack_gqa=1", "split_keys=1"},
      {"d128 hq32 hkv8 b16 nq1 nk8192 pages=64", "h200", "pack_gqa=1 split_keys=1", "block_m=128"},
      {"d128 hq32 hkv8 b500 nq1 nk8192 pages=16", "h200", "pack_gqa=1 split_keys=1", "block_m=128"},
      {"d256 b9 nq3 nk8192 pages=64 dropout causal", "h200", "split_keys=1", "block_m=128"},
      {"d128 hq32 hkv8 b16 nq1 nk8192 pages=16", "h200", "block_n=128 stages=2", "stages=3"},
      /* Very many short walks. */
      {"d128 hq32 hkv8 b128 nq1 nk2048 pages=64", "h200", "block_m=16 block_n=64", "split_keys"},
      {"d128 hq32 hkv8 b115 nq1 nk2048 pages=64", "h200", "split_keys=1", "block_m=16"},
      {"d128 hq32 hkv8 b128 nq1 nk2048 pages=16", "h200", "split_keys=1", "block_m=16"},
      {"d128 hq16 hkv4 b512 nq1 nk1024 pages=16", "h200", "block_m=16 block_n=64", "split_keys"},
      {"d128 hq32 hkv8 b512 nq1 nk4096 pages=64", "h200", "split_keys=1", "block_m=16"},
      {"d128 hq32 hkv8 b4 nq4096 causal pages=64", "h200", "block_m=128 block_n=128", "lpt"},
      {"d128 hq32 hkv8 b4 nq4096 causal pages=64", "h200", "multicast=2", "split_keys"},
      {"d128 hq32 hkv8 b4 nq4096 causal pages=16", "h200", "block_m=128", "multicast"},
      {"d128 hq24 hkv8 b4 nq4096 causal pages=64", "h200", "block_m=128", "multicast"},
      /* By mma.sync: long walks of mixed lengths, and short ones; heads that are not packed read
       * the same K and V side by side. */
      {"kv=e4m3 d128 hq32 hkv8 b32 nq1 nk131072 pages=64", "h200", "split_keys=1", "block_m=64"},
      {"kv=e4m3 d128 hq32 hkv8 b32 nq1 nk512 pages=64", "h200", "block_m=16", "split_keys=1"},
      {"d128 hq32 hkv8 b32 nq1 nk131072 pages=4", "h200", "pack_gqa=1 split_keys=1", "wgmma"},
      {"d128 hq32 hkv8 b32 nq1 nk32768 pages=16", "a100", "pack_gqa=1 split_keys=1", "block_m=64"},
      {"d128 hq32 hkv8 b32 nq1 nk32768 pages=16", "l40s", "pack_gqa=1 split_keys=1", "block_m=64"},
      {"d128 hq40 hkv8 b9 nq1 nk4096", "rtx4090", "block_m=16", "stages=3"},
      {"fp32 d128 hq32 hkv8 b32 nq1 nk131072 pages=16", "h200", "block_m=16", "split_keys=1"},
      {"d64 hq4 nq1 nk65536 dropout", "h200", "split_keys=1", "pack_gqa=1"},
      {"d128 hq32 hkv8 nq1 nk1024", "h200", "pack_gqa=1 split_keys=8", "wgmma"},
      {"d128 hq32 hkv8 nq1 nk4096", "h200", "pack_gqa=1 split_keys=8", "wgmma"},
      {"d128 hq32 hkv8 nq8 nk4096 causal", "h200", "pack_gqa=1 split_keys=8", "block_m=16"},
      {"d128 hq32 hkv8 nq1 nk4096", "a100", "mma_forward", "split_keys=8"},
      {"d128 hq32 hkv8 b8 nq4096", "h200", "block_m=128", "direct_store=1"},
      {"d128 hq32 hkv8 nq1 nk65536", "a100", "split_keys=1", "wgmma"},
      {"d128 hq32 hkv8 b8 nq4096 causal", "a100", "mma_forward", "split_keys=1"},
      {"d256 hq4 hkv2 nq1 nk70 causal", "h200", "stages=3", "block_m=128"},
      /* K and V in e4m3: heads share tiles, though together they have more rows than a tile. */
      {"bf16 kv=e4m3 d128 hq16 hkv4 b16 nq7 nk25965", "h200", "pack_gqa=1", "warps=8"},
      {"bf16 kv=e4m3 d128 hq8 hkv4 b16 nq2 nk20822 pages=16", "h200",
       "warps=4 stages=3 q_in_regs=1 key_warps=4 pack_gqa=1 split_keys=1", "block_m=64"},
      {"bf16 kv=e4m3 d128 hq32 hkv8 b4 nq4 nk4096 pages=64", "h200",
       "block_n=64 warps=4 stages=3 key_warps=4 pack_gqa=1 split_keys=8", "block_m=64"},
      /* Narrow heads in pages. Blocks take whole walks if these are short, if all run at once, and
       * if every multiprocessor has one. */
      {"d64 hq12 b16 nq8 nk1024 pages=64", "h200", "block_m=32 block_n=64 warps=4", "split_keys"},
      {"d64 hq12 b16 nq16 nk1451 pages=256", "h200", "block_m=32 block_n=128", "split_keys"},
      {"d64 hq12 b16 nq16 nk65536 pages=256", "h200", "wgmma_forward", "block_m=32"},
      /* Clusters where there is one sequence, or even the longest walk is short. */
      {"d64 hq12 nq16 nk905 pages=256", "h200", "mma_forward", "split_keys=1"},
      {"fp16 d64 hq8 nq1 nk9111 pages=64", "h200", "key_warps=4 split_keys=8", "wgmma"},
      {"fp16 d64 hq8 b4 nq7 nk1428 pages=256", "h200", "key_warps=4 split_keys=8", "wgmma"},
      {"fp16 d64 hq8 b4 nq7 nk9111 pages=256", "h200", "wgmma_forward", "split_keys=8"},
      {"d128 hq12 b16 nq8 nk1024 pages=64", "h200", "wgmma_forward", "block_m=32"},
      /* mma_forward loads rows of 160 bytes in pieces of 32, and rows of 192 in pieces of 64. */
      {"d80 hq16 b2 nq2 nk20000", "h200", "wgmma_forward", "split_keys=8"},
      {"d96 hq16 b2 nq2 nk20000", "h200", "mma_forward", "wgmma"},
      /* Longformer's mask; rows about alike; so many heads that the long rows of some end while
       * those of others run. */
      {"d64 hq32 nq16384 mask=128x128@0.039,25", "h200", "split_keys=1", "block_m=64"},
      {"d128 hq16 nq16384 mask=128x128@0.039,25", "h200", "split_keys=1", "block_m=64"},
      {"d128 hq16 nq16384 mask=128x128@0.039", "h200", "block_m=128", "split_keys"},
      {"d128 hq16 b64 nq16384 mask=128x128@0.039,25", "h200", "block_m=128", "split_keys"},
      {"e4m3 d128 hq16 nq16384 mask=128x128@0.039,25", "h200", "split_keys=1", "block_m=64"},
  };
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    const struct ft_arch gpu = known_gpu(cases[n].gpu);
    default_has(&gpu, cases[n].request, cases[n].has, cases[n].lacks);
  }
}
END_TEST

static struct ft_walks walks_of(const struct ft_request *asked, const struct ft_config *of,
                                const struct ft_arch *gpu) {
  return of->family == &ft_mma_forward_family ? ft_mma_forward_walks_of(asked, of, gpu)
                                              : ft_wgmma_forward_walks_of(asked, of, gpu);
}

/* What took least time on an H200, or at most 5 % more. */
START_TEST(as_many_parts_as_were_fast) {
  static const struct {
    const char *request, *config;
    int least, most;
  } cases[] = {
      /* 433 us whole, 224 by two parts. Blocks have one warp, which leaves most of a
       * multiprocessor idle. */
      {"fp32 d256 hq16 hkv8 b8 nq7 nk1679",
       "mma_forward block_m=16 block_n=16 warps=1 stages=1 split_keys=1 ctas_per_sm=1", 2, 4},
      /* 13.1 us whole, 9.1 by two: merging two parts takes little. */
      {"tf32 d96 hq48 hkv12 nq2 nk1024",
       "mma_forward block_m=16 block_n=128 warps=4 stages=2 key_warps=4 split_keys=1 ctas_per_sm=1",
       2, 2},
      {"e4m3 d160 hq16 b4 nq4 nk2048",
       "wgmma_forward block_m=64 block_n=128 stages=2 q_stages=2 overlap_tiles=1 lazy_rescale=1 "
       "direct_store=1 split_keys=1",
       2, 2},
      /* 8.6 us by 30 parts, 10.2 by 60; 16.7 by 86 and 23.7 by 171: merging many takes longer. */
      {"bf16 kv=e4m3 d160 hq16 hkv2 nq1 nk3805",
       "mma_forward block_m=16 block_n=64 warps=4 stages=2 key_warps=4 pack_gqa=1 split_keys=1 "
       "ctas_per_sm=3",
       20, 40},
      {"bf16 kv=e4m3 d64 nq4 nk65536",
       "mma_forward block_m=16 block_n=128 warps=4 stages=3 q_in_regs=1 key_warps=4 split_keys=1 "
       "ctas_per_sm=1",
       40, 110},
      /* 31.6 us by 6 parts of the longest walk, 23.3 by 10. The mean walk of a causal problem is
       * half as long, and has half as many. */
      {"tf32 d96 nq2740 causal",
       "mma_forward block_m=128 block_n=96 warps=4 stages=1 split_keys=1 ctas_per_sm=1", 9, 12},
      /* 3 or 4 parts fit into one round of blocks and take 21.4 and 22.1 us. 6 need a second
       * round, and take 26.1. */
      {"bf16 d64 hq8 hkv4 b8 nq4 nk8192",
       "wgmma_forward block_m=64 block_n=128 stages=3 q_stages=1 integer_max=1 lazy_rescale=1 "
       "direct_store=1 pack_gqa=1 split_keys=1",
       3, 4},
  };
  const struct ft_arch h200 = known_gpu("h200");
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    const struct ft_request asked = known_request(cases[n].request);
    const struct ft_config of = known_config(cases[n].config);
    const struct ft_walks walks = walks_of(&asked, &of, &h200);
    const int64_t parts = ft_key_parts_of(&walks, &h200).most;
    ck_assert_msg(cases[n].least <= parts && parts <= cases[n].most, "%s: %d parts",
                  cases[n].request, (int)parts);
  }
}
END_TEST

/* There are 16 tiles of 128 queries. Under the causal mask they see from 2 to 32 steps of 64 keys;
 * without it each sees 32. */
START_TEST(walks_have_a_mean) {
  const struct ft_request causal = known_request("d64 nq2048 causal"),
                          all = known_request("d64 nq2048");
  struct ft_walks walks = {.block_m = 128, .block_n = 64};
  ft_walks_of_request(&walks, &causal, (struct ft_pack){0, 1});
  ck_assert_int_eq(walks.steps, 32);
  ck_assert(walks.mean >= 17 && walks.mean <= 18);
  ft_walks_of_request(&walks, &all, (struct ft_pack){0, 1});
  ck_assert(walks.steps == 32 && walks.mean == 32);
}
END_TEST

Suite *make_few_rows_suite(void) {
  Suite *const suite = suite_create("few_rows");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, defaults_fit_few_rows);
  tcase_add_test(tests, as_many_parts_as_were_fast);
  tcase_add_test(tests, walks_have_a_mean);
  suite_add_tcase(suite, tests);
  return suite;
}
