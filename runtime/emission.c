/* emission.c: the text of a kernel without a plan.
 * in -> out: request + GPU name -> CUDA C text. */
#include <stdlib.h>

#include "cache/store.h"
#include "generator/arch.h"
#include "generator/config.h"
#include "generator/emit.h"
#include "generator/lua_host.h"
#include "generator/request.h"
#include "generator/status.h"
#include "runtime/choice.h"
#include "runtime/fatune.h"
#include "runtime/kernel_source.h"
#include "runtime/public.h"
#include "runtime/session.h"

static int find_gpu(fatune_session *session, const char *gpu, struct ft_arch *arch,
                    const char **device_class) {
  *device_class = NULL;
  if (!gpu) {
    if (ft_session_needs_device(session) != FT_OK)
      return ft_fail_within(session->no_device_status, "gpu is NULL and the session has none");
    *arch = session->device.arch;
    *device_class = session->device.id;
    return FT_OK;
  }
  pthread_mutex_lock(&session->lua_lock);
  const int status = ft_lua_gpu(session->lua, gpu, arch);
  pthread_mutex_unlock(&session->lua_lock);
  return status;
}

int fatune_emit(char **text, fatune_session *session, const fatune_request *request,
                const char *gpu, const char *config) {
  if (!text) return ft_fail(FT_E_ARGUMENT, "text is NULL; it takes the emitted text");
  *text = NULL;
  if (!session) return ft_fail(FT_E_ARGUMENT, "session is NULL");

  struct ft_request wanted;
  struct ft_arch arch;
  struct ft_choice choice;
  const char *device_class;
  FT_TRY(ft_request_from_public(&wanted, request));
  FT_TRY(find_gpu(session, gpu, &arch, &device_class));
  if (config)
    FT_TRY(ft_config_parse(&choice.config, config));
  else
    FT_TRY(ft_session_choose(session, &wanted, &arch, device_class, &choice));

  struct ft_source source;
  FT_TRY(ft_session_emit(session, &wanted, &arch, &choice.config, &source));
  *text = source.text; /* the caller's from here on */
  source.text = NULL;
  ft_source_free(&source);
  return FT_OK;
}

void fatune_text_free(char *text) {
  free(text);
}
