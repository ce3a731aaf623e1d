/* gpu_rig.c: compiles, loads, verifies and times candidates for real.
 * in -> out: config -> source -> kernel -> module -> launches on two problems -> verdict, samples.
 */
#include "tuner/search/gpu_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generator/clock.h"
#include "generator/rules.h"
#include "generator/status.h"
#include "runtime/choice.h"
#include "runtime/kernel_source.h"
#include "runtime/module.h"
#include "generator/model/model.h"
#include "tuner/search/known_trials.h"
#include "tuner/search/loaded.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_options.h"
#include "tuner/verify/problem_verify.h"
#include "tuner/verify/shape.h"

enum { SMALL_ROWS = 2048, TIMED_ROWS = 64 }; /* rows compared with the reference */

static const struct ft_measure_policy screening = {
    .warmup_us = 2000, .sample_us = 1000, .samples = 5};
static const struct ft_measure_policy finals = {
    .warmup_us = 2000, .sample_us = 2000, .samples = 24};

struct ft_gpu_rig {
  struct ft_rig functions;
  struct ft_trial stamp;
  fatune_session *session;
  struct ft_request request;
  struct ft_arch arch;
  struct ft_compiler *compiler; /* NULL without NVRTC: kernels may be in the store */
  int threads;
  uint64_t seed;
  bool entered;
  bool hung; /* a kernel does not end, and freeing anything would wait for it */
  cu_stream stream;
  struct ft_nvml *nvml;
  struct ft_problem *small, *timed;
  struct ft_known known;
};

/* ---- compile, store ---- */

/* The kernel of a source: from this machine's NVRTC if there is one, else from the store. A
 * compiled kernel is not stored here: hundreds of losers would push winners out of the store. */
static int kernel_of(struct ft_gpu_rig *rig, const struct ft_source *source,
                     struct ft_kernel *kernel) {
  struct ft_digest key;
  if (rig->compiler) {
    key = ft_compiler_key(rig->compiler, source);
    if (ft_store_kernel_get(rig->session->store, &key, kernel) == FT_OK) return FT_OK;
    return ft_compiler_compile(rig->compiler, source, kernel);
  }
  bool compiled;
  const bool named =
      ft_session_named_kernel(rig->session, &rig->request, &rig->arch, &source->config, &key);
  return ft_session_kernel(rig->session, source, named ? &key : NULL, kernel, &compiled);
}

static int rig_compile(void *payload, const struct ft_config *config, struct ft_kernel *kernel) {
  struct ft_gpu_rig *rig = payload;
  struct ft_source source;
  FT_TRY(ft_session_emit(rig->session, &rig->request, &rig->arch, config, &source));
  const int status = kernel_of(rig, &source, kernel);
  ft_source_free(&source);
  return status;
}

static int rig_record(void *payload, const struct ft_trial *trial) {
  struct ft_gpu_rig *rig = payload;
  return ft_store_trial_put(rig->session->store, trial);
}

static int rig_keep(void *payload, const struct ft_kernel *kernel) {
  struct ft_gpu_rig *rig = payload;
  return ft_store_kernel_put(rig->session->store, kernel);
}

static bool rig_recall(void *payload, const struct ft_config *config, struct ft_trial *trial) {
  const struct ft_gpu_rig *rig = payload;
  return ft_known_find(&rig->known, config, trial);
}

/* ---- the problems ---- */

/* With persistent blocks there are so many tiles that every block takes a second and some a third.
 */
static int64_t batch_of(const struct ft_request *small, const struct ft_arch *arch) {
  const int rows = ft_model_persistent_rows(small, arch);
  if (rows == 0) return 2;
  const int64_t tiles = small->heads_q * (small->seqlen_q / rows + 1);
  const int64_t batch = 2 * arch->sm_count / tiles + 1;
  return batch > 2 ? batch : 2;
}

