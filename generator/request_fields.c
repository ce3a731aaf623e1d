/* request_fields.c: the fields of a request as a table; it comes from request.def.
 * in -> out: field number -> its words, its values, what depends on it; get and set by number. */
#include "generator/request_fields.h"

#include <string.h>

#include "generator/close_word.h"
#include "generator/score/kind.h"
#include "generator/status.h"

static const struct ft_request_field fields[FT_REQUEST_FIELDS] = {
#define FIELD(kind_of, type, name_of, part_of, ...)                                                \
  [FT_REQUEST_##name_of] = {                                                                       \
      .kind = FT_KIND_##kind_of, .part = FT_PART_##part_of, .name = #name_of, __VA_ARGS__},
#include "generator/request.def"
#undef FIELD
};

const struct ft_request_field *ft_request_field(int field) {
  return &fields[field];
}

int64_t ft_request_get(const struct ft_request *request, int field) {
  switch (field) {
#define FIELD(kind, type, name, ...)                                                               \
  case FT_REQUEST_##name:                                                                          \
    return FT_KIND_##kind == FT_KIND_SHARE ? 0 : (int64_t)request->name;
#include "generator/request.def"
#undef FIELD
  }
  return 0;
}

double ft_request_get_real(const struct ft_request *request, int field) {
  switch (field) {
#define FIELD(kind, type, name, ...)                                                               \
  case FT_REQUEST_##name:                                                                          \
    return FT_KIND_##kind == FT_KIND_SHARE ? (double)request->name : 0;
#include "generator/request.def"
#undef FIELD
  }
  return 0;
}

void ft_request_set(struct ft_request *request, int field, int64_t value) {
  switch (field) {
#define FIELD(kind, type, name, ...)                                                               \
  case FT_REQUEST_##name:                                                                          \
    request->name = (type)value;                                                                   \
    return;
#include "generator/request.def"
#undef FIELD
  }
}

void ft_request_set_real(struct ft_request *request, int field, double value) {
  switch (field) {
#define FIELD(kind, type, name, ...)                                                               \
  case FT_REQUEST_##name:                                                                          \
    request->name = (type)value;                                                                   \
    return;
#include "generator/request.def"
#undef FIELD
  }
}

void ft_request_copy(struct ft_request *to, const struct ft_request *from, int field) {
  if (fields[field].kind == FT_KIND_SHARE)
    ft_request_set_real(to, field, ft_request_get_real(from, field));
  else
    ft_request_set(to, field, ft_request_get(from, field));
}

bool ft_request_same(const struct ft_request *a, const struct ft_request *b, int field) {
  return ft_request_get(a, field) == ft_request_get(b, field) &&
         ft_request_get_real(a, field) == ft_request_get_real(b, field);
}

/* ---- values ---- */

static int refuse_choice(const struct ft_request_field *field, int64_t value) {
  struct ft_text list = FT_TEXT_INIT;
  for (int i = 0; field->choices[i] != NULL; ++i)
    ft_text_add(&list, "%s%s (%d)", i > 0 ? ", " : "", field->choices[i], i);
  const int status = ft_fail(FT_E_ARGUMENT, "%s is %lld; allowed: %s", field->name,
                             (long long)value, list.data == NULL ? "" : list.data);
  ft_text_free(&list);
  return status;
}

static int refuse_count(const struct ft_request_field *field, int64_t value, bool in_word) {
  struct ft_text allowed = FT_TEXT_INIT;
  if (field->multiple > 0) ft_text_add(&allowed, "multiples of %d from ", field->multiple);
  ft_text_add(&allowed, "%lld", (long long)field->least);
  if (field->multiple == 0 || field->most < INT32_MAX)
    ft_text_add(&allowed, " to %lld", (long long)field->most);
  if (field->absent && !in_word) ft_text_add(&allowed, ", or 0 for none");
  const int status = ft_fail(FT_E_ARGUMENT, "%s is %lld; allowed: %s", field->name,
                             (long long)value, allowed.data == NULL ? "" : allowed.data);
  ft_text_free(&allowed);
  return status;
}

int ft_request_check(int number, int64_t value, bool in_word) {
  const struct ft_request_field *const field = &fields[number];
  int64_t choices = 0;
  switch (field->kind) {
  case FT_KIND_SHARE: break;
  case FT_KIND_CHOICE:
    while (field->choices[choices] != NULL) ++choices;
    if (value < 0 || value >= choices) return refuse_choice(field, value);
    break;
  case FT_KIND_FLAG:
    if (value == 0 || value == 1) break;
    return ft_fail(FT_E_ARGUMENT, "%s is %lld; allowed: 0, 1", field->name, (long long)value);
  case FT_KIND_DIGEST:
    if (value >= 0 && value >> FT_SCORE_NUMBER_BITS == 0 && (value != 0 || !in_word)) break;
    return ft_fail(FT_E_ARGUMENT, "%s is %lld; allowed: numbers of %d bits", field->name,
                   (long long)value, FT_SCORE_NUMBER_BITS);
  case FT_KIND_COUNT:
    if (value == 0 && field->absent && !in_word) break;
    if (value < field->least || value > field->most ||
        (field->multiple > 0 && value % field->multiple != 0))
      return refuse_count(field, value, in_word);
    break;
  }
  return FT_OK;
}

int ft_request_complete(struct ft_request *request, const bool given[FT_REQUEST_FIELDS]) {
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i) {
    const struct ft_request_field *const field = &fields[i];
    if (given[i]) continue;
    if (field->missing != NULL) return ft_fail(FT_E_ARGUMENT, "%s", field->missing);
    if (field->like > 0 && (field->like < i || given[field->like]))
      ft_request_set(request, i, ft_request_get(request, field->like));
    else
      ft_request_set_real(request, i, field->fallback);
  }
  return FT_OK;
}

