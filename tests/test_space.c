/* test_space.c: the search space and the default config.
 * in -> out: generator/space.h over all GPUs of the table -> Check suite. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "generator/space.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

enum { MAX_LEGAL = 24000 };

static int compare_configs(const void *a, const void *b) {
  return ft_config_compare(a, b);
}

/* All configs of a space; asserts that each is legal and none comes twice. */
static int list_space(const struct ft_request *request, const struct ft_arch *arch,
                      struct ft_config legal[MAX_LEGAL]) {
  struct ft_space space;
  ck_assert_msg(ft_space_open(&space, request, arch) == FT_OK, "%s", ft_detail());
  int count = 0;
  struct ft_config config;
  while (ft_space_next(&space, &config)) {
    ck_assert_int_lt(count, MAX_LEGAL);
    ck_assert_ptr_null(ft_rules_broken(request, arch, &config));
    legal[count++] = config;
  }
  static struct ft_config sorted[MAX_LEGAL];
  memcpy(sorted, legal, (size_t)count * sizeof *sorted);
  qsort(sorted, (size_t)count, sizeof *sorted, compare_configs);
  for (int i = 1; i < count; ++i)
    ck_assert_int_ne(ft_config_compare(&sorted[i - 1], &sorted[i]), 0);
  ck_assert(!ft_space_next(&space, &config)); /* the end stays the end */
  ck_assert_int_eq((int)(space.visited - space.rejected), count);
  return count;
}

static int product_of_values(enum ft_family family) {
  int product = 1;
  for (int i = 0; i < FT_KNOB_COUNT; ++i) product *= ft_knob(i)->values[family].count;
  return product;
}

/* Of all families that serve a request of random_request made fp16. */
static int product_of_families(const struct ft_request *request, const struct ft_arch *arch) {
  const bool wgmma = arch->sm == 90 && wgmma_serves();
  if (request->pass == FT_BACKWARD) return product_of_values(FT_FAMILY_MMA_BACKWARD);
  return product_of_values(FT_FAMILY_MMA) + (wgmma ? product_of_values(FT_FAMILY_WGMMA) : 0);
}

START_TEST(default_comes_first_then_all_that_is_legal) {
  static struct ft_config legal[MAX_LEGAL], again[MAX_LEGAL];
  static const char *const gpus[] = {"t4", "a100", "l4", "h200", "b200", "rtx5090"};
  seed_cases();
  for (int round = 0; round < 24; ++round) {
    struct ft_request request = random_request();
    request.pass = round % 3 == 0 ? FT_BACKWARD : FT_FORWARD;
    request.deterministic = request.pass == FT_BACKWARD && round % 2 == 0;
    request.dtype = FT_FP16;
    const struct ft_arch arch = known_gpu(gpus[random_int(0, 5)]);
    struct ft_config first;
    ck_assert_int_eq(ft_default_config(&request, &arch, &first), FT_OK);
    const int count = list_space(&request, &arch, legal);
    ck_assert_int_eq(ft_config_compare(&legal[0], &first), 0);
    ck_assert_int_eq(list_space(&request, &arch, again), count);
    for (int i = 0; i < count; ++i) ck_assert(ft_config_compare(&legal[i], &again[i]) == 0);

    /* The raw walk sees the whole product once, and the same legal ones. */
    struct ft_space space;
    struct ft_config config;
    const struct ft_rule *broken;
    int any = 0, fine = 0;
    ck_assert_int_eq(ft_space_open(&space, &request, &arch), FT_OK);
    while (ft_space_next_any(&space, &config, &broken)) {
      if (broken == NULL) ck_assert(ft_config_compare(&legal[fine++], &config) == 0);
      ++any;
    }
    ck_assert_int_eq(fine, count);
    ck_assert_int_eq(any, product_of_families(&request, &arch));
  }
}
END_TEST

/* Legal configs of a family, whether it serves already or not. */
static int count_legal(enum ft_family family, const struct ft_request *request,
                       const struct ft_arch *arch) {
  int count = 0;
  for (int n = 0; n < product_of_values(family); ++n) {
    struct ft_config config = {.family = family};
    for (int i = 0, rest = n; i < FT_KNOB_COUNT; ++i) {
      const struct ft_values values = ft_knob(i)->values[family];
      ft_config_set(&config, i, values.list[rest % values.count]);
      rest /= values.count;
    }
    count += rule_broken(request, arch, &config) == NULL;
  }
  return count;
}