struct ft_request ft_small_request(const struct ft_request *request, const struct ft_arch *arch) {
  enum { LARGEST_BLOCK_M = 256 };
  const int group = request->heads_q / request->heads_kv;
  struct ft_request small = *request;
  small.heads_kv = 2;
  const int most = group % 2 == 0 ? 4 : 3; /* an even group packs heads (pack_gqa) */
  small.heads_q = small.heads_kv * (group < most ? group : most);
  small.seqlen_q = 2 * LARGEST_BLOCK_M + 17;
  small.seqlen_k = 349; /* a multiple of no tile; fewer keys than queries, so that bottom-right
                           leaves rows without a key */
  if (small.mask_rows > 0) {
    small.seqlen_k =
        3 * small.mask_cols + 13; /* several blocks in each direction, the last one cut */
    if (small.mask_rows > LARGEST_BLOCK_M) small.seqlen_q = 2 * small.mask_rows + 17;
    /* 1 beside a score: the score makes the mask. */
    if (small.score == 0 || small.mask_density < 1) small.mask_density = 0.5;
  }
  if (small.window_left > small.seqlen_k / 3) small.window_left = small.seqlen_k / 3;
  if (small.window_right > small.seqlen_k / 3) small.window_right = small.seqlen_k / 3;
  small.batch = batch_of(&small, arch);
  if (small.ragged) { /* lengths of all sequences together */
    small.seqlen_q *= small.batch;
    small.seqlen_k *= small.batch;
  }
  return small;
}

/* Nothing if they are there. */
static int rig_prepare(void *payload) {
  struct ft_gpu_rig *const rig = payload;
  const struct ft_problem_options small = {.request = ft_small_request(&rig->request, &rig->arch),
                                           .layout = FT_LAYOUT_PADDED,
                                           .seed = rig->seed,
                                           .keep_host = true,
                                           .want_lse = true,
                                           .want_dlse = true};
  const struct ft_problem_options timed = {.request = rig->request,
                                           .alike = true,
                                           .layout = FT_LAYOUT_BSHD,
                                           .seed = ~rig->seed,
                                           .keep_host = true,
                                           .want_lse = true};
  if (!rig->small) FT_TRY(ft_problem_make(&rig->small, rig->session, &small));
  return rig->timed ? FT_OK : ft_problem_make(&rig->timed, rig->session, &timed);
}

/* ---- on the GPU ---- */

static int rig_load(void *payload, const struct ft_config *config, const struct ft_kernel *kernel,
                    void **out) {
  struct ft_gpu_rig *rig = payload;
  struct ft_loaded *loaded;
  *out = NULL;
  FT_TRY(ft_loaded_make(&loaded, rig->session, rig->stream, &rig->request, &rig->arch, config));
  const int status = ft_module_load(&loaded->module, rig->session, kernel, config->family);
  if (status != FT_OK)
    free(loaded);
  else
    *out = loaded;
  return status;
}

static void rig_unload(void *payload, void *handle) {
  struct ft_gpu_rig *rig = payload;
  struct ft_loaded *loaded = handle;
  if (!rig->hung) ft_module_unload(&loaded->module, rig->session);
  free(loaded);
}

static int rig_verify(void *payload, void *handle, struct ft_comparison *comparison) {
  struct ft_gpu_rig *rig = payload;
  const struct ft_request small = ft_small_request(&rig->request, &rig->arch);
  FT_TRY(rig_prepare(rig));
  FT_TRY(ft_loaded_check(handle, rig->small, &small, SMALL_ROWS, rig->threads, true, comparison));
  if (!(comparison->error_ratio <= 1)) return FT_OK;
  struct ft_comparison timed;
  FT_TRY(
      ft_loaded_check(handle, rig->timed, &rig->request, TIMED_ROWS, rig->threads, false, &timed));
  if (!(timed.error_ratio <= comparison->error_ratio)) *comparison = timed;
  return FT_OK;
}

static int in_turn(struct ft_gpu_rig *rig, void *const *handles, int count,
                   const struct ft_measure_policy *policy, struct ft_timing *timings) {
  struct ft_loaded *all[FT_TRIAL_SAMPLES];
  for (int n = 0; n < count && n < FT_TRIAL_SAMPLES; n++) all[n] = handles[n];
  FT_TRY(rig_prepare(rig)); /* where all were recalled, nothing was verified */
  return ft_loaded_measure(all, count, rig->timed, &rig->request, rig->nvml, policy, timings);
}

