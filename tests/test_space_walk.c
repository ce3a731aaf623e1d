/* test_space_walk.c: the search space.
 * in -> out: generator/space.h over all GPUs of the table -> Check suite. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "generator/space.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

static int compare_configs(const void *a, const void *b) {
  return ft_config_compare(a, b);
}

/* Configs of a space, as many as there are; in the order of ft_config_compare once sort_configs has
 * been called. */
struct configs {
  struct ft_config *list, *sorted;
  int count, capacity;
};

static void add(struct configs *configs, const struct ft_config *config) {
  if (configs->count == configs->capacity) {
    configs->capacity = configs->capacity ? 2 * configs->capacity : 1024;
    configs->list = realloc(configs->list, (size_t)configs->capacity * sizeof *configs->list);
    ck_assert_ptr_nonnull(configs->list);
  }
  configs->list[configs->count++] = *config;
}

/* Asserts that none comes twice. */
static void sort_configs(struct configs *configs) {
  ck_assert_int_gt(configs->count, 0);
  const size_t size = (size_t)configs->count * sizeof *configs->list;
  struct ft_config *const sorted = configs->sorted = malloc(size);
  ck_assert_ptr_nonnull(sorted);
  memcpy(sorted, configs->list, size);
  qsort(sorted, (size_t)configs->count, sizeof *sorted, compare_configs);
  for (int i = 1; i < configs->count; ++i)
    ck_assert_int_ne(ft_config_compare(&sorted[i - 1], &sorted[i]), 0);
}

static void free_configs(struct configs *configs) {
  free(configs->list);
  free(configs->sorted);
}

static int product_of_values(const struct ft_family *family) {
  int product = 1;
  for (int i = 0; i < family->knob_count; ++i) product *= family->knobs[i].searched_count;
  return product;
}

static int product_of_families(const struct ft_request *request, const struct ft_arch *arch) {
  int product = 0;
  for (int i = 0; ft_family_at(i) != NULL; ++i)
    if (ft_family_serves(ft_family_at(i), request, arch))
      product += product_of_values(ft_family_at(i));
  return product;
}

/* All configs of a space; asserts that each is legal and none comes twice. */
static struct configs list_space(const struct ft_request *request, const struct ft_arch *arch) {
  struct configs legal = {0};
  struct ft_space space;
  struct ft_config config;
  ck_assert_msg(ft_space_open(&space, request, arch) == FT_OK, "%s", ft_detail());
  while (ft_space_next(&space, &config)) {
    ck_assert_ptr_null(rule_broken(request, arch, &config));
    add(&legal, &config);
  }
  sort_configs(&legal);
  ck_assert(!ft_space_next(&space, &config)); /* the end stays the end */
  ck_assert_int_eq((int)space.legal, legal.count);
  ck_assert_int_eq((int)space.product, product_of_families(request, arch));
  return legal;
}

static void add_rejected(void *payload, const struct ft_rule *rule, long configs) {
  ck_assert(rule != NULL && configs > 0);
  *(long *)payload += configs;
}

/* ---- a product as a plain walk has it ---- */

static void tell(struct ft_text *text, const struct ft_request *request, const struct ft_arch *arch,
                 const struct ft_config *config) {
  ft_request_print(request, text);
  ft_text_add(text, " on %s: ", arch->name);
  ft_config_print(config, text);
}

/* The product of all values of some knobs, each other knob being as it is in `config`: the next
 * config, in the order of a space. False: it was the last, and the first stands there again. */
static bool turn(struct ft_config *config, unsigned turned) {
  const struct ft_family *const family = config->family;
  for (int i = family->knob_count - 1; i >= 0; --i) {
    const struct ft_knob *const knob = &family->knobs[i];
    int at = 0;
    if (!(turned >> i & 1)) continue;
    while (at < knob->searched_count && knob->searched[at] != config->knobs[i]) ++at;
    ck_assert_int_lt(at, knob->searched_count);
    config->knobs[i] = knob->searched[(at + 1) % knob->searched_count];
    if (at + 1 < knob->searched_count) return true;
  }
  return false;
}

static bool lies_in(const struct ft_config *config, const struct ft_config *slice,
                    unsigned turned) {
  if (config->family != slice->family) return false;
  for (int i = 0; i < config->family->knob_count; ++i)
    if (!(turned >> i & 1) && config->knobs[i] != slice->knobs[i]) return false;
  return true;
}

