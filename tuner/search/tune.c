/* tune.c: tuning on the GPU at hand, or for one that is not here.
 * in -> out: session + request + options -> candidates, a rig, a kind of measuring, the search ->
 * rows and summary. An emulated GPU has no clock, so it is predicted like one that is elsewhere. */
#include "tuner/search/tune.h"

#include "generator/model/ranker.h"
#include "generator/status.h"
#include "runtime/scores.h"
#include "runtime/session.h"
#include "tuner/search/ahead.h"
#include "tuner/search/by_model.h"
#include "tuner/search/gpu_rig.h"
#include "tuner/search/search.h"

/* When times are predicted, effort normal leaves out the candidates that the model, with estimated
 * registers, puts at more than this many times the best. Where switches hardly change what the
 * model says, thousands are left, and a compile takes a second or two: then it is the best of
 * these. */
static const double PREDICTED_SHARE = 1.5;
enum { PREDICTED_MOST = 128 };

int ft_tune(fatune_session *session, const struct ft_request *request,
            const struct ft_tune_options *options, struct ft_tune_summary *summary) {
  *summary = (struct ft_tune_summary){.measured = true};
  FT_TRY(ft_request_validate(request));
  FT_TRY(ft_session_needs_device(session));
  if (session->driver.emulated)
    return ft_tune_predict(session, request, &session->device.arch, options, summary);
  struct ft_tuning *tuning = ft_ahead_take(options->ahead, request);
  if (!tuning) FT_TRY(ft_tuning_open(&tuning, session, request, options));
  const int status = ft_tuning_run(tuning, options->budget_seconds, summary);
  ft_tuning_close(tuning);
  return status;
}

int ft_tune_predict(fatune_session *session, const struct ft_request *request,
                    const struct ft_arch *arch, const struct ft_tune_options *options,
                    struct ft_tune_summary *summary) {
  *summary = (struct ft_tune_summary){.measured = false};
  const struct ft_score_costs *score;
  FT_TRY(ft_request_validate(request));
  FT_TRY(ft_session_score_costs(session, request->score, &score));
  struct ft_ranker ranker;
  FT_TRY(ft_ranker_open(&ranker, request, arch, score));
  const struct ft_measuring measuring = ft_measuring_by_model(&ranker);
  struct ft_candidates candidates;
  struct ft_gpu_rig *rig = NULL;
  int status;
  FT_TRY(ft_candidates_make(&candidates, request, arch, score, options));
  if (options->effort == FT_EFFORT_NORMAL)
    ft_candidates_cut(&candidates, PREDICTED_SHARE, PREDICTED_MOST);
  FT_CHECK(ft_gpu_rig_open(&rig, session, request, arch, options, false));
  const struct ft_search_inputs in = {.rig = ft_gpu_rig_functions(rig),
                                      .measuring = &measuring,
                                      .candidates = &candidates,
                                      .stamp = ft_gpu_rig_stamp(rig),
                                      .options = options};
  FT_CHECK(ft_search(&in, summary));
done:
  ft_gpu_rig_close(rig);
  ft_candidates_free(&candidates);
  return status;
}
