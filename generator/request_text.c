/* request_text.c: the text form of a request.
 * in -> out: "forward bf16 d128 hq32 hkv8 nq4096 causal" <-> struct ft_request. */
#include "generator/request.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/request_fields.h"
#include "generator/score/kind.h"
#include "generator/status.h"

enum { LONGEST_WORD = 128 };

/* ---- numbers ---- */

/* Numbers are read and printed in the C locale: the host program may have set one that writes
 * decimal commas. newlocale gives glibc's static C locale and cannot fail for it. */
static locale_t enter_c_locale(locale_t *c_locale) {
  *c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return *c_locale == (locale_t)0 ? (locale_t)0 : uselocale(*c_locale);
}

static void leave_c_locale(locale_t before, locale_t c_locale) {
  if (c_locale == (locale_t)0) return;
  uselocale(before);
  freelocale(c_locale);
}

/* The shortest text that reads back as the same number, so that equal numbers print alike. */
static void print_share(double share, struct ft_text *text) {
  locale_t c_locale;
  const locale_t before = enter_c_locale(&c_locale);
  char digits[40];
  for (int precision = 1; precision <= 17; ++precision) {
    (void)snprintf(digits, sizeof digits, "%.*g", precision, share);
    if (strtod(digits, NULL) == share) break;
  }
  leave_c_locale(before, c_locale);
  ft_text_add(text, "%s", digits);
}

/* A real number at *cursor, which moves past it. strtod alone would take " 1", "nan" and "0x1p-2".
 */
static bool read_share(const char **cursor, double *value) {
  const size_t length = strspn(*cursor, "0123456789.e+-");
  locale_t c_locale;
  const locale_t before = enter_c_locale(&c_locale);
  char *end;
  *value = strtod(*cursor, &end);
  leave_c_locale(before, c_locale);
  const bool good = **cursor >= '0' && **cursor <= '9' && end == *cursor + length;
  *cursor += length;
  return good;
}

/* A whole number at *cursor, which moves past it, without spaces, '+', and, unless `sign`, '-'. */
static bool read_count(const char **cursor, bool sign, long long *value) {
  const size_t minus = sign && **cursor == '-';
  const size_t digits = strspn(*cursor + minus, "0123456789");
  if (digits == 0) return false;
  errno = 0;
  *value = strtoll(*cursor, NULL, 10);
  *cursor += minus + digits;
  return errno == 0;
}

/* "=" and 12 hexadecimal digits, or 13 of which the first is not 0, at *cursor, which moves past
 * them. */
static bool read_digest(const char **cursor, long long *value) {
  enum { DIGITS = FT_SCORE_DIGEST_BITS / 4 };
  if (**cursor != '=') return false;
  const size_t digits = strspn(*cursor + 1, "0123456789abcdef");
  if (digits != DIGITS && (digits != DIGITS + 1 || (*cursor)[1] == '0')) return false;
  *value = (long long)strtoull(*cursor + 1, NULL, 16);
  *cursor += 1 + digits;
  return true;
}

/* ---- printing ---- */

/* Whether the field has the value that it gets when its word is left out. The field that it is like
 * must have been printed. */
static bool is_left_out(const struct ft_request *request, int i) {
  const struct ft_request_field *const field = ft_request_field(i);
  if (field->kind == FT_KIND_SHARE) return ft_request_get_real(request, i) == field->fallback;
  const int64_t value = ft_request_get(request, i);
  if (field->like > 0 && field->like < i) return value == ft_request_get(request, field->like);
  if (field->part == FT_PART_SIZE && value == 0) return true; /* a kernel class has no sizes */
  if (field->missing != NULL || (field->kind == FT_KIND_CHOICE && field->word == NULL))
    return false;
  return (double)value == field->fallback;
}

static void print_value(const struct ft_request *request, int i, struct ft_text *text) {
  const struct ft_request_field *const field = ft_request_field(i);
  const int64_t value = ft_request_get(request, i);
  switch (field->kind) {
  case FT_KIND_FLAG: break;
  case FT_KIND_COUNT:
    ft_text_add(text, "%s%lld", field->equals ? "=" : "", (long long)value);
    break;
  case FT_KIND_SHARE: print_share(ft_request_get_real(request, i), text); break;
  case FT_KIND_DIGEST: ft_text_add(text, "=%012llx", (unsigned long long)value); break;
  case FT_KIND_CHOICE:
    if (field->word == NULL) ft_text_add(text, "%s", field->choices[value]);
    if (field->word != NULL && (field->equals || value > 1))
      ft_text_add(text, "=%s", field->choices[value]);
    break;
  }
}

static void print_word(const struct ft_request *request, int first, struct ft_text *text) {
  const int end = ft_request_word_end(first);
  if (is_left_out(request, first)) return;
  if (first > 0) ft_text_add(text, " ");
  for (int i = first; i < end; ++i) {
    const struct ft_request_field *const field = ft_request_field(i);
    int rest = i;
    while (field->optional && rest < end && is_left_out(request, rest)) ++rest;
    if (rest == end) return;
    ft_text_add(text, "%s", field->word ? field->word : field->after ? field->after : "");
    print_value(request, i, text);
  }
}

void ft_request_print(const struct ft_request *request, struct ft_text *text) {
  for (int i = 0; i < FT_REQUEST_FIELDS; i = ft_request_word_end(i)) print_word(request, i, text);
}

/* ---- parsing ---- */

struct parser {
  struct ft_request request;
  bool given[FT_REQUEST_FIELDS];
};

