/* session.c: opening and closing a session, and its context.
 * in -> out: options, environment -> templates, stores, driver, GPU.
 * A missing driver or GPU is kept as the reason why not; what needs one reports it later. */
#include "runtime/session.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/shipped.h"
#include "generator/arch.h"
#include "generator/emit.h"
#include "generator/lua_host.h"
#include "generator/recipe.h"
#include "generator/status.h"
#include "generator/text.h"
#include "runtime/emulator/driver.h"
#include "runtime/record.h"
#include "runtime/sized_struct.h"

void ft_session_warn(const fatune_session *session, const char *format, ...) {
  if (!session->log) return;
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  for (char *c = message; *c; c++)
    if (*c == '\n') *c = ' ';
  session->log(session->payload, message);
}

int ft_session_needs_device(const fatune_session *session) {
  if (session->has_device) return FT_OK;
  return ft_fail(session->no_device_status, "%s", session->no_device_detail);
}

static const fatune_session_options initial = FATUNE_SESSION_OPTIONS_INIT;
static const struct ft_sized_struct form =
    FT_SIZED_STRUCT("options", fatune_session_options, emulate, &initial);

static int check_options(const fatune_session_options *options) {
  if (options->device < 0)
    return ft_fail(FT_E_ARGUMENT, "options.device is %d; allowed: 0, or 1 + the GPU's number",
                   options->device);
  if (options->memory_only != 0 && options->memory_only != 1)
    return ft_fail(FT_E_ARGUMENT, "options.memory_only is %d; allowed: 0, 1", options->memory_only);
  if (options->compile != 0 && options->compile != -1)
    return ft_fail(FT_E_ARGUMENT, "options.compile is %d; allowed: 0, -1", options->compile);
  if (options->emulate && options->device != 0)
    return ft_fail(FT_E_ARGUMENT,
                   "options.device is %d and options.emulate \"%.64s\"; allowed: one of them",
                   options->device, options->emulate);
  return FT_OK;
}

/* Whether an environment variable switches something on. With it users change what a program does
 * that others have written. */
static bool is_on(const fatune_session *session, const char *variable, bool usually) {
  const char *const given = secure_getenv(variable);
  if (!given || !given[0]) return usually;
  if (strcmp(given, "0") == 0 || strcmp(given, "off") == 0) return false;
  if (strcmp(given, "1") == 0 || strcmp(given, "on") == 0) return true;
  ft_session_warn(session, "%s is '%.40s'; allowed: 0, off, 1, on; taken as %d", variable, given,
                  usually);
  return usually;
}

/* ---- templates and stores ---- */

static int open_templates(fatune_session *session, const char *folder) {
  const bool is_given = folder && *folder;
  if (!is_given) folder = secure_getenv("FATUNE_TEMPLATE_DIR");
  if (folder && !*folder) folder = NULL;
  const int status = ft_lua_open(&session->lua, folder);
  if (status != FT_OK && folder && !is_given) ft_fail_within(status, "FATUNE_TEMPLATE_DIR");
  FT_TRY(status);
  session->templates = ft_lua_templates_digest(session->lua);
  return FT_OK;
}

/* "<folder of libfatune>/fatune": shipped caches lie beside the library. */
static const char *library_folder(char folder[PATH_MAX]) {
  Dl_info self;
  if (!dladdr((void *)(uintptr_t)&fatune_session_open, &self) || !self.dli_fname) return NULL;
  if (!realpath(self.dli_fname, folder)) return NULL;
  char *const slash = strrchr(folder, '/');
  if (!slash || (size_t)(slash - folder) + sizeof "/fatune" > PATH_MAX) return NULL;
  memcpy(slash, "/fatune", sizeof "/fatune");
  return folder;
}

/* As ft_store_options.derive. A text depends on the compute capability alone, so that any GPU of
 * the table with the trial's stands for all. */
