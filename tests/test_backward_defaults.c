/* test_backward_defaults.c: which requests a knob of the backward is the default for.
 * in -> out: request, on an H200 -> the default config -> Check suite. */
#include "tests/generator_cases.h"
#include "tests/suites.h"

/* Request; what the default has, what it lacks. */
struct expected {
  const char *request, *has, *lacks;
};

static void expect_all(const struct expected *cases, size_t count) {
  const struct ft_arch arch = known_gpu("h200");
  for (size_t n = 0; n < count; ++n)
    default_has(&arch, cases[n].request, cases[n].has, cases[n].lacks);
}

START_TEST(wide_groups_of_causal_heads_have_heads_inner) {
  static const struct expected cases[] = {
      {"backward d128 hq64 hkv8 b4 nq4096 causal", "pacing=2 heads_inner=1", NULL},
      {"backward d96 hq64 hkv4 b4 nq4096 causal", "pacing=1 heads_inner=1", NULL},
      {"backward d192 hq32 hkv4 b4 nq4096 causal", "heads_inner=1", NULL},
      {"backward d128 hq32 hkv8 b4 nq4096 causal", "pacing=2", "heads_inner"},
      {"backward d128 hq64 hkv8 b4 nq4096", "pacing=1", "heads_inner"},
      {"backward d128 hq64 hkv8 b4 nq4096 causal dropout", "pacing=2", "heads_inner"},
      {"backward d128 hq64 hkv8 b4 nq4096 causal deterministic", "pacing=1", "heads_inner"},
      {"backward d128 hq64 hkv8 b4 nq4096 causal ragged", "pacing=1", "heads_inner"},
      {"backward d128 hq64 hkv8 b4 nq4096 window", "pacing=1", "heads_inner"},
      {"backward d128 hq64 hkv8 b4 nq4096 causal mask=128x128", "ds_stages=2", "heads_inner"},
      {"backward d160 hq64 hkv8 b4 nq4096 causal", "dq_stages=2", "heads_inner"}};
  expect_all(cases, sizeof cases / sizeof *cases);
}
END_TEST

START_TEST(heads_of_192_columns_have_multicast) {
  static const struct expected cases[] = {
      {"backward d192 hq10 b4 nq4096", "multicast=1", NULL},
      {"backward d168 hq10 b4 nq4096", "multicast=1", NULL},
      {"backward d192 hq10 b4 nq4096 causal", "dq_stages=2", "multicast"},
      {"backward d160 hq10 b4 nq4096", "dq_stages=2", "multicast"},
      {"backward d256 hq10 b4 nq4096", "dq_stages=1", "multicast"},
      {"backward d192 hq10 b4 nq4096 ragged", "dq_stages=2", "multicast"},
      {"backward d192 hq10 b4 nq4096 dropout", "dq_stages=2", "multicast"}};
  expect_all(cases, sizeof cases / sizeof *cases);
}
END_TEST

START_TEST(many_short_walks_are_one_loop) {
  static const struct expected cases[] = {
      {"backward d128 hq16 b32 nq512", "direct_store=1 persistent=2 early_dq=1 pacing=2", NULL},
      {"backward d128 hq16 b4 nq512", "persistent=2", NULL},
      {"backward d96 hq20 b32 nq512", "persistent=2", NULL},
      {"backward d128 hq16 b16 nq1024 causal", "persistent=2", NULL},
      {"backward d128 hq16 b4 nq1024 causal", "pacing=1", "persistent"},
      {"backward d128 hq16 b2 nq512", "pacing=1", "persistent"},
      {"backward d128 hq16 b16 nq1056", "pacing=1", "persistent"},
      {"backward d128 hq16 hkv8 b32 nq512", "pacing=1", "persistent"},
      {"backward d72 hq16 b32 nq512", "pacing=1", "persistent"},
      {"backward d128 hq16 b32 nq512 window", "pacing=1", "persistent"},
      {"backward d128 hq16 b32 nq512 dropout", "pacing=2", "persistent"},
      {"backward d128 hq16 b32 nq512 ragged", "pacing=1", "persistent"},
      {"backward d128 hq16 b32 nq512 deterministic", "pacing=1", "persistent"}};
  expect_all(cases, sizeof cases / sizeof *cases);
}
END_TEST

START_TEST(steps_of_128_queries_add_from_registers) {
  static const struct expected cases[] = {
      {"backward d64 hq32 b4 nq4096", "block_m=128", NULL},
      {"backward d64 hq32 b4 nq4096", "early_dq=1 dq_adds=1 pacing=1", NULL},
      {"backward d64 hq32 b2 nq8192", "block_n=128", NULL},
      {"backward d64 hq32 b2 nq8192", "dq_adds=1", NULL},
      {"backward d64 hq32 b16 nq1024", "dq_adds=1", NULL},
      {"backward d64 hq32 hkv8 b4 nq4096 causal", "dq_adds=1", NULL},
      {"backward d64 hq32 nq16384 window", "dq_adds=1", NULL},
      {"backward d64 hq32 b4 nq4096 causal", "block_n=192", "dq_adds"},
      {"backward d64 hq32 b32 nq768", "block_m=64", "dq_adds"},
      {"backward d64 hq32 b16 nq1024 deterministic", "block_m=64", "dq_adds"},
      {"backward d64 hq32 b2 nq8192 deterministic", "block_m=", "dq_adds"},
      {"backward d64 hq32 b4 nq4096 dropout", "block_m=128", "dq_adds"},
      {"backward d64 hq8 hkv1 nq2048", "block_m=128 block_n=64", "dq_adds"},
      {"backward d64 hq32 nq16384 mask=128x128@0.1", "persistent=2", "dq_adds"},
      {"backward d128 hq16 b4 nq4096", "block_m=64", "dq_adds"}};
  expect_all(cases, sizeof cases / sizeof *cases);
}
END_TEST

START_TEST(clusters_have_early_dq) {
  static const struct expected cases[] = {
      {"backward d256 hq8 b4 nq4096", "early_dq=1", NULL},
      {"backward d256 hq8 nq16384 causal", "early_dq=1", NULL},
      {"backward d256 hq8 nq16384 mask=128x128@0.1", "early_dq=1", NULL},
      {"backward d160 hq12 b4 nq4096", "early_dq=1", NULL},
      {"backward d160 hq12 b4 nq4096 causal", "dq_stages=2", "early_dq"},
      {"backward d160 hq12 nq16384", "dq_stages=2", "early_dq"},
      {"backward d192 hq10 b4 nq4096", "multicast=1", "early_dq"},
      {"backward d256 hq8 b4 nq4096 ragged", "dq_stages=", "early_dq"},
      {"backward d256 hq8 b4 nq4096 dropout", "dq_stages=", "early_dq"},
      {"backward d256 hq8 b4 nq4096 deterministic", "dq_stages=", "early_dq"}};
  expect_all(cases, sizeof cases / sizeof *cases);
}
END_TEST

Suite *make_backward_defaults_suite(void) {
  Suite *const suite = suite_create("backward_defaults");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, wide_groups_of_causal_heads_have_heads_inner);
  tcase_add_test(tests, heads_of_192_columns_have_multicast);
  tcase_add_test(tests, many_short_walks_are_one_loop);
  tcase_add_test(tests, steps_of_128_queries_add_from_registers);
  tcase_add_test(tests, clusters_have_early_dq);
  suite_add_tcase(suite, tests);
  return suite;
}
