/* test_budget.c: shared memory, registers and occupancy of single configs.
 * in -> out: tests/cases/budget.txt (computed by hand) and random configs -> Check suite. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/budget.h"
#include "generator/score/kind.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

enum { LINE_BYTES = 1024 };

struct hand_case {
  struct ft_request request;
  struct ft_config config;
  struct ft_arch arch;
  struct ft_budget budget;
  int line;
};

static int field_of(const struct ft_family *family, const struct ft_budget *budget,
                    const char *name) {
  const struct ft_budget_field *field;
  for (int i = 0, value; (field = ft_budget_common(budget, i, &value)) != NULL; ++i)
    if (strcmp(name, field->name) == 0) return value;
  for (int i = 0; i < family->budget_field_count; ++i)
    if (strcmp(name, family->budget_fields[i].name) == 0) return budget->own[i];
  ck_abort_msg("budget.txt: %s has no field '%s'", family->name, name);
}

static int number_at(const char *text, char stop) {
  char *end;
  const long value = strtol(text, &end, 10);
  ck_assert_msg(end != text && *end == stop, "budget.txt: no number at '%s'", text);
  return (int)value;
}

/* "name=value" or "occupancy(registers)=value". */
static void check_word(const struct hand_case *hand, char *word) {
  static const char occupancy[] = "occupancy(";
  char *const equals = strchr(word, '=');
  ck_assert_msg(equals != NULL, "budget.txt:%d: '%s' has no value", hand->line, word);
  *equals = '\0';
  const int expected = number_at(equals + 1, '\0');
  const bool blocks = strncmp(word, occupancy, sizeof occupancy - 1) == 0;
  const int actual = blocks ? ft_budget_occupancy(&hand->budget, &hand->arch,
                                                  number_at(word + sizeof occupancy - 1, ')'))
                            : field_of(hand->config.family, &hand->budget, word);
  ck_assert_msg(actual == expected, "budget.txt:%d: %s is %d, by hand %d", hand->line, word, actual,
                expected);
}

static void check_line(char *line, int number) {
  struct hand_case hand = {.line = number};
  char *rest = line;
  const char *const request = strtok_r(line, "|", &rest), *const config =
                                                              strtok_r(NULL, "|", &rest);
  const char *const gpu = strtok_r(NULL, "|", &rest);
  ck_assert_msg(ft_request_parse(&hand.request, request) == FT_OK, "%s", ft_detail());
  hand.config = known_config(config);
  hand.arch = known_gpu(gpu);
  hand.budget = ft_budget_of(&hand.request, &hand.config, &hand.arch);
  for (char *word = strtok_r(NULL, "| \n", &rest); word; word = strtok_r(NULL, " \n", &rest))
    check_word(&hand, word);
}

START_TEST(budgets_computed_by_hand) {
  FILE *const file = fopen(FATUNE_TESTS_DIR "/cases/budget.txt", "r");
  ck_assert_msg(file != NULL, "cases/budget.txt is missing");
  char line[LINE_BYTES];
  int number = 0, cases = 0;
  while (fgets(line, sizeof line, file) != NULL) {
    ++number;
    ck_assert_msg(strchr(line, '\n') != NULL, "budget.txt:%d is too long", number);
    if (line[0] == '#' || line[0] == '\n') continue;
    check_line(line, number);
    ++cases;
  }
  ck_assert_int_eq(fclose(file), 0);
  ck_assert_int_ge(cases, 10);
}
END_TEST

