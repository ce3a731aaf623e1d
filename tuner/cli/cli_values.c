/* cli_values.c: strict reading of option values.
 * in -> out: option name + text -> number, or FT_E_ARGUMENT naming option, value and what is
 * allowed. */
#include "tuner/cli/cli_values.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "generator/text.h"

/* Reads digits at *text and moves it past them. strtoll alone would take blanks, signs and nothing.
 */
static bool read_integer(const char **text, int64_t *value) {
  char *end;
  if (!isdigit((unsigned char)**text)) return false;
  errno = 0;
  const long long number = strtoll(*text, &end, 10);
  if (errno != 0) return false;
  *text = end;
  *value = number;
  return true;
}

/* A finite decimal number; "nan", "inf" and hexadecimal, which strtod takes, are refused. */
static bool read_real(const char **text, double *value) {
  const size_t length = strspn(*text, "0123456789.eE+-");
  char *end;
  if (length == 0 || isspace((unsigned char)**text)) return false;
  errno = 0;
  *value = strtod(*text, &end);
  if (end == *text || end > *text + length || errno == ERANGE) return false;
  *text = end;
  return true;
}

int cli_integer(const char *option, const char *text, int64_t low, int64_t high, int64_t *value) {
  const char *rest = text;
  if (!read_integer(&rest, value) || *rest != '\0' || *value < low || *value > high) {
    return ft_fail(FT_E_ARGUMENT, "%s is '%s'; allowed: an integer from %lld to %lld", option, text,
                   (long long)low, (long long)high);
  }
  return FT_OK;
}

int cli_pair(const char *option, const char *text, int64_t high, int64_t *first, int64_t *second) {
  const char *rest = text;
  bool good = read_integer(&rest, first);
  *second = *first;
  if (good && *rest == ':') {
    ++rest;
    good = read_integer(&rest, second);
  }
  if (!good || *rest != '\0' || *first < 1 || *second < 1 || *first > high || *second > high) {
    return ft_fail(FT_E_ARGUMENT, "%s is '%s'; allowed: N or N:M, integers from 1 to %lld", option,
                   text, (long long)high);
  }
  return FT_OK;
}

int cli_real(const char *option, const char *text, double low, double high, double *value) {
  const char *rest = text;
  if (!read_real(&rest, value) || *rest != '\0' || !(*value >= low && *value <= high)) {
    return ft_fail(FT_E_ARGUMENT, "%s is '%s'; allowed: a number from %g to %g", option, text, low,
                   high);
  }
  return FT_OK;
}

int cli_duration(const char *option, const char *text, double *seconds) {
  const char *rest = text;
  double unit = 1;
  const bool good = read_real(&rest, seconds);
  if (good && *rest != '\0' && rest[1] == '\0') {
    unit = *rest == 's' ? 1 : *rest == 'm' ? 60 : *rest == 'h' ? 3600 : 0;
    ++rest;
  }
  if (!good || *rest != '\0' || unit == 0 || !(*seconds > 0 && *seconds <= 1e9)) {
    return ft_fail(FT_E_ARGUMENT,
                   "%s is '%s'; allowed: a time above 0 in seconds, or with a unit: 90s, 15m, 2h",
                   option, text);
  }
  *seconds *= unit;
  return FT_OK;
}

int cli_bytes(const char *option, const char *text, int64_t *bytes) {
  const char *rest = text;
  int shift = 0;
  const bool good = read_integer(&rest, bytes);
  if (good && *rest != '\0' && rest[1] == '\0') {
    const char *units = "BKMGT", *unit = strchr(units, toupper((unsigned char)*rest));
    shift = unit == NULL ? -1 : 10 * (int)(unit - units);
    ++rest;
  }
  if (!good || *rest != '\0' || shift < 0 || *bytes > INT64_MAX >> shift) {
    return ft_fail(FT_E_ARGUMENT, "%s is '%s'; allowed: bytes, or with a unit: 64K, 512M, 2G",
                   option, text);
  }
  *bytes <<= shift;
  return FT_OK;
}

bool cli_share(const char *text, int64_t *index, int64_t *count) {
  const char *rest = text;
  if (!read_integer(&rest, index) || *rest != '/') return false;
  ++rest;
  return read_integer(&rest, count) && *rest == '\0';
}

int cli_choice(const char *option, const char *text, const char *const *names, int *index) {
  struct ft_text list = FT_TEXT_INIT;
  for (int i = 0; names[i] != NULL; ++i) {
    if (strcmp(text, names[i]) == 0) {
      *index = i;
      ft_text_free(&list);
      return FT_OK;
    }
    ft_text_add(&list, "%s%s", i > 0 ? ", " : "", names[i]);
  }
  const int status = ft_fail(FT_E_ARGUMENT, "%s is '%s'; allowed: %s", option, text,
                             list.data == NULL ? "" : list.data);
  ft_text_free(&list);
  return status;
}
