/* config.c: knobs as a table, and configs as text; both come from knobs.def.
 * in -> out: text <-> struct ft_config. */
#include "generator/config.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"

/* knobs.def holds each list of values in parentheses: UNWRAP takes them off. */
#define UNWRAP(...)                 __VA_ARGS__
#define KNOB(name, values, meaning) static const int name##_values[] = {UNWRAP values};
#include "generator/knobs.def"
#undef KNOB

static const struct ft_knob knobs[FT_KNOB_COUNT] = {
#define KNOB(name, values, meaning)                                                                \
  {#name, meaning, name##_values, (int)(sizeof name##_values / sizeof name##_values[0])},
#include "generator/knobs.def"
#undef KNOB
};

static const char *const family_names[] = {"mma"}; /* in the order of enum ft_family */

const struct ft_knob *ft_knob(int index) {
  return index >= 0 && index < FT_KNOB_COUNT ? &knobs[index] : NULL;
}

int ft_config_get(const struct ft_config *config, int knob) {
  switch (knob) {
#define KNOB(name, values, meaning)                                                                \
  case FT_KNOB_##name:                                                                             \
    return config->name;
#include "generator/knobs.def"
#undef KNOB
  }
  assert(!"no such knob");
  return 0;
}

void ft_config_set(struct ft_config *config, int knob, int value) {
  switch (knob) {
#define KNOB(name, values, meaning)                                                                \
  case FT_KNOB_##name:                                                                             \
    config->name = value;                                                                          \
    return;
#include "generator/knobs.def"
#undef KNOB
  }
  assert(!"no such knob");
}

void ft_config_print(const struct ft_config *config, struct ft_text *text) {
  ft_text_add(text, "%s", ft_family_name(config->family));
  for (int i = 0; i < FT_KNOB_COUNT; ++i)
    ft_text_add(text, " %s=%d", knobs[i].name, ft_config_get(config, i));
}

/* Names of all knobs for a message: "block_m, block_n, ...". */
static void list_knobs(char *buffer, size_t size) {
  buffer[0] = '\0';
  for (int i = 0; i < FT_KNOB_COUNT; ++i) {
    if (i > 0) strncat(buffer, ", ", size - strlen(buffer) - 1);
    strncat(buffer, knobs[i].name, size - strlen(buffer) - 1);
  }
}

static int parse_family(struct ft_config *config, const char *word) {
  for (size_t i = 0; i < sizeof family_names / sizeof family_names[0]; ++i) {
    if (strcmp(word, family_names[i]) != 0) continue;
    config->family = (enum ft_family)i;
    return FT_OK;
  }
  return ft_fail(FT_E_ARGUMENT, "config: family '%s' is unknown; allowed: mma", word);
}

/* One "name=value" word. */
static int parse_knob(struct ft_config *config, bool given[FT_KNOB_COUNT], const char *word) {
  const char *const equals = strchr(word, '=');
  const size_t name_length = equals == NULL ? strlen(word) : (size_t)(equals - word);
  int knob = 0;
  while (knob < FT_KNOB_COUNT && (strlen(knobs[knob].name) != name_length ||
                                  strncmp(word, knobs[knob].name, name_length) != 0))
    ++knob;
  if (knob == FT_KNOB_COUNT) {
    char names[256];
    list_knobs(names, sizeof names);
    return ft_fail(FT_E_ARGUMENT, "config: '%s' is no knob; allowed: %s", word, names);
  }
  if (given[knob]) return ft_fail(FT_E_ARGUMENT, "config: '%s' is given twice", knobs[knob].name);

  /* Digits only: strtol alone would take " 4", "+4" and "0x4" too. */
  const char *const digits = equals == NULL ? "" : equals + 1;
  errno = 0;
  const long value = strtol(digits, NULL, 10);
  if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0' || errno != 0 ||
      value > INT_MAX)
    return ft_fail(FT_E_ARGUMENT, "config: '%s': the value must be a whole number from 0 to %d",
                   word, INT_MAX);
  ft_config_set(config, knob, (int)value);
  given[knob] = true;
  return FT_OK;
}

int ft_config_parse(struct ft_config *config, const char *text) {
  if (text == NULL) return ft_fail(FT_E_ARGUMENT, "config: no text");
  struct ft_config parsed = {0};
  bool given[FT_KNOB_COUNT] = {false};
  char *const copy = strdup(text);
  if (copy == NULL) return ft_fail(FT_E_MEMORY, "config: out of memory");

  int status = FT_OK;
  char *rest = copy;
  const char *word = strtok_r(copy, " \t\n", &rest);
  FT_CHECK(parse_family(&parsed, word == NULL ? "" : word));
  while ((word = strtok_r(NULL, " \t\n", &rest)) != NULL)
    FT_CHECK(parse_knob(&parsed, given, word));
  for (int i = 0; i < FT_KNOB_COUNT; ++i) {
    if (given[i] || knobs[i].values[0] == 0) continue; /* a switch left out is off */
    status = ft_fail(FT_E_ARGUMENT, "config: knob '%s' is missing (%s)", knobs[i].name,
                     knobs[i].meaning);
    goto done;
  }
  *config = parsed;

done:
  free(copy);
  return status;
}

int ft_config_compare(const struct ft_config *a, const struct ft_config *b) {
  if (a->family != b->family) return a->family < b->family ? -1 : 1;
  for (int i = 0; i < FT_KNOB_COUNT; ++i) {
    const int left = ft_config_get(a, i), right = ft_config_get(b, i);
    if (left != right) return left < right ? -1 : 1;
  }
  return 0;
}

const char *ft_family_name(enum ft_family family) {
  return (size_t)family < sizeof family_names / sizeof family_names[0] ? family_names[family]
                                                                       : "unknown";
}