static int derive(void *payload, const struct ft_trial *trial, const char *target,
                  struct ft_digest *recipe, struct ft_digest *digest) {
  fatune_session *const session = payload;
  struct ft_source source;
  struct ft_arch arch;
  pthread_mutex_lock(&session->lua_lock);
  int status = ft_lua_gpu(session->lua, target, &arch);
  if (status == FT_OK)
    status = ft_recipe(&source, session->lua, &trial->request, &arch, &trial->config, recipe);
  if (status == FT_OK && digest)
    status = ft_emit(&source, session->lua, &trial->request, &arch, &trial->config);
  pthread_mutex_unlock(&session->lua_lock);
  FT_TRY(status);
  if (digest) {
    *digest = source.digest;
    ft_source_free(&source);
  }
  return FT_OK;
}

static int open_store(fatune_session *session, const fatune_session_options *options) {
  char folder[PATH_MAX];
  const struct ft_store_options store = {.folder = options->cache_dir,
                                         .system_path = options->system_path,
                                         .library_folder = library_folder(folder),
                                         .memory_only = options->memory_only,
                                         .shipped = ft_shipped_layer,
                                         .shipped_size = ft_shipped_layer_size,
                                         .derive = derive,
                                         .deriver = session,
                                         .warn = options->log,
                                         .payload = options->payload};
  return ft_store_open(&session->store, &store);
}

/* ---- the GPU ---- */

/* The ordinal of the calling thread's current context; false where there is none. */
static bool current_ordinal(const struct ft_driver *driver, int count, int *ordinal) {
  cu_context context = NULL;
  cu_device current;
  if (driver->context_current(&context) || !context) return false;
  if (driver->context_device(&current)) return false;
  for (int i = 0; i < count; i++) {
    cu_device device;
    if (driver->device_get(&device, i) == 0 && device == current) {
      *ordinal = i;
      return true;
    }
  }
  return false;
}

/* Takes the caller's own context where it is of the session's GPU, since the caller's streams and
 * memory belong to it. Else takes the primary context, which the CUDA runtime, PyTorch and others
 * share. */
static int take_context(fatune_session *session) {
  const struct ft_driver *const driver = &session->driver;
  cu_context current = NULL;
  cu_device of_current;
  if (driver->context_current(&current) == 0 && current &&
      driver->context_device(&of_current) == 0 && of_current == session->device.handle) {
    session->context = current;
    return FT_OK;
  }
  FT_TRY(ft_driver_status(driver, driver->primary_retain(&session->context, session->device.handle),
                          "cuDevicePrimaryCtxRetain"));
  session->owns_context = true;
  return FT_OK;
}

