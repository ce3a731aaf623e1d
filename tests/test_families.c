/* test_families.c: what every kernel family must have, that nothing of it is idle, and what it
 * serves. in -> out: generator/family.h, the templates -> Check suite. */
#include <ctype.h>
#include <string.h>

#include "tests/generator_cases.h"
#include "tests/suites.h"

START_TEST(families_are_listed_once) {
  const struct ft_family *family;
  int count = 0;
  for (; (family = ft_family_at(count)) != NULL; ++count) {
    ck_assert_ptr_eq(ft_family_named(family->name), family);
    ck_assert(family->instructions[0] != '\0' && family->target_suffix != NULL);
    for (int i = 0; i < count; ++i)
      ck_assert_str_ne(family->template_name, ft_family_at(i)->template_name);
  }
  ck_assert_int_gt(count, 0);
  ck_assert_ptr_null(ft_family_at(-1));
  ck_assert_ptr_null(ft_family_named("mma"));
}
END_TEST

START_TEST(knobs_are_listed_once) {
  const struct ft_family *family;
  for (int f = 0; (family = ft_family_at(f)) != NULL; ++f) {
    ck_assert_str_eq(family->knobs[FT_KNOB_BLOCK_M].name, "block_m");
    ck_assert_str_eq(family->knobs[FT_KNOB_BLOCK_N].name, "block_n");
    for (int i = 0; i < family->knob_count; ++i) {
      const struct ft_knob *const knob = &family->knobs[i];
      ck_assert(knob->name[0] != '\0' && knob->meaning[0] != '\0');
      for (int j = 0; j < i; ++j) ck_assert_str_ne(knob->name, family->knobs[j].name);
      ck_assert(knob->least >= 0 && knob->most > knob->least && knob->searched_count > 0);
      for (int j = 0; j < knob->searched_count; ++j) {
        ck_assert_int_ge(knob->searched[j], knob->least);
        ck_assert_int_le(knob->searched[j], knob->most);
        for (int k = 0; k < j; ++k) ck_assert_int_ne(knob->searched[j], knob->searched[k]);
      }
    }
  }
}
END_TEST

/* The typed view of a config and the family's table are made of one list. */
START_TEST(every_knob_has_a_place_of_its_own) {
  struct ft_config config = {.family = &ft_wgmma_forward_family};
  for (int i = 0; i < config.family->knob_count; ++i) config.knobs[i] = 100 + i;
  const struct ft_wgmma_forward_knobs *const k = ft_wgmma_forward_knobs(&config);
  ck_assert_int_eq(k->block_m, 100);
  ck_assert_int_eq(k->block_m, ft_config_block_m(&config));
  ck_assert_int_eq(k->block_n, ft_config_block_n(&config));
  ck_assert_int_eq(k->multicast, *knob_of(&config, "multicast"));
  ck_assert_int_eq(k->pack_gqa, *knob_of(&config, "pack_gqa"));
  const struct ft_config same = ft_config_make(config.family, k);
  ck_assert_int_eq(ft_config_compare(&config, &same), 0);
}
END_TEST

/* Whether "table.name" with nothing of a name behind it is in some template or part. */
static bool is_read(const struct ft_template_files *files, const char *table, const char *name) {
  char wanted[96];
  (void)snprintf(wanted, sizeof wanted, "%s.%s", table, name);
  const size_t length = strlen(wanted);
  for (int i = 0; i < (int)files->count; ++i)
    for (const char *at = files->rows[i].text; (at = strstr(at, wanted)) != NULL; at += length)
      if (at[length] != '_' && !isalnum((unsigned char)at[length])) return true;
  return false;
}

