/* fields.c: one-line records of name=value words.
 * in -> out: a struct and its table of fields -> text; text -> the struct. */
#include "cache/fields.h"

#include <stdint.h>
#include <string.h>

#include "generator/status.h"

enum { NAME_MAX_LENGTH = 32 };

/* -- words ---------------------------------------------------------------------------------- */

static bool needs_quotes(const struct ft_text *value) {
  for (size_t i = 0; i < value->length; i++) {
    const char c = value->data[i];
    if (c <= ' ' || c > '~' || c == '"' || c == '\\') return true;
  }
  return value->length == 0;
}

/* Bytes from 0x80 stay as they are: UTF-8 is readable in a terminal. */
static void add_quoted(struct ft_text *text, const struct ft_text *value) {
  ft_text_add(text, "\"");
  for (size_t i = 0; i < value->length; i++) {
    const unsigned char c = (unsigned char)value->data[i];
    if (c == '"' || c == '\\')
      ft_text_add(text, "\\%c", c);
    else if (c == '\n')
      ft_text_add(text, "\\n");
    else if (c < ' ' || c == 0x7f)
      ft_text_add(text, "\\x%02x", c);
    else
      ft_text_append(text, &value->data[i], 1);
  }
  ft_text_add(text, "\"");
}

static int read_escape(const char **at, struct ft_text *value) {
  const char kind = **at;
  char byte = kind;
  if (kind == 'n') byte = '\n';
  if (kind == 'x') {
    const int high = ft_hex_digit((*at)[1]);
    const int low = high < 0 ? -1 : ft_hex_digit((*at)[2]);
    if (low < 0 || high * 16 + low == 0)
      return ft_fail(FT_E_ARGUMENT, "\\x must be followed by two hex digits, not 00");
    byte = (char)(high * 16 + low);
    *at += 2;
  } else if (kind != 'n' && kind != '"' && kind != '\\') {
    return ft_fail(FT_E_ARGUMENT, "unknown escape; allowed are \\\" \\\\ \\n \\xHH");
  }
  ft_text_append(value, &byte, 1);
  *at += 1;
  return FT_OK;
}

static int read_value(const char **at, struct ft_text *value) {
  ft_text_clear(value);
  ft_text_append(value, "", 0);
  if (**at != '"') {
    const size_t length = strcspn(*at, " ");
    ft_text_append(value, *at, length);
    *at += length;
    return ft_text_status(value);
  }
  *at += 1;
  while (**at != '"') {
    if (**at == '\0') return ft_fail(FT_E_ARGUMENT, "a quoted value has no end");
    if (**at == '\\') {
      *at += 1;
      FT_TRY(read_escape(at, value));
    } else {
      ft_text_append(value, *at, 1);
      *at += 1;
    }
  }
  *at += 1;
  if (**at != ' ' && **at != '\0')
    return ft_fail(FT_E_ARGUMENT, "a quoted value must be followed by a blank");
  return ft_text_status(value);
}

static int read_name(const char **at, char name[NAME_MAX_LENGTH]) {
  const size_t length = strspn(*at, "abcdefghijklmnopqrstuvwxyz_");
  if (length == 0 || length >= NAME_MAX_LENGTH || (*at)[length] != '=')
    return ft_fail(FT_E_ARGUMENT, "word '%.*s' is not of the form name=value",
                   (int)strcspn(*at, " "), *at);
  memcpy(name, *at, length);
  name[length] = '\0';
  *at += length + 1;
  return FT_OK;
}

static int parse_word(const struct ft_field *fields, size_t count, void *record, const char **at,
                      struct ft_text *value, uint64_t *seen) {
  char name[NAME_MAX_LENGTH];
  FT_TRY(read_name(at, name));
  size_t index = 0;
  while (index < count && strcmp(fields[index].name, name) != 0) index++;
  if (index == count) return ft_fail(FT_E_ARGUMENT, "unknown field '%s'", name);
  if (*seen & UINT64_C(1) << index)
    return ft_fail(FT_E_ARGUMENT, "field '%s' is given twice", name);
  *seen |= UINT64_C(1) << index;

  const struct ft_field *const field = &fields[index];
  int status = read_value(at, value);
  if (status == FT_OK)
    status = field->type->parse((char *)record + field->offset, field->size, value->data);
  return status == FT_OK ? FT_OK : ft_fail_within(status, "field '%s'", name);
}

/* -- public --------------------------------------------------------------------------------- */

void ft_fields_print(const struct ft_field *fields, size_t count, const void *record,
                     struct ft_text *text) {
  struct ft_locale locale = ft_locale_plain();
  struct ft_text value = FT_TEXT_INIT;
  const char *gap = "";
  for (size_t i = 0; i < count; i++) {
    ft_text_clear(&value);
    fields[i].type->print((const char *)record + fields[i].offset, fields[i].size, &value);
    if (value.failed) break; /* clearing it would forget so */
    const bool number = fields[i].type != &ft_field_string;
    const bool absent = value.length == 0 || (number && strcmp(value.data, "0") == 0);
    if (absent && !fields[i].required) continue;
    ft_text_add(text, "%s%s=", gap, fields[i].name);
    if (needs_quotes(&value))
      add_quoted(text, &value);
    else
      ft_text_append(text, value.data, value.length);
    gap = " ";
  }
  if (value.failed) text->failed = true;
  ft_text_free(&value);
  ft_locale_restore(&locale);
}

int ft_fields_parse(const struct ft_field *fields, size_t count, void *record, const char *text) {
  struct ft_locale locale = ft_locale_plain();
  struct ft_text value = FT_TEXT_INIT;
  uint64_t seen = 0; /* one bit per field: no table has more than 64 */
  int status = FT_OK;
  for (const char *at = text + strspn(text, " "); *at != '\0'; at += strspn(at, " "))
    FT_CHECK(parse_word(fields, count, record, &at, &value, &seen));
  for (size_t i = 0; i < count; i++)
    if (fields[i].required && !(seen & UINT64_C(1) << i))
      FT_GIVE_UP(ft_fail(FT_E_ARGUMENT, "field '%s' is missing", fields[i].name));
done:
  ft_text_free(&value);
  ft_locale_restore(&locale);
  return status;
}

struct ft_locale ft_locale_plain(void) {
  struct ft_locale locale = {newlocale(LC_ALL_MASK, "C", (locale_t)0), (locale_t)0};
  if (locale.plain) locale.before = uselocale(locale.plain);
  return locale;
}

void ft_locale_restore(struct ft_locale *locale) {
  if (!locale->plain) return;
  uselocale(locale->before);
  freelocale(locale->plain);
}