/* Draws knobs that keep their values until the others have at most so many configs; sets those to
 * their first values. Returns the knobs that are turned, a bit each. */
static unsigned draw_slice(struct ft_config *config, int most) {
  const struct ft_family *const family = config->family;
  unsigned turned = (1u << family->knob_count) - 1;
  for (int product = product_of_values(family); product > most;) {
    const int i = random_int(0, family->knob_count - 1);
    if (turned >> i & 1) product /= family->knobs[i].searched_count;
    turned &= ~(1u << i);
  }
  for (int i = 0; i < family->knob_count; ++i)
    if (turned >> i & 1) config->knobs[i] = family->knobs[i].searched[0];
  return turned;
}

/* The space has the legal configs of a slice of a family's product, in its order, and no other
 * ones. A slice through a legal config has that at least. Its default came first. */
static void assert_slice(const struct ft_request *request, const struct ft_arch *arch,
                         const struct configs *legal, struct ft_config through) {
  enum { CONFIGS_MOST = 400000 };
  struct ft_text text = FT_TEXT_INIT;
  tell(&text, request, arch, &through);
  const unsigned turned = draw_slice(&through, CONFIGS_MOST);
  struct ft_config config = through;
  int at = 1;
  do {
    if (rule_broken(request, arch, &config) || !ft_config_compare(&config, &legal->list[0]))
      continue;
    while (at < legal->count && !lies_in(&legal->list[at], &through, turned)) ++at;
    ck_assert_msg(at < legal->count && ft_config_compare(&legal->list[at++], &config) == 0,
                  "seed %llu, knobs %x: %s", (unsigned long long)cases_seed, turned, text.data);
  } while (turn(&config, turned));
  for (; at < legal->count; ++at)
    ck_assert_msg(!lies_in(&legal->list[at], &through, turned), "seed %llu, knobs %x: %s",
                  (unsigned long long)cases_seed, turned, text.data);
  ft_text_free(&text);
}

/* Of a family whose product is too large to be walked: legal configs that changes of single knobs
 * lead to are in the space, and slices through some of them. */
static void assert_drawn(const struct ft_request *request, const struct ft_arch *arch,
                         const struct ft_family *family, const struct configs *legal) {
  enum { DRAWN = 2000, SLICES = 3 };
  struct ft_config config;
  for (int n = 0; n < DRAWN && random_legal_config(request, arch, family, &config); ++n) {
    struct ft_text text = FT_TEXT_INIT;
    tell(&text, request, arch, &config);
    ck_assert_msg(bsearch(&config, legal->sorted, (size_t)legal->count, sizeof config,
                          compare_configs) != NULL,
                  "seed %llu: %s", (unsigned long long)cases_seed, text.data);
    ft_text_free(&text);
    if (n < SLICES) assert_slice(request, arch, legal, config);
  }
}

/* ---- tests ---- */

/* The raw walk sees the whole product once, and the same legal ones in the same order. */
static void assert_raw_walk(const struct ft_request *request, const struct ft_arch *arch,
                            const struct configs *legal) {
  struct ft_space space;
  struct ft_config config;
  const struct ft_rule *broken;
  int any = 0, fine = 0;
  ck_assert_int_eq(ft_space_open(&space, request, arch), FT_OK);
  while (ft_space_next_any(&space, &config, &broken)) {
    if (broken == NULL) ck_assert(ft_config_compare(&legal->list[fine++], &config) == 0);
    ++any;
  }
  ck_assert_int_eq(fine, legal->count);
  ck_assert_int_eq(any, product_of_families(request, arch));
}

