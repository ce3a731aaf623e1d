/* public.c: requests of fatune.h.
 * in -> out: public struct, text <-> internal struct, validated. */
#include "runtime/public.h"

#include <string.h>

#include "generator/request_fields.h"
#include "generator/status.h"
#include "runtime/sized_struct.h"

#define SAME(name) _Static_assert((int)FATUNE_##name == (int)FT_##name, #name)
SAME(FORWARD);
SAME(BACKWARD);
SAME(FP16);
SAME(BF16);
SAME(O_DEFAULT);
SAME(O_FP16);
SAME(O_FP32);
SAME(KV_DEFAULT);
SAME(KV_E4M3);
SAME(CAUSAL_NONE);
SAME(CAUSAL_BOTTOM_RIGHT);
SAME(CAUSAL_TOP_LEFT);
SAME(WINDOW_NONE);
SAME(WINDOW_BOTTOM_RIGHT);
SAME(WINDOW_TOP_LEFT);
#undef SAME

static const fatune_request initial = FATUNE_REQUEST_INIT;
static const struct ft_sized_struct form =
    FT_SIZED_STRUCT("request", fatune_request, mask_density, &initial);

/* What has not been given gets its value from ft_request_complete. */
struct reading {
  struct ft_request *to;
  bool given[FT_REQUEST_FIELDS];
};

static int take(struct reading *reading, int field, int64_t value) {
  const struct ft_request_field *const about = ft_request_field(field);
  const bool is_number = about->kind == FT_KIND_COUNT && about->missing == NULL;
  /* 0 means the default, but where it is a value itself and the word has been given. */
  int first = field;
  while (ft_request_field(first)->after != NULL) --first;
  const bool is_value =
      about->least <= 0 && first < field && ft_request_get(reading->to, first) != 0;
  reading->given[field] = value != 0 || !is_number || is_value;
  if (!reading->given[field]) return FT_OK;
  const int status = ft_request_check(field, value, false);
  if (status != FT_OK) return ft_fail_within(status, "request");
  ft_request_set(reading->to, field, value);
  return FT_OK;
}

static int take_real(struct reading *reading, int field, double value) {
  reading->given[field] = value != 0;
  ft_request_set_real(reading->to, field, value);
  return FT_OK;
}

int ft_request_from_public(struct ft_request *to, const fatune_request *given) {
  memset(to, 0, sizeof *to);
  if (!given) return ft_fail(FT_E_ARGUMENT, "request is NULL");
  fatune_request room;
  const void *whole;
  FT_TRY(ft_sized_read(&form, given, &room, &whole));
  const fatune_request *const from = whole;
  struct reading reading = {.to = to};
#define TAKE_CHOICE(name)            FT_TRY(take(&reading, FT_REQUEST_##name, (int64_t)from->name));
#define TAKE_FLAG(name)              TAKE_CHOICE(name)
#define TAKE_COUNT(name)             TAKE_CHOICE(name)
#define TAKE_DIGEST(name)            TAKE_CHOICE(name)
#define TAKE_SHARE(name)             FT_TRY(take_real(&reading, FT_REQUEST_##name, from->name));
#define FIELD(kind, type, name, ...) TAKE_##kind(name)
#include "generator/request.def"
#undef FIELD
  FT_TRY(ft_request_complete(to, reading.given));
  return ft_request_validate(to);
}

/* Fields one by one: what lies between them stays as in the INIT value, so that ft_sized_write may
 * compare bytes. */
static void to_public(fatune_request *to, const struct ft_request *from) {
#define GIVE_CHOICE(name)            to->name = (int)from->name;
#define GIVE_FLAG(name)              to->name = from->name;
#define GIVE_COUNT(name)             to->name = from->name;
#define GIVE_DIGEST(name)            to->name = from->name;
#define GIVE_SHARE(name)             to->name = from->name;
#define FIELD(kind, type, name, ...) GIVE_##kind(name)
#include "generator/request.def"
#undef FIELD
}

static int write_public(fatune_request *to, const struct ft_request *from) {
  fatune_request made;
  memcpy(&made, &initial, sizeof made);
  to_public(&made, from);
  return ft_sized_write(&form, &made, to);
}

int fatune_request_parse(fatune_request *request, const char *text) {
  if (!request) return ft_fail(FT_E_ARGUMENT, "request is NULL; it takes what the text says");
  FT_TRY(ft_sized_write(&form, &initial, request));
  if (!text) return ft_fail(FT_E_ARGUMENT, "text is NULL");
  struct ft_request parsed;
  FT_TRY(ft_request_parse(&parsed, text));
  return write_public(request, &parsed);
}

int fatune_request_bucket(fatune_request *bucket, const fatune_request *request) {
  if (!bucket) return ft_fail(FT_E_ARGUMENT, "bucket is NULL; it takes the rounded request");
  struct ft_request read;
  FT_TRY(ft_request_from_public(&read, request));
  read = ft_request_bucket(&read);
  return write_public(bucket, &read);
}