START_TEST(strides_avoid_bank_conflicts) {
  const struct ft_arch arch = known_gpu("h200");
  struct ft_request request;
  ck_assert_int_eq(ft_request_parse(&request, "d64 nq1"), FT_OK);
  const struct ft_config config =
      known_config("mma_forward block_m=64 block_n=64 warps=4 stages=1 ctas_per_sm=1");
  for (request.head_dim = 16; request.head_dim <= 256; request.head_dim += 8) {
    const struct ft_budget budget = ft_budget_of(&request, &config, &arch);
    const struct ft_mma_forward_budget *const own = ft_mma_forward_budget(&budget);
    ck_assert_int_ge(own->d_pad, request.head_dim);
    ck_assert_int_lt(own->d_pad - request.head_dim, 16);
    ck_assert_int_eq(own->d_pad % 16, 0);
    ck_assert_int_ge(own->q_stride, 2 * own->d_pad);
    /* Rows of whole 128 bytes are swizzled by the kernel. Otherwise eight rows begin in eight
     * different 16-byte groups of the 128 bytes of all banks. */
    if (own->q_stride % 128 == 0) {
      ck_assert_int_eq(own->d_pad % 64, 0);
      continue;
    }
    int groups = 0;
    for (int row = 0; row < 8; ++row) groups |= 1 << (row * own->q_stride / 16 % 8);
    ck_assert_int_eq(groups, 0xff);
  }
}
END_TEST

/* What setmaxnreg and the swizzle of panels ask for, for every legal config. */
START_TEST(wgmma_budgets_suit_the_hardware) {
  seed_cases();
  const struct ft_arch arch = known_gpu("h200");
  static const int64_t kinds[] = {FT_SCORE_TILE, FT_SCORE_SIDES, FT_SCORE_KEYS};
  int legal = 0, tiles = 0, by_keys = 0;
  for (int round = 0; legal < 100 || tiles < 10 || by_keys < 10; ++round) {
    ck_assert_int_lt(round, 1000000);
    struct ft_request request = random_request();
    struct ft_config config;
    if (random_int(0, 2) > 0) request.score = kinds[random_int(0, 2)] << FT_SCORE_DIGEST_BITS;
    if (!random_legal_config(&request, &arch, &ft_wgmma_forward_family, &config)) continue;
    const struct ft_wgmma_forward_knobs *const k = ft_wgmma_forward_knobs(&config);
    tiles += k->score_in_smem > 0;
    by_keys += k->keys_in_product;
    const struct ft_budget budget = ft_budget_of(&request, &config, &arch);
    const struct ft_wgmma_forward_budget *const b = ft_wgmma_forward_budget(&budget);
    ++legal;
    ck_assert_int_eq(budget.threads, 128 * (b->consumers + 1));
    const int together = 128 * (b->producer_regs + b->consumers * b->consumer_regs);
    ck_assert_int_le(together, arch.regs_per_sm);
    ck_assert_int_le(budget.threads * budget.launch_regs, arch.regs_per_sm);
    ck_assert(b->producer_regs <= budget.launch_regs && budget.launch_regs <= b->consumer_regs);
    ck_assert_int_ge(b->producer_regs, 24);
    ck_assert_int_le(b->consumer_regs, 255);
    ck_assert_int_eq((b->producer_regs | b->consumer_regs | budget.launch_regs) % 8, 0);
    ck_assert_int_eq((b->smem_q_offset | b->q_bytes | b->k_bytes | b->v_bytes) % 1024, 0);
    ck_assert_int_eq(b->smem_k_offset, b->smem_q_offset + k->q_stages * b->q_bytes);
    ck_assert_int_eq(b->smem_v_offset, b->smem_k_offset + k->stages * b->k_bytes);
    ck_assert_int_eq(b->smem_p_offset, b->smem_v_offset + k->stages * b->v_bytes);
    ck_assert_int_eq(b->smem_v_rows_offset, b->smem_p_offset + b->p_bytes);
    ck_assert_int_eq(b->smem_score_offset, b->smem_v_rows_offset + k->stages * b->v_rows_bytes);
    ck_assert_int_eq(b->smem_keys_offset,
                     b->smem_score_offset + (k->score_in_smem > 0) * k->block_m * k->block_n * 2);
    ck_assert_int_eq(k->score_in_smem == 2 ? b->smem_score_offset % 1024 : 0, 0);
    ck_assert_int_eq(budget.smem_bytes,
                     b->smem_keys_offset + k->keys_in_product * k->block_n * 128);
    ck_assert_int_eq(k->keys_in_product ? b->smem_keys_offset % 1024 : 0, 0);
    ck_assert_int_eq(b->v_rows_bytes % 1024, 0);
    ck_assert_int_ge(b->p_bytes, k->p_in_smem * 64 * b->consumers * 2 * k->block_n);
    ck_assert_int_le(b->o_bytes, b->q_bytes);
    const int columns = 128 / ft_dtype_bytes(request.dtype); /* of a panel */
    ck_assert_int_ge(columns * b->d_panels, request.head_dim);
    ck_assert_int_ge(columns * b->dv_panels, request.head_dim_v);
    if (request.dtype == FT_E4M3) ck_assert_int_ge(b->v_bytes, k->block_n * request.head_dim_v);
    ck_assert_int_eq(ft_budget_registers(&budget), budget.launch_regs);
    ck_assert_int_eq(ft_budget_occupancy(&budget, &arch, budget.launch_regs), 1);
  }
}
END_TEST