static int rig_measure(void *payload, void *handle, void *incumbent, double give_up_us,
                       struct ft_timing *timing, struct ft_timing *beside) {
  void *const handles[2] = {handle, incumbent};
  struct ft_measure_policy policy = screening;
  struct ft_timing timings[2] = {0};
  policy.give_up_us = give_up_us;
  FT_TRY(in_turn(payload, handles, incumbent ? 2 : 1, &policy, timings));
  *timing = timings[0];
  *beside = timings[1];
  return FT_OK;
}

static int rig_measure_in_turn(void *payload, void *const *handles, int count,
                               struct ft_timing *timings) {
  return in_turn(payload, handles, count, &finals, timings);
}

static enum ft_health rig_health(void *payload) {
  struct ft_gpu_rig *rig = payload;
  const enum ft_health health = ft_stream_health(rig->session, rig->stream);
  rig->hung = health == FT_HEALTH_BUSY;
  return health;
}

/* ---- open, close ---- */

int ft_gpu_rig_enter(struct ft_gpu_rig *rig) {
  const struct ft_driver *driver = &rig->session->driver;
  FT_TRY(ft_session_enter(rig->session));
  rig->entered = true;
  FT_TRY(ft_driver_status(driver, driver->stream_create(&rig->stream, 0), "cuStreamCreate"));
  return ft_nvml_open(&rig->nvml, driver, rig->session->device.handle);
}

static void make_stamp(struct ft_gpu_rig *rig, bool here) {
  struct ft_trial *stamp = &rig->stamp;
  stamp->bucket = ft_request_bucket(&rig->request);
  stamp->request = rig->request;
  stamp->templates = rig->session->templates;
  snprintf(stamp->policy, sizeof stamp->policy, "%s",
           rig->request.ragged ? FT_POLICY_RAGGED : FT_POLICY);
  if (rig->compiler) {
    snprintf(stamp->nvrtc, sizeof stamp->nvrtc, "%s", ft_compiler_version(rig->compiler));
  }
  if (here) {
    snprintf(stamp->device, sizeof stamp->device, "%s", rig->session->device.id);
    snprintf(stamp->driver, sizeof stamp->driver, "%s", rig->session->device.driver);
  } else {
    ft_device_class(&rig->arch, stamp->device);
  }
}

int ft_gpu_rig_open(struct ft_gpu_rig **out, fatune_session *session,
                    const struct ft_request *request, const struct ft_arch *arch,
                    const struct ft_tune_options *options, bool here) {
  *out = NULL;
  struct ft_gpu_rig *rig = calloc(1, sizeof *rig);
  if (!rig) return ft_fail(FT_E_MEMORY, "no memory for the tuner");
  rig->session = session;
  rig->request = *request;
  rig->arch = *arch;
  rig->seed = options->seed ? options->seed : ft_seed_now();
  rig->threads = options->jobs > 0 ? options->jobs : (int)sysconf(_SC_NPROCESSORS_ONLN);
  rig->functions = (struct ft_rig){.payload = rig,
                                   .compile = rig_compile,
                                   .prepare = rig_prepare,
                                   .load = rig_load,
                                   .unload = rig_unload,
                                   .verify = rig_verify,
                                   .measure = rig_measure,
                                   .measure_in_turn = rig_measure_in_turn,
                                   .health = rig_health,
                                   .record = rig_record,
                                   .recall = rig_recall,
                                   .keep = rig_keep};
  /* Without NVRTC the kernels may still be in the store. The first that is not there reports that
   * NVRTC is missing. */
  ft_session_compiler(session, &rig->compiler);
  make_stamp(rig, here);
  ft_known_collect(&rig->known, session->store, &rig->stamp);
  *out = rig;
  return FT_OK;
}

void ft_gpu_rig_close(struct ft_gpu_rig *rig) {
  if (!rig) return;
  if (!rig->hung) {
    ft_problem_free(rig->small);
    ft_problem_free(rig->timed);
    if (rig->stream) rig->session->driver.stream_destroy(rig->stream);
  }
  ft_nvml_close(rig->nvml);
  if (rig->entered) ft_session_leave(rig->session);
  ft_known_free(&rig->known);
  free(rig);
}

const struct ft_rig *ft_gpu_rig_functions(const struct ft_gpu_rig *rig) {
  return &rig->functions;
}

const struct ft_trial *ft_gpu_rig_stamp(const struct ft_gpu_rig *rig) {
  return &rig->stamp;
}