START_TEST(default_comes_first_then_all_that_is_legal) {
  enum { RAW_MOST = 1000000 };
  static const char *const gpus[] = {"h200", "t4", "a100", "l4", "b200", "rtx5090", "h100"};
  seed_cases();
  for (int round = 0; round < 24; ++round) {
    struct ft_request request = random_request();
    request.pass = round % 3 == 0 ? FT_BACKWARD : FT_FORWARD;
    request.deterministic = request.pass == FT_BACKWARD && round % 2 == 0;
    request.dtype = FT_FP16;
    request.dtype_o = FT_O_DEFAULT;
    request.dtype_kv = FT_KV_DEFAULT;
    request.descale_rows = 0, request.fast_exp = false;
    const struct ft_arch arch = known_gpu(gpus[round % 4 == 1 ? 0 : random_int(0, 6)]);
    struct ft_config first;
    ck_assert_int_eq(ft_default_config(&request, &arch, &first), FT_OK);
    struct configs legal = list_space(&request, &arch);
    ck_assert_int_eq(ft_config_compare(&legal.list[0], &first), 0);
    const int product = product_of_families(&request, &arch);
    if (product <= RAW_MOST)
      assert_raw_walk(&request, &arch, &legal);
    else
      for (int i = 0; ft_family_at(i) != NULL; ++i)
        assert_drawn(&request, &arch, ft_family_at(i), &legal);

    /* ft_space_count: each config of the product is legal, or one rule rejects it. */
    struct ft_space space;
    long rejected = 0;
    ck_assert_int_eq(ft_space_open(&space, &request, &arch), FT_OK);
    ft_space_count(&space, add_rejected, &rejected);
    ck_assert(space.product == product && space.legal == legal.count &&
              legal.count + rejected == product);
    free_configs(&legal);
  }
}
END_TEST

/* A rule that says which knobs it reads gives the same verdict whatever the others are, and needs
 * no budget. */
START_TEST(rules_read_what_they_say) {
  static const char *const gpus[] = {"t4", "a100", "l4", "h200", "b200"};
  int said = 0;
  seed_cases();
  for (int round = 0; round < 2000; ++round) {
    const struct ft_arch arch = known_gpu(gpus[random_int(0, 4)]);
    const struct ft_request request = random_request();
    struct ft_config config = random_candidate(), other = config;
    const struct ft_rule *rule;
    for (int i = 0; (rule = ft_rules_at(config.family, i)) != NULL; ++i) {
      if (!rule->reads) continue;
      for (int k = 0; k < config.family->knob_count; ++k) {
        const struct ft_knob *const knob = &config.family->knobs[k];
        if (!(rule->reads >> k & 1))
          other.knobs[k] = knob->searched[random_int(0, knob->searched_count - 1)];
        else
          other.knobs[k] = config.knobs[k];
      }
      const struct ft_rule_case one = {&request, &arch, &config, NULL};
      const struct ft_rule_case two = {&request, &arch, &other, NULL};
      ck_assert_msg(rule->holds(&one) == rule->holds(&two), "%s", rule->name);
      ++said;
    }
  }
  ck_assert_int_gt(said, 2000);
}
END_TEST

/* ft_rules_hold agrees with ft_rules_broken for neighbours of a config. Where ft_rules_may_mend
 * says that the second of two changes cannot mend the first, the config with both is illegal. */
static void assert_neighbours(const struct ft_request *request, const struct ft_arch *arch,
                              const struct ft_config *from) {
  for (int round = 0; round < 50; ++round) {
    const int a = random_int(0, from->family->knob_count - 1);
    const int b = random_int(0, from->family->knob_count - 1);
    const struct ft_knob *const of_a = &from->family->knobs[a], *const of_b =
                                                                    &from->family->knobs[b];
    struct ft_config one = *from, other = *from, two;
    if (a == b) continue;
    one.knobs[a] = of_a->searched[random_int(0, of_a->searched_count - 1)];
    other.knobs[b] = of_b->searched[random_int(0, of_b->searched_count - 1)];
    two = one;
    two.knobs[b] = other.knobs[b];
    const unsigned mends_one = ft_rules_may_mend(request, arch, &one);
    const unsigned mends_other = ft_rules_may_mend(request, arch, &other);
    const bool is_legal = rule_broken(request, arch, &two) == NULL;
    ck_assert(is_legal == ft_rules_hold(request, arch, &two, FT_EVERY_KNOB_RULE));
    if (mends_one == FT_NO_RULE_BROKEN)
      ck_assert((rule_broken(request, arch, &one) == NULL) ==
                ft_rules_hold(request, arch, &one, FT_NO_KNOB_RULE));
    if ((mends_one >> b & 1) && (mends_other >> a & 1))
      ck_assert(is_legal == ft_rules_hold(request, arch, &two, 1u << a | 1u << b));
    else
      ck_assert_msg(!is_legal, "%s and %s, seed %llu", of_a->name, of_b->name,
                    (unsigned long long)cases_seed);
  }
}

