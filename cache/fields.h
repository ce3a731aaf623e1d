/* fields.h: one-line records of name=value words, driven by one table per record.
 * in -> out: a struct and its table of fields -> text; text -> the struct.
 * Values with blanks, quotes or control characters are written as "..." with \" \\ \n \xHH. Numbers
 * have a point in every locale. */
#ifndef CACHE_FIELDS_H
#define CACHE_FIELDS_H

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>

#include "generator/text.h"

/* How one kind of member is written and read; size is that of the member. parse fails with
 * FT_E_ARGUMENT and a detail that does not name the field (the caller does). */
struct ft_field_type {
  void (*print)(const void *member, size_t size, struct ft_text *value);
  int (*parse)(void *member, size_t size, const char *value);
};

struct ft_field {
  const char *name;
  const struct ft_field_type *type;
  size_t offset, size;
  bool required; /* always printed, must be given; others are left out when "" or the number 0 */
};

extern const struct ft_field_type ft_field_string; /* char[size] */
extern const struct ft_field_type ft_field_int;    /* int, >= 0 */
extern const struct ft_field_type ft_field_int64;  /* int64_t, >= 0 */
extern const struct ft_field_type ft_field_size;   /* size_t */
extern const struct ft_field_type ft_field_time;   /* double, finite and >= 0 */
extern const struct ft_field_type ft_field_real;   /* double, any */
extern const struct ft_field_type ft_field_digest; /* struct ft_digest; all zero prints as "" */

/* Appends the words, separated by one blank. */
void ft_fields_print(const struct ft_field *fields, size_t count, const void *record,
                     struct ft_text *text);

/* Sets the members that the text names and leaves the others; each name at most once. */
int ft_fields_parse(const struct ft_field *fields, size_t count, void *record, const char *text);

/* A double as the shortest text that reads back as the same double; and its reading. */
void ft_real_print(double number, struct ft_text *text);
int ft_real_parse(const char *text, const char **end, double *number);

/* 0 .. 15, or -1: lower case only, so that every value has one text. */
int ft_hex_digit(char c);

/* Numbers of this thread are printed and read with a point, until ft_locale_restore: the host
 * program may have chosen a locale with a comma. */
struct ft_locale {
  locale_t plain, before;
};
struct ft_locale ft_locale_plain(void);
void ft_locale_restore(struct ft_locale *locale);

#endif
