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
#define UNWRAP(...) __VA_ARGS__
#define NONE        (0)
#define KNOB(name, mma, wgmma, mma_backward, meaning)                                              \
  static const int name##_mma[] = {UNWRAP mma}, name##_wgmma[] = {UNWRAP wgmma},                   \
                   name##_mma_backward[] = {UNWRAP mma_backward};
#include "generator/knobs.def"
#undef KNOB

#define VALUES(array)                                                                              \
  { array, (int)(sizeof(array) / sizeof(array)[0]) }
static const struct ft_knob knobs[FT_KNOB_COUNT] = {
#define KNOB(name, mma, wgmma, mma_backward, meaning)                                              \
  {#name, meaning, {VALUES(name##_mma), VALUES(name##_wgmma), VALUES(name##_mma_backward)}},
#include "generator/knobs.def"
#undef KNOB
};

/* In the order of enum ft_family. */
static const char *const family_names[FT_FAMILY_COUNT] = {"mma", "wgmma", "mma_backward"};

const struct ft_knob *ft_knob(int index) {
  return index >= 0 && index < FT_KNOB_COUNT ? &knobs[index] : NULL;
}

bool ft_family_has(enum ft_family family, int knob) {
  const struct ft_values *const values = &knobs[knob].values[family];
  return values->count > 1 || values->list[0] != 0;
}

int ft_config_get(const struct ft_config *config, int knob) {
  switch (knob) {
#define KNOB(name, mma, wgmma, mma_backward, meaning)                                              \
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
#define KNOB(name, mma, wgmma, mma_backward, meaning)                                              \
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
    if (ft_family_has(config->family, i))
      ft_text_add(text, " %s=%d", knobs[i].name, ft_config_get(config, i));
}

static int parse_family(struct ft_config *config, const char *word) {
  for (int i = 0; i < FT_FAMILY_COUNT; ++i) {
    if (strcmp(word, family_names[i]) != 0) continue;
    config->family = (enum ft_family)i;
    return FT_OK;
  }
  return ft_fail(FT_E_ARGUMENT, "config: family '%s' is unknown; allowed: mma, wgmma, mma_backward",
                 word);
}

/* Names of a family's knobs for a message: "block_m, block_n, ...". */
static void list_knobs(enum ft_family family, char *buffer, size_t size) {
  buffer[0] = '\0';
  for (int i = 0; i < FT_KNOB_COUNT; ++i) {
    if (!ft_family_has(family, i)) continue;
    if (buffer[0] != '\0') strncat(buffer, ", ", size - strlen(buffer) - 1);
    strncat(buffer, knobs[i].name, size - strlen(buffer) - 1);
  }
}

/* The family's knob of that name, FT_KNOB_COUNT if there is none. */
static int find_knob(enum ft_family family, const char *name, size_t length) {
  int knob = 0;
  while (knob < FT_KNOB_COUNT &&
         (!ft_family_has(family, knob) || strlen(knobs[knob].name) != length ||
          strncmp(name, knobs[knob].name, length) != 0))
    ++knob;
  return knob;
}

/* One "name=value" word. */
static int parse_knob(struct ft_config *config, bool given[FT_KNOB_COUNT], const char *word) {
  const char *const equals = strchr(word, '=');
  const size_t name_length = equals == NULL ? strlen(word) : (size_t)(equals - word);
  const int knob = find_knob(config->family, word, name_length);
  if (knob == FT_KNOB_COUNT) {
    char names[256];
    list_knobs(config->family, names, sizeof names);
    return ft_fail(FT_E_ARGUMENT, "config: %s has no knob '%.*s'; allowed: %s",
                   ft_family_name(config->family), (int)name_length, word, names);
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
    /* A switch left out is off; what the family has not is 0, too. */
    if (given[i] || knobs[i].values[parsed.family].list[0] == 0) continue;
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
    if (!ft_family_has(a->family, i)) continue;
    const int left = ft_config_get(a, i), right = ft_config_get(b, i);
    if (left != right) return left < right ? -1 : 1;
  }
  return 0;
}

const char *ft_family_name(enum ft_family family) {
  return (unsigned)family < FT_FAMILY_COUNT ? family_names[family] : "unknown";
}
