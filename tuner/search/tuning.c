/* tuning.c: candidates, a rig, and the search that measures on it.
 * in -> out: see tuning.h. */
#include "tuner/search/tuning.h"

#include <stdlib.h>
#include <string.h>

#include "generator/model/ranker.h"
#include "generator/status.h"
#include "generator/text.h"
#include "runtime/choice.h"
#include "runtime/scores.h"
#include "runtime/session.h"
#include "tuner/search/gpu_rig.h"
#include "tuner/search/on_machine.h"
#include "tuner/search/search.h"

struct ft_tuning {
  fatune_session *session;
  struct ft_request request;
  struct ft_tune_options options;
  struct ft_choice choice; /* what would be used without the search */
  struct ft_candidates candidates;
  struct ft_measuring measuring;
  struct ft_gpu_rig *rig;
  struct ft_search *search;
};

static int choose(const struct ft_tuning *it, struct ft_choice *choice) {
  return ft_session_choose(it->session, &it->request, &it->session->device.arch,
                           it->session->device.id, choice);
}

/* The config that would be used without this search becomes the second candidate, so that the
 * search cannot end with a slower one. */
static int lead_with_choice(struct ft_tuning *it, const struct ft_score_costs *score) {
  struct ft_ranker ranker;
  FT_TRY(choose(it, &it->choice));
  if (it->choice.hit == FT_HIT_DEFAULT) return FT_OK;
  FT_TRY(ft_ranker_open(&ranker, &it->request, &it->session->device.arch, score));
  return ft_candidates_lead(&it->candidates, &it->choice.config,
                            ft_ranker_promise(&ranker, &it->choice.config));
}

static int begin(struct ft_tuning *it) {
  const struct ft_arch *const arch = &it->session->device.arch;
  const struct ft_score_costs *score;
  FT_TRY(ft_session_score_costs(it->session, it->request.score, &score));
  FT_TRY(ft_candidates_make(&it->candidates, &it->request, arch, score, &it->options));
  FT_TRY(lead_with_choice(it, score));
  FT_TRY(ft_gpu_rig_open(&it->rig, it->session, &it->request, arch, &it->options, true));
  FT_TRY(ft_measuring_on_machine(&it->measuring, ft_gpu_rig_functions(it->rig), &it->candidates));
  const struct ft_search_inputs in = {.rig = ft_gpu_rig_functions(it->rig),
                                      .measuring = &it->measuring,
                                      .candidates = &it->candidates,
                                      .stamp = ft_gpu_rig_stamp(it->rig),
                                      .options = &it->options};
  return ft_search_open(&it->search, &in);
}

int ft_tuning_open(struct ft_tuning **out, fatune_session *session,
                   const struct ft_request *request, const struct ft_tune_options *options) {
  struct ft_tuning *const it = calloc(1, sizeof *it);
  *out = NULL;
  if (!it) return ft_fail(FT_E_MEMORY, "no memory for a search");
  it->session = session;
  it->request = *request;
  it->options = *options;
  const int status = begin(it);
  if (status == FT_OK)
    *out = it;
  else
    ft_tuning_close(it);
  return status;
}

bool ft_tuning_is_current(const struct ft_tuning *it) {
  struct ft_choice now;
  if (choose(it, &now) != FT_OK || now.hit != it->choice.hit) return false;
  return now.hit == FT_HIT_DEFAULT || ft_config_compare(&now.config, &it->choice.config) == 0;
}

bool ft_tuning_is_of(const struct ft_tuning *it, const struct ft_request *request) {
  struct ft_text own = FT_TEXT_INIT, other = FT_TEXT_INIT;
  ft_request_print(&it->request, &own);
  ft_request_print(request, &other);
  const bool same = own.data && other.data && strcmp(own.data, other.data) == 0;
  ft_text_free(&own);
  ft_text_free(&other);
  return same;
}

int ft_tuning_run(struct ft_tuning *it, double budget_seconds, struct ft_tune_summary *summary) {
  it->options.budget_seconds = budget_seconds;
  FT_TRY(ft_gpu_rig_enter(it->rig));
  return ft_search_run(it->search, summary);
}

void ft_tuning_close(struct ft_tuning *it) {
  if (!it) return;
  ft_search_close(it->search);
  ft_measuring_off_machine(&it->measuring);
  ft_gpu_rig_close(it->rig);
  ft_candidates_free(&it->candidates);
  free(it);
}
