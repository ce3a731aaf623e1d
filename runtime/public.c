/* public.c: the parts of fatune.h that need no GPU.
 * in -> out: public structs <-> internal ones; request + GPU name -> CUDA C text; status -> words.
 */
#include <stdlib.h>
#include <string.h>

#include "generator/lua_host.h"
#include "generator/status.h"
#include "runtime/session.h"

#define SAME(name) _Static_assert((int)FATUNE_##name == (int)FT_##name, #name)
SAME(OK); /* ORDER STATUS */
SAME(E_ARGUMENT);
SAME(E_UNSUPPORTED);
SAME(E_MEMORY);
SAME(E_TEMPLATE);
SAME(E_NO_DRIVER);
SAME(E_NO_NVRTC);
SAME(E_COMPILE);
SAME(E_DEVICE);
SAME(E_CACHE);
SAME(E_NOT_FOUND);
SAME(E_NOT_PREPARED);
SAME(E_WRONG);
SAME(E_IO);
SAME(E_INTERRUPTED);
SAME(E_NO_CXX);
SAME(FORWARD);
SAME(BACKWARD);
SAME(FP16);
SAME(BF16);
SAME(CAUSAL_NONE);
SAME(CAUSAL_BOTTOM_RIGHT);
SAME(CAUSAL_TOP_LEFT);
#undef SAME

const char *fatune_status_text(int status) {
  return ft_status_text(status);
}

const char *fatune_detail(void) {
  return ft_detail();
}

const char *fatune_version(void) {
#define TEXT_OF(number)          #number
#define VERSION_OF(major, minor) TEXT_OF(major) "." TEXT_OF(minor) ".0"
  return VERSION_OF(FATUNE_VERSION_MAJOR, FATUNE_VERSION_MINOR);
#undef VERSION_OF
#undef TEXT_OF
}

/* ---- request ---- */

static int check_choice(const char *name, int value, int last, const char *allowed) {
  if (value >= 0 && value <= last) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "request.%s is %d; allowed: %s", name, value, allowed);
}

int ft_request_from_public(struct ft_request *to, const fatune_request *from) {
  memset(to, 0, sizeof *to);
  if (!from) return ft_fail(FT_E_ARGUMENT, "request is NULL");
  FT_TRY(ft_check_size("request", from->size, sizeof *from));
  FT_TRY(check_choice("pass", (int)from->pass, FATUNE_BACKWARD, "FATUNE_FORWARD, _BACKWARD"));
  FT_TRY(check_choice("dtype", (int)from->dtype, FATUNE_BF16, "FATUNE_FP16, _BF16"));
  FT_TRY(check_choice("causal", (int)from->causal, FATUNE_CAUSAL_TOP_LEFT,
                      "FATUNE_CAUSAL_NONE, _BOTTOM_RIGHT, _TOP_LEFT"));
  FT_TRY(check_choice("dropout", from->dropout, 1, "0, 1"));
  FT_TRY(check_choice("deterministic", from->deterministic, 1, "0, 1"));

  *to = (struct ft_request){.pass = (enum ft_pass)from->pass,
                            .dtype = (enum ft_dtype)from->dtype,
                            .head_dim = from->head_dim,
                            .head_dim_v = from->head_dim_v ? from->head_dim_v : from->head_dim,
                            .heads_q = from->heads_q ? from->heads_q : 1,
                            .batch = from->batch ? from->batch : 1,
                            .seqlen_q = from->seqlen_q,
                            .seqlen_k = from->seqlen_k ? from->seqlen_k : from->seqlen_q,
                            .causal = (enum ft_causal)from->causal,
                            .dropout = from->dropout == 1,
                            .deterministic = from->deterministic == 1,
                            .mask_rows = from->mask_rows,
                            .mask_cols = from->mask_cols,
                            .mask_density = from->mask_density == 0 ? 1 : from->mask_density};
  to->heads_kv = from->heads_kv ? from->heads_kv : to->heads_q;
  return ft_request_validate(to);
}

int fatune_request_parse(fatune_request *request, const char *text) {
  if (!request) return ft_fail(FT_E_ARGUMENT, "request is NULL; it takes what the text says");
  const fatune_request empty = FATUNE_REQUEST_INIT;
  *request = empty;
  if (!text) return ft_fail(FT_E_ARGUMENT, "text is NULL");
  struct ft_request parsed;
  FT_TRY(ft_request_parse(&parsed, text));
  *request = (fatune_request){.size = sizeof *request,
                              .pass = (fatune_pass)parsed.pass,
                              .dtype = (fatune_dtype)parsed.dtype,
                              .head_dim = parsed.head_dim,
                              .head_dim_v = parsed.head_dim_v,
                              .causal = (fatune_causal)parsed.causal,
                              .dropout = parsed.dropout,
                              .mask_rows = parsed.mask_rows,
                              .mask_cols = parsed.mask_cols,
                              .deterministic = parsed.deterministic,
                              .batch = parsed.batch,
                              .heads_q = parsed.heads_q,
                              .heads_kv = parsed.heads_kv,
                              .seqlen_q = parsed.seqlen_q,
                              .seqlen_k = parsed.seqlen_k,
                              .mask_density = parsed.mask_density};
  return FT_OK;
}

/* ---- emit ---- */

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
