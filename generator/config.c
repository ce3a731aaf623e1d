/* config.c: configs as text.
 * in -> out: text <-> struct ft_config, by the knobs of its family. */
#include "generator/config.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "generator/family.h"
#include "generator/status.h"

static bool is_switch(const struct ft_knob *knob) {
  return knob->least == 0;
}

struct ft_config ft_config_make(const struct ft_family *family, const void *knobs) {
  struct ft_config config = {.family = family};
  memcpy(config.knobs, knobs, (size_t)family->knob_count * sizeof *config.knobs);
  return config;
}

struct ft_config ft_config_first(const struct ft_family *family) {
  struct ft_config config = {.family = family};
  for (int i = 0; i < family->knob_count; ++i) config.knobs[i] = family->knobs[i].searched[0];
  return config;
}

const struct ft_knob *ft_config_out_of_range(const struct ft_config *config) {
  for (int i = 0; i < config->family->knob_count; ++i) {
    const struct ft_knob *const knob = &config->family->knobs[i];
    if (config->knobs[i] < knob->least || config->knobs[i] > knob->most) return knob;
  }
  return NULL;
}

void ft_config_print(const struct ft_config *config, struct ft_text *text) {
  ft_text_add(text, "%s", config->family->name);
  for (int i = 0; i < config->family->knob_count; ++i) {
    const struct ft_knob *const knob = &config->family->knobs[i];
    if (config->knobs[i] != 0 || !is_switch(knob))
      ft_text_add(text, " %s=%d", knob->name, config->knobs[i]);
  }
}

/* ", a" behind what is there, or "a". */
static void list(struct ft_text *names, const char *name) {
  ft_text_add(names, "%s%s", names->length > 0 ? ", " : "", name);
}

static int unknown_family(const char *word) {
  struct ft_text names = FT_TEXT_INIT;
  for (int i = 0; ft_family_at(i) != NULL; ++i) list(&names, ft_family_at(i)->name);
  ft_fail(FT_E_ARGUMENT, "config: family '%s' is unknown; allowed: %s", word,
          names.data ? names.data : "");
  ft_text_free(&names);
  return FT_E_ARGUMENT;
}

static int unknown_knob(const struct ft_family *family, const char *name, size_t length) {
  struct ft_text names = FT_TEXT_INIT;
  for (int i = 0; i < family->knob_count; ++i) list(&names, family->knobs[i].name);
  ft_fail(FT_E_ARGUMENT, "config: %s has no knob '%.*s'; allowed: %s", family->name, (int)length,
          name, names.data ? names.data : "");
  ft_text_free(&names);
  return FT_E_ARGUMENT;
}

/* The number of the family's knob of that name; their count if there is none. */
static int find_knob(const struct ft_family *family, const char *name, size_t length) {
  int knob = 0;
  while (knob < family->knob_count && (strlen(family->knobs[knob].name) != length ||
                                       strncmp(name, family->knobs[knob].name, length) != 0))
    ++knob;
  return knob;
}

/* One "name=value" word. */
static int parse_knob(struct ft_config *config, bool given[FT_KNOBS_MOST], const char *word) {
  const char *const equals = strchr(word, '=');
  const size_t name_length = equals == NULL ? strlen(word) : (size_t)(equals - word);
  const int knob = find_knob(config->family, word, name_length);
  if (knob == config->family->knob_count) return unknown_knob(config->family, word, name_length);
  if (given[knob])
    return ft_fail(FT_E_ARGUMENT, "config: '%s' is given twice", config->family->knobs[knob].name);

  /* Digits only: strtol alone would take " 4", "+4" and "0x4" too. */
  const char *const digits = equals == NULL ? "" : equals + 1;
  errno = 0;
  const long value = strtol(digits, NULL, 10);
  if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0' || errno != 0 ||
      value > INT_MAX)
    return ft_fail(FT_E_ARGUMENT, "config: '%s': the value must be a whole number from 0 to %d",
                   word, INT_MAX);
  config->knobs[knob] = (int)value;
  given[knob] = true;
  return FT_OK;
}

static int check_missing(const struct ft_family *family, const bool given[FT_KNOBS_MOST]) {
  for (int i = 0; i < family->knob_count; ++i)
    if (!given[i] && !is_switch(&family->knobs[i]))
      return ft_fail(FT_E_ARGUMENT, "config: knob '%s' is missing (%s)", family->knobs[i].name,
                     family->knobs[i].meaning);
  return FT_OK;
}

int ft_config_parse(struct ft_config *config, const char *text) {
  if (text == NULL) return ft_fail(FT_E_ARGUMENT, "config: no text");
  bool given[FT_KNOBS_MOST] = {false};
  char *const copy = strdup(text);
  if (copy == NULL) return ft_fail(FT_E_MEMORY, "config: out of memory");

  int status = FT_OK;
  char *rest = copy;
  const char *word = strtok_r(copy, " \t\n", &rest);
  if (word == NULL) word = "";
  struct ft_config parsed = {.family = ft_family_named(word)};
  if (parsed.family == NULL) {
    status = unknown_family(word);
    goto done;
  }
  while ((word = strtok_r(NULL, " \t\n", &rest)) != NULL)
    FT_CHECK(parse_knob(&parsed, given, word));
  FT_CHECK(check_missing(parsed.family, given));
  *config = parsed;

done:
  free(copy);
  return status;
}

int ft_config_compare(const struct ft_config *a, const struct ft_config *b) {
  if (a->family != b->family) return strcmp(a->family->name, b->family->name) < 0 ? -1 : 1;
  for (int i = 0; i < a->family->knob_count; ++i)
    if (a->knobs[i] != b->knobs[i]) return a->knobs[i] < b->knobs[i] ? -1 : 1;
  return 0;
}
