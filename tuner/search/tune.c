/* tune.c: tuning on the GPU at hand.
 * in -> out: session + request + options -> candidates, a rig, the search -> rows and summary.
 * An emulated GPU has no clock, so it is predicted like one that is elsewhere. */
#include "tuner/search/tune.h"

#include "generator/status.h"
#include "tuner/search/gpu_rig.h"
#include "tuner/search/search.h"

int ft_tune(fatune_session *session, const struct ft_request *request,
            const struct ft_tune_options *options, struct ft_tune_summary *summary) {
  *summary = (struct ft_tune_summary){.measured = true};
  FT_TRY(ft_request_validate(request));
  FT_TRY(ft_session_needs_device(session));
  const struct ft_arch *arch = &session->device.arch;
  if (session->driver.emulated) return ft_tune_predict(session, request, arch, options, summary);
  struct ft_candidates candidates;
  struct ft_gpu_rig *rig = NULL;
  int status;
  FT_TRY(ft_candidates_make(&candidates, request, arch, options));
  FT_CHECK(ft_gpu_rig_open(&rig, session, request, arch, options, true));
  FT_CHECK(
      ft_search(ft_gpu_rig_functions(rig), &candidates, ft_gpu_rig_stamp(rig), options, summary));
done:
  ft_gpu_rig_close(rig);
  ft_candidates_free(&candidates);
  return status;
}
