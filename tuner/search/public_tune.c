/* public_tune.c: fatune_tune of fatune.h.
 * in -> out: public request and options -> ft_tune. The file is here because the runtime, which is
 * below the tuner, never tunes. */
#include "generator/status.h"
#include "runtime/choice.h"
#include "runtime/public.h"
#include "runtime/session.h"
#include "runtime/sized_struct.h"
#include "tuner/search/tune.h"

static const fatune_tune_options initial = FATUNE_TUNE_OPTIONS_INIT;
static const struct ft_sized_struct form =
    FT_SIZED_STRUCT("options", fatune_tune_options, payload, &initial);

static void forward_progress(void *payload, const struct ft_tune_progress *progress) {
  const fatune_tune_options *options = payload;
  options->progress(options->payload, progress->done, progress->total, progress->best_us);
}

static int check_options(const fatune_tune_options *options) {
  if (options->if_missing != 0 && options->if_missing != 1) {
    return ft_fail(FT_E_ARGUMENT, "options.if_missing is %d; allowed: 0, 1", options->if_missing);
  }
  if (!(options->budget_seconds >= 0)) {
    return ft_fail(FT_E_ARGUMENT, "options.budget_seconds is %g; allowed: 0 and more",
                   options->budget_seconds);
  }
  if (options->jobs < 0)
    return ft_fail(FT_E_ARGUMENT, "options.jobs is %d; allowed: 0 and more", options->jobs);
  return FT_OK;
}

int fatune_tune(fatune_session *session, const fatune_request *request,
                const fatune_tune_options *given) {
  fatune_tune_options room;
  const void *whole;
  if (!session) return ft_fail(FT_E_ARGUMENT, "session is NULL");
  if (!request) return ft_fail(FT_E_ARGUMENT, "request is NULL");
  FT_TRY(ft_sized_read(&form, given ? given : &initial, &room, &whole));
  const fatune_tune_options *const options = whole;
  FT_TRY(check_options(options));
  struct ft_request wanted;
  FT_TRY(ft_request_from_public(&wanted, request));
  FT_TRY(ft_session_needs_device(session));
  if (options->if_missing) {
    struct ft_choice choice;
    FT_TRY(ft_session_choose(session, &wanted, &session->device.arch, session->device.id, &choice));
    if (choice.hit == FT_HIT_EXACT) return FT_OK;
  }
  const struct ft_tune_options inner = {.effort = FT_EFFORT_NORMAL,
                                        .budget_seconds = options->budget_seconds,
                                        .jobs = options->jobs,
                                        .progress = options->progress ? forward_progress : NULL,
                                        .payload = (void *)(uintptr_t)options};
  struct ft_tune_summary summary;
  return ft_tune(session, &wanted, &inner, &summary);
}