START_TEST(templates_read_every_knob_and_all_of_the_budget) {
  const struct ft_budget none = {0};
  const struct ft_budget_field *field;
  const struct ft_family *family;
  struct ft_template_files files;
  ck_assert_int_eq(ft_template_files_open(&files, NULL), FT_OK);
  for (int i = 0, value; (field = ft_budget_common(&none, i, &value)) != NULL; ++i)
    ck_assert_int_eq(is_read(&files, "budget", field->name), field->in_templates);
  for (int f = 0; (family = ft_family_at(f)) != NULL; ++f) {
    ck_assert_ptr_nonnull(ft_template_files_find(&files, family->template_name));
    for (int i = 0; i < family->budget_field_count; ++i) {
      field = &family->budget_fields[i];
      ck_assert_msg(!field->in_templates || is_read(&files, "budget", field->name),
                    "no template reads budget.%s of %s", field->name, family->name);
    }
    /* What a switch does a golden kernel shows. */
    for (int i = 0; i < family->knob_count; ++i)
      ck_assert_msg(family->knobs[i].least == 0 || is_read(&files, "config", family->knobs[i].name),
                    "no template reads config.%s of %s", family->knobs[i].name, family->name);
  }
  ft_template_files_close(&files);
}
END_TEST

START_TEST(families_serve_what_they_are_for) {
  static const char *const gpus[] = {"t4", "a100", "h100", "h200", "b200", "rtx5090"};
  const struct ft_request forward = known_request("fp16 d64 nq4096");
  const struct ft_request backward = known_request("backward fp16 d64 nq4096");
  const struct ft_request wide = known_request("backward fp16 d72 dv136 nq4096");
  for (size_t i = 0; i < sizeof gpus / sizeof gpus[0]; ++i) {
    const struct ft_arch arch = known_gpu(gpus[i]);
    ck_assert(ft_family_serves(&ft_mma_forward_family, &forward, &arch));
    ck_assert_int_eq(ft_family_serves(&ft_wgmma_forward_family, &forward, &arch), arch.sm == 90);
    ck_assert(!ft_family_serves(&ft_mma_backward_family, &forward, &arch));
    ck_assert(ft_family_serves(&ft_mma_backward_family, &backward, &arch));
    ck_assert(!ft_family_serves(&ft_mma_forward_family, &backward, &arch));
    ck_assert(!ft_family_serves(&ft_wgmma_forward_family, &backward, &arch));
    ck_assert_int_eq(ft_family_serves(&ft_wgmma_backward_family, &backward, &arch), arch.sm == 90);
    ck_assert(!ft_family_serves(&ft_wgmma_backward_family, &forward, &arch));
    ck_assert(!ft_family_serves(&ft_wgmma_backward_family, &wide, &arch));
    ck_assert_int_eq(ft_family_serves(&ft_wgmma_backward_roles_family, &wide, &arch),
                     arch.sm == 90);
    ck_assert(!ft_family_serves(&ft_wgmma_backward_roles_family, &backward, &arch));
    ck_assert(!ft_family_serves(&ft_wgmma_backward_roles_family, &forward, &arch));
  }
}
END_TEST

