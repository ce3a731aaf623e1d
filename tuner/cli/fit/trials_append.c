/* trials_append.c: a file of trials for the fit, written. in -> out: see trials_append.h. */
#include "tuner/cli/fit/trials_append.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator/status.h"
#include "tuner/cli/fit/trials_file.h"

static const char form[] =
    "# Trials of runs on a GPU. A trial is a line below its request: number of its config in the "
    "run, median in\n"
    "# microseconds, clock in MHz, registers+bytes spilled, half of the spread, error over the one "
    "allowed (of what was\n"
    "# verified), outcome, whether it was the default. \"-\": not known. Without an outcome: "
    "screened. Times compare within\n"
    "# a run and a request alone.\n";

struct ft_trials_append {
  FILE *file;
  char what[sizeof((struct ft_trials_head *)0)->what];
  bool begun;                 /* the run has its line */
  bool failed;                /* lines are not whole, or not there */
  struct ft_trials_head head; /* of the last trial */
  struct ft_text request;     /* its */
  struct ft_texts configs;    /* of the run: numbers are by 1 higher in the file */
};

/* ---- runs ---- */

int ft_trials_append_begin(struct ft_trials_append *append, const char *what) {
  if (what[0] == '\0') return ft_fail(FT_E_ARGUMENT, "the words that say what a run was are ''");
  if (strlen(what) >= sizeof append->what)
    return ft_fail(FT_E_ARGUMENT, "what a run was has %zu bytes; at most %zu are allowed",
                   strlen(what), sizeof append->what - 1);
  ft_texts_free(&append->configs);
  strcpy(append->what, what);
  append->begun = false;
  ft_text_clear(&append->request);
  return FT_OK;
}

/* Goes on with the last run of a file, if it is the one wanted. */
static int go_on(struct ft_trials_append *append, const struct ft_trials *trials) {
  bool is_new = true;
  if (trials->head_count == 0) return FT_OK;
  const struct ft_trials_head *const last = &trials->heads[trials->head_count - 1];
  if (strcmp(last->what, append->what) != 0) return FT_OK;
  for (int n = 0; n < trials->numbered_count && is_new; n++) {
    int number;
    FT_TRY(ft_texts_number(&append->configs, trials->configs[trials->numbered[n]].text, &number,
                           &is_new, NULL));
  }
  if (!is_new) { /* a config has two numbers there: the run is told anew */
    ft_texts_free(&append->configs);
    return FT_OK;
  }
  append->head = *last;
  append->begun = true;
  return FT_OK;
}

static int open_file(struct ft_trials_append *append, const char *path) {
  struct ft_trials trials = {0};
  const bool is_there = access(path, F_OK) == 0;
  if (is_there) FT_TRY(ft_trials_read(&trials, path));
  const int status = go_on(append, &trials);
  ft_trials_free(&trials);
  FT_TRY(status);
  append->file = fopen(path, "ae");
  if (!append->file) return ft_fail(FT_E_IO, "%s cannot be written: %s", path, strerror(errno));
  struct stat now;
  if (fstat(fileno(append->file), &now) == 0 && now.st_size == 0) fputs(form, append->file);
  return FT_OK;
}

int ft_trials_append_open(struct ft_trials_append **append, const char *path, const char *what) {
  struct ft_trials_append *const made = calloc(1, sizeof *made);
  *append = NULL;
  if (!made) return ft_fail(FT_E_MEMORY, "no memory for a file");
  int status = what ? ft_trials_append_begin(made, what) : FT_OK;
  if (status == FT_OK) status = open_file(made, path);
  if (status == FT_OK)
    *append = made;
  else
    ft_trials_append_close(made);
  return status;
}

int ft_trials_append_close(struct ft_trials_append *append) {
  bool failed = false;
  if (!append) return FT_OK;
  if (append->file) failed = ferror(append->file) != 0;
  if (append->file) failed = fclose(append->file) != 0 || failed;
  ft_texts_free(&append->configs);
  ft_text_free(&append->request);
  free(append);
  return failed ? ft_fail(FT_E_IO, "trials cannot be written") : FT_OK;
}

