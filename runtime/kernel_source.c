/* kernel_source.c: from a config to a loaded kernel.
 * in -> out: request + config -> source -> kernel, from the stores first, from NVRTC where need be;
 * for an emulated GPU from the C++ compiler -> module. */
#include "runtime/kernel_source.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cache/claims.h"
#include "cache/store.h"
#include "generator/clock.h"
#include "generator/recipe.h"
#include "generator/status.h"
#include "runtime/emulator/cxx.h"
#include "runtime/nvrtc_known.h"
#include "runtime/session.h"

int ft_session_compiler(fatune_session *session, struct ft_compiler **compiler) {
  *compiler = NULL;
  if (!session->may_compile)
    return ft_fail(FT_E_NO_NVRTC,
                   "options.compile is -1 or FATUNE_JIT is 0: nothing is compiled in this session");
  pthread_mutex_lock(&session->compiler_lock);
  int status = FT_OK;
  if (!session->compiler) status = ft_compiler_open(&session->compiler);
  *compiler = session->compiler;
  pthread_mutex_unlock(&session->compiler_lock);
  return status;
}

int ft_session_emit(fatune_session *session, const struct ft_request *request,
                    const struct ft_arch *arch, const struct ft_config *config,
                    struct ft_source *source) {
  pthread_mutex_lock(&session->lua_lock);
  const int status = ft_emit(source, session->lua, request, arch, config);
  pthread_mutex_unlock(&session->lua_lock);
  atomic_fetch_add(&session->emitted, 1);
  return status;
}

/* Compiles the source and stores the kernel. If the store cannot take it, the next process has to
 * compile again; the store has warned of its own faults. */
static int compile(fatune_session *session, struct ft_compiler *compiler,
                   const struct ft_source *source, struct ft_kernel *kernel) {
  FT_TRY(ft_compiler_compile(compiler, source, kernel));
  const int kept = ft_store_kernel_put(session->store, kernel);
  if (kept == FT_OK) ft_nvrtc_remember(ft_store_kernels_path(session->store), compiler);
  if (kept != FT_OK && kept != FT_E_CACHE && !atomic_exchange(&session->warned_store, true))
    ft_session_warn(session, "compiled kernels are not kept: %s", ft_detail());
  return FT_OK;
}

/* Returns when the claim is ours, or when its owner has had `patience` seconds. */
static void wait_for_claim(struct ft_claim *claim, double patience) {
  const struct timespec nap = {0, 20 * 1000000L};
  const double deadline = ft_seconds_now() + patience;
  while (!ft_claim_try(claim) && ft_seconds_now() < deadline) nanosleep(&nap, NULL);
}

/* The stored kernel of this key, if it was compiled from this source. */
static int take_kernel(fatune_session *session, const struct ft_source *source,
                       const struct ft_digest *key, struct ft_kernel *kernel) {
  FT_TRY(ft_store_kernel_get(session->store, key, kernel));
  if (ft_digest_equal(&kernel->source, &source->digest) &&
      strcmp(kernel->target, source->target) == 0)
    return FT_OK;
  ft_kernel_free(kernel);
  return ft_fail(FT_E_NOT_FOUND, "the kernel of that key is of another source");
}

/* One process at a time compiles a kernel. A process that has waited for another finds the kernel
 * in the store, unless the other has failed. */
static int compile_claimed(fatune_session *session, struct ft_compiler *compiler,
                           const struct ft_source *source, const struct ft_digest *key,
                           struct ft_kernel *kernel, bool *compiled) {
  struct ft_claim claim;
  ft_claim_open(&claim, session->store, key);
  wait_for_claim(&claim, session->flights.patience);
  int status = take_kernel(session, source, key, kernel);
  *compiled = status != FT_OK;
  if (*compiled) status = compile(session, compiler, source, kernel);
  ft_claim_close(&claim);
  return status;
}

/* One thread of the session at a time compiles a kernel, and the others take what it has made. */
static int compile_once(fatune_session *session, const struct ft_source *source,
                        struct ft_kernel *kernel, bool *compiled) {
  struct ft_compiler *compiler;
  struct ft_flight *flight;
  int status;
  *compiled = true;
  FT_TRY(ft_session_compiler(session, &compiler));
  const struct ft_digest key = ft_compiler_key(compiler, source);
  if (ft_flight_join(&session->flights, &key, &flight, kernel, &status)) return status;
  status = compile_claimed(session, compiler, source, &key, kernel, compiled);
  ft_flight_end(&session->flights, flight, status, kernel);
  return status;
}

