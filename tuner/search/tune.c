/* tune.c: tuning on the GPU at hand, or for one that is not here.
 * in -> out: session + request + options -> candidates, a rig, a kind of measuring, the search ->
 * rows and summary. An emulated GPU has no clock, so it is predicted like one that is elsewhere. */
#include "tuner/search/tune.h"

#include "generator/model/ranker.h"
#include "generator/status.h"
#include "runtime/choice.h"
#include "runtime/scores.h"
#include "tuner/search/by_model.h"
#include "tuner/search/gpu_rig.h"
#include "tuner/search/on_machine.h"
#include "tuner/search/search.h"

/* When times are predicted, effort normal leaves out the candidates that the model, with estimated
 * registers, puts at more than this many times the best. Where switches hardly change what the
 * model says, thousands are left, and a compile takes a second or two: then it is the best of
 * these. */
static const double PREDICTED_SHARE = 1.5;
enum { PREDICTED_MOST = 128 };

/* NULL: the request has no score function. */
static int costs_of_score(fatune_session *session, const struct ft_request *request,
                          const struct ft_score_costs **costs) {
  const struct ft_known_score *known;
  FT_TRY(ft_session_score(session, request->score, &known));
  *costs = known != NULL ? &known->costs : NULL;
  return FT_OK;
}

static int search_on(struct ft_gpu_rig *rig, const struct ft_measuring *measuring,
                     const struct ft_candidates *candidates, const struct ft_tune_options *options,
                     struct ft_tune_summary *summary) {
  const struct ft_search_inputs in = {.rig = ft_gpu_rig_functions(rig),
                                      .measuring = measuring,
                                      .candidates = candidates,
                                      .stamp = ft_gpu_rig_stamp(rig),
                                      .options = options};
  return ft_search(&in, summary);
}

/* The config that would be used without this search becomes the second candidate, so that the
 * search cannot end with a slower one. */
static int lead_with_known(fatune_session *session, const struct ft_request *request,
                           const struct ft_score_costs *score, struct ft_candidates *candidates) {
  const struct ft_arch *const arch = &session->device.arch;
  struct ft_choice choice;
  FT_TRY(ft_session_choose(session, request, arch, session->device.id, &choice));
  if (choice.hit == FT_HIT_DEFAULT) return FT_OK;
  struct ft_ranker ranker;
  FT_TRY(ft_ranker_open(&ranker, request, arch, score));
  return ft_candidates_lead(candidates, &choice.config, ft_ranker_promise(&ranker, &choice.config));
}

int ft_tune(fatune_session *session, const struct ft_request *request,
            const struct ft_tune_options *options, struct ft_tune_summary *summary) {
  *summary = (struct ft_tune_summary){.measured = true};
  FT_TRY(ft_request_validate(request));
  FT_TRY(ft_session_needs_device(session));
  const struct ft_arch *arch = &session->device.arch;
  if (session->driver.emulated) return ft_tune_predict(session, request, arch, options, summary);
  struct ft_candidates candidates;
  struct ft_measuring measuring = {0};
  const struct ft_score_costs *score;
  struct ft_gpu_rig *rig = NULL;
  int status;
  FT_TRY(costs_of_score(session, request, &score));
  FT_TRY(ft_candidates_make(&candidates, request, arch, score, options));
  FT_CHECK(lead_with_known(session, request, score, &candidates));
  FT_CHECK(ft_gpu_rig_open(&rig, session, request, arch, options, true));
  FT_CHECK(ft_measuring_on_machine(&measuring, ft_gpu_rig_functions(rig), &candidates));
  FT_CHECK(search_on(rig, &measuring, &candidates, options, summary));
done:
  ft_measuring_off_machine(&measuring);
  ft_gpu_rig_close(rig);
  ft_candidates_free(&candidates);
  return status;
}

int ft_tune_predict(fatune_session *session, const struct ft_request *request,
                    const struct ft_arch *arch, const struct ft_tune_options *options,
                    struct ft_tune_summary *summary) {
  *summary = (struct ft_tune_summary){.measured = false};
  const struct ft_score_costs *score;
  FT_TRY(ft_request_validate(request));
  FT_TRY(costs_of_score(session, request, &score));
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
  FT_CHECK(search_on(rig, &measuring, &candidates, options, summary));
done:
  ft_gpu_rig_close(rig);
  ft_candidates_free(&candidates);
  return status;
}