/* At *cursor: "=NAME", or "" for the first choice where the word may stand alone. */
static bool read_choice(const struct ft_request_field *field, const char **cursor,
                        long long *value) {
  *value = 1;
  if (**cursor != '=') return !field->equals;
  ++*cursor;
  for (int i = 1; field->choices[i] != NULL; ++i) {
    const size_t length = strlen(field->choices[i]);
    if (strncmp(*cursor, field->choices[i], length) != 0) continue;
    *cursor += length;
    *value = i;
    return true;
  }
  return false;
}

static int not_of_the_form(int first, const char *word) {
  const struct ft_request_field *const field = ft_request_field(first);
  if (field->kind == FT_KIND_COUNT && !field->equals)
    return ft_fail(FT_E_ARGUMENT, "request: '%s' needs a whole number after '%s'", word,
                   field->word);
  struct ft_text form = FT_TEXT_INIT;
  ft_request_word_form(first, &form);
  const int status = ft_fail(FT_E_ARGUMENT, "request: '%s' is not %s", word,
                             form.data == NULL ? "of its form" : form.data);
  ft_text_free(&form);
  return status;
}

/* The value of one field at *cursor, which moves past it. */
static int parse_value(struct parser *parser, int i, int first, const char *word,
                       const char **cursor) {
  const struct ft_request_field *const field = ft_request_field(i);
  long long value = 1;
  double share = 0;
  bool good = true;
  switch (field->kind) {
  case FT_KIND_FLAG: break;
  case FT_KIND_CHOICE: good = read_choice(field, cursor, &value); break;
  case FT_KIND_SHARE: good = read_share(cursor, &share); break;
  case FT_KIND_DIGEST: good = read_digest(cursor, &value); break;
  case FT_KIND_COUNT:
    if (field->equals) good = *(*cursor)++ == '=';
    good = good && read_count(cursor, field->least < 0, &value);
    break;
  }
  if (!good) return not_of_the_form(first, word);
  parser->given[i] = true;
  if (field->kind == FT_KIND_SHARE) {
    ft_request_set_real(&parser->request, i, share);
    return FT_OK;
  }
  const int status = ft_request_check(i, value, true);
  if (status != FT_OK) return ft_fail_within(status, "request: '%s'", word);
  ft_request_set(&parser->request, i, value);
  return FT_OK;
}

static int parse_fields(struct parser *parser, int first, const char *word) {
  const int end = ft_request_word_end(first);
  const char *cursor = word + strlen(ft_request_field(first)->word);
  for (int i = first; i < end; ++i) {
    const struct ft_request_field *const field = ft_request_field(i);
    if (field->optional && *cursor == '\0') return FT_OK;
    if (field->after != NULL && strncmp(cursor, field->after, strlen(field->after)) != 0)
      return not_of_the_form(first, word);
    if (field->after != NULL) cursor += strlen(field->after);
    FT_TRY(parse_value(parser, i, first, word, &cursor));
  }
  return *cursor == '\0' ? FT_OK : not_of_the_form(first, word);
}

static int unknown_word(const char *word) {
  const char *const close = ft_request_close_word(word);
  struct ft_text list = FT_TEXT_INIT;
  for (int i = 0; i < FT_REQUEST_FIELDS; i = ft_request_word_end(i)) {
    ft_text_add(&list, " ");
    ft_request_word_form(i, &list);
  }
  const int status =
      ft_fail(FT_E_ARGUMENT, "request: '%s' is no word of a request%s%s%s; allowed:%s", word,
              close ? "; did you mean '" : "", close ? close : "", close ? "'?" : "",
              list.data == NULL ? "" : list.data);
  ft_text_free(&list);
  return status;
}

/* Damaged files have such; a message quotes what is quoted whole. */
static int too_long(const char *word) {
  return ft_fail(
      FT_E_ARGUMENT,
      "request: a word of %zu bytes begins with '%.24s'; allowed: words of %d bytes at most",
      strlen(word), word, LONGEST_WORD);
}

static int parse_word(struct parser *parser, const char *word) {
  if (strlen(word) > LONGEST_WORD) return too_long(word);
  const int first = ft_request_find_word(word);
  if (first < 0) return unknown_word(word);
  if (parser->given[first])
    return ft_fail(FT_E_ARGUMENT, "request: '%s' repeats or contradicts an earlier word", word);
  const struct ft_request_field *const field = ft_request_field(first);
  if (field->word != NULL) return parse_fields(parser, first, word);
  parser->given[first] = true;
  for (int i = 0; field->choices[i] != NULL; ++i)
    if (strcmp(word, field->choices[i]) == 0) ft_request_set(&parser->request, first, i);
  return FT_OK;
}

int ft_request_parse(struct ft_request *request, const char *text) {
  if (text == NULL) return ft_fail(FT_E_ARGUMENT, "request: no text");
  struct parser parser = {0};
  char *const copy = strdup(text);
  if (copy == NULL) return ft_fail(FT_E_MEMORY, "request: out of memory");

  int status = FT_OK;
  char *rest = copy;
  for (const char *word = strtok_r(copy, " \t\n", &rest); word != NULL;
       word = strtok_r(NULL, " \t\n", &rest))
    FT_CHECK(parse_word(&parser, word));
  status = ft_request_complete(&parser.request, parser.given);
  if (status == FT_OK) status = ft_request_validate(&parser.request);
  if (status != FT_OK) ft_fail_within(status, "request");
  if (status == FT_OK) *request = parser.request;

done:
  free(copy);
  return status;
}
