/* trials_line.c: the lines of a file of trials for the fit. in -> out: see trials_line.h. */
#include "tuner/cli/fit/trials_line.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cache/fields.h"
#include "generator/status.h"

/* ---- by what trials were measured ---- */

#define FIELD(name, type, required)                                                                \
  {                                                                                                \
#name, &type, offsetof(struct ft_trials_head, name),                                           \
        sizeof(((struct ft_trials_head *)0)->name), required                                       \
  }

static const struct ft_field of_run[] = {
    FIELD(what, ft_field_string, true),   FIELD(device, ft_field_string, true),
    FIELD(policy, ft_field_string, true), FIELD(driver, ft_field_string, false),
    FIELD(nvrtc, ft_field_string, false), FIELD(templates, ft_field_digest, false),
    FIELD(date, ft_field_string, false),
};

enum { FIELDS = sizeof of_run / sizeof *of_run };

/* Those that may change within a run, each of which may be left out. */
static void fields_of_with(struct ft_field fields[FIELDS - 1]) {
  memcpy(fields, of_run + 1, (FIELDS - 1) * sizeof *fields);
  for (int n = 0; n < FIELDS - 1; n++) fields[n].required = false;
}

/* "name=value", "" where there is none. */
static void print_field(struct ft_field field, const struct ft_trials_head *head,
                        struct ft_text *text) {
  field.required = true;
  ft_text_clear(text);
  ft_fields_print(&field, 1, head, text);
}

struct ft_trials_head ft_trials_head_of(const struct ft_trial *trial, const char *what) {
  struct ft_trials_head head = {.templates = trial->templates};
  struct tm day;
  snprintf(head.what, sizeof head.what, "%s", what);
  snprintf(head.device, sizeof head.device, "%s", trial->device);
  snprintf(head.policy, sizeof head.policy, "%s", trial->policy);
  snprintf(head.driver, sizeof head.driver, "%s", trial->driver);
  snprintf(head.nvrtc, sizeof head.nvrtc, "%s", trial->nvrtc);
  if (trial->at > 0 && gmtime_r(&(time_t){trial->at}, &day))
    strftime(head.date, sizeof head.date, "%Y-%m-%d", &day);
  return head;
}

void ft_trials_print_run(const struct ft_trials_head *head, struct ft_text *line) {
  ft_text_add(line, "run ");
  ft_fields_print(of_run, FIELDS, head, line);
}

void ft_trials_print_with(const struct ft_trials_head *before, const struct ft_trials_head *head,
                          struct ft_text *line) {
  struct ft_text was = FT_TEXT_INIT, is = FT_TEXT_INIT;
  for (int n = 1; n < FIELDS; n++) {
    print_field(of_run[n], before, &was);
    print_field(of_run[n], head, &is);
    if (was.failed || is.failed) line->failed = true;
    if (line->failed || strcmp(was.data, is.data) == 0) continue;
    ft_text_add(line, line->length == 0 ? "with %s" : " %s", is.data);
  }
  ft_text_free(&was);
  ft_text_free(&is);
}

int ft_trials_parse_run(struct ft_trials_head *head, const char *words) {
  *head = (struct ft_trials_head){0};
  return ft_fields_parse(of_run, FIELDS, head, words);
}

int ft_trials_parse_with(struct ft_trials_head *head, const char *words) {
  struct ft_field fields[FIELDS - 1];
  fields_of_with(fields);
  return ft_fields_parse(fields, FIELDS - 1, head, words);
}

/* ---- a trial ---- */

/* Six digits, without an exponent up to 10^9. */
static void add_us(struct ft_text *line, double us) {
  ft_text_add(line, us < 1e5 ? " %.6g" : us < 1e9 ? " %.0f" : " %.6g", us);
}

/* Two digits; what is not known is "-". */
static void add_share(struct ft_text *line, double share, const char *unit) {
  if (share > 0 && isfinite(share))
    ft_text_add(line, share < 99 ? " %.2g%s" : " %.0f%s", share, unit);
  else
    ft_text_add(line, " -");
}

static void add_count(struct ft_text *line, int count) {
  if (count > 0)
    ft_text_add(line, " %d", count);
  else
    ft_text_add(line, " -");
}

static void add_columns(struct ft_text *line, const struct ft_trial *trial) {
  if (trial->median_us > 0)
    add_us(line, trial->median_us);
  else
    ft_text_add(line, " -");
  add_count(line, trial->sm_clock_mhz);
  add_count(line, trial->registers);
  if (trial->spill_bytes > 0) ft_text_add(line, "+%d", trial->spill_bytes);
  add_share(line, trial->median_us > 0 ? 100 * trial->spread_us / trial->median_us : 0, "%");
  add_share(line, trial->error_ratio, "");
  while (line->length > 2 && strcmp(line->data + line->length - 2, " -") == 0)
    line->data[line->length -= 2] = '\0'; /* what is last and not known is left out */
}

