/* fit.c: coefficients fitted to recorded trials, and how well a fit ranks what it has not seen.
 * in -> out: tuner/model/fit/TARGET.fit, embedded at build time -> a factor on a prediction.
 * The files are read once, by whoever asks first. */
#include "tuner/model/fit.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/templates.h"

static const double MOST = 0.7; /* of the factor's logarithm: beyond it the data says nothing */

static struct ft_fit *fits;
static int fit_count, unread;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int values_before(const struct ft_family *family, int knob) {
  int count = 0;
  for (int n = 0; n < knob; n++) count += family->knobs[n].searched_count;
  return count;
}

static struct ft_fit *find(const struct ft_family *family, const char *target) {
  for (int n = 0; n < fit_count; n++)
    if (fits[n].family == family && strcmp(fits[n].target, target) == 0) return &fits[n];
  return NULL;
}

/* The next word, if it begins with `before`: what comes after that. Else NULL. *line is then what
 * comes after the word. */
static char *take_word(char **line, const char *before) {
  char *word;
  do word = strsep(line, " ");
  while (word && *word == '\0');
  const size_t length = strlen(before);
  return word && strncmp(word, before, length) == 0 && word[length] != '\0' ? word + length : NULL;
}

static bool take_number(char **line, const char *before, double *number) {
  const char *const word = take_word(line, before);
  if (!word) return false;
  char *end;
  *number = strtod(word, &end);
  return *end == '\0' && isfinite(*number);
}

static bool take_text(char **line, const char *before, char *text, size_t room) {
  const char *const word = take_word(line, before);
  if (!word || strlen(word) >= room) return false;
  snprintf(text, room, "%s", word);
  return true;
}

/* "target=T used=1 dtypes=.. trials=.. ...", the words in this order. */
static bool take_figures(char *line, struct ft_fit *fit) {
  double counts[4];
  static const char *const names[] = {"trials=", "requests=", "kinds="};
  const struct {
    const char *name;
    double *figure;
  } figures[] = {{"rank_by_hand=", &fit->rank_by_hand},
                 {"rank=", &fit->rank},
                 {"kind_rank=", &fit->kind_rank},
                 {"ceiling=", &fit->ceiling},
                 {"error_by_hand=", &fit->error_by_hand},
                 {"error=", &fit->error},
                 {"order=", &fit->order}};
  if (!take_text(&line, "target=", fit->target, sizeof fit->target)) return false;
  if (!take_number(&line, "used=", &counts[0])) return false;
  if (!take_text(&line, "dtypes=", fit->dtypes, sizeof fit->dtypes)) return false;
  for (int n = 0; n < FT_COUNT(names); n++)
    if (!take_number(&line, names[n], &counts[n + 1])) return false;
  for (int n = 0; n < FT_COUNT(figures); n++)
    if (!take_number(&line, figures[n].name, figures[n].figure)) return false;
  fit->used = counts[0] == 1;
  fit->trials = (int)counts[1];
  fit->requests = (int)counts[2];
  fit->kinds = (int)counts[3];
  return true;
}

/* "NAME", and its figures. */
static bool read_family(char *line) {
  struct ft_fit fit = {0};
  const char *const name = take_word(&line, "");
  if (!name || !take_figures(line, &fit)) return false;
  fit.family = ft_family_named(name);
  if (!fit.family || find(fit.family, fit.target)) return false;
  const int values = values_before(fit.family, fit.family->knob_count);
  if (values == 0) return false;
  struct ft_fit *const grown = realloc(fits, (size_t)(fit_count + 1) * sizeof *fits);
  if (grown) fits = grown;
  fit.knobs = calloc((size_t)values, sizeof *fit.knobs);
  if (!grown || !fit.knobs) {
    free(fit.knobs);
    return false;
  }
  fits[fit_count++] = fit;
  return true;
}

static int setting_named(const char *name) {
  for (int n = 0; n < FT_SETTINGS; n++)
    if (strcmp(ft_setting_name(n), name) == 0) return n;
  return -1;
}

/* The coefficients of "KNOB=VALUE" or of a term; NULL: there is no such thing. Those of a value
 * that is no longer searched go nowhere. */
