/* rules.c: the rules that hold for every family, and the first one that a config breaks.
 * in -> out: request + arch + config -> rule.
 * Rules depend on the lengths only where they are known (not 0): a kernel class passes all that any
 * of its requests passes. */
#include "generator/rules.h"

#include "generator/family.h"
#include "generator/status.h"

static bool knob_range(const struct ft_rule_case *of) {
  return ft_config_out_of_range(of->config) == NULL;
}

static bool family(const struct ft_rule_case *of) {
  return ft_family_serves(of->config->family, of->request, of->arch);
}

static bool block_n(const struct ft_rule_case *of) {
  return ft_config_block_n(of->config) % 16 == 0;
}

static bool mask_rows(const struct ft_rule_case *of) {
  return of->request->mask_rows % ft_config_block_m(of->config) == 0;
}

static bool key_block(const struct ft_rule_case *of) {
  return ft_key_block_of(of->request) % ft_config_block_n(of->config) == 0;
}

static bool thread_limit(const struct ft_rule_case *of) {
  const int threads = of->budget->threads, blocks = of->budget->ctas_per_sm;
  return threads <= 1024 && blocks * threads <= of->arch->threads_per_sm &&
         blocks <= of->arch->blocks_per_sm;
}

static bool smem_limit(const struct ft_rule_case *of) {
  return of->budget->smem_bytes <= of->arch->smem_per_block;
}

static bool smem_occupancy(const struct ft_rule_case *of) {
  return of->budget->ctas_per_sm * (of->budget->smem_bytes + of->arch->smem_reserved) <=
         of->arch->smem_per_sm;
}

/* The family's own come between these two tables: what is asked first can count on what held. */
static const struct ft_rule beforehand[] = {
    {"knob-range", FT_CANNOT_RUN, knob_range,
     "a knob is outside what the kernel can be written for", FT_READS_ANY},
    {"family", FT_CANNOT_RUN, family,
     "the family has instructions that this GPU lacks, or no kernel for such a request",
     FT_READS_ANY},
};

static const struct ft_rule limits[] = {
    {"block-n", FT_CANNOT_RUN, block_n, "P V takes keys in steps of 16, the k of one mma",
     1u << FT_KNOB_BLOCK_N},
    {"mask-rows", FT_CANNOT_RUN, mask_rows, "a block of queries must lie in one row of the mask",
     1u << FT_KNOB_BLOCK_M},
    {"mask-cols", FT_CANNOT_RUN, key_block, "a block of keys must lie in one column of the mask",
     1u << FT_KNOB_BLOCK_N},
    {"thread-limit", FT_CANNOT_RUN, thread_limit,
     "blocks have at most 1024 threads, and all that are aimed at must be resident", FT_READS_ANY},
    {"smem-limit", FT_CANNOT_RUN, smem_limit, "the buffers must fit the shared memory of a block",
     FT_READS_ANY},
    {"smem-occupancy", FT_NOT_WORTH_TRYING, smem_occupancy,
     "as many blocks as aimed at must fit the shared memory together", FT_READS_ANY},
};

const struct ft_rule *ft_rules_at(const struct ft_family *family_of, int index) {
  if (index < 0) return NULL;
  if (index < FT_COUNT(beforehand)) return &beforehand[index];
  index -= FT_COUNT(beforehand);
  if (index < family_of->rule_count) return &family_of->rules[index];
  index -= family_of->rule_count;
  return index < FT_COUNT(limits) ? &limits[index] : NULL;
}

static const struct ft_rule *first_broken(const struct ft_rule_case *of, enum ft_rule_kind kind) {
  const struct ft_rule *rule;
  for (int i = 0; (rule = ft_rules_at(of->config->family, i)) != NULL; ++i)
    if (rule->kind == kind && !rule->holds(of)) return rule;
  return NULL;
}

const struct ft_rule *ft_rules_broken(const struct ft_request *request, const struct ft_arch *arch,
                                      const struct ft_config *config, enum ft_rule_kind kinds) {
  const struct ft_budget budget = ft_budget_of(request, config, arch);
  const struct ft_rule_case of = {request, arch, config, &budget};
  const struct ft_rule *broken = NULL;
  if (kinds & FT_CANNOT_RUN) broken = first_broken(&of, FT_CANNOT_RUN);
  /* Of a config that cannot run nothing else is asked: its budget may be all zero. */
  if (!broken && kinds & FT_NOT_WORTH_TRYING) broken = first_broken(&of, FT_NOT_WORTH_TRYING);
  return broken;
}

