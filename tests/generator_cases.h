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

#include "generator/families/mma_backward.h"
#include "generator/families/mma_forward.h"
#include "generator/families/wgmma_backward.h"
#include "generator/families/wgmma_backward_roles.h"
#include "generator/families/wgmma_forward.h"
#include "generator/lua_host.h"
#include "generator/request_fields.h"
#include "generator/space.h"
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

static inline struct ft_config known_config(const char *text) {
  struct ft_config config;
  ck_assert_msg(ft_config_parse(&config, text) == FT_OK, "'%s': %s", text, ft_detail());
  return config;
}

/* A knob of the config by name. */
static inline int *knob_of(struct ft_config *config, const char *name) {
  for (int i = 0; i < config->family->knob_count; ++i)
    if (strcmp(config->family->knobs[i].name, name) == 0) return &config->knobs[i];
  ck_abort_msg("%s has no knob '%s'", config->family->name, name);
}

/* Whether the search passes the config over. */
static inline const struct ft_rule *rule_broken(const struct ft_request *request,
                                                const struct ft_arch *arch,
                                                const struct ft_config *config) {
  return ft_rules_broken(request, arch, config, FT_EVERY_RULE);
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
                               .head_dim = 8 * random_int(2, 32),
                               .head_dim_v = 8 * random_int(2, 32),
                               .heads_kv = (int)random_count(7),
                               .batch = random_count(20),
                               .seqlen_q = random_count(30),
                               .seqlen_k = random_count(30),
                               .mask_density = 1,
                               .mask_longest = 1};
  for (int i = FT_REQUEST_pass + 1; i < FT_REQUEST_FIELDS; ++i) {
    const struct ft_request_field *const field = ft_request_field(i);
    int choices = 1;
    while (field->choices[choices] != NULL) ++choices;
    ck_assert(field->kind != FT_KIND_CHOICE || choices > 0);
    if (field->kind == FT_KIND_CHOICE) ft_request_set(&request, i, random_int(0, choices - 1));
    if (field->kind == FT_KIND_FLAG) ft_request_set(&request, i, random_int(0, 1));
  }
  request.window_left = request.window_right = -1;
  if (request.window != FT_WINDOW_NONE) {
    request.window_left = random_count(12) - 2;
    request.window_right = random_count(12) - 2;
  }
  if (random_int(0, 1)) request.head_dim_v = request.head_dim;
  if (random_int(0, 1)) request.seqlen_k = request.seqlen_q;
  request.heads_q = request.heads_kv * (int)random_count(5);
  request.deterministic &= request.pass == FT_BACKWARD;
  const bool wide = request.dtype == FT_FP16 || request.dtype == FT_BF16;
  if (request.dtype_o != (wide ? FT_O_FP32 : request.dtype == FT_E4M3 ? FT_O_FP16 : FT_O_DEFAULT))
    request.dtype_o = FT_O_DEFAULT;
  if (request.dtype == FT_E4M3) {
    request.pass = FT_FORWARD;
    request.dropout = request.deterministic = false;
    request.head_dim = (request.head_dim + 15) / 16 * 16;
    request.head_dim_v = (request.head_dim_v + 15) / 16 * 16;
  }
  if (request.pass == FT_BACKWARD || (request.dtype != FT_FP16 && request.dtype != FT_BF16))
    request.dtype_kv = FT_KV_DEFAULT;
  if (request.dtype_kv == FT_KV_E4M3) {
    request.dtype_o = FT_O_DEFAULT;
    request.head_dim = (request.head_dim + 15) / 16 * 16;
    request.head_dim_v = (request.head_dim_v + 15) / 16 * 16;
  }
  if (random_int(0, 1)) {
    request.mask_rows = 16 * random_int(1, 16);
    request.mask_cols = 16 * random_int(1, 16);
    request.mask_density = ((double)(random_bits() >> 11) + 1) * 0x1p-53;
    if (random_int(0, 2) == 0) request.mask_density = random_int(1, 100) / 100.0;
    if (random_int(0, 1) == 0) request.mask_longest = random_count(30);
  }
  request.ragged &= request.mask_rows == 0;
  const bool may_have_pages = request.pass == FT_FORWARD && request.mask_rows == 0;
  request.pages = 0;
  if (may_have_pages && random_int(0, 2) == 0) request.pages = 1 << random_int(0, 10);
  const bool may_have_blocks = request.dtype == FT_E4M3 && !request.ragged && request.pages == 0;
  request.descale_rows = may_have_blocks ? 64 * random_int(0, 2) : 0;
  request.fast_exp &= request.dtype == FT_E4M3 && request.descale_rows == 0;
  return request;
}

