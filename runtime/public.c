/* public.c: requests of fatune.h.
 * in -> out: public struct, text <-> internal struct, validated. */
#include "runtime/public.h"

#include <string.h>

#include "generator/status.h"
#include "runtime/sized_struct.h"

#define SAME(name) _Static_assert((int)FATUNE_##name == (int)FT_##name, #name)
SAME(FORWARD);
SAME(BACKWARD);
SAME(FP16);
SAME(BF16);
SAME(CAUSAL_NONE);
SAME(CAUSAL_BOTTOM_RIGHT);
SAME(CAUSAL_TOP_LEFT);
#undef SAME

static const fatune_request initial = FATUNE_REQUEST_INIT;
static const struct ft_sized_struct form =
    FT_SIZED_STRUCT("request", fatune_request, mask_density, &initial);

static int check_choice(const char *name, int value, int last, const char *allowed) {
  if (value >= 0 && value <= last) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "request.%s is %d; allowed: %s", name, value, allowed);
}

int ft_request_from_public(struct ft_request *to, const fatune_request *given) {
  memset(to, 0, sizeof *to);
  if (!given) return ft_fail(FT_E_ARGUMENT, "request is NULL");
  fatune_request room;
  const void *whole;
  FT_TRY(ft_sized_read(&form, given, &room, &whole));
  const fatune_request *const from = whole;
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

/* Fields one by one: what lies between them stays as in the INIT value, so that ft_sized_write may
 * compare bytes. */
static void to_public(fatune_request *to, const struct ft_request *from) {
  to->pass = (fatune_pass)from->pass;
  to->dtype = (fatune_dtype)from->dtype;
  to->head_dim = from->head_dim;
  to->head_dim_v = from->head_dim_v;
  to->causal = (fatune_causal)from->causal;
  to->dropout = from->dropout;
  to->mask_rows = from->mask_rows;
  to->mask_cols = from->mask_cols;
  to->deterministic = from->deterministic;
  to->batch = from->batch;
  to->heads_q = from->heads_q;
  to->heads_kv = from->heads_kv;
  to->seqlen_q = from->seqlen_q;
  to->seqlen_k = from->seqlen_k;
  to->mask_density = from->mask_density;
}

int fatune_request_parse(fatune_request *request, const char *text) {
  if (!request) return ft_fail(FT_E_ARGUMENT, "request is NULL; it takes what the text says");
  FT_TRY(ft_sized_write(&form, &initial, request));
  if (!text) return ft_fail(FT_E_ARGUMENT, "text is NULL");
  struct ft_request parsed;
  fatune_request made;
  FT_TRY(ft_request_parse(&parsed, text));
  memcpy(&made, &initial, sizeof made);
  to_public(&made, &parsed);
  return ft_sized_write(&form, &made, request);
}
