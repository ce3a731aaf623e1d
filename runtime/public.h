/* public.h: requests of fatune.h.
 * in -> out: public struct -> internal struct, validated. */
#ifndef RUNTIME_PUBLIC_H
#define RUNTIME_PUBLIC_H

#include "generator/request.h"
#include "runtime/fatune.h"

/* Public request -> internal, defaults filled in, validated. */
int ft_request_from_public(struct ft_request *to, const fatune_request *from);

#endif
