/* schedule.h: the tile scheduler of a forward kernel: which block takes which work tile, in which
 * order. The C twin of templates/parts/schedule_NAME.cu.in.
 * in -> out: request + config -> its form. */
#ifndef GENERATOR_SCHEDULE_H
#define GENERATOR_SCHEDULE_H

#include "generator/config.h"
#include "generator/request.h"

enum ft_schedule {
  FT_SCHEDULE_STATIC,   /* persistent blocks share out tiles that are alike, by their number */
  FT_SCHEDULE_BALANCED, /* persistent blocks take a long and a short tile together */
  FT_SCHEDULE_LPT,      /* longest processing time first, in sections that L2 serves */
};

/* The one place that decides. */
enum ft_schedule ft_schedule_of(const struct ft_request *request, const struct ft_config *config);

/* As in the name of the template part: "static", "balanced", "lpt". */
const char *ft_schedule_name(enum ft_schedule schedule);

#endif
