/* trial_run.c: one candidate: compiled? spilled? loads? right? how fast?
 * in -> out: candidate + compile result -> trial. Each question that is answered no ends it with an
 * outcome. */
#include "tuner/search/trial_run.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tuner/model/model.h"
#include "generator/status.h"

/* A candidate this much slower than the best is not worth more than one run. */
static const double GIVE_UP = 1.5;

void ft_trial_begin(struct ft_trial *trial, const struct ft_trial *stamp,
                    const struct ft_candidate *candidate) {
  *trial = *stamp;
  trial->config = candidate->config;
  trial->is_default = candidate->is_default;
  trial->at = (int64_t)time(NULL);
}

void ft_trial_end(struct ft_trial *trial, enum ft_outcome outcome, const char *reason) {
  trial->outcome = outcome;
  snprintf(trial->reason, sizeof trial->reason, "%.*s", (int)sizeof trial->reason - 1, reason);
  for (char *c = trial->reason; *c; c++) {
    if (*c == '\n') *c = ' ';
  }
}

void ft_trial_set_kernel(struct ft_trial *trial, const struct ft_kernel *kernel) {
  snprintf(trial->nvrtc, sizeof trial->nvrtc, "%s", kernel->nvrtc);
  trial->kernel = kernel->key;
  trial->registers = kernel->registers;
  trial->spill_bytes = kernel->spill_bytes;
  trial->smem_bytes = kernel->smem_bytes;
}

void ft_trial_set_timing(struct ft_trial *trial, const struct ft_timing *timing) {
  trial->sample_count = timing->sample_count;
  memcpy(trial->samples_us, timing->samples_us, sizeof trial->samples_us);
  trial->median_us = timing->median_us;
  trial->spread_us = timing->spread_us;
  trial->sm_clock_mhz = timing->sm_clock_mhz;
}

bool ft_compile_is_candidates(int status) {
  return status == FT_E_COMPILE || status == FT_E_ARGUMENT || status == FT_E_UNSUPPORTED;
}

/* From "(C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due to ...
 * in the function 'fatune_kernel'": what is said, without the function. NULL when nothing is. */
static const char *find_complaint(const char *log, int *length) {
  for (const char *line = log; line && (line = strstr(line, "(C75"));) {
    const int whole = (int)strcspn(line, "\n");
    const char *const serial = strstr(line, "serialized"), *const ignored = strstr(line, "ignored");
    const bool matters = (serial && serial < line + whole) || (ignored && ignored < line + whole);
    const char *const end = strstr(line, " in the function");
    *length = end && end < line + whole ? (int)(end - line) : whole;
    if (matters) return line;
    line += whole;
  }
  return NULL;
}

bool ft_trial_ruled_out(struct ft_trial *trial, const struct ft_candidate *candidate,
                        const struct ft_kernel *kernel) {
  char reason[sizeof trial->reason];
  int length;
  if (candidate->is_default) return false;
  if (kernel->spill_bytes > FT_SPILL_TOLERATED) {
    snprintf(reason, sizeof reason, "%d bytes of local memory per thread", kernel->spill_bytes);
    ft_trial_end(trial, FT_OUTCOME_SPILLED, reason);
    return true;
  }
  const char *const complaint = find_complaint(kernel->log, &length);
  if (!complaint) return false;
  snprintf(reason, sizeof reason, "ptxas: %.*s", length, complaint);
  ft_trial_end(trial, FT_OUTCOME_REJECTED, reason);
  return true;
}

/* A call on the GPU failed: the candidate's outcome, and FT_E_DEVICE when the GPU went with it. */
static int device_failure(const struct ft_rig *rig, struct ft_trial *trial) {
  char reason[sizeof trial->reason], config[256];
  snprintf(reason, sizeof reason, "%.*s", (int)sizeof reason - 1, ft_detail());
  const enum ft_health health = rig->health(rig->payload);
  ft_trial_end(trial, health == FT_HEALTH_BUSY ? FT_OUTCOME_TIMEOUT : FT_OUTCOME_LAUNCH, reason);
  if (health == FT_HEALTH_GOOD) return FT_OK;
  struct ft_text text = FT_TEXT_INIT;
  ft_config_print(&trial->config, &text);
  snprintf(config, sizeof config, "%s", text.data ? text.data : "?");
  ft_text_free(&text);
  return ft_fail(FT_E_DEVICE, "the GPU context is lost to candidate '%s': %s", config, reason);
}

static int verify_and_time(const struct ft_rig *rig, void *loaded, const struct ft_pace *pace,
                           struct ft_trial *trial, double *screen_us) {
  struct ft_comparison comparison;
  if (rig->verify(rig->payload, loaded, &comparison) != FT_OK) return device_failure(rig, trial);
  trial->error_ratio = comparison.error_ratio;
  if (!(comparison.error_ratio <= 1)) { /* NaN fails too */
    ft_trial_end(trial, FT_OUTCOME_WRONG, comparison.worst);
    return FT_OK;
  }
  struct ft_timing timing, beside;
  const double give_up_us = pace->loaded ? GIVE_UP * pace->us : 0;
  if (rig->measure(rig->payload, loaded, pace->loaded, give_up_us, &timing, &beside) != FT_OK)
    return device_failure(rig, trial);
  const double scale = beside.sample_count > 0 ? pace->us / beside.median_us : 1;
  *screen_us = timing.median_us * scale;
  ft_trial_set_timing(trial, &timing);
  ft_trial_end(trial, FT_OUTCOME_SCREENED, "");
  return FT_OK;
}

int ft_trial_run(const struct ft_trial_run *run, const struct ft_candidate *candidate,
                 const struct ft_compiled *compiled, const struct ft_pace *pace,
                 struct ft_trial *trial, double *screen_us, void **loaded) {
  const struct ft_rig *rig = run->rig;
  *loaded = NULL;
  ft_trial_begin(trial, run->stamp, candidate);
  if (compiled->status != FT_OK) {
    ft_trial_end(trial, FT_OUTCOME_COMPILE, compiled->detail);
    return FT_OK;
  }
  ft_trial_set_kernel(trial, &compiled->kernel);
  if (ft_trial_ruled_out(trial, candidate, &compiled->kernel)) return FT_OK;
  if (rig->load(rig->payload, &candidate->config, &compiled->kernel, loaded) != FT_OK) {
    *loaded = NULL;
    return device_failure(rig, trial);
  }
  const int status = verify_and_time(rig, *loaded, pace, trial, screen_us);
  if (!ft_outcome_ran(trial->outcome) || status != FT_OK) {
    rig->unload(rig->payload, *loaded);
    *loaded = NULL;
  }
  return status;
}