/* FT_E_ARGUMENT for a GPU that does not exist; any other failure means a session without a GPU. */
static int open_device(fatune_session *session, int wanted) {
  FT_TRY(ft_driver_open(&session->driver));
  const struct ft_driver *const driver = &session->driver;
  int count = 0, ordinal = wanted > 0 ? wanted - 1 : 0;
  FT_TRY(ft_driver_status(driver, driver->device_count(&count), "cuDeviceGetCount"));
  if (count < 1)
    return ft_fail(FT_E_NO_DRIVER, "the CUDA driver sees no GPU (CUDA_VISIBLE_DEVICES?)");
  if (ordinal >= count)
    return ft_fail(FT_E_ARGUMENT, "options.device is %d; allowed: 0 .. %d, there %s %d GPU%s",
                   wanted, count, count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
  if (wanted == 0) current_ordinal(driver, count, &ordinal);
  FT_TRY(ft_device_read(&session->device, driver, session->lua, ordinal));
  return take_context(session);
}

static int find_device(fatune_session *session, int wanted) {
  const int status = open_device(session, wanted);
  session->has_device = status == FT_OK;
  if (status == FT_OK) return FT_OK;
  session->no_device_status = status;
  snprintf(session->no_device_detail, sizeof session->no_device_detail, "%s", ft_detail());
  ft_driver_close(&session->driver);
  return status == FT_E_ARGUMENT ? status : FT_OK;
}

/* "options.emulate is ...; allowed: a100, h100, ..." */
static int refuse_emulated(fatune_session *session, const char *name) {
  struct ft_text known = FT_TEXT_INIT;
  struct ft_arch arch;
  for (int i = 0; ft_lua_gpu_at(session->lua, i, &arch) == FT_OK; i++)
    ft_text_add(&known, "%s%s", i ? ", " : "", arch.name);
  ft_fail(FT_E_ARGUMENT, "options.emulate is \"%.64s\"; allowed: %s", name,
          known.data ? known.data : "nothing, the table of GPUs is empty");
  ft_text_free(&known);
  return FT_E_ARGUMENT;
}

static int emulate_device(fatune_session *session, const char *name) {
  struct ft_device *const device = &session->device;
  struct ft_arch arch;
  int ordinal;
  const int found = ft_lua_gpu(session->lua, name, &arch);
  if (found == FT_E_NOT_FOUND) return refuse_emulated(session, name);
  FT_TRY(found);
  FT_TRY(ft_emulator_open(&session->driver, &arch, &ordinal));
  FT_TRY(ft_device_read(device, &session->driver, session->lua, ordinal));
  device->arch = arch; /* with the rates, which a driver does not tell */
  FT_TRY(take_context(session));
  session->has_device = true;
  return FT_OK;
}

/* ---- public ---- */

int fatune_session_open(fatune_session **out, const fatune_session_options *given) {
  if (!out) return ft_fail(FT_E_ARGUMENT, "session is NULL; it takes the new session");
  *out = NULL;
  fatune_session_options room;
  const void *whole;
  FT_TRY(ft_sized_read(&form, given ? given : &initial, &room, &whole));
  const fatune_session_options *const options = whole;
  FT_TRY(check_options(options));

  fatune_session *const session = calloc(1, sizeof *session);
  if (!session) return ft_fail(FT_E_MEMORY, "no memory for a session");
  pthread_mutex_init(&session->lua_lock, NULL); /* of the default kind it cannot fail on Linux */
  pthread_mutex_init(&session->compiler_lock, NULL);
  ft_flights_open(&session->flights);
  pthread_mutex_init(&session->own_kernels.lock, NULL);
  session->log = options->log;
  session->payload = options->payload;
  session->may_compile = is_on(session, "FATUNE_JIT", true) && options->compile == 0;
  session->checks = is_on(session, "FATUNE_CHECK", false);

  int status;
  FT_CHECK(open_templates(session, options->template_dir));
  FT_CHECK(open_store(session, options));
  ft_shared_plans_open(&session->plans, session->store);
  FT_CHECK(options->emulate ? emulate_device(session, options->emulate)
                            : find_device(session, options->device));
  session->recorder = ft_recorder_open(session->log, session->payload);
  *out = session;

done:
  if (status != FT_OK) fatune_session_close(session);
  return status;
}

int ft_session_refuse_capture(fatune_session *session, const char *advice) {
  FT_TRY(ft_session_enter(session));
  int capturing = 0;
  int status = ft_driver_status(
      &session->driver, session->driver.stream_capturing(NULL, &capturing), "cuStreamIsCapturing");
  if (status == FT_OK && capturing)
    status = ft_fail(FT_E_NOT_PREPARED, "a stream is being captured");
  if (status == FT_E_NOT_PREPARED) status = ft_fail_within(status, "%s", advice);
  ft_session_leave(session);
  return status;
}

static void close_recorder(fatune_session *session) {
  const bool entered =
      session->recorder && session->has_device && ft_session_enter(session) == FT_OK;
  ft_recorder_close(session->recorder, session->has_device ? &session->driver : NULL);
  if (entered) ft_session_leave(session);
}

void fatune_session_close(fatune_session *session) {
  if (!session) return;
  if (session->store) ft_shared_plans_close(&session->plans);
  if (session->own_kernels.unload) session->own_kernels.unload(session);
  close_recorder(session);
  ft_compiler_close(session->compiler);
  if (session->owns_context) session->driver.primary_release(session->device.handle);
  if (session->has_device) ft_driver_close(&session->driver);
  ft_store_close(session->store);
  ft_lua_close(session->lua);
  ft_flights_close(&session->flights);
  pthread_mutex_destroy(&session->compiler_lock);
  pthread_mutex_destroy(&session->own_kernels.lock);
  pthread_mutex_destroy(&session->lua_lock);
  free(session);
}

int ft_session_enter(fatune_session *session) {
  FT_TRY(ft_session_needs_device(session));
  return ft_driver_status(&session->driver, session->driver.context_push(session->context),
                          "cuCtxPushCurrent");
}

void ft_session_leave(fatune_session *session) {
  cu_context left;
  session->driver.context_pop(&left);
}
