/* choice.h: the config of a request.
 * in -> out: request + GPU -> what the caches know, else the default or what the model finds. */
#ifndef RUNTIME_CHOICE_H
#define RUNTIME_CHOICE_H

#include <stdbool.h>

#include "cache/store.h"
#include "generator/arch.h"
#include "generator/request.h"
#include "runtime/fatune.h"

/* The config that the caches have for a request on an arch. If they have none that is legal, it is
 * the default, or one that the model finds faster (generator/model/choice.h).
 * device_class as in ft_device.id; NULL for a GPU that is not here. */
int ft_session_choose(fatune_session *session, const struct ft_request *request,
                      const struct ft_arch *arch, const char *device_class,
                      struct ft_choice *choice);

/* The same for the session's own GPU, and a winner may be of any distance: where nothing can be
 * compiled, a kernel that was measured for another problem is better than none. */
int ft_session_choose_from_anywhere(fatune_session *session, const struct ft_request *request,
                                    struct ft_choice *choice);

/* Likewise the key of the kernel that a trial names for a config that is given; false: no trial
 * does. */
bool ft_session_named_kernel(fatune_session *session, const struct ft_request *request,
                             const struct ft_arch *arch, const struct ft_config *config,
                             struct ft_digest *key);

#endif
