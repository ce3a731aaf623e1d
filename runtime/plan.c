/* plan.c: a request made ready to run, and its run.
 * in -> out: request -> config -> source -> kernel -> module = plan; plan + arguments -> launch. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/kernel.h"
#include "cache/store.h"
#include "generator/arch.h"
#include "generator/config.h"
#include "generator/emit.h"
#include "generator/request.h"
#include "generator/status.h"
#include "generator/text.h"
#include "runtime/append.h"
#include "runtime/choice.h"
#include "runtime/descales_check.h"
#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "runtime/kernel_source.h"
#include "runtime/launch.h"
#include "runtime/launch_checks.h"
#include "runtime/map_cache.h"
#include "runtime/module.h"
#include "runtime/pages_check.h"
#include "runtime/public.h"
#include "runtime/ragged_check.h"
#include "runtime/record.h"
#include "runtime/scores.h"
#include "runtime/session.h"

struct fatune_plan {
  struct ft_shared_plan shared;
  fatune_session *session;
  struct ft_request request; /* defaults filled in */
  struct ft_source source;   /* with config and budget; its text may be missing */
  _Atomic(char *) text;      /* the source's, emitted when somebody asked for it */
  struct ft_module module;
  struct ft_arch launched_on;   /* the session's GPU as launches are to see it */
  struct ft_launch_plan launch; /* what is fixed for all runs: the above, by address */
  struct ft_text config;
  struct ft_text origin;
  struct ft_map_cache maps; /* the one part that runs change, but for the record: */
  struct ft_record *record; /* NULL: its runs are not recorded */
};

static int choose(fatune_session *session, const struct ft_request *request, const char *config,
                  struct ft_choice *choice) {
  if (!config)
    return ft_session_choose(session, request, &session->device.arch, session->device.id, choice);
  memset(choice, 0, sizeof *choice);
  FT_TRY(ft_config_parse(&choice->config, config));
  ft_session_named_kernel(session, request, &session->device.arch, &choice->config,
                          &choice->kernel);
  return FT_OK;
}

/* ORDER HIT */
static const char *hit_name(enum ft_hit hit) {
  static const char *const names[] = {"default", "model", "shipped", "near", "exact"};
  return names[hit];
}

static int describe(fatune_plan *plan, const struct ft_choice *choice, bool given,
                    const struct ft_kernel *kernel, bool compiled) {
  ft_config_print(&plan->source.config, &plan->config);
  struct ft_text *const origin = &plan->origin;
  ft_text_add(origin, "%s", given ? "given" : hit_name(choice->hit));
  if (!given && *choice->note) ft_text_add(origin, ": %s", choice->note);
  if (plan->session->driver.emulated)
    ft_text_add(origin, "; emulated on the CPU, compiled by %s", kernel->nvrtc);
  else
    ft_text_add(origin, "; kernel %s NVRTC %s", compiled ? "compiled now by" : "from the cache, by",
                kernel->nvrtc);
  FT_TRY(ft_text_status(&plan->config));
  return ft_text_status(origin);
}

/* Whoever ships kernels has to know which one is missing. */
static int name_request(const fatune_plan *plan, int status) {
  struct ft_text text = FT_TEXT_INIT;
  ft_request_print(&plan->request, &text);
  ft_fail_within(status, "'%s' on %s", text.data ? text.data : "a request", plan->source.target);
  ft_text_free(&text);
  return status;
}

static int begin_record(fatune_plan *plan) {
  fatune_session *const session = plan->session;
  FT_TRY(ft_session_enter(session));
  plan->record = ft_recorder_add(session->recorder, &session->driver, &plan->request);
  ft_session_leave(session);
  return FT_OK;
}

static int prepare(fatune_plan *plan, const struct ft_choice *choice, struct ft_kernel *kernel,
                   bool *compiled) {
  static const struct ft_digest nothing = {{0}};
  const bool measured = !ft_digest_equal(&choice->kernel, &nothing);
  return ft_session_prepare(plan->session, &plan->request, &choice->config,
                            measured ? &choice->kernel : NULL, &plan->source, kernel, &plan->module,
                            compiled);
}