START_TEST(ordinary_spaces_are_worth_a_full_search) {
  static struct ft_config legal[MAX_LEGAL];
  static const struct {
    const char *request, *gpu;
    int mma_least, mma_most, wgmma_least, wgmma_most;
  } spaces[] = {
      {"bf16 d128 nq4096 causal", "h200", 100, 400, 100, 9000},
      {"bf16 d128 nq4096", "a100", 100, 400, 0, 0},
      {"bf16 d64 nq4096", "h200", 100, 500, 100, 20000},
      {"bf16 d64 nq4096", "l4", 100, 400, 0, 0},
      {"bf16 d256 nq4096", "h200", 50, 400, 20, 1200},
      {"bf16 d128 nq1 nk4096", "h200", 100, 500, 50, 2000},
      {"fp16 d128 nq4096", "t4", 10, 400, 0, 0},
      {"bf16 d128 nq4096 mask=128x128", "h200", 50, 400, 50, 2000},
      {"bf16 d128 nq4096 mask=16x128", "h200", 10, 400, 0, 0},
  };
  for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; ++i) {
    const struct ft_request request = known_request(spaces[i].request);
    const struct ft_arch arch = known_gpu(spaces[i].gpu);
    const int mma = count_legal(FT_FAMILY_MMA, &request, &arch);
    const int wgmma = count_legal(FT_FAMILY_WGMMA, &request, &arch);
    ck_assert_msg(mma >= spaces[i].mma_least && mma <= spaces[i].mma_most,
                  "%s on %s: %d mma configs", spaces[i].request, spaces[i].gpu, mma);
    ck_assert_msg(wgmma >= spaces[i].wgmma_least && wgmma <= spaces[i].wgmma_most,
                  "%s on %s: %d wgmma configs", spaces[i].request, spaces[i].gpu, wgmma);
    ck_assert_int_eq(list_space(&request, &arch, legal), mma + (wgmma_serves() ? wgmma : 0));
  }
}
END_TEST

START_TEST(ordinary_backward_spaces_are_worth_a_full_search) {
  static const struct {
    const char *request, *gpu;
    int least, most;
  } spaces[] = {
      {"backward bf16 d64 nq4096", "h200", 50, 400},
      {"backward bf16 d128 nq4096 causal", "h200", 50, 400},
      {"backward bf16 d256 nq4096", "h200", 20, 400},
      {"backward bf16 d128 nq4096 deterministic", "a100", 50, 400},
      {"backward bf16 d128 nq4096", "l4", 20, 400},
      {"backward bf16 d64 nq4096 dropout", "l4", 50, 400},
      {"backward bf16 d128 nq4096 mask=16x128", "h200", 10, 400},
      {"backward fp16 d128 nq4096", "t4", 2, 400},
  };
  for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; ++i) {
    static struct ft_config legal[MAX_LEGAL];
    const struct ft_request request = known_request(spaces[i].request);
    const struct ft_arch arch = known_gpu(spaces[i].gpu);
    const int count = count_legal(FT_FAMILY_MMA_BACKWARD, &request, &arch);
    ck_assert_msg(count >= spaces[i].least && count <= spaces[i].most, "%s on %s: %d configs",
                  spaces[i].request, spaces[i].gpu, count);
    ck_assert_int_eq(list_space(&request, &arch, legal), count);
  }
}
END_TEST

/* wgmma wherever it has a legal config; under fine masks it has none. */
START_TEST(defaults_are_of_the_best_family) {
  static const struct {
    const char *request, *gpu;
    enum ft_family family;
  } defaults[] = {
      {"bf16 d128 nq4096 causal", "h200", FT_FAMILY_WGMMA},
      {"fp16 d64 nq40", "h100", FT_FAMILY_WGMMA},
      {"fp16 d256 nq4096 mask=64x96", "gh200", FT_FAMILY_WGMMA},
      {"bf16 d128 nq4096 mask=16x128", "h200", FT_FAMILY_MMA},
      {"bf16 d128 nq4096 mask=128x32", "h200", FT_FAMILY_MMA},
      {"bf16 d128 nq4096", "a100", FT_FAMILY_MMA},
      {"bf16 d128 nq4096", "b200", FT_FAMILY_MMA},
      {"backward bf16 d128 nq4096", "h200", FT_FAMILY_MMA_BACKWARD},
      {"backward fp16 d128 nq4096", "t4", FT_FAMILY_MMA_BACKWARD},
  };
  for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; ++i) {
    const struct ft_request request = known_request(defaults[i].request);
    const struct ft_arch arch = known_gpu(defaults[i].gpu);
    const bool waits = defaults[i].family == FT_FAMILY_WGMMA && !wgmma_serves();
    const enum ft_family family = waits ? FT_FAMILY_MMA : defaults[i].family;
    struct ft_config config;
    ck_assert_int_eq(ft_default_config(&request, &arch, &config), FT_OK);
    ck_assert_msg(config.family == family, "%s on %s: %s", defaults[i].request, defaults[i].gpu,
                  ft_family_name(config.family));
  }
}
END_TEST

