/* scores.h: the score functions of a session.
 * in -> out: a request's number -> the score, which stays until the session is closed. */
#ifndef RUNTIME_SCORES_H
#define RUNTIME_SCORES_H

#include "generator/score/registry.h"
#include "runtime/fatune.h"

/* Number 0 gives NULL. FT_E_NOT_FOUND where no fatune_score_add gave the number. */
int ft_session_score(fatune_session *session, int64_t number, const struct ft_known_score **score);
/* The same of what it costs. */
int ft_session_score_costs(fatune_session *session, int64_t number,
                           const struct ft_score_costs **costs);

#endif
