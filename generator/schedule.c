/* schedule.c: which form of the tile scheduler a kernel has.
 * in -> out: request + config -> enum ft_schedule, by the family's descriptor. */
#include "generator/schedule.h"

#include "generator/family.h"

enum ft_schedule ft_schedule_of(const struct ft_request *request, const struct ft_config *config) {
  return config->family->schedule(request, config);
}

const char *ft_schedule_name(enum ft_schedule schedule) {
  switch (schedule) {
  case FT_SCHEDULE_STATIC: return "static";
  case FT_SCHEDULE_BALANCED: return "balanced";
  case FT_SCHEDULE_LPT: return "lpt";
  }
  return "unknown";
}
