/* generator_cases.h: inputs for the tests of generator/.
 * in -> out: GPU names -> limits; a seed of this run -> numbers, valid requests, configs.
 * FATUNE_TEST_SEED repeats a run; every assertion over random input prints cases_seed. */
#ifndef TESTS_GENERATOR_CASES_H
#define TESTS_GENERATOR_CASES_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "generator/config.h"
#include "generator/lua_host.h"
#include "generator/request.h"
#include "generator/rules.h"
#include "generator/status.h"

/* A GPU of the table. */
static inline struct ft_arch known_gpu(const char *name) {
  struct ft_lua *lua;
  struct ft_arch arch;
  ck_assert_msg(ft_lua_open(&lua, NULL) == FT_OK, "%s", ft_detail());
  ck_assert_msg(ft_lua_gpu(lua, name, &arch) == FT_OK, "%s", ft_detail());
  ft_lua_close(lua);
  return arch;
}

static inline struct ft_request known_request(const char *text) {
  struct ft_request request;
  ck_assert_msg(ft_request_parse(&request, text) == FT_OK, "'%s': %s", text, ft_detail());
  return request;
}

/* The text with " knob=0" for each knob of its family it lacks, so that a new knob leaves old cases
 * as they are. */
static inline void complete_config(const char *text, struct ft_text *whole) {
  const char *const begin = text + strspn(text, " \t\n");
  enum ft_family family = FT_FAMILY_MMA;
  if (strncmp(begin, "wgmma", 5) == 0) family = FT_FAMILY_WGMMA;
  if (strncmp(begin, "mma_backward", 12) == 0) family = FT_FAMILY_MMA_BACKWARD;
  ft_text_add(whole, "%s", text);
  for (int i = 0; i < FT_KNOB_COUNT; ++i) {
    char word[64];
    if (!ft_family_has(family, i)) continue;
    (void)snprintf(word, sizeof word, " %s=", ft_knob(i)->name);
    if (strstr(text, word) == NULL) ft_text_add(whole, "%s0", word);
  }
}

static inline struct ft_config known_config(const char *text) {
  struct ft_text whole = FT_TEXT_INIT;
  struct ft_config config;
  complete_config(text, &whole);
  ck_assert_msg(ft_config_parse(&config, whole.data) == FT_OK, "%s", ft_detail());
  ft_text_free(&whole);
  return config;
}

static inline bool wgmma_serves(void) {
  const struct ft_request request = {.pass = FT_FORWARD};
  const struct ft_arch hopper = {.sm = 90};
  return ft_family_serves(FT_FAMILY_WGMMA, &request, &hopper);
}

/* ft_rules_broken; as long as no wgmma kernel is emitted, as if one were on sm_90. */
static inline const struct ft_rule *rule_broken(const struct ft_request *request,
                                                const struct ft_arch *arch,
                                                const struct ft_config *config) {
  if (config->family == FT_FAMILY_MMA || wgmma_serves() || arch->sm != 90)
    return ft_rules_broken(request, arch, config);
  const struct ft_budget budget = ft_budget_of(request, config, arch);
  const struct ft_rule *rule;
  for (int i = 0; (rule = ft_rules_at(i)) != NULL; ++i) {
    if (rule->family == FT_FAMILY_MMA || strcmp(rule->name, "family") == 0) continue;
    if (!rule->holds(request, arch, config, &budget)) return rule;
  }
  return NULL;
}

static uint64_t cases_seed, cases_state;

static inline void seed_cases(void) {
  const char *const fixed = getenv("FATUNE_TEST_SEED");
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  cases_seed = fixed ? strtoull(fixed, NULL, 10)
                     : (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec;
  cases_state = cases_seed;
}

static inline uint64_t random_bits(void) { /* splitmix64 */
  uint64_t z = cases_state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static inline int random_int(int low, int high) {
  return low + (int)(random_bits() % (uint64_t)(high - low + 1));
}

/* Small and large numbers alike: a uniform number of bits. */
static inline int64_t random_count(int most_bits) {
  const int64_t bits = (int64_t)1 << random_int(0, most_bits);
  return 1 + (int64_t)(random_bits() % (uint64_t)bits);
}

static inline struct ft_request random_request(void) {
  struct ft_request request = {.pass = random_int(0, 3) == 0 ? FT_BACKWARD : FT_FORWARD,
                               .dtype = random_int(0, 1) ? FT_BF16 : FT_FP16,
                               .head_dim = 8 * random_int(2, 32),
                               .head_dim_v = 8 * random_int(2, 32),
                               .heads_kv = (int)random_count(7),
                               .batch = random_count(20),
                               .seqlen_q = random_count(30),
                               .seqlen_k = random_count(30),
                               .causal = (enum ft_causal)random_int(0, 2),
                               .dropout = random_int(0, 1),
                               .mask_density = 1};
  if (random_int(0, 1)) request.head_dim_v = request.head_dim;
  if (random_int(0, 1)) request.seqlen_k = request.seqlen_q;
  request.heads_q = request.heads_kv * (int)random_count(5);
  request.deterministic = request.pass == FT_BACKWARD && random_int(0, 1);
  if (random_int(0, 1)) {
    request.mask_rows = 16 * random_int(1, 16);
    request.mask_cols = 16 * random_int(1, 16);
    request.mask_density = ((double)(random_bits() >> 11) + 1) * 0x1p-53;
    if (random_int(0, 2) == 0) request.mask_density = random_int(1, 100) / 100.0;
  }
  return request;
}

static inline enum ft_family random_family(void) {
  return (enum ft_family)random_int(0, FT_FAMILY_COUNT - 1);
}

/* Any values, not only legal ones. */
static inline struct ft_config random_config(void) {
  struct ft_config config = {.family = random_family()};
  for (int i = 0; i < FT_KNOB_COUNT; ++i)
    if (ft_family_has(config.family, i)) ft_config_set(&config, i, (int)random_count(31) - 1);
  return config;
}

/* A point of a family's raw product. */
static inline struct ft_config random_candidate_of(enum ft_family family) {
  struct ft_config config = {.family = family};
  for (int i = 0; i < FT_KNOB_COUNT; ++i) {
    const struct ft_values *const values = &ft_knob(i)->values[family];
    ft_config_set(&config, i, values->list[random_int(0, values->count - 1)]);
  }
  return config;
}

static inline struct ft_config random_candidate(void) {
  return random_candidate_of(random_family());
}

#endif