/* Every head dim with every V head dim, on one GPU of every compute capability, for masks and
 * lengths at which something changes. */
START_TEST(every_served_request_has_a_legal_default) {
  static const char *const gpus[] = {"t4", "a30", "a10", "l4", "h200", "b200", "rtx5090"};
  static const char *const passes[] = {"fp16 d16 nq1", "backward fp16 d16 nq1",
                                       "backward fp16 d16 nq1 deterministic"};
  static const int masks[] = {0, 16, 48, 64, 80, 96, 128, 256, 4096};
  static const int64_t lengths[] = {1, 32, 33, 100, 4096};
  enum { MASKS = sizeof masks / sizeof masks[0] };
  const struct ft_arch arch = known_gpu(gpus[_i % 7]);
  struct ft_request request = known_request(passes[_i / 7]);
  for (int d = 16; d <= 256; d += 8)
    for (int dv = 16; dv <= 256; dv += 8)
      for (int mask = 0; mask < MASKS * MASKS; ++mask)
        for (int length = 0; length < 5; ++length) {
          request.head_dim = d;
          request.head_dim_v = dv;
          request.mask_rows = masks[mask % MASKS];
          request.mask_cols = masks[mask / MASKS];
          if ((request.mask_rows == 0) != (request.mask_cols == 0)) continue;
          request.seqlen_q = lengths[length];
          struct ft_config config;
          ck_assert_msg(ft_default_config(&request, &arch, &config) == FT_OK,
                        "%s on %s: d%d dv%d mask=%dx%d nq%d: %s", passes[_i / 7], gpus[_i % 7], d,
                        dv, request.mask_rows, request.mask_cols, (int)request.seqlen_q,
                        ft_detail());
          ck_assert_ptr_null(ft_rules_broken(&request, &arch, &config));
        }
}
END_TEST

START_TEST(default_depends_on_limits_not_on_names) {
  const struct ft_request request = known_request("bf16 d128 hq32 nq4096 causal");
  const struct ft_arch arch = known_gpu("h200");
  struct ft_arch renamed = arch;
  strcpy(renamed.name, "another");
  struct ft_config a, b;
  ck_assert_int_eq(ft_default_config(&request, &arch, &a), FT_OK);
  ck_assert_int_eq(ft_default_config(&request, &renamed, &b), FT_OK);
  ck_assert_int_eq(ft_config_compare(&a, &b), 0);
}
END_TEST

START_TEST(unserved_requests_have_no_space) {
  struct ft_space space;
  const struct ft_request backward = known_request("backward d64 nq1"),
                          bf16 = known_request("bf16 d64 nq1");
  const struct ft_arch t4 = known_gpu("t4");
  ck_assert_int_eq(ft_space_open(&space, &backward, &t4), FT_E_UNSUPPORTED);
  ck_assert_int_eq(ft_space_open(&space, &bf16, &t4), FT_E_UNSUPPORTED);
}
END_TEST

Suite *make_space_suite(void) {
  Suite *const suite = suite_create("space");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, default_comes_first_then_all_that_is_legal);
  tcase_add_test(tests, ordinary_spaces_are_worth_a_full_search);
  tcase_add_test(tests, ordinary_backward_spaces_are_worth_a_full_search);
  tcase_add_test(tests, defaults_are_of_the_best_family);
  tcase_add_loop_test(tests, every_served_request_has_a_legal_default, 0, 3 * 7);
  tcase_add_test(tests, default_depends_on_limits_not_on_names);
  tcase_add_test(tests, unserved_requests_have_no_space);
  suite_add_tcase(suite, tests);
  return suite;
}
