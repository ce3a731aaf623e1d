/* space.h: the search space: every config for a request on a GPU that breaks no rule, in a fixed
 * order. in -> out: request + arch -> sequence of configs, family by family. The default config
 * always comes first.
 * ft_default_config is a pure function of (request, arch): the prior by hand, trial number 0. */
#ifndef GENERATOR_SPACE_H
#define GENERATOR_SPACE_H

#include <stdbool.h>

#include "generator/rules.h"

/* A config that breaks no rule, for every request the target serves. */
int ft_default_config(const struct ft_request *request, const struct ft_arch *arch,
                      struct ft_config *config);

struct ft_space {
  struct ft_request request;
  struct ft_arch arch;
  struct ft_config first; /* the default */
  int family;             /* number of that whose product is being walked */
  int digits[FT_KNOBS_MOST];
  /* A bit for each of a knob's values that the walk takes. ft_space_next passes over those with
   * which a rule is broken whatever the other knobs are. */
  unsigned taken[FT_KNOBS_MOST];
  bool started;
  long product, legal; /* configs of the families walked so far; those that break no rule */
};

int ft_space_open(struct ft_space *space, const struct ft_request *request,
                  const struct ft_arch *arch);
/* The next config that breaks no rule; false at the end. */
bool ft_space_next(struct ft_space *space, struct ft_config *config);

/* Like ft_space_next over the raw products of the families that serve the request: *broken is the
 * rule that rejects it, or NULL. A walk uses the one function or the other. */
bool ft_space_next_any(struct ft_space *space, struct ft_config *config,
                       const struct ft_rule **broken);

/* In place of a walk: tells `take` how many configs of the raw products each rule rejects, a rule
 * perhaps several times. Afterwards the space has the number of all configs and of the legal ones.
 * Some values of a knob are illegal by one rule whatever the other knobs are. All configs with such
 * a value are counted at once, for the first such rule. Each other config is looked at, and counts
 * for the first rule that it breaks. */
typedef void ft_take_rejected(void *payload, const struct ft_rule *rule, long configs);
void ft_space_count(struct ft_space *space, ft_take_rejected *take, void *payload);

#endif
