/* space.c: every legal config in a fixed order.
 * in -> out: request + arch -> the default config, then the product of all knob values.
 * The product counts like an odometer: the last knob of knobs.def turns fastest. */
#include "generator/space.h"

#include "generator/status.h"

int ft_space_open(struct ft_space *space, const struct ft_request *request,
                  const struct ft_arch *arch) {
  *space = (struct ft_space){.request = *request, .arch = *arch};
  return ft_default_config(request, arch, &space->first);
}

static struct ft_config config_at(const int digits[FT_KNOB_COUNT]) {
  struct ft_config config = {.family = FT_FAMILY_MMA};
  for (int i = 0; i < FT_KNOB_COUNT; ++i) ft_config_set(&config, i, ft_knob(i)->values[digits[i]]);
  return config;
}

/* To the next point of the product; past the last one the space is finished. */
static void advance(struct ft_space *space) {
  for (int i = FT_KNOB_COUNT - 1; i >= 0; --i) {
    if (++space->digits[i] < ft_knob(i)->value_count) return;
    space->digits[i] = 0;
  }
  space->finished = true;
}

bool ft_space_next_any(struct ft_space *space, struct ft_config *config,
                       const struct ft_rule **broken) {
  if (!space->started) {
    space->started = true;
    *config = space->first;
  } else {
    do {
      if (space->finished) return false;
      *config = config_at(space->digits);
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
