/* rules.h: which configs are legal for a request on a GPU, as a table of named rules.
 * in -> out: request + arch + config -> FT_OK or the first broken rule and its reason.
 * The name of the rejecting rule ends up in the trial row. */
#ifndef GENERATOR_RULES_H
#define GENERATOR_RULES_H

#include "generator/budget.h"

struct ft_rule {
  const char *name;   /* "smem-limit" */
  const char *reason; /* one sentence, why the rule exists */
  int (*holds)(const struct ft_request *, const struct ft_arch *, const struct ft_config *,
               const struct ft_budget *);
};

/* The first rule the config breaks, or NULL when it is legal. */
const struct ft_rule *ft_rules_broken(const struct ft_request *request, const struct ft_arch *arch,
                                      const struct ft_config *config);

/* Every rule, for documentation and tests: index 0.. until NULL. */
const struct ft_rule *ft_rules_at(int index);

/* Which requests a target can serve at all (bf16 needs sm_80, ...): FT_OK or FT_E_UNSUPPORTED with
 * the reason. */
int ft_rules_serves(const struct ft_request *request, const struct ft_arch *arch);

#endif
