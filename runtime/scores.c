/* scores.c: the score functions of a session.
 * in -> out: name, text -> number; number -> score. */
#include "runtime/scores.h"

#include <string.h>

#include "generator/status.h"
#include "runtime/session.h"

int fatune_score_add(int64_t *score, fatune_session *session, const char *name, const char *text) {
  if (!score) return ft_fail(FT_E_ARGUMENT, "score is NULL; it takes the number");
  *score = 0;
  if (!session) return ft_fail(FT_E_ARGUMENT, "session is NULL");
  if (!name) return ft_fail(FT_E_ARGUMENT, "name is NULL");
  pthread_mutex_lock(&session->lua_lock);
  const int status =
      ft_registry_add(ft_lua_scores(session->lua), ft_lua_files(session->lua), name, text, score);
  pthread_mutex_unlock(&session->lua_lock);
  return status;
}

int ft_session_score(fatune_session *session, int64_t number, const struct ft_known_score **score) {
  *score = NULL;
  if (number == 0) return FT_OK;
  pthread_mutex_lock(&session->lua_lock);
  const int status =
      ft_registry_find(ft_lua_scores(session->lua), ft_lua_files(session->lua), number, score);
  pthread_mutex_unlock(&session->lua_lock);
  return status;
}

int ft_session_score_costs(fatune_session *session, int64_t number,
                           const struct ft_score_costs **costs) {
  const struct ft_known_score *known;
  *costs = NULL;
  FT_TRY(ft_session_score(session, number, &known));
  if (known) *costs = &known->costs;
  return FT_OK;
}

int fatune_score_dtype(const char **dtype, fatune_session *session, int64_t score,
                       const char *name) {
  const struct ft_known_score *known;
  if (!dtype) return ft_fail(FT_E_ARGUMENT, "dtype is NULL; it takes the name");
  *dtype = NULL;
  if (!session) return ft_fail(FT_E_ARGUMENT, "session is NULL");
  if (!name) return ft_fail(FT_E_ARGUMENT, "name is NULL");
  if (score == 0) return ft_fail(FT_E_ARGUMENT, "score is 0; it is fatune_score_add's");
  FT_TRY(ft_session_score(session, score, &known));
  for (int i = 0; i < known->score.tensor_count; ++i) {
    if (strcmp(name, known->score.tensors[i].name) != 0) continue;
    *dtype = ft_captured_dtype_name(known->score.tensors[i].dtype);
    return FT_OK;
  }
  return ft_fail(FT_E_ARGUMENT, "score %s captures no tensor '%s'", known->score.name, name);
}

int fatune_score_gradient(int64_t *gradient, fatune_session *session, int64_t score,
                          const char *name) {
  const struct ft_known_score *known;
  int bit;
  if (!gradient) return ft_fail(FT_E_ARGUMENT, "gradient is NULL; it takes the number");
  *gradient = 0;
  if (!session) return ft_fail(FT_E_ARGUMENT, "session is NULL");
  if (!name) return ft_fail(FT_E_ARGUMENT, "name is NULL");
  if (score == 0) return ft_fail(FT_E_ARGUMENT, "score is 0; it is fatune_score_add's");
  FT_TRY(ft_session_score(session, score, &known));
  FT_TRY(ft_known_gradient_bit(known, name, &bit));
  *gradient = (int64_t)1 << bit;
  return FT_OK;
}