/* Without NVRTC a kernel that is here may be that of a winner too far away to be chosen. */
static int prepare_or_fall_back(fatune_plan *plan, bool given, struct ft_choice *choice,
                                struct ft_kernel *kernel, bool *compiled) {
  const int status = prepare(plan, choice, kernel, compiled);
  if (status != FT_E_NO_NVRTC || given) return status;
  const struct ft_config missing = choice->config;
  struct ft_choice other;
  char detail[1024];
  snprintf(detail, sizeof detail, "%s", ft_detail());
  if (ft_session_choose_from_anywhere(plan->session, &plan->request, &other) == FT_OK &&
      ft_config_compare(&other.config, &missing) != 0) {
    ft_source_free(&plan->source);
    if (prepare(plan, &other, kernel, compiled) == FT_OK) {
      *choice = other;
      return FT_OK;
    }
  }
  return ft_fail(status, "%s", detail);
}

static int make(fatune_plan *plan, const fatune_request *request, const char *config) {
  fatune_session *const session = plan->session;
  struct ft_choice choice;
  FT_TRY(ft_request_from_public(&plan->request, request));
  FT_TRY(ft_session_refuse_capture(session, "make the plan before the capture"));
  FT_TRY(ft_session_score(session, plan->request.score, &plan->launch.score));
  FT_TRY(choose(session, &plan->request, config, &choice));

  struct ft_kernel kernel = {0};
  bool compiled;
  const int loaded = prepare_or_fall_back(plan, config != NULL, &choice, &kernel, &compiled);
  if (loaded == FT_E_NO_NVRTC) return name_request(plan, loaded);
  FT_TRY(loaded);
  const int status = describe(plan, &choice, config != NULL, &kernel, compiled);
  ft_kernel_free(&kernel);
  FT_TRY(status);
  return session->recorder ? begin_record(plan) : FT_OK;
}

/* A launch on an emulated GPU sees few multiprocessors and little L2. So the small problems that a
 * CPU can emulate are scheduled as large ones are: a persistent block takes several work tiles, and
 * batch_heads run in several sections. */
static struct ft_arch launched_on(const fatune_session *session) {
  const double EMULATED_RATE = 1e-3;
  enum { EMULATED_MULTIPROCESSORS = 4, EMULATED_L2_BYTES = 128 << 10 };
  struct ft_arch arch = session->device.arch;
  if (!session->driver.emulated) return arch;
  if (arch.sm_count > EMULATED_MULTIPROCESSORS) arch.sm_count = EMULATED_MULTIPROCESSORS;
  if (arch.l2_bytes > EMULATED_L2_BYTES) arch.l2_bytes = EMULATED_L2_BYTES;
  arch.clock_ghz *= EMULATED_RATE; /* so that dividing a walk into parts seems to pay */
  arch.dram_gbs *= EMULATED_RATE;
  return arch;
}

static void destroy(fatune_plan *plan) {
  ft_module_unload(&plan->module, plan->session);
  ft_source_free(&plan->source);
  free(atomic_load(&plan->text));
  ft_text_free(&plan->config);
  ft_text_free(&plan->origin);
  free(plan);
}

static void destroy_shared(struct ft_shared_plan *shared) {
  destroy((fatune_plan *)shared); /* its first member */
}

/* A plan of its own, used once. */
static int make_plan(fatune_plan **out, fatune_session *session, const fatune_request *request,
                     const char *config) {
  FT_TRY(ft_session_needs_device(session));
  fatune_plan *const plan = calloc(1, sizeof *plan);
  if (!plan) return ft_fail(FT_E_MEMORY, "no memory for a plan");
  plan->session = session;
  plan->shared = (struct ft_shared_plan){.destroy = destroy_shared, .uses = 1};
  plan->launched_on = launched_on(session);
  plan->launch = (struct ft_launch_plan){.request = &plan->request,
                                         .config = &plan->source.config,
                                         .arch = &plan->launched_on,
                                         .budget = &plan->source.budget,
                                         .maps = &plan->maps};
  const int status = make(plan, request, config);
  if (status != FT_OK) {
    destroy(plan);
    return status;
  }
  *out = plan;
  return FT_OK;
}

static int check_place(fatune_plan **plan, const fatune_session *session) {
  if (!plan) return ft_fail(FT_E_ARGUMENT, "plan is NULL; it takes the new plan");
  *plan = NULL;
  return session ? FT_OK : ft_fail(FT_E_ARGUMENT, "session is NULL");
}

int fatune_plan_make(fatune_plan **plan, fatune_session *session, const fatune_request *request) {
  uint64_t state;
  FT_TRY(check_place(plan, session));
  /* A request of an older header is read and completed anew each time. */
  if (!request || request->size != sizeof *request) return make_plan(plan, session, request, NULL);
  *plan = (fatune_plan *)ft_shared_plan_take(&session->plans, request, &state);
  if (*plan) return FT_OK;
  FT_TRY(make_plan(plan, session, request, NULL));
  ft_shared_plan_keep(&session->plans, &(*plan)->shared, request, state);
  return FT_OK;
}