static double *coefficients_of(struct ft_fit *fit, char *quality) {
  for (int n = 0; n < FT_TERMS; n++)
    if (strcmp(ft_term_name(n), quality) == 0) return fit->terms[n];
  char *const equals = strchr(quality, '=');
  if (!equals) return NULL;
  *equals = '\0';
  for (int n = 0; n < fit->family->knob_count; n++) {
    const struct ft_knob *const knob = &fit->family->knobs[n];
    if (strcmp(knob->name, quality) != 0) continue;
    const int place = ft_searched_place(knob, (int)strtol(equals + 1, NULL, 10));
    static double nowhere[FT_SETTINGS];
    return place < 0 ? nowhere : fit->knobs[values_before(fit->family, n) + place];
  }
  return NULL;
}

/* "QUALITY SETTING COEFFICIENT", of the family of the last line that began with "family". */
static bool read_coefficient(char *line) {
  double coefficient;
  char *const quality = take_word(&line, "");
  const char *const setting = take_word(&line, "");
  if (fit_count == 0 || !setting || !take_number(&line, "", &coefficient)) return false;
  double *const row = coefficients_of(&fits[fit_count - 1], quality);
  const int column = setting_named(setting);
  if (!row || column < 0) return false;
  row[column] = coefficient;
  return true;
}

static bool read_line(char *line) {
  static const char FAMILY[] = "family ";
  const size_t length = sizeof FAMILY - 1;
  if (line[0] == '\0' || line[0] == '#') return true;
  const bool of_family = strncmp(line, FAMILY, length) == 0;
  return of_family ? read_family(line + length) : read_coefficient(line);
}

int ft_fits_read(const char *text, size_t length) {
  int lost = 0;
  for (size_t begin = 0; begin < length;) {
    char line[512];
    const char *const at = text + begin, *const end = memchr(at, '\n', length - begin);
    const size_t size = end ? (size_t)(end - at) : length - begin;
    snprintf(line, sizeof line, "%.*s", (int)size, at);
    lost += !read_line(line);
    begin += size + 1;
  }
  return lost;
}

static void read_all(void) {
  for (const struct ft_template *file = ft_fits; file->name; file++)
    unread += ft_fits_read(file->text, file->length);
}

const struct ft_fit *ft_fit_of(const struct ft_family *family, const struct ft_arch *arch) {
  char target[16];
  pthread_once(&once, read_all);
  ft_arch_target(arch, target);
  return find(family, target);
}

int ft_fits_unread(void) {
  pthread_once(&once, read_all);
  return unread;
}

static double times(const double *coefficients, const double *settings) {
  double sum = 0;
  for (int n = 0; n < FT_SETTINGS; n++) sum += coefficients[n] * settings[n];
  return sum;
}

/* Whether the dtype is one of the words between commas. */
static bool has_seen(const struct ft_fit *fit, enum ft_dtype dtype) {
  const char *const name = ft_dtype_name(dtype);
  const size_t length = strlen(name);
  for (const char *word = fit->dtypes; word; word = strchr(word, ',')) {
    word += *word == ',';
    if (strncmp(word, name, length) == 0 && (word[length] == ',' || word[length] == '\0'))
      return true;
  }
  return false;
}

double ft_fit_factor(const struct ft_fit *fit, const struct ft_modelled *of,
                     const struct ft_prediction *prediction) {
  if (!fit || !fit->used || !has_seen(fit, of->request->dtype)) return 1;
  const struct ft_features features = ft_features_of(of, prediction);
  double sum = 0;
  for (int n = 0; n < FT_TERMS; n++)
    sum += features.terms[n] * times(fit->terms[n], features.settings);
  const double(*row)[FT_SETTINGS] = (const double(*)[FT_SETTINGS])fit->knobs;
  for (int n = 0; n < fit->family->knob_count; n++) {
    const struct ft_knob *const knob = &fit->family->knobs[n];
    const int place = ft_searched_place(knob, of->config->knobs[n]);
    if (place >= 0) sum += times(row[place], features.settings);
    row += knob->searched_count;
  }
  return exp(fmin(MOST, fmax(-MOST, sum)));
}