/* ---- words ---- */

int ft_request_word_end(int field) {
  ++field;
  while (field < FT_REQUEST_FIELDS && fields[field].after != NULL) ++field;
  return field;
}

static void add_choices(const struct ft_request_field *field, struct ft_text *text) {
  const int first = field->word == NULL ? 0 : 1;
  for (int i = first; field->choices[i] != NULL; ++i)
    ft_text_add(text, "%s%s", i > first ? "|" : "", field->choices[i]);
}

void ft_request_word_form(int first, struct ft_text *text) {
  const int end = ft_request_word_end(first);
  int open = 0;
  for (int i = first; i < end; ++i) {
    const struct ft_request_field *const field = &fields[i];
    if (field->optional) ft_text_add(text, "[");
    open += field->optional;
    ft_text_add(text, "%s", field->word ? field->word : field->after ? field->after : "");
    if (field->equals) ft_text_add(text, "=");
    if (field->sign != NULL) ft_text_add(text, "%s", field->sign);
    if (field->kind != FT_KIND_CHOICE) continue;
    const bool may_be_bare = field->word != NULL && !field->equals;
    if (may_be_bare) ft_text_add(text, "[=");
    add_choices(field, text);
    if (may_be_bare) ft_text_add(text, "]");
  }
  while (open-- > 0) ft_text_add(text, "]");
}

int ft_request_stem(const char *text) {
  return (int)strspn(text, "abcdefghijklmnopqrstuvwxyz");
}

int ft_request_find_word(const char *text) {
  const size_t stem = (size_t)ft_request_stem(text);
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i) {
    const struct ft_request_field *const field = &fields[i];
    if (field->after != NULL) continue;
    if (field->word != NULL && strcmp(field->word, text) == 0)
      return i; /* it may end with digits */
    if (field->word != NULL && strlen(field->word) == stem && strncmp(field->word, text, stem) == 0)
      return i;
    for (int n = 0; field->word == NULL && field->choices[n] != NULL; ++n)
      if (strcmp(field->choices[n], text) == 0) return i;
  }
  return -1;
}

/* The better of the two: `candidate` where it is close enough to the text and closer than *least.
 */
static const char *closer(const char *text, const char *candidate, const char *best, int *least) {
  enum { SHORTEST = 3 }; /* shorter ones are close to anything */
  const int distance = ft_edit_distance(text, candidate);
  if (strlen(candidate) < SHORTEST || distance >= *least || !ft_is_close(text, candidate))
    return best;
  *least = distance;
  return candidate;
}

/* What other programs call the dtypes. */
static const char *word_elsewhere(const char *text) {
  static const char *const words[][2] = {
      {"float16", "fp16"}, {"half", "fp16"}, {"bfloat16", "bf16"},     {"float32", "fp32"},
      {"float", "fp32"},   {"fp8", "e4m3"},  {"float8_e4m3fn", "e4m3"}};
  for (size_t i = 0; i < sizeof words / sizeof *words; ++i)
    if (strcmp(text, words[i][0]) == 0) return words[i][1];
  return NULL;
}

const char *ft_request_close_word(const char *text) {
  const char *const elsewhere = word_elsewhere(text);
  if (elsewhere != NULL) return elsewhere;
  char stem[32];
  const char *best = NULL;
  int least = 1000, length = ft_request_stem(text);
  if (length >= (int)sizeof stem) return NULL;
  memcpy(stem, text, (size_t)length);
  stem[length] = '\0';
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i) {
    const struct ft_request_field *const field = &fields[i];
    if (field->word != NULL) best = closer(stem, field->word, best, &least);
    for (int n = 0; field->word == NULL && field->choices[n] != NULL; ++n)
      best = closer(text, field->choices[n], best, &least);
  }
  return best;
}