int fatune_plan_make_with(fatune_plan **plan, fatune_session *session,
                          const fatune_request *request, const char *config) {
  FT_TRY(check_place(plan, session));
  if (!config) return ft_fail(FT_E_ARGUMENT, "config is NULL; fatune_plan_make chooses one");
  return make_plan(plan, session, request, config);
}

void fatune_plan_free(fatune_plan *plan) {
  if (plan && ft_shared_plan_release(&plan->session->plans, &plan->shared)) destroy(plan);
}

const char *fatune_plan_origin(const fatune_plan *plan) {
  return plan ? plan->origin.data : "";
}

const char *fatune_plan_config(const fatune_plan *plan) {
  return plan ? plan->config.data : "";
}

/* Whoever is first keeps the text; equal recipes give equal texts. */
static char *emit_text(fatune_plan *plan) {
  struct ft_source again;
  char *none = NULL;
  if (ft_session_emit(plan->session, &plan->request, &plan->session->device.arch,
                      &plan->source.config, &again) != FT_OK)
    return NULL;
  if (atomic_compare_exchange_strong(&plan->text, &none, again.text)) again.text = NULL;
  ft_source_free(&again);
  return atomic_load(&plan->text);
}

const char *fatune_plan_source(const fatune_plan *plan) {
  if (!plan) return "";
  if (plan->source.text) return plan->source.text;
  const char *text = atomic_load(&plan->text);
  if (!text) text = emit_text((fatune_plan *)(uintptr_t)plan);
  return text ? text : "";
}

int fatune_plan_workspace_size(const fatune_plan *plan, size_t *bytes) {
  if (!bytes) return ft_fail(FT_E_ARGUMENT, "bytes is NULL; it takes the size");
  *bytes = 0;
  if (!plan) return ft_fail(FT_E_ARGUMENT, "plan is NULL");
  return ft_launch_workspace(&plan->launch, NULL, bytes);
}

int fatune_plan_workspace_for(const fatune_plan *plan, const fatune_arguments *arguments,
                              size_t *bytes) {
  if (!bytes) return ft_fail(FT_E_ARGUMENT, "bytes is NULL; it takes the size");
  *bytes = 0;
  if (!plan) return ft_fail(FT_E_ARGUMENT, "plan is NULL");
  if (!arguments) return ft_fail(FT_E_ARGUMENT, "arguments is NULL");
  return ft_launch_workspace(&plan->launch, arguments, bytes);
}

/* What the arguments name on the device. They may be of an older header, and so end early. */
static int check_on_device(const fatune_plan *plan, const fatune_arguments *given, void *stream) {
  const struct ft_driver *const driver = &plan->session->driver;
  fatune_arguments room;
  const fatune_arguments *arguments;
  FT_TRY(ft_arguments_read(&arguments, &room, given));
  FT_TRY(ft_ragged_check(&plan->request, arguments, driver, stream));
  FT_TRY(ft_pages_check(&plan->request, arguments, driver, stream));
  return ft_descales_check(&plan->request, arguments, driver, stream);
}

int fatune_plan_run(fatune_plan *plan, const fatune_arguments *arguments, void *stream) {
  if (!plan) return ft_fail(FT_E_ARGUMENT, "plan is NULL");
  const fatune_session *const session = plan->session;
  struct ft_launch launch;
  FT_TRY(ft_launch_prepare(&launch, &plan->launch, arguments));
  if (session->driver.emulated || session->checks) FT_TRY(check_on_device(plan, arguments, stream));
  FT_TRY(ft_launch_map_tensors(&launch, &session->driver));
  const bool timed = plan->record && ft_record_begin(plan->record, &session->driver, stream);
  const int status = ft_launch_enqueue(&launch, &session->driver, &plan->module, stream);
  if (timed) ft_record_end(plan->record, &session->driver, stream, status == FT_OK);
  return status;
}

int fatune_append(fatune_plan *plan, const fatune_arguments *arguments, const fatune_tensor *new_k,
                  const fatune_tensor *new_v, void *stream) {
  if (!plan) return ft_fail(FT_E_ARGUMENT, "plan is NULL");
  return ft_append(plan->session, &plan->request, arguments, new_k, new_v, stream);
}
