/* on_machine.c: a compiled candidate, run and timed.
 * in -> out: compiled kernel -> trial, and the loaded kernel if it runs right. The questions in
 * order: is the image new, does it load, is its result right, how fast is it? The first no ends the
 * trial with an outcome. */
#include "tuner/search/on_machine.h"

#include <stdio.h>
#include <stdlib.h>

#include "generator/status.h"
#include "tuner/search/trial_fill.h"

/* A candidate that is slower than the best by this factor gets a single run. */
static const double GIVE_UP = 1.5;

enum { PATIENCE = 30 };

/* An image that was seen before, and the candidate that it was of. */
struct image {
  struct ft_digest digest;
  int smem_bytes, threads, candidate;
};

struct on_machine {
  const struct ft_rig *rig;
  const struct ft_candidates *candidates;
  struct image *images; /* room for an image of every candidate */
  int image_count;
};

/* The earlier candidate with the same image and launch, or -1; a new image is remembered. */
static int same_image(struct on_machine *it, int candidate, const struct ft_kernel *kernel) {
  for (int n = 0; n < it->image_count; n++) {
    const struct image *image = &it->images[n];
    if (ft_digest_equal(&image->digest, &kernel->image_digest) &&
        image->smem_bytes == kernel->smem_bytes && image->threads == kernel->threads) {
      return image->candidate;
    }
  }
  it->images[it->image_count++] = (struct image){.digest = kernel->image_digest,
                                                 .smem_bytes = kernel->smem_bytes,
                                                 .threads = kernel->threads,
                                                 .candidate = candidate};
  return -1;
}

static void reject_as_same(const struct ft_config *other, struct ft_trial *trial) {
  struct ft_text text = FT_TEXT_INIT;
  ft_text_add(&text, "same image as ");
  ft_config_print(other, &text);
  ft_trial_end(trial, FT_OUTCOME_REJECTED, text.data ? text.data : "same image as another");
  ft_text_free(&text);
}

/* Called after a call on the GPU has failed: gives the candidate its outcome, and returns
 * FT_E_DEVICE if the GPU is lost. */
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

static int verify(const struct ft_rig *rig, struct ft_attempt *attempt, bool *right) {
  struct ft_comparison comparison;
  *right = false;
  if (rig->verify(rig->payload, attempt->loaded, &comparison) != FT_OK)
    return device_failure(rig, &attempt->trial);
  attempt->trial.error_ratio = comparison.error_ratio;
  *right = comparison.error_ratio <= 1; /* false for NaN */
  if (!*right) ft_trial_end(&attempt->trial, FT_OUTCOME_WRONG, comparison.worst);
  return FT_OK;
}

/* The candidate's time at the clock at which the incumbent has its own. */
static int time_beside(const struct ft_rig *rig, const struct ft_incumbent *incumbent, void *loaded,
                       struct ft_timing *timing, double *us) {
  struct ft_timing beside;
  const double give_up_us = incumbent->loaded ? GIVE_UP * incumbent->us : 0;
  FT_TRY(rig->measure(rig->payload, loaded, incumbent->loaded, give_up_us, timing, &beside));
  *us = timing->median_us * (beside.sample_count > 0 ? incumbent->us / beside.median_us : 1);
  return FT_OK;
}

/* Times the candidate in turn with the incumbent; one that is much slower is timed once only. One
 * that seems faster is timed again, and its longer time counts: of many that are as fast as the
 * incumbent some have luck once, and each that is taken for better prolongs the search. */
static int screen(const struct ft_rig *rig, const struct ft_incumbent *incumbent,
                  struct ft_attempt *attempt) {
  struct ft_timing timing, again;
  double us;
  int status = time_beside(rig, incumbent, attempt->loaded, &timing, &attempt->us);
  if (status == FT_OK && incumbent->loaded && attempt->us < incumbent->us) {
    status = time_beside(rig, incumbent, attempt->loaded, &again, &us);
    if (status == FT_OK && us > attempt->us) {
      attempt->us = us;
      timing = again;
    }
  }
  if (status != FT_OK) return device_failure(rig, &attempt->trial);
  ft_trial_set_timing(&attempt->trial, &timing);
  ft_trial_end(&attempt->trial, FT_OUTCOME_SCREENED, "");
  return FT_OK;
}

static int attempt_on_machine(void *payload, int candidate, const struct ft_kernel *kernel,
                              const struct ft_incumbent *incumbent, struct ft_attempt *attempt) {
  struct on_machine *const it = payload;
  const struct ft_rig *const rig = it->rig;
  struct ft_trial *const trial = &attempt->trial;
  const int same = same_image(it, candidate, kernel);
  if (same >= 0) {
    reject_as_same(&it->candidates->list[same].config, trial);
    return FT_OK;
  }
  if (rig->load(rig->payload, &trial->config, kernel, &attempt->loaded) != FT_OK) {
    attempt->loaded = NULL;
    return device_failure(rig, trial);
  }
  bool right;
  int status = verify(rig, attempt, &right);
  if (right) status = screen(rig, incumbent, attempt);
  if (!ft_outcome_ran(trial->outcome)) {
    rig->unload(rig->payload, attempt->loaded);
    attempt->loaded = NULL;
  }
  return status;
}

int ft_measuring_on_machine(struct ft_measuring *measuring, const struct ft_rig *rig,
                            const struct ft_candidates *candidates) {
  struct on_machine *const it = calloc(1, sizeof *it);
  struct image *const images = calloc((size_t)candidates->count, sizeof *images);
  *measuring = (struct ft_measuring){0};
  if (!it || !images) {
    free(it);
    free(images);
    return ft_fail(FT_E_MEMORY, "no memory for %d candidates", candidates->count);
  }
  *it = (struct on_machine){.rig = rig, .candidates = candidates, .images = images};
  *measuring = (struct ft_measuring){
      .payload = it, .attempt = attempt_on_machine, .has_finals = true, .patience = PATIENCE};
  return FT_OK;
}

void ft_measuring_off_machine(struct ft_measuring *measuring) {
  struct on_machine *const it = measuring->payload;
  if (it) free(it->images);
  free(it);
  *measuring = (struct ft_measuring){0};
}
