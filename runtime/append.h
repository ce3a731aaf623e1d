/* append.h: new rows of K and V behind those there are.
 * in -> out: session + request + arguments -> struct ft_append_params -> a kernel on a stream. */
#ifndef RUNTIME_APPEND_H
#define RUNTIME_APPEND_H

#include "generator/request.h"
#include "runtime/fatune.h"

/* fatune_append, of a plan's session and request. */
int ft_append(fatune_session *session, const struct ft_request *request,
              const fatune_arguments *arguments, const fatune_tensor *k, const fatune_tensor *v,
              void *stream);

#endif