/* The version of this machine's NVRTC. It is asked for when a kernel is looked up that no trial
 * names, so NVRTC is opened only if the file about it is not to be had or out of date. A machine
 * whose NVRTC is gone has the kernels that it compiled. */
static int identify_nvrtc(fatune_session *session, char version[64]) {
  pthread_mutex_lock(&session->compiler_lock);
  const bool open = session->compiler != NULL;
  if (open) snprintf(version, 64, "%s", ft_compiler_version(session->compiler));
  pthread_mutex_unlock(&session->compiler_lock);
  if (open) return FT_OK;
  const char *const kernels = ft_store_kernels_path(session->store);
  const struct ft_nvrtc_known known = ft_nvrtc_recall(kernels);
  struct ft_compiler *compiler;
  snprintf(version, 64, "%s", known.version);
  if (known.present) return FT_OK;
  const int status = ft_session_compiler(session, &compiler);
  if (status != FT_OK) return *version ? FT_OK : status;
  snprintf(version, 64, "%s", ft_compiler_version(compiler));
  ft_nvrtc_remember(kernels, compiler);
  return FT_OK;
}

/* Looks for the kernel of the key that the trial names, or of the key that the source has with this
 * machine's NVRTC. A failure other than FT_E_NOT_FOUND: without NVRTC the second key is not known.
 */
static int find(fatune_session *session, const struct ft_source *source,
                const struct ft_digest *preferred, struct ft_kernel *kernel) {
  char version[64];
  const int status = preferred ? take_kernel(session, source, preferred, kernel) : FT_E_NOT_FOUND;
  if (status != FT_E_NOT_FOUND) return status;
  FT_TRY(identify_nvrtc(session, version));
  const struct ft_digest key = ft_kernel_key(&source->digest, version);
  return take_kernel(session, source, &key, kernel);
}

int ft_session_kernel(fatune_session *session, const struct ft_source *source,
                      const struct ft_digest *preferred, struct ft_kernel *kernel, bool *compiled) {
  *compiled = false;
  int status = find(session, source, preferred, kernel);
  if (status == FT_E_NOT_FOUND) status = compile_once(session, source, kernel, compiled);
  if (status == FT_E_NO_NVRTC)
    return ft_fail_within(status,
                          "the kernel is in no cache and has to be compiled (where there is "
                          "NVRTC, `fatune tune` and `fatune cache export` of the request make a "
                          "file that has it, for FATUNE_SYSTEM_PATH)");
  return status;
}

/* Compiles the source anew and loads the result in place of *kernel, whose image the driver
 * refused. The old kernel is freed even if the new one cannot be compiled or loaded. */
static int replace_refused(fatune_session *session, const struct ft_source *source,
                           struct ft_kernel *kernel, struct ft_module *module) {
  struct ft_compiler *compiler;
  if (!atomic_exchange(&session->warned_image, true))
    ft_session_warn(session, "a cached kernel was refused by the driver and is compiled anew (%s)",
                    ft_detail());
  /* A read-only layer of the store keeps its copy and would give it again. */
  ft_store_kernel_forget(session->store, &kernel->key);
  ft_kernel_free(kernel);
  FT_TRY(ft_session_compiler(session, &compiler));
  FT_TRY(compile(session, compiler, source, kernel));
  return ft_module_load(module, session, kernel, source->config.family);
}

/* Compiles for the CPU. Such an image is never kept, as another CPU may not run it. */
static int load_emulated(fatune_session *session, const struct ft_source *source,
                         struct ft_kernel *kernel, struct ft_module *module) {
  if (!session->may_compile)
    return ft_fail(FT_E_NO_CXX, "options.compile is -1: nothing is compiled in this session");
  FT_TRY(ft_emulator_compile(source, kernel));
  const int status = ft_module_load(module, session, kernel, source->config.family);
  if (status != FT_OK) ft_kernel_free(kernel);
  return status;
}

