/* kernel_source.h: from a config to a loaded kernel.
 * in -> out: request + config -> source -> kernel, from the stores first, from a compiler where
 * need be
 * -> module. */
#ifndef RUNTIME_KERNEL_SOURCE_H
#define RUNTIME_KERNEL_SOURCE_H

#include "cache/kernel.h"
#include "generator/arch.h"
#include "generator/config.h"
#include "generator/emit.h"
#include "generator/request.h"
#include "runtime/compiler.h"
#include "runtime/fatune.h"
#include "runtime/module.h"

/* Opens NVRTC on first use. */
int ft_session_compiler(fatune_session *session, struct ft_compiler **compiler);

/* ft_emit under the session's lock. */
int ft_session_emit(fatune_session *session, const struct ft_request *request,
                    const struct ft_arch *arch, const struct ft_config *config,
                    struct ft_source *source);

/* The kernel of a source: from the store, by the preferred key (of the trial that measured it; may
 * be NULL) or by the key that this machine's NVRTC gives the source; or else compiled and stored.
 * *compiled says which. Thread-safe; compiles of different kernels run in parallel, one kernel is
 * compiled by one thread of one process (single_flight.h, cache/claims.h). */
int ft_session_kernel(fatune_session *session, const struct ft_source *source,
                      const struct ft_digest *preferred, struct ft_kernel *kernel, bool *compiled);

/* ft_session_kernel and ft_module_load together. An image from the store that the driver refuses is
 * forgotten and compiled anew, once. For an emulated GPU the kernel is compiled for the CPU,
 * always, and not kept. Caller frees kernel and unloads module. */
int ft_session_load(fatune_session *session, const struct ft_source *source,
                    const struct ft_digest *preferred, struct ft_kernel *kernel,
                    struct ft_module *module, bool *compiled);

/* From a config to a loaded kernel, for the session's GPU. A source that was emitted before, and
 * whose kernel is in the store, is found by its recipe (generator/recipe.h) and has no text then.
 * Else ft_session_emit and ft_session_load together. */
int ft_session_prepare(fatune_session *session, const struct ft_request *request,
                       const struct ft_config *config, const struct ft_digest *preferred,
                       struct ft_source *source, struct ft_kernel *kernel, struct ft_module *module,
                       bool *compiled);

#endif
