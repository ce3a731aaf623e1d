/* test_rules.c: every legality rule rejects what it is for, and is named.
 * in -> out: generator/rules.h -> Check suite. */
#include <check.h>
#include <string.h>

#include "tests/generator_cases.h"
#include "tests/rule_cases.h"
#include "tests/suites.h"

START_TEST(rule_is_named) {
  struct ft_request request;
  const struct ft_config config = known_config(cases[_i].config);
  ck_assert_msg(ft_request_parse(&request, cases[_i].request) == FT_OK, "%s", ft_detail());
  const struct ft_arch arch = known_gpu(cases[_i].gpu);
  const struct ft_rule *const broken = rule_broken(&request, &arch, &config);
  ck_assert_msg(strcmp(broken ? broken->name : "", cases[_i].rule) == 0,
                "%s on %s, %s: '%s' expected, '%s' found", cases[_i].request, cases[_i].gpu,
                cases[_i].config, cases[_i].rule, broken ? broken->name : "");
}
END_TEST

/* The last case that breaks the rule by a config of the family, or -1. */
static int case_of(const struct ft_family *family, const struct ft_rule *rule) {
  int n = CASES - 1;
  while (n >= 0 &&
         (strcmp(cases[n].rule, rule->name) != 0 || known_config(cases[n].config).family != family))
    --n;
  return n;
}

START_TEST(every_rule_has_name_reason_and_case) {
  const struct ft_family *family;
  for (int f = 0; (family = ft_family_at(f)) != NULL; ++f) {
    int count = 0;
    for (const struct ft_rule *rule; (rule = ft_rules_at(family, count)) != NULL; ++count) {
      ck_assert(rule->name[0] != '\0' && strlen(rule->reason) > 20);
      ck_assert(rule->kind == FT_CANNOT_RUN || rule->kind == FT_NOT_WORTH_TRYING);
      for (int i = 0; i < count; ++i) ck_assert_str_ne(rule->name, ft_rules_at(family, i)->name);
      bool own = false;
      for (int i = 0; i < family->rule_count; ++i) own = own || rule == &family->rules[i];
      ck_assert_msg(!own || case_of(family, rule) >= 0, "no case of %s breaks rule %s",
                    family->name, rule->name);
    }
    ck_assert_int_gt(count, family->rule_count);
    ck_assert_ptr_null(ft_rules_at(family, -1));
  }
}
END_TEST

/* What is not worth trying is emitted when asked for; what cannot run is not. */
START_TEST(kinds_of_rules_differ_by_what_may_be_asked_for) {
  for (int n = 0; n < CASES; ++n) {
    const struct ft_request request = known_request(cases[n].request);
    const struct ft_config config = known_config(cases[n].config);
    const struct ft_arch arch = known_gpu(cases[n].gpu);
    const struct ft_rule *const any = ft_rules_broken(&request, &arch, &config, FT_EVERY_RULE);
    const bool runs = ft_rules_broken(&request, &arch, &config, FT_CANNOT_RUN) == NULL;
    ck_assert_int_eq(runs, any == NULL || any->kind == FT_NOT_WORTH_TRYING);
    if (runs) ck_assert_ptr_eq(ft_rules_broken(&request, &arch, &config, FT_NOT_WORTH_TRYING), any);
  }
}
END_TEST

/* What a request may use its kernel class may use: lengths never make an emission illegal. */
static void expect_class_allows(const struct ft_request *request, const struct ft_arch *arch,
                                const struct ft_config *config, enum ft_rule_kind kind) {
  const struct ft_request class = ft_request_kernel_class(request);
  if (ft_rules_broken(request, arch, config, kind) != NULL) return;
  ck_assert_msg(ft_rules_broken(&class, arch, config, kind) == NULL, "seed %llu",
                (unsigned long long)cases_seed);
}

START_TEST(class_allows_what_its_requests_allow) {
  const struct ft_family *family;
  seed_cases();
  const struct ft_arch arch = known_gpu("h200");
  for (int f = 0; (family = ft_family_at(f)) != NULL; ++f) {
    for (int round = 0; round < 20000; ++round) {
      const struct ft_request request = random_request();
      const struct ft_config config = random_candidate_of(family);
      expect_class_allows(&request, &arch, &config, FT_CANNOT_RUN);
    }
    for (int round = 0, legal = 0; legal < 100; ++round) {
      ck_assert_int_lt(round, 1000000);
      const struct ft_request request = random_request();
      struct ft_config config;
      if (!random_legal_config(&request, &arch, family, &config)) continue;
      expect_class_allows(&request, &arch, &config, FT_CANNOT_RUN);
      expect_class_allows(&request, &arch, &config, FT_EVERY_RULE);
      ++legal;
    }
  }
}
END_TEST

Suite *make_rules_suite(void) {
  Suite *const suite = suite_create("rules");
  TCase *const tests = tcase_create("all");
  tcase_add_loop_test(tests, rule_is_named, 0, CASES);
  tcase_add_test(tests, every_rule_has_name_reason_and_case);
  tcase_add_test(tests, class_allows_what_its_requests_allow);
  tcase_add_test(tests, kinds_of_rules_differ_by_what_may_be_asked_for);
  suite_add_tcase(suite, tests);
  return suite;
}
