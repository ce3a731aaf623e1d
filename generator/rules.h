/* rules.h: which configs are legal for a request on a GPU, as a table of named rules.
 * in -> out: request + arch + config -> FT_OK or the first broken rule and its reason.
 * The name of the rejecting rule ends up in the trial row. */
#ifndef GENERATOR_RULES_H
#define GENERATOR_RULES_H

#include <stdbool.h>

#include "generator/budget.h"

/* Whether a family has a kernel for the request that runs on the GPU. The rule "family" asks, and
 * so do the search space and the default config. */
bool ft_family_serves(enum ft_family family, const struct ft_request *request,
                      const struct ft_arch *arch);

enum { FT_EVERY_FAMILY = -1 };

struct ft_rule {
  int family;         /* whose configs it is for: enum ft_family, or FT_EVERY_FAMILY */
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