/* ---- trials ---- */

static void add_head(struct ft_trials_append *append, const struct ft_trials_head *head,
                     struct ft_text *lines) {
  struct ft_text line = FT_TEXT_INIT;
  if (append->begun)
    ft_trials_print_with(&append->head, head, &line);
  else
    ft_trials_print_run(head, &line);
  if (line.failed) lines->failed = true;
  if (line.length > 0) ft_text_add(lines, append->begun ? "%s\n" : "\n%s\n", line.data);
  ft_text_free(&line);
}

static int add_config(struct ft_trials_append *append, const struct ft_config *config, int *number,
                      struct ft_text *lines) {
  struct ft_text text = FT_TEXT_INIT;
  bool is_new = false;
  ft_config_print(config, &text);
  int status = ft_text_status(&text);
  if (status == FT_OK) status = ft_texts_number(&append->configs, text.data, number, &is_new, NULL);
  *number += 1;
  if (is_new) ft_text_add(lines, "config %d %s\n", *number, text.data);
  ft_text_free(&text);
  return status;
}

/* The lines of a trial, in one text. */
static int add_lines(struct ft_trials_append *append, const struct ft_trials_head *head,
                     const struct ft_trial *trial, const char *request, struct ft_text *lines) {
  int number = 0;
  add_head(append, head, lines);
  if (append->request.length == 0 || strcmp(append->request.data, request) != 0)
    ft_text_add(lines, "request %s\n", request);
  FT_TRY(add_config(append, &trial->config, &number, lines));
  ft_trials_print_row(number, trial, lines);
  ft_text_add(lines, "\n");
  return ft_text_status(lines);
}

int ft_trials_append_put(struct ft_trials_append *append, const struct ft_trial *trial) {
  const struct ft_trials_head head = ft_trials_head_of(trial, append->what);
  struct ft_text lines = FT_TEXT_INIT, request = FT_TEXT_INIT;
  if (append->failed) return ft_fail(FT_E_IO, "an earlier trial could not be written");
  if (append->what[0] == '\0')
    return ft_fail(FT_E_ARGUMENT, "a trial of no run: \"# what the run was\" stands before it");
  ft_request_print(&trial->request, &request);
  int status = ft_text_status(&request);
  if (status == FT_OK) status = add_lines(append, &head, trial, request.data, &lines);
  if (status == FT_OK && (fputs(lines.data, append->file) < 0 || fflush(append->file) != 0))
    status = ft_fail(FT_E_IO, "a trial cannot be written: %s", strerror(errno));
  ft_text_free(&lines);
  if (status != FT_OK) {
    append->failed = true;
    ft_text_free(&request);
    return status;
  }
  ft_text_free(&append->request);
  append->request = request;
  append->head = head;
  append->begun = true;
  return FT_OK;
}

/* ---- trials as text ---- */

static const char *words_of(const char *comment) {
  static const char run[] = "Run: ";
  comment += strspn(comment, "# ");
  return strncmp(comment, run, sizeof run - 1) == 0 ? comment + sizeof run - 1 : comment;
}

static int take_line(struct ft_trials_append *append, const char *line, int *count) {
  struct ft_trial trial;
  if (line[0] == '#') return ft_trials_append_begin(append, words_of(line));
  if (line[0] == '\0') return FT_OK;
  FT_TRY(ft_trial_parse(&trial, line));
  FT_TRY(ft_trials_append_put(append, &trial));
  *count += 1;
  return FT_OK;
}

int ft_trials_append_text(struct ft_trials_append *append, FILE *from, const char *name,
                          int *count) {
  char *line = NULL;
  size_t room = 0;
  int status = FT_OK, number = 0;
  *count = 0;
  while (status == FT_OK && getline(&line, &room, from) >= 0) {
    number += 1;
    line[strcspn(line, "\r\n")] = '\0';
    status = take_line(append, line, count);
  }
  free(line);
  if (status != FT_OK) return ft_fail_within(status, "%s, line %d", name, number);
  return ferror(from) ? ft_fail(FT_E_IO, "%s cannot be read", name) : FT_OK;
}
