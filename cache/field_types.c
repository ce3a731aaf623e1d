/* field_types.c: the kinds of members that records have: strings, whole numbers, reals, digests.
 * in -> out: a member -> the text of its value; text -> the member, or what is allowed there. */
#include "cache/fields.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/digest.h"
#include "generator/status.h"

static void print_string(const void *member, size_t size, struct ft_text *value) {
  ft_text_append(value, member, strnlen(member, size));
}

static int parse_string(void *member, size_t size, const char *value) {
  const size_t length = strlen(value);
  if (length >= size)
    return ft_fail(FT_E_ARGUMENT, "has %zu characters; at most %zu are allowed", length, size - 1);
  memcpy(member, value, length + 1);
  return FT_OK;
}

const struct ft_field_type ft_field_string = {print_string, parse_string};

static int parse_whole(const char *value, int64_t most, int64_t *number) {
  char *end = NULL;
  errno = 0;
  const long long read = strtoll(value, &end, 10);
  /* strtoll accepts blanks and signs that the printer never writes. */
  const bool clean = value[0] >= '0' && value[0] <= '9' && *end == '\0' && errno == 0;
  if (!clean || read > most)
    return ft_fail(FT_E_ARGUMENT, "is '%.40s'; allowed are whole numbers 0 .. %lld", value,
                   (long long)most);
  *number = read;
  return FT_OK;
}

static void print_int(const void *member, size_t size, struct ft_text *value) {
  int number = 0;
  memcpy(&number, member, size);
  ft_text_add(value, "%d", number);
}

static int parse_int(void *member, size_t size, const char *value) {
  int64_t wide = 0;
  FT_TRY(parse_whole(value, INT_MAX, &wide));
  const int number = (int)wide;
  memcpy(member, &number, size);
  return FT_OK;
}

const struct ft_field_type ft_field_int = {print_int, parse_int};

static void print_int64(const void *member, size_t size, struct ft_text *value) {
  int64_t number = 0;
  memcpy(&number, member, size);
  ft_text_add(value, "%lld", (long long)number);
}

static int parse_int64(void *member, size_t size, const char *value) {
  int64_t number = 0;
  FT_TRY(parse_whole(value, INT64_MAX, &number));
  memcpy(member, &number, size);
  return FT_OK;
}

const struct ft_field_type ft_field_int64 = {print_int64, parse_int64};

static void print_size(const void *member, size_t size, struct ft_text *value) {
  size_t number = 0;
  memcpy(&number, member, size);
  ft_text_add(value, "%zu", number);
}

static int parse_size(void *member, size_t size, const char *value) {
  int64_t wide = 0;
  FT_TRY(parse_whole(value, INT64_MAX, &wide));
  const size_t number = (size_t)wide;
  memcpy(member, &number, size);
  return FT_OK;
}

const struct ft_field_type ft_field_size = {print_size, parse_size};

static void print_real(const void *member, size_t size, struct ft_text *value) {
  double number = 0;
  memcpy(&number, member, size);
  ft_real_print(number, value);
}

static int parse_real(void *member, size_t size, const char *value) {
  const char *end = NULL;
  double number = 0;
  FT_TRY(ft_real_parse(value, &end, &number));
  if (*end != '\0') return ft_fail(FT_E_ARGUMENT, "is '%.40s'; allowed is one number", value);
  memcpy(member, &number, size);
  return FT_OK;
}

const struct ft_field_type ft_field_real = {print_real, parse_real};

static int parse_time(void *member, size_t size, const char *value) {
  double number = 0;
  FT_TRY(parse_real(&number, sizeof number, value));
  if (!isfinite(number) || number < 0)
    return ft_fail(FT_E_ARGUMENT, "is '%.40s'; allowed are finite numbers >= 0", value);
  memcpy(member, &number, size);
  return FT_OK;
}

const struct ft_field_type ft_field_time = {print_real, parse_time};

static void print_digest(const void *member, size_t size, struct ft_text *value) {
  static const struct ft_digest none;
  struct ft_digest digest;
  char hex[FT_DIGEST_HEX];
  memcpy(&digest, member, size);
  if (ft_digest_equal(&digest, &none)) return;
  ft_digest_hex(&digest, hex);
  ft_text_add(value, "%s", hex);
}

static int parse_digest(void *member, size_t size, const char *value) {
  struct ft_digest digest = {{0}};
  const size_t length = strlen(value);
  bool sound = length == 2 * (size_t)FT_DIGEST_BYTES || length == 0;
  for (size_t i = 0; sound && i < length; i++) {
    const int digit = ft_hex_digit(value[i]);
    sound = digit >= 0;
    if (sound) digest.bytes[i / 2] = (unsigned char)(digest.bytes[i / 2] * 16 + digit);
  }
  if (!sound)
    return ft_fail(FT_E_ARGUMENT, "is '%.80s'; allowed are %d lower-case hex digits", value,
                   2 * FT_DIGEST_BYTES);
  memcpy(member, &digest, size);
  return FT_OK;
}

const struct ft_field_type ft_field_digest = {print_digest, parse_digest};

void ft_real_print(double number, struct ft_text *text) {
  char shortest[40];
  for (int digits = 15;; digits++) {
    snprintf(shortest, sizeof shortest, "%.*g", digits, number);
    if (digits == 17 || strtod(shortest, NULL) == number) break;
  }
  ft_text_add(text, "%s", shortest);
}

int ft_real_parse(const char *text, const char **end, double *number) {
  char *stop = NULL;
  *number = strtod(text, &stop);
  *end = stop;
  if (stop == text) return ft_fail(FT_E_ARGUMENT, "'%.40s' is not a number", text);
  return FT_OK;
}

int ft_hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}