void ft_trials_print_row(int config, const struct ft_trial *trial, struct ft_text *line) {
  struct ft_locale locale = ft_locale_plain();
  ft_text_add(line, "%d", config);
  add_columns(line, trial);
  if (trial->outcome != FT_OUTCOME_SCREENED)
    ft_text_add(line, " %s", ft_outcome_name(trial->outcome));
  if (trial->is_default) ft_text_add(line, " default");
  if (trial->reason[0] != '\0') ft_text_add(line, " : ");
  for (const char *at = trial->reason; *at; at++)
    ft_text_append(line, iscntrl((unsigned char)*at) ? " " : at, 1);
  ft_locale_restore(&locale);
}

/* The next word is a column's: a number, or "-". */
static bool has_column(const char *at) {
  return isdigit((unsigned char)*at) || *at == '-';
}

static int end_column(const char **at, const char *start, const char *allowed) {
  if (**at != ' ' && **at != '\0')
    return ft_fail(FT_E_ARGUMENT, "'%.*s' is not %s, nor -", (int)strcspn(start, " "), start,
                   allowed);
  *at += strspn(*at, " ");
  return FT_OK;
}

static int read_real(const char **at, double *number, const char *unit, const char *allowed) {
  const char *const start = *at, *end = start + 1;
  if (!has_column(start)) return FT_OK;
  if (*start != '-') {
    FT_TRY(ft_real_parse(start, &end, number));
    if (strncmp(end, unit, strlen(unit)) == 0)
      end += strlen(unit);
    else
      end = start;
    if (!isfinite(*number)) end = start;
  }
  *at = end;
  return end_column(at, start, allowed);
}

static const char *read_digits(const char *at, int *count) {
  long number = 0;
  while (isdigit((unsigned char)*at) && number <= INT_MAX / 10 - 1)
    number = number * 10 + *at++ - '0';
  *count = (int)number;
  return at;
}

static int read_count(const char **at, int *count, int *more, const char *allowed) {
  const char *const start = *at;
  if (!has_column(start)) return FT_OK;
  *at = *start == '-' ? start + 1 : read_digits(start, count);
  if (more && **at == '+' && isdigit((unsigned char)(*at)[1])) *at = read_digits(*at + 1, more);
  return end_column(at, start, allowed);
}

/* Those that a line may lack. */
static int read_columns(struct ft_trials_row *row, const char **at) {
  double percent = 0;
  FT_TRY(read_real(at, &row->median_us, "", "microseconds"));
  FT_TRY(read_count(at, &row->sm_clock_mhz, NULL, "a clock in MHz"));
  FT_TRY(read_count(at, &row->registers, &row->spill_bytes, "registers[+bytes spilled]"));
  FT_TRY(read_real(at, &percent, "%", "a spread in %"));
  FT_TRY(read_real(at, &row->error_ratio, "", "an error ratio"));
  row->spread = percent / 100;
  return FT_OK;
}

static bool is_word(const char *at, const char *word) {
  const size_t length = strlen(word);
  return strncmp(at, word, length) == 0 && (at[length] == ' ' || at[length] == '\0');
}

static int read_words(struct ft_trials_row *row, const char **at) {
  for (; **at != '\0' && **at != ':'; *at += strcspn(*at, " "), *at += strspn(*at, " ")) {
    int outcome = FT_OUTCOME_OK;
    if (is_word(*at, "default")) {
      row->is_default = true;
      continue;
    }
    while (outcome <= FT_OUTCOME_TIMEOUT &&
           !is_word(*at, ft_outcome_name((enum ft_outcome)outcome)))
      outcome++;
    if (outcome > FT_OUTCOME_TIMEOUT)
      return ft_fail(FT_E_ARGUMENT,
                     "'%.*s' is too much; allowed are, in this order: config, microseconds, MHz, "
                     "registers[+bytes spilled], spread%%, error ratio, outcome, default, : reason",
                     (int)strcspn(*at, " "), *at);
    row->outcome = (enum ft_outcome)outcome;
  }
  return FT_OK;
}

int ft_trials_parse_row(struct ft_trials_row *row, const char *text) {
  const char *at = text;
  *row = (struct ft_trials_row){.outcome = FT_OUTCOME_SCREENED};
  if (!isdigit((unsigned char)*at))
    return ft_fail(FT_E_ARGUMENT, "'%.*s' is not the number of a config", (int)strcspn(at, " "),
                   at);
  FT_TRY(read_count(&at, &row->config, NULL, "the number of a config"));
  FT_TRY(read_columns(row, &at));
  FT_TRY(read_words(row, &at));
  if (*at == ':') row->reason = (char *)at + 1 + strspn(at + 1, " ");
  if (ft_outcome_timed(row->outcome) && !(row->median_us > 0))
    return ft_fail(FT_E_ARGUMENT, "a trial that is %s has microseconds",
                   ft_outcome_name(row->outcome));
  return FT_OK;
}
