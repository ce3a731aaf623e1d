/* space.c: every config that breaks no rule, in a fixed order.
 * in -> out: request + arch -> the default config, then for each family that serves the request
 * the product of all values of its knobs.
 * A product counts like an odometer: the last knob of the family's list turns fastest. */
#include "generator/space.h"

#include <string.h>

#include "generator/family.h"
#include "generator/status.h"

int ft_default_config(const struct ft_request *request, const struct ft_arch *arch,
                      struct ft_config *config) {
  FT_TRY(ft_rules_serves(request, arch));
  int count = 0;
  while (ft_family_at(count) != NULL) ++count;
  for (int i = count - 1; i >= 0; --i) {
    const struct ft_family *const family = ft_family_at(i);
    if (ft_family_serves(family, request, arch) && family->default_config(request, arch, config))
      return FT_OK;
  }
  return ft_fail(FT_E_UNSUPPORTED, "no config of any kernel family is legal on %s", arch->name);
}

static struct ft_config config_at(const struct ft_family *family, const int *digits) {
  struct ft_config config = {.family = family};
  for (int i = 0; i < family->knob_count; ++i)
    config.knobs[i] = family->knobs[i].searched[digits[i]];
  return config;
}

/* The first value from number `at` on whose bit is set, or as many as there are. */
static int next_value(const struct ft_knob *knob, unsigned taken, int at) {
  while (at < knob->searched_count && !(taken >> at & 1)) ++at;
  return at;
}

/* To the next point of the product of the values taken, of the knobs whose bit is set in `turned`.
 * Behind the last comes the first again, and false. */
static bool turn(const struct ft_family *family, unsigned turned, const unsigned *taken,
                 int *digits) {
  for (int i = FT_KNOBS_MOST - 1; i >= 0; --i) {
    if (i >= family->knob_count || !(turned >> i & 1)) continue;
    digits[i] = next_value(&family->knobs[i], taken[i], digits[i] + 1);
    if (digits[i] < family->knobs[i].searched_count) return true;
    digits[i] = next_value(&family->knobs[i], taken[i], 0);
  }
  return false;
}

/* Of the knobs that the rule reads, leaves the values with which it can hold. */
static void leave_legal(struct ft_space *space, const struct ft_rule *rule) {
  const struct ft_family *const family = ft_family_at(space->family);
  unsigned left[FT_KNOBS_MOST] = {0}, every[FT_KNOBS_MOST];
  int digits[FT_KNOBS_MOST] = {0};
  memset(every, 0xff, sizeof every);
  do {
    const struct ft_config config = config_at(family, digits);
    const struct ft_rule_case of = {&space->request, &space->arch, &config, NULL};
    if (!rule->holds(&of)) continue;
    for (int i = 0; i < family->knob_count; ++i) left[i] |= 1u << digits[i];
  } while (turn(family, rule->reads, every, digits));
  for (int i = 0; i < family->knob_count; ++i)
    if (rule->reads >> i & 1) space->taken[i] &= left[i];
}

/* To the first config of the values taken; false: of some knob there is none. */
static bool to_first(struct ft_space *space) {
  const struct ft_family *const family = ft_family_at(space->family);
  for (int i = 0; i < family->knob_count; ++i) {
    space->digits[i] = next_value(&family->knobs[i], space->taken[i], 0);
    if (space->digits[i] == family->knobs[i].searched_count) return false;
  }
  return true;
}

/* Takes all values of every knob, or all with which a config can be legal; false: of some knob
 * there is none. */
static bool take_values(struct ft_space *space, bool raw) {
  const struct ft_family *const family = ft_family_at(space->family);
  const struct ft_rule *rule;
  memset(space->taken, 0xff, sizeof space->taken);
  for (int n = 0; !raw && (rule = ft_rules_at(family, n)) != NULL; ++n)
    if (rule->reads) leave_legal(space, rule);
  return to_first(space);
}

/* To the first config of the next family, from number `number` on, that serves the request, or past
 * the last family. */
static void enter_family(struct ft_space *space, int number, bool raw) {
  const struct ft_family *family;
  for (space->family = number; (family = ft_family_at(space->family)) != NULL; ++space->family) {
    if (!ft_family_serves(family, &space->request, &space->arch)) continue;
    long product = 1;
    for (int i = 0; i < family->knob_count; ++i) product *= family->knobs[i].searched_count;
    space->product += product;
    if (take_values(space, raw)) return;
  }
}

int ft_space_open(struct ft_space *space, const struct ft_request *request,
                  const struct ft_arch *arch) {
  *space = (struct ft_space){.request = *request, .arch = *arch};
  return ft_default_config(request, arch, &space->first);
}

static bool next(struct ft_space *space, bool raw, struct ft_config *config,
                 const struct ft_rule **broken) {
  if (!space->started) {
    space->started = true;
    enter_family(space, 0, raw);
    *config = space->first;
  } else {
    do {
      const struct ft_family *const family = ft_family_at(space->family);
      if (family == NULL) return false;
      *config = config_at(family, space->digits);
      if (!turn(family, ~0u, space->taken, space->digits))
        enter_family(space, space->family + 1, raw);
    } while (ft_config_compare(config, &space->first) == 0); /* the default was the first */
  }
  *broken = ft_rules_broken(&space->request, &space->arch, config, FT_EVERY_RULE);
  if (*broken == NULL) ++space->legal;
  return true;
}

bool ft_space_next_any(struct ft_space *space, struct ft_config *config,
                       const struct ft_rule **broken) {
  return next(space, true, config, broken);
}

bool ft_space_next(struct ft_space *space, struct ft_config *config) {
  const struct ft_rule *broken;
  while (next(space, false, config, &broken))
    if (broken == NULL) return true;
  return false;
}

/* Configs of the values taken. */
static long taken_configs(const struct ft_space *space) {
  const struct ft_family *const family = ft_family_at(space->family);
  long configs = 1;
  for (int i = 0; i < family->knob_count; ++i) {
    int values = 0;
    for (int at = 0; at < family->knobs[i].searched_count; ++at)
      values += (int)(space->taken[i] >> at & 1);
    configs *= values;
  }
  return configs;
}

/* Of one family, of which all values are taken. */
static void count_family(struct ft_space *space, ft_take_rejected *take, void *payload) {
  const struct ft_family *const family = ft_family_at(space->family);
  const struct ft_rule *rule;
  for (int n = 0; (rule = ft_rules_at(family, n)) != NULL; ++n) {
    if (!rule->reads) continue;
    const long before = taken_configs(space);
    leave_legal(space, rule);
    const long left = taken_configs(space);
    if (left < before) take(payload, rule, before - left);
  }
  if (!to_first(space)) return;
  do {
    const struct ft_config config = config_at(family, space->digits);
    rule = ft_rules_broken(&space->request, &space->arch, &config, FT_EVERY_RULE);
    if (rule == NULL)
      ++space->legal;
    else
      take(payload, rule, 1);
  } while (turn(family, ~0u, space->taken, space->digits));
}

void ft_space_count(struct ft_space *space, ft_take_rejected *take, void *payload) {
  for (enter_family(space, 0, true); ft_family_at(space->family) != NULL;
       enter_family(space, space->family + 1, true))
    count_family(space, take, payload);
}