static unsigned may_mend(const struct ft_rule *rules, int count, const struct ft_rule_case *of) {
  unsigned knobs = FT_NO_RULE_BROKEN;
  for (int i = 0; i < count; ++i)
    if (rules[i].reads && !rules[i].holds(of)) knobs &= rules[i].reads;
  return knobs;
}

unsigned ft_rules_may_mend(const struct ft_request *request, const struct ft_arch *arch,
                           const struct ft_config *config) {
  const struct ft_family *const own = config->family;
  const struct ft_rule_case of = {request, arch, config, NULL};
  return may_mend(own->rules, own->rule_count, &of) & may_mend(limits, FT_COUNT(limits), &of);
}

/* Whether those knob rules of a table hold that read all of these knobs. */
static bool knobs_agree(const struct ft_rule *rules, int count, unsigned knobs,
                        const struct ft_rule_case *of) {
  for (int i = 0; i < count; ++i)
    if (rules[i].reads && (rules[i].reads & knobs) == knobs && !rules[i].holds(of)) return false;
  return true;
}

/* Whether the rules of a table that are of this kind, and are no knob rules, hold. */
static bool others_hold(const struct ft_rule *rules, int count, enum ft_rule_kind kind,
                        const struct ft_rule_case *of) {
  for (int i = 0; i < count; ++i)
    if (rules[i].kind == kind && !rules[i].reads && !rules[i].holds(of)) return false;
  return true;
}

bool ft_rules_hold(const struct ft_request *request, const struct ft_arch *arch,
                   const struct ft_config *config, unsigned knobs) {
  static const enum ft_rule_kind kinds[] = {FT_CANNOT_RUN, FT_NOT_WORTH_TRYING};
  const struct ft_family *const own = config->family;
  struct ft_budget budget = {0};
  const struct ft_rule_case of = {request, arch, config, &budget};
  if (knobs == FT_EVERY_KNOB_RULE && !(knob_range(&of) && family(&of))) return false;
  if (!knobs_agree(own->rules, own->rule_count, knobs, &of) ||
      !knobs_agree(limits, FT_COUNT(limits), knobs, &of))
    return false;
  own->plan(&budget, request, config, arch);
  for (int n = 0; n < FT_COUNT(kinds); ++n)
    if (!others_hold(own->rules, own->rule_count, kinds[n], &of) ||
        !others_hold(limits, FT_COUNT(limits), kinds[n], &of))
      return false;
  return true;
}

/* What no family has of e4m3. */
static int serves_e4m3(const struct ft_request *request, const struct ft_arch *arch) {
  enum { COLUMNS = 32 }; /* of a product's depth */
  if (arch->sm < 89)
    return ft_fail(FT_E_UNSUPPORTED, "e4m3 needs sm_89 or later, and %s is sm_%d; %s is possible",
                   arch->name, arch->sm, arch->sm < 80 ? "fp16" : "bf16");
  if (request->mask_cols % COLUMNS == 0) return FT_OK;
  return ft_fail(
      FT_E_UNSUPPORTED,
      "e4m3 has no mask blocks of %dx%d; allowed: columns in multiples of %d; bf16 is possible",
      request->mask_rows, request->mask_cols, COLUMNS);
}

static int serves_kv(const struct ft_request *request, const struct ft_arch *arch) {
  enum { WITH_CP_ASYNC = 80 };
  if (request->dtype_kv == FT_KV_DEFAULT || arch->sm >= WITH_CP_ASYNC) return FT_OK;
  return ft_fail(FT_E_UNSUPPORTED,
                 "K and V in e4m3 need sm_80 or later, and %s is sm_%d; fp16 is possible",
                 arch->name, arch->sm);
}

int ft_rules_serves(const struct ft_request *request, const struct ft_arch *arch) {
  if (arch->sm < 75)
    return ft_fail(FT_E_UNSUPPORTED, "%s is sm_%d; tensor-core attention needs sm_75 or later",
                   arch->name, arch->sm);
  if (request->dtype == FT_BF16 && arch->sm < 80)
    return ft_fail(FT_E_UNSUPPORTED, "bf16 needs sm_80 or later, and %s is sm_%d; fp16 is possible",
                   arch->name, arch->sm);
  if (ft_dtype_is_fp32(request->dtype) && arch->sm < 80)
    return ft_fail(FT_E_UNSUPPORTED, "%s needs sm_80 or later, and %s is sm_%d; fp16 is possible",
                   ft_dtype_name(request->dtype), arch->name, arch->sm);
  FT_TRY(serves_kv(request, arch));
  return request->dtype == FT_E4M3 ? serves_e4m3(request, arch) : FT_OK;
}
