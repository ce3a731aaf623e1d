/* trials_file.c: a file of trials for the fit, read. in -> out: see trials_file.h. */
#include "tuner/cli/fit/trials_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/fields.h"
#include "generator/status.h"

struct reader {
  struct ft_trials *trials;
  const char *path;
  int line;
  int request; /* of the trials that follow; -1: none */
};

/* Makes room for one element more. An array that is full is doubled, so it is full where `count`
 * is a power of two. */
static int grow(void **array, int count, size_t size) {
  if (count > 0 && (count & (count - 1)) != 0) return FT_OK;
  void *const grown = realloc(*array, size * (size_t)(count > 0 ? 2 * count : 1));
  if (!grown) return ft_fail(FT_E_MEMORY, "no memory for %d lines", count);
  *array = grown;
  return FT_OK;
}

/* ---- requests and configs, each once ---- */

/* A file lives longer than knobs do: trials of those that are gone stay in it. */
static bool is_known(const struct reader *reader, int status) {
  struct ft_trials *const trials = reader->trials;
  if (status != FT_OK && trials->unknown[0] == '\0')
    snprintf(trials->unknown, sizeof trials->unknown, "%s, line %d: %s", reader->path, reader->line,
             ft_detail());
  return status == FT_OK;
}

/* What is known counts as this version prints it. */
static int number_of(struct ft_texts *texts, const char *text, const struct ft_text *printed,
                     int *number, bool *is_new, const char **copy) {
  FT_TRY(ft_text_status(printed));
  return ft_texts_number(texts, printed->data ? printed->data : text, number, is_new, copy);
}

static int find_request(struct reader *reader, const char *text, int *number) {
  struct ft_trials *const trials = reader->trials;
  struct ft_trials_request it = {0};
  struct ft_text printed = FT_TEXT_INIT;
  bool is_new;
  FT_TRY(grow((void **)&trials->requests, trials->request_count, sizeof *trials->requests));
  it.known = is_known(reader, ft_request_parse(&it.request, text));
  if (it.known) ft_request_print(&it.request, &printed);
  const int status = number_of(&trials->request_texts, text, &printed, number, &is_new, &it.text);
  if (status == FT_OK && is_new) trials->requests[trials->request_count++] = it;
  ft_text_free(&printed);
  return status;
}

static int find_config(struct reader *reader, const char *text, int *number) {
  struct ft_trials *const trials = reader->trials;
  struct ft_trials_config it = {0};
  struct ft_text printed = FT_TEXT_INIT;
  bool is_new;
  FT_TRY(grow((void **)&trials->configs, trials->config_count, sizeof *trials->configs));
  it.known = is_known(reader, ft_config_parse(&it.config, text));
  if (it.known) ft_config_print(&it.config, &printed);
  const int status = number_of(&trials->config_texts, text, &printed, number, &is_new, &it.text);
  if (status == FT_OK && is_new) trials->configs[trials->config_count++] = it;
  ft_text_free(&printed);
  return status;
}

/* ---- lines ---- */

static int add_head(struct ft_trials *trials, const struct ft_trials_head *head) {
  FT_TRY(grow((void **)&trials->heads, trials->head_count, sizeof *trials->heads));
  trials->heads[trials->head_count++] = *head;
  return FT_OK;
}

static int read_run(struct reader *reader, const char *words) {
  struct ft_trials *const trials = reader->trials;
  struct ft_trials_head head;
  FT_TRY(ft_trials_parse_run(&head, words));
  trials->run_count += 1;
  trials->numbered_count = 0;
  reader->request = -1;
  return add_head(trials, &head);
}

static int read_with(struct reader *reader, const char *words) {
  struct ft_trials *const trials = reader->trials;
  struct ft_trials_head head = trials->heads[trials->head_count - 1];
  FT_TRY(ft_trials_parse_with(&head, words));
  return add_head(trials, &head);
}

static int read_request(struct reader *reader, const char *words) {
  return find_request(reader, words, &reader->request);
}

static int read_config(struct reader *reader, const char *words) {
  struct ft_trials *const trials = reader->trials;
  const int next = trials->numbered_count + 1;
  char *end;
  int config = 0;
  if (strtol(words, &end, 10) != next || *end != ' ')
    return ft_fail(FT_E_ARGUMENT, "'%.*s' is not the run's next config, whose number is %d",
                   (int)strcspn(words, " "), words, next);
  FT_TRY(find_config(reader, end + strspn(end, " "), &config));
  FT_TRY(grow((void **)&trials->numbered, trials->numbered_count, sizeof *trials->numbered));
  trials->numbered[trials->numbered_count++] = config;
  return FT_OK;
}