static inline bool is_in_window(const struct ft_request *r, int64_t i, int64_t j) {
  if (r->window == FT_WINDOW_NONE) return true;
  const int64_t own = i + (r->window == FT_WINDOW_BOTTOM_RIGHT ? r->seqlen_k - r->seqlen_q : 0);
  return (r->window_left == -1 || own - r->window_left <= j) &&
         (r->window_right == -1 || j <= own + r->window_right);
}

/* Whether query i sees key j: the rule of each word, written out for one pair. */
static inline bool rule_lets_see(const struct ft_request *request, int64_t i, int64_t j) {
  if (!is_in_window(request, i, j)) return false;
  switch (request->causal) {
  case FT_CAUSAL_NONE: break;
  case FT_CAUSAL_BOTTOM_RIGHT: return j <= i + request->seqlen_k - request->seqlen_q;
  case FT_CAUSAL_TOP_LEFT: return j <= i;
  }
  return true;
}

static inline const struct ft_family *random_family(void) {
  int count = 1;
  while (ft_family_at(count) != NULL) ++count;
  return ft_family_at(random_int(0, count - 1));
}

/* Any values, not only legal ones. */
static inline struct ft_config random_config(void) {
  struct ft_config config = {.family = random_family()};
  for (int i = 0; i < config.family->knob_count; ++i) config.knobs[i] = (int)random_count(31) - 1;
  return config;
}

/* A point of a family's raw product. */
static inline struct ft_config random_candidate_of(const struct ft_family *family) {
  struct ft_config config = {.family = family};
  for (int i = 0; i < family->knob_count; ++i) {
    const struct ft_knob *const knob = &family->knobs[i];
    config.knobs[i] = knob->searched[random_int(0, knob->searched_count - 1)];
  }
  return config;
}

static inline struct ft_config random_candidate(void) {
  return random_candidate_of(random_family());
}

/* A config of the family that the search does not pass over: changes of up to three knobs, one
 * after another, each kept where it is legal, starting at the default. False where the family has
 * none for the request. Of points of the raw product hardly one in ten thousand is legal. */
static inline bool random_legal_config(const struct ft_request *request, const struct ft_arch *arch,
                                       const struct ft_family *family, struct ft_config *config) {
  enum { TURNS = 60 };
  if (!ft_family_serves(family, request, arch) || !family->default_config(request, arch, config) ||
      rule_broken(request, arch, config) != NULL)
    return false;
  for (int turn = 0; turn < TURNS; ++turn) {
    struct ft_config next = *config;
    for (int changes = random_int(1, 3); changes > 0; --changes) {
      const int i = random_int(0, family->knob_count - 1);
      next.knobs[i] = family->knobs[i].searched[random_int(0, family->knobs[i].searched_count - 1)];
    }
    if (rule_broken(request, arch, &next) == NULL) *config = next;
  }
  return true;
}

/* The default config of a request has some words and lacks others; lacks NULL: none. */
static inline void default_has(const struct ft_arch *arch, const char *words, const char *has,
                               const char *lacks) {
  const struct ft_request request = known_request(words);
  struct ft_config config;
  struct ft_text text = FT_TEXT_INIT;
  ck_assert_int_eq(ft_default_config(&request, arch, &config), FT_OK);
  ft_config_print(&config, &text);
  ck_assert_msg(strstr(text.data, has) && !(lacks && strstr(text.data, lacks)), "%s: %s", words,
                text.data);
  ft_text_free(&text);
}

#endif