/* Knobs of any size (a config from a text) must neither overflow nor divide by zero. */
START_TEST(wild_configs_are_harmless) {
  seed_cases();
  const struct ft_arch arch = known_gpu("a100");
  for (int round = 0; round < 20000; ++round) {
    const struct ft_request request = random_request();
    struct ft_config config = random_config();
    if (random_int(0, 1)) config = random_candidate();
    if (random_int(0, 3) == 0) config.knobs[random_int(0, config.family->knob_count - 1)] = -5;
    const struct ft_budget budget = ft_budget_of(&request, &config, &arch);
    ck_assert_msg(budget.threads >= 0 && budget.smem_bytes >= 0 && budget.regs_estimate >= 0,
                  "seed %llu", (unsigned long long)cases_seed);
    const int blocks = ft_budget_occupancy(&budget, &arch, random_int(-1, 300));
    ck_assert_int_ge(blocks, 0);
    ck_assert_int_le(blocks * budget.threads, arch.threads_per_sm);
    ck_assert_int_le(blocks * budget.smem_bytes, arch.smem_per_sm);
  }
}
END_TEST

START_TEST(heads_are_packed_by_powers_of_two) {
  static const struct {
    int group, heads, rows; /* of a query */
    int64_t seqlen_q;
    bool masked;
  } cases[] = {{1, 1, 1, 5, false},         {2, 2, 2, 5, false},       {3, 3, 4, 5, false},
               {3, 1, 1, 5, true},          {3, 3, 4, 16, false},      {3, 1, 1, 17, false},
               {6, 6, 8, 5, false},         {6, 2, 2, 9, false},       {8, 8, 8, 5, false},
               {12, 12, 16, 4, false},      {12, 4, 4, 5, false},      {33, 33, 64, 1, false},
               {33, 1, 1, 2, false},        {65, 1, 1, 1, false},      {64, 64, 64, 5, false},
               {128, 64, 64, 5, true},      {4, 4, 4, 1 << 28, false}, {16, 2, 2, 1 << 29, false},
               {16, 1, 1, INT32_MAX, false}};
  const struct ft_config packs =
      known_config("wgmma_forward block_m=64 block_n=64 stages=2 q_stages=1 pack_gqa=1");
  struct ft_config plain = packs;
  *knob_of(&plain, "pack_gqa") = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    const int group = cases[i].group;
    const int64_t nq = cases[i].seqlen_q;
    const struct ft_pack pack = ft_pack_of_group(&packs, cases[i].masked, group, nq);
    ck_assert_int_eq(pack.heads, cases[i].heads);
    ck_assert_int_eq(1 << pack.bits, cases[i].rows);
    const struct ft_pack again = ft_pack_of_code(ft_pack_code(pack));
    ck_assert_int_eq(again.heads, pack.heads);
    ck_assert_int_eq(again.bits, pack.bits);
    ck_assert_int_eq(ft_pack_of_group(&plain, cases[i].masked, group, nq).heads, 1);
  }
}
END_TEST

Suite *make_budget_suite(void) {
  Suite *const suite = suite_create("budget");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, budgets_computed_by_hand);
  tcase_add_test(tests, strides_avoid_bank_conflicts);
  tcase_add_test(tests, wgmma_budgets_suit_the_hardware);
  tcase_add_test(tests, heads_are_packed_by_powers_of_two);
  tcase_add_test(tests, wild_configs_are_harmless);
  suite_add_tcase(suite, tests);
  return suite;
}