static int read_row(struct reader *reader, const char *line) {
  struct ft_trials *const trials = reader->trials;
  struct ft_trials_row row;
  FT_TRY(ft_trials_parse_row(&row, line));
  if (reader->request < 0)
    return ft_fail(FT_E_ARGUMENT, "a trial before the first request of its run");
  if (row.config < 1 || row.config > trials->numbered_count)
    return ft_fail(FT_E_ARGUMENT, "config %d is not one of the run's; they are 1 .. %d", row.config,
                   trials->numbered_count);
  row.run = trials->run_count;
  row.head = trials->head_count - 1;
  row.request = reader->request;
  row.config = trials->numbered[row.config - 1];
  FT_TRY(grow((void **)&trials->rows, trials->row_count, sizeof *trials->rows));
  if (row.reason && !(row.reason = strdup(row.reason)))
    return ft_fail(FT_E_MEMORY, "no memory for a reason");
  trials->rows[trials->row_count++] = row;
  return FT_OK;
}

static int read_line(struct reader *reader, char *line, size_t length) {
  static const struct {
    const char *word;
    int (*read)(struct reader *, const char *);
  } kinds[] = {
      {"run", read_run}, {"with", read_with}, {"request", read_request}, {"config", read_config}};
  if (line[length - 1] != '\n') return ft_fail(FT_E_ARGUMENT, "the file ends within a line");
  line[strcspn(line, "\r\n")] = '\0';
  if (line[0] == '#' || line[0] == '\0') return FT_OK;
  const size_t word = strcspn(line, " ");
  const char *const rest = line + word + strspn(line + word, " ");
  for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
    if (strlen(kinds[n].word) != word || strncmp(kinds[n].word, line, word) != 0) continue;
    if (n > 0 && reader->trials->run_count == 0) break;
    return kinds[n].read(reader, rest);
  }
  if (strncmp(line, "bucket=", 7) == 0)
    return ft_fail(FT_E_ARGUMENT, "a trial as `fatune cache export` writes it: `record_many pack` "
                                  "makes such lines those of this form");
  if (reader->trials->run_count == 0)
    return ft_fail(FT_E_ARGUMENT, "'%.40s' before the first \"run what=...\"", line);
  if (line[0] >= '0' && line[0] <= '9') return read_row(reader, line);
  return ft_fail(FT_E_ARGUMENT,
                 "'%.40s' is none of: run, with, request, config, a trial by its config's number, "
                 "# a comment",
                 line);
}

/* ---- the file ---- */

static int read_lines(struct reader *reader, FILE *file) {
  char *line = NULL;
  size_t room = 0;
  int status = FT_OK;
  for (ssize_t length; status == FT_OK && (length = getline(&line, &room, file)) > 0;) {
    reader->line += 1;
    status = read_line(reader, line, (size_t)length);
  }
  free(line);
  if (status != FT_OK) return ft_fail_within(status, "%s, line %d", reader->path, reader->line);
  return ferror(file) ? ft_fail(FT_E_IO, "%s cannot be read", reader->path) : FT_OK;
}

int ft_trials_read(struct ft_trials *trials, const char *path) {
  struct reader reader = {.trials = trials, .path = path, .request = -1};
  *trials = (struct ft_trials){0};
  FILE *const file = fopen(path, "re");
  if (!file) return ft_fail(FT_E_IO, "%s cannot be read: %s", path, strerror(errno));
  struct ft_locale locale = ft_locale_plain();
  const int status = read_lines(&reader, file);
  ft_locale_restore(&locale);
  fclose(file);
  if (status != FT_OK) ft_trials_free(trials);
  return status;
}

void ft_trials_free(struct ft_trials *trials) {
  for (int n = 0; n < trials->row_count; n++) free(trials->rows[n].reason);
  ft_texts_free(&trials->request_texts);
  ft_texts_free(&trials->config_texts);
  free(trials->rows);
  free(trials->requests);
  free(trials->configs);
  free(trials->heads);
  free(trials->numbered);
  *trials = (struct ft_trials){0};
}

bool ft_trials_ran(const struct ft_trials *trials, const struct ft_trials_row *row) {
  return ft_outcome_ran(row->outcome) && trials->requests[row->request].known &&
         trials->configs[row->config].known;
}

double ft_trials_us_at(const struct ft_trials_row *row, double clock_mhz) {
  const struct ft_trial trial = {.median_us = row->median_us, .sm_clock_mhz = row->sm_clock_mhz};
  return ft_trial_us_at(&trial, clock_mhz);
}