int ft_session_load(fatune_session *session, const struct ft_source *source,
                    const struct ft_digest *preferred, struct ft_kernel *kernel,
                    struct ft_module *module, bool *compiled) {
  bool refused;
  if (session->driver.emulated) {
    *compiled = true;
    return load_emulated(session, source, kernel, module);
  }
  FT_TRY(ft_session_kernel(session, source, preferred, kernel, compiled));
  int status = ft_module_try_load(module, session, kernel, source->config.family, &refused);
  if (refused && !*compiled) {
    *compiled = true;
    status = replace_refused(session, source, kernel, module);
  }
  if (status != FT_OK) ft_kernel_free(kernel);
  return status;
}

/* What came of a look-up without the text of the source. */
enum recalled { NOT_KNOWN, LOADED, REFUSED };

/* The kernel of a source that was emitted before: by the user's own recipe, or by that of a layer
 * for the kernel that a trial names. *source gets its digest. */
static int find_by_recipe(fatune_session *session, const struct ft_digest *recipe,
                          const struct ft_digest *preferred, struct ft_source *source,
                          struct ft_kernel *kernel) {
  if (ft_store_recipe_get(session->store, recipe, &source->digest) == FT_OK)
    return find(session, source, preferred, kernel);
  if (!preferred) return FT_E_NOT_FOUND;
  FT_TRY(ft_store_kernel_by_recipe(session->store, recipe, preferred, kernel));
  source->digest = kernel->source;
  if (strcmp(kernel->target, source->target) == 0) return FT_OK;
  ft_kernel_free(kernel);
  return FT_E_NOT_FOUND;
}

/* Looks up the kernel of a recipe and loads it. Where the look-up fails, the kernel counts as not
 * known. Where the driver refuses the image, the kernel stays, for replace_refused. */
static int recall(fatune_session *session, const struct ft_digest *recipe,
                  const struct ft_digest *preferred, struct ft_source *source,
                  struct ft_kernel *kernel, struct ft_module *module, enum recalled *recalled) {
  bool refused;
  *recalled = NOT_KNOWN;
  if (find_by_recipe(session, recipe, preferred, source, kernel) != FT_OK) return FT_OK;
  const int status = ft_module_try_load(module, session, kernel, source->config.family, &refused);
  *recalled = status == FT_OK ? LOADED : REFUSED;
  if (status == FT_OK || refused) return FT_OK;
  ft_kernel_free(kernel);
  return status;
}

static int emit_and_replace(fatune_session *session, const struct ft_request *request,
                            const struct ft_config *config, struct ft_source *source,
                            struct ft_kernel *kernel, struct ft_module *module) {
  int status = ft_session_emit(session, request, &session->device.arch, config, source);
  if (status == FT_OK) status = replace_refused(session, source, kernel, module);
  if (status != FT_OK) ft_kernel_free(kernel);
  return status;
}

static int recipe_of(fatune_session *session, const struct ft_request *request,
                     const struct ft_config *config, struct ft_source *source,
                     struct ft_digest *recipe) {
  pthread_mutex_lock(&session->lua_lock);
  const int status =
      ft_recipe(source, session->lua, request, &session->device.arch, config, recipe);
  pthread_mutex_unlock(&session->lua_lock);
  return status;
}

int ft_session_prepare(fatune_session *session, const struct ft_request *request,
                       const struct ft_config *config, const struct ft_digest *preferred,
                       struct ft_source *source, struct ft_kernel *kernel, struct ft_module *module,
                       bool *compiled) {
  struct ft_digest recipe;
  enum recalled recalled = NOT_KNOWN;
  const bool kept = !session->driver.emulated; /* an emulated GPU's kernels are not */
  *compiled = false;
  if (kept) {
    FT_TRY(recipe_of(session, request, config, source, &recipe));
    FT_TRY(recall(session, &recipe, preferred, source, kernel, module, &recalled));
  }
  if (recalled == LOADED) return FT_OK;
  if (recalled == REFUSED) {
    *compiled = true;
    return emit_and_replace(session, request, config, source, kernel, module);
  }
  FT_TRY(ft_session_emit(session, request, &session->device.arch, config, source));
  FT_TRY(ft_session_load(session, source, preferred, kernel, module, compiled));
  if (kept) ft_store_recipe_put(session->store, &recipe, &source->digest);
  return FT_OK;
}
