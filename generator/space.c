/* space.c: every config that breaks no rule, in a fixed order.
 * in -> out: request + arch -> the default config, then for each family that serves the request
 * the product of all values of its knobs.
 * A product counts like an odometer: the last knob of the family's list turns fastest. */
#include "generator/space.h"

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

/* To the next family from number `family` on that serves the request, or past the last. */
static void enter_family(struct ft_space *space, int family) {
  while (ft_family_at(family) != NULL &&
         !ft_family_serves(ft_family_at(family), &space->request, &space->arch))
    ++family;
  space->family = family;
}

int ft_space_open(struct ft_space *space, const struct ft_request *request,
                  const struct ft_arch *arch) {
  *space = (struct ft_space){.request = *request, .arch = *arch};
  enter_family(space, 0);
  return ft_default_config(request, arch, &space->first);
}

static struct ft_config current(const struct ft_space *space) {
  struct ft_config config = {.family = ft_family_at(space->family)};
  for (int i = 0; i < config.family->knob_count; ++i)
    config.knobs[i] = config.family->knobs[i].searched[space->digits[i]];
  return config;
}

/* To the next point of the product, or into the next one. */
static void advance(struct ft_space *space) {
  const struct ft_family *const family = ft_family_at(space->family);
  for (int i = family->knob_count - 1; i >= 0; --i) {
    if (++space->digits[i] < family->knobs[i].searched_count) return;
    space->digits[i] = 0;
  }
  enter_family(space, space->family + 1);
}

bool ft_space_next_any(struct ft_space *space, struct ft_config *config,
                       const struct ft_rule **broken) {
  if (!space->started) {
    space->started = true;
    *config = space->first;
  } else {
    do {
      if (ft_family_at(space->family) == NULL) return false;
      *config = current(space);
      advance(space);
    } while (ft_config_compare(config, &space->first) == 0); /* the default was the first */
  }
  *broken = ft_rules_broken(&space->request, &space->arch, config, FT_EVERY_RULE);
  ++space->visited;
  if (*broken != NULL) ++space->rejected;
  return true;
}

bool ft_space_next(struct ft_space *space, struct ft_config *config) {
  const struct ft_rule *broken;
  while (ft_space_next_any(space, config, &broken))
    if (broken == NULL) return true;
  return false;
}
