/* rules.h: which configs are legal for a request on a GPU, as tables of named rules.
 * in -> out: request + arch + config -> NULL, or the first broken rule and its reason.
 * The name of the rejecting rule ends up in the trial row. */
#ifndef GENERATOR_RULES_H
#define GENERATOR_RULES_H

#include <stdbool.h>

#include "generator/budget.h"

enum ft_rule_kind {
  FT_CANNOT_RUN = 1,       /* no such kernel can be made, or its results would be wrong */
  FT_NOT_WORTH_TRYING = 2, /* it runs and is right, but the search and the default pass it over */
  FT_EVERY_RULE = FT_CANNOT_RUN | FT_NOT_WORTH_TRYING
};

/* What a rule looks at. */
struct ft_rule_case {
  const struct ft_request *request;
  const struct ft_arch *arch;
  const struct ft_config *config;
  const struct ft_budget *budget;
};

enum { FT_READS_ANY = 0 }; /* of a rule that reads the budget, or is not worth a list */

struct ft_rule {
  const char *name; /* "smem-limit" */
  enum ft_rule_kind kind;
  bool (*holds)(const struct ft_rule_case *of);
  const char *reason; /* one sentence, why the rule exists */
  unsigned reads; /* FT_READS of family.h: a bit for each knob that the verdict follows from, beside
                     the request and the GPU */
};

/* The first rule of these kinds that the config breaks, or NULL; those of kind FT_CANNOT_RUN come
 * first. */
const struct ft_rule *ft_rules_broken(const struct ft_request *request, const struct ft_arch *arch,
                                      const struct ft_config *config, enum ft_rule_kind kinds);

/* Whether the config breaks no rule. A knob rule is one that lists the knobs it reads. Knob rules
 * are checked first. The budget is computed only if they hold, so this is cheaper than
 * ft_rules_broken where most configs break a knob rule.
 * knobs: bits of knobs. A knob rule is checked if it reads all of them: with FT_EVERY_KNOB_RULE
 * every one is checked, with FT_NO_KNOB_RULE none. The caller knows that the knob rules which are
 * not checked hold. Except with FT_EVERY_KNOB_RULE the caller also knows that the family serves the
 * request and that each knob is in its range. */
#define FT_EVERY_KNOB_RULE 0u
#define FT_NO_KNOB_RULE    ~0u
bool ft_rules_hold(const struct ft_request *request, const struct ft_arch *arch,
                   const struct ft_config *config, unsigned knobs);

/* Which single knob could be changed so that the config breaks no knob rule: a bit for each such
 * knob, every bit if no knob rule is broken. A change of any other knob leaves some knob rule
 * broken. Each knob must be in its range. */
#define FT_NO_RULE_BROKEN ~0u
unsigned ft_rules_may_mend(const struct ft_request *request, const struct ft_arch *arch,
                           const struct ft_config *config);

/* Every rule that a family's configs are held to, for documentation and tests: index 0.. until
 * NULL. */
const struct ft_rule *ft_rules_at(const struct ft_family *family, int index);

/* Which requests a target can serve at all (bf16 needs sm_80, ...): FT_OK or FT_E_UNSUPPORTED with
 * the reason. */
int ft_rules_serves(const struct ft_request *request, const struct ft_arch *arch);

#endif
