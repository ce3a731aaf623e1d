/* trial_fill.c: a trial's fields from what is known of a candidate.
 * in -> out: stamp, candidate, compiled kernel, timing -> struct ft_trial. */
#include "tuner/search/trial_fill.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

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

/* ptxas logs "(C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due
 * to ... in the function 'fatune_kernel'". Finds such a line and its length without the function's
 * name; NULL when there is none. */
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