START_TEST(targets_serve_what_they_can) {
  static const struct {
    const char *request, *gpu, *reason; /* "" when served */
  } served[] = {
      {"fp16 d64 nq1", "t4", ""},
      {"bf16 d64 nq1", "t4", "bf16 needs sm_80"},
      {"bf16 d64 nq1", "a10", ""},
      {"backward d64 nq1", "h200", ""},
      {"backward bf16 d64 nq1", "t4", "bf16 needs sm_80"},
      {"bf16 d256 nq1", "rtx5090", ""},
      {"fp32 d64 nq1", "t4", "fp32 needs sm_80 or later, and t4 is sm_75; fp16 is possible"},
      {"backward tf32 d64 nq1", "t4", "tf32 needs sm_80"},
      {"fp32 d256 nq1", "a10", ""},
      {"fp16 d16 nq1 mask=16x16 dropout", "t4", ""},
      {"e4m3 d64 nq1 pages=8", "h200", ""},
      {"e4m3 d64 nq1 descales=64 mask=64x96", "h200", ""},
      {"e4m3 d64 nq1 descales=64", "b200", ""},
      {"e4m3 d64 nq1 descales=64 mask=32x64", "h200", ""},
      {"e4m3 d64 nq1 mask=64x48", "h200",
       "mask blocks of 64x48; allowed: columns in multiples of 32"},
      {"e4m3 d64 nq1 mask=16x32", "h200", ""},
      {"e4m3 d64 nq1 pages=1", "h200", ""},
      {"e4m3 d64 nq1 ragged pages=4", "rtx4090", ""},
      {"e4m3 o=fp16 d256 nq1 causal mask=128x96", "b200", ""},
      {"e4m3 d16 nq1 window sinks", "rtx5090", ""},
      {"e4m3 d64 nq1", "a40", "e4m3 needs sm_89 or later, and a40 is sm_86; bf16 is possible"},
      {"e4m3 d64 nq1", "t4", "e4m3 needs sm_89 or later, and t4 is sm_75; fp16 is possible"},
  };
  for (size_t i = 0; i < sizeof served / sizeof served[0]; ++i) {
    struct ft_request request;
    ck_assert_int_eq(ft_request_parse(&request, served[i].request), FT_OK);
    const struct ft_arch arch = known_gpu(served[i].gpu);
    const int status = ft_rules_serves(&request, &arch);
    ck_assert_int_eq(status, served[i].reason[0] ? FT_E_UNSUPPORTED : FT_OK);
    if (status != FT_OK) ck_assert_ptr_nonnull(strstr(ft_detail(), served[i].reason));
  }
  struct ft_arch volta = known_gpu("t4");
  volta.sm = 70;
  struct ft_request request;
  ck_assert_int_eq(ft_request_parse(&request, "fp16 d64 nq1"), FT_OK);
  ck_assert_int_eq(ft_rules_serves(&request, &volta), FT_E_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "sm_70"));
}
END_TEST

/* Few queries on pages: a rule wants their blocks to share steps, which ragged ones cannot. */
START_TEST(few_queries_on_pages_have_a_default) {
  static const char *const gpus[] = {"a100", "l4", "h200", "b200", "rtx5090"};
  static const char *const dtypes[] = {"bf16 kv=e4m3", "e4m3", "fp32", "tf32", "fp16"};
  static const char *const others[] = {"", " causal", " ragged", " causal sinks ragged"};
  static const int dims[] = {64, 128, 144, 256}, pages[] = {2, 16, 64}, queries[] = {1, 27, 60};
  seed_cases();
  for (int round = 0; round < 300; ++round) {
    const struct ft_arch arch = known_gpu(gpus[random_int(0, FT_COUNT(gpus) - 1)]);
    char text[160];
    struct ft_config config;
    snprintf(
        text, sizeof text, "forward %s d%d hq8 hkv%d b%d nq%d nk7045%s pages=%d",
        dtypes[random_int(0, FT_COUNT(dtypes) - 1)], dims[random_int(0, FT_COUNT(dims) - 1)],
        1 << random_int(0, 3), random_int(2, 16), queries[random_int(0, FT_COUNT(queries) - 1)],
        others[random_int(0, FT_COUNT(others) - 1)], pages[random_int(0, FT_COUNT(pages) - 1)]);
    const struct ft_request request = known_request(text);
    if (ft_rules_serves(&request, &arch) != FT_OK) continue;
    ck_assert_msg(ft_default_config(&request, &arch, &config) == FT_OK, "%s on %s: %s", text,
                  arch.name, ft_detail());
  }
}
END_TEST

Suite *make_families_suite(void) {
  Suite *const suite = suite_create("families");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, families_are_listed_once);
  tcase_add_test(tests, knobs_are_listed_once);
  tcase_add_test(tests, every_knob_has_a_place_of_its_own);
  tcase_add_test(tests, templates_read_every_knob_and_all_of_the_budget);
  tcase_add_test(tests, families_serve_what_they_are_for);
  tcase_add_test(tests, targets_serve_what_they_can);
  tcase_add_test(tests, few_queries_on_pages_have_a_default);
  suite_add_tcase(suite, tests);
  return suite;
}
