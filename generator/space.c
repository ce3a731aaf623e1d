/* space.c: every legal config in a fixed order.
 * in -> out: request + arch -> the default config, then for each family that serves the request
 * the product of all values of its knobs.
 * A product counts like an odometer: the last knob of knobs.def turns fastest. */
#include "generator/space.h"

#include "generator/status.h"

/* To the next family from `family` on that serves the request. */
static void enter_family(struct ft_space *space, int family) {
  while (family < FT_FAMILY_COUNT &&
         !ft_family_serves((enum ft_family)family, &space->request, &space->arch))
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
  struct ft_config config = {.family = (enum ft_family)space->family};
  for (int i = 0; i < FT_KNOB_COUNT; ++i)
    ft_config_set(&config, i, ft_knob(i)->values[space->family].list[space->digits[i]]);
  return config;
}

/* To the next point of the product, or into the next one. */
static void advance(struct ft_space *space) {
  for (int i = FT_KNOB_COUNT - 1; i >= 0; --i) {
    if (++space->digits[i] < ft_knob(i)->values[space->family].count) return;
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
      if (space->family == FT_FAMILY_COUNT) return false;
      *config = current(space);
      advance(space);
    } while (ft_config_compare(config, &space->first) == 0); /* the default was the first */
  }
  *broken = ft_rules_broken(&space->request, &space->arch, config);
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