START_TEST(changes_that_break_a_rule_are_known_beforehand) {
  static const char *const gpus[] = {"a100", "h200", "b200"};
  int looked_at = 0;
  seed_cases();
  for (int round = 0; round < 2000; ++round) {
    const struct ft_arch arch = known_gpu(gpus[random_int(0, 2)]);
    const struct ft_request request = random_request();
    const struct ft_family *const family = random_family();
    struct ft_config from;
    if (!ft_family_serves(family, &request, &arch) ||
        !family->default_config(&request, &arch, &from))
      continue;
    assert_neighbours(&request, &arch, &from);
    ++looked_at;
  }
  ck_assert_int_gt(looked_at, 100);
}
END_TEST

/* Of a family that may not serve the request: 0. */
static int count_of(const struct configs *configs, const struct ft_family *family) {
  int count = 0;
  for (int i = 0; i < configs->count; ++i) count += configs->list[i].family == family;
  return count;
}

/* Enough to choose from, on GPUs old and new, in lengths and masks of all kinds. How many there may
 * be is the search's concern: it tries the most promising. */
START_TEST(ordinary_spaces_have_a_choice) {
  static const struct {
    const char *request, *gpu, *family;
    int least;
  } spaces[] = {
      {"bf16 d128 nq4096 causal", "h200", "mma_forward", 100},
      {"bf16 d128 nq4096 causal", "h200", "wgmma_forward", 100},
      {"bf16 d128 nq4096", "a100", "mma_forward", 100},
      {"bf16 d64 nq4096", "h200", "mma_forward", 100},
      {"bf16 d64 nq4096", "h200", "wgmma_forward", 100},
      {"bf16 d64 nq4096", "l4", "mma_forward", 100},
      {"bf16 d256 nq4096", "h200", "mma_forward", 50},
      {"bf16 d256 nq4096", "h200", "wgmma_forward", 20},
      {"bf16 d128 nq1 nk4096", "h200", "mma_forward", 100},
      {"bf16 d128 nq1 nk4096", "h200", "wgmma_forward", 50},
      {"fp16 d128 nq4096", "t4", "mma_forward", 10},
      {"bf16 d128 nq4096 mask=128x128", "h200", "mma_forward", 50},
      {"bf16 d128 nq4096 mask=128x128", "h200", "wgmma_forward", 50},
      {"bf16 d128 nq4096 mask=16x128", "h200", "mma_forward", 10},
      {"backward bf16 d64 nq4096", "h200", "mma_backward", 50},
      {"backward bf16 d128 nq4096 causal", "h200", "mma_backward", 50},
      {"backward bf16 d256 nq4096", "h200", "mma_backward", 20},
      {"backward bf16 d64 nq4096", "h200", "wgmma_backward", 50},
      {"backward bf16 d128 nq4096 causal", "h200", "wgmma_backward", 20},
      {"backward bf16 d256 nq4096", "h200", "wgmma_backward_roles", 3},
      {"backward bf16 d160 nq4096 causal", "h200", "wgmma_backward_roles", 8},
      {"backward bf16 d128 nq4096 deterministic", "a100", "mma_backward", 50},
      {"backward bf16 d128 nq4096", "l4", "mma_backward", 20},
      {"backward bf16 d64 nq4096 dropout", "l4", "mma_backward", 50},
      {"backward bf16 d128 nq4096 mask=16x128", "h200", "mma_backward", 10},
      {"backward fp16 d128 nq4096", "t4", "mma_backward", 2},
  };
  for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; ++i) {
    const struct ft_request request = known_request(spaces[i].request);
    const struct ft_arch arch = known_gpu(spaces[i].gpu);
    struct configs legal = list_space(&request, &arch);
    const int count = count_of(&legal, ft_family_named(spaces[i].family));
    ck_assert_msg(count >= spaces[i].least, "%s on %s: %d %s configs", spaces[i].request,
                  spaces[i].gpu, count, spaces[i].family);
    free_configs(&legal);
  }
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

Suite *make_space_walk_suite(void) {
  Suite *const suite = suite_create("space_walk");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, default_comes_first_then_all_that_is_legal);
  tcase_add_test(tests, rules_read_what_they_say);
  tcase_add_test(tests, changes_that_break_a_rule_are_known_beforehand);
  tcase_add_test(tests, ordinary_spaces_have_a_choice);
  tcase_add_test(tests, unserved_requests_have_no_space);
  suite_add_tcase(suite, tests);
  return suite;
}
