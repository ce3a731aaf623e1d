/* schedule.c: which form of the tile scheduler a forward kernel has.
 * in -> out: request + config -> enum ft_schedule. */
#include "generator/schedule.h"

enum ft_schedule ft_schedule_of(const struct ft_request *request, const struct ft_config *config) {
  if (config->family != FT_FAMILY_WGMMA || config->lpt) return FT_SCHEDULE_LPT;
  return ft_request_tiles_differ(request) ? FT_SCHEDULE_BALANCED : FT_SCHEDULE_STATIC;
}

const char *ft_schedule_name(enum ft_schedule schedule) {
  switch (schedule) {
  case FT_SCHEDULE_STATIC: return "static";
  case FT_SCHEDULE_BALANCED: return "balanced";
  case FT_SCHEDULE_LPT: return "lpt";
  }
  return "unknown";
}
