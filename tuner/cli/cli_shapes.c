/* cli_shapes.c: a file of requests.
 * in -> out: lines "REQUEST" and "runs=N us=T REQUEST" -> texts, by time spent. */
#include "tuner/cli/cli_shapes.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/request.h"
#include "generator/status.h"
#include "tuner/cli/cli_values.h"

#define BLANKS " \t\r\n"

struct shape {
  char *text; /* owned */
  int line;
  bool recorded;
  double runs, us;   /* us 0: not known */
  double timed_runs; /* of the lines with a time */
  double flops;      /* of one run */
};

struct damage {
  int line;
  char *why; /* owned */
};

struct shapes {
  struct shape *list;
  size_t count, capacity;
  struct damage *damages; /* owned */
  size_t damage_count;
  const char *path;
};

static int add_damaged(struct shapes *shapes, int line) {
  struct damage *const grown = realloc(shapes->damages, (shapes->damage_count + 1) * sizeof *grown);
  if (!grown) return ft_fail(FT_E_MEMORY, "no memory for a message");
  shapes->damages = grown;
  grown[shapes->damage_count] = (struct damage){line, strdup(ft_detail())};
  if (!grown[shapes->damage_count].why) return ft_fail(FT_E_MEMORY, "no memory for a message");
  shapes->damage_count++;
  return FT_OK;
}

static int append(struct shapes *shapes, const struct shape *shape) {
  if (shapes->count == shapes->capacity) {
    const size_t capacity = shapes->capacity ? 2 * shapes->capacity : 64;
    struct shape *const grown = realloc(shapes->list, capacity * sizeof *grown);
    if (!grown) return ft_fail(FT_E_MEMORY, "no memory for %zu requests", capacity);
    shapes->list = grown;
    shapes->capacity = capacity;
  }
  shapes->list[shapes->count] = *shape;
  shapes->list[shapes->count].text = strdup(shape->text);
  if (!shapes->list[shapes->count].text) return ft_fail(FT_E_MEMORY, "no memory for a request");
  shapes->count++;
  return FT_OK;
}

/* Reads "name=NUMBER " and moves *text behind it. If *text begins otherwise, nothing changes. */
static int take_number(char **text, const char *name, double *value) {
  const size_t length = strlen(name);
  if (strncmp(*text, name, length) != 0) return FT_OK;
  char *const number = *text + length, *const end = number + strcspn(number, BLANKS);
  const char before = *end;
  *end = '\0';
  const int status = cli_real(name, number, 0, 1e18, value);
  *end = before;
  *text = end + strspn(end, BLANKS);
  return status;
}

/* Adds a recorded line, by the canonical text of its request, so that equal requests add up. */
static int add_recorded(struct shapes *shapes, struct shape *shape) {
  struct ft_request request;
  struct ft_text text = FT_TEXT_INIT;
  FT_TRY(ft_request_parse(&request, shape->text));
  ft_request_print(&request, &text);
  int status = ft_text_status(&text);
  shape->text = text.data;
  shape->flops = ft_request_flops(&request);
  if (status == FT_OK) status = append(shapes, shape);
  ft_text_free(&text);
  return status;
}

static int add_line(struct shapes *shapes, char *line, int number) {
  struct shape shape = {.text = line + strspn(line, BLANKS), .line = number};
  shape.recorded = strncmp(shape.text, "runs=", 5) == 0;
  if (!shape.recorded) return append(shapes, &shape);
  FT_TRY(take_number(&shape.text, "runs=", &shape.runs));
  FT_TRY(take_number(&shape.text, "us=", &shape.us));
  shape.timed_runs = shape.us > 0 ? shape.runs : 0;
  return add_recorded(shapes, &shape);
}

/* What some editors write before a text in UTF-8. */
#define MARK "\xEF\xBB\xBF"

/* A loss of power may leave zeros where lines were. */
static int read_line(struct shapes *shapes, char *line, size_t length, int number) {
  if (memchr(line, '\0', length)) return ft_fail(FT_E_ARGUMENT, "a byte is 0; allowed: text");
  if (number == 1 && strncmp(line, MARK, strlen(MARK)) == 0) line += strlen(MARK);
  line[strcspn(line, "#\r\n")] = '\0';
  return line[strspn(line, BLANKS)] != '\0' ? add_line(shapes, line, number) : FT_OK;
}

static int read_lines(struct shapes *shapes, FILE *file) {
  char *line = NULL;
  size_t room = 0;
  ssize_t length;
  int status = FT_OK;
  errno = 0;
  for (int number = 1; status == FT_OK && (length = getline(&line, &room, file)) >= 0; ++number) {
    status = read_line(shapes, line, (size_t)length, number);
    if (status == FT_E_ARGUMENT) status = add_damaged(shapes, number);
  }
  if (status == FT_OK && ferror(file))
    status = ft_fail(FT_E_IO, "--shapes '%s': %s", shapes->path, strerror(errno));
  free(line);
  return status;
}

/* ---- order ---- */

static int by_line(const void *a, const void *b) {
  const struct damage *const x = a, *const y = b;
  return x->line - y->line;
}

static int by_text(const void *a, const void *b) {
  const struct shape *const x = a, *const y = b;
  if (x->recorded != y->recorded) return x->recorded ? -1 : 1;
  const int order = x->recorded ? strcmp(x->text, y->text) : 0;
  return order != 0 ? order : x->line - y->line;
}

/* Recorded requests, most time first; then those written by hand, in the order of their lines. */
static int by_time(const void *a, const void *b) {
  const struct shape *const x = a, *const y = b;
  if (x->recorded != y->recorded) return x->recorded ? -1 : 1;
  if (x->us != y->us) return x->us > y->us ? -1 : 1;
  return x->line - y->line;
}

/* Joins the lines of each recorded request into the first of them. Runs of lines without a time
 * count as long as the mean run of the others. */
static void add_up(struct shapes *shapes) {
  size_t kept = 0;
  qsort(shapes->list, shapes->count, sizeof *shapes->list, by_text);
  for (size_t i = 0; i < shapes->count; ++i) {
    const struct shape *const shape = &shapes->list[i];
    struct shape *const before = kept > 0 ? &shapes->list[kept - 1] : NULL;
    if (before && before->recorded && shape->recorded && strcmp(before->text, shape->text) == 0) {
      before->runs += shape->runs;
      before->timed_runs += shape->timed_runs;
      before->us += shape->us;
      free(shape->text);
    } else {
      shapes->list[kept++] = *shape;
    }
  }
  shapes->count = kept;
  for (size_t i = 0; i < kept; ++i) {
    struct shape *const shape = &shapes->list[i];
    if (shape->timed_runs > 0) shape->us *= shape->runs / shape->timed_runs;
  }
}

/* Where no line of a request has a time, it is estimated from the floating-point operations, at the
 * mean rate of the requests that have one. */
static void guess_times(struct shapes *shapes) {
  double us = 0, flops = 0;
  for (size_t i = 0; i < shapes->count; ++i) {
    const struct shape *const shape = &shapes->list[i];
    us += shape->us;
    flops += shape->us > 0 ? shape->runs * shape->flops : 0;
  }
  const double rate = flops > 0 ? us / flops : 1e-8;
  for (size_t i = 0; i < shapes->count; ++i) {
    struct shape *const shape = &shapes->list[i];
    if (shape->recorded && !(shape->us > 0)) shape->us = rate * shape->runs * shape->flops;
  }
}

/* A line for each that is damaged, in their order. */
static void tell_damages(struct shapes *shapes, struct ft_text *damaged) {
  if (shapes->damage_count > 0)
    qsort(shapes->damages, shapes->damage_count, sizeof *shapes->damages, by_line);
  for (size_t i = 0; i < shapes->damage_count; ++i)
    ft_text_add(damaged, "--shapes '%s', line %d: %s\n", shapes->path, shapes->damages[i].line,
                shapes->damages[i].why);
}

static int hand_over(struct shapes *shapes, int (*take)(void *payload, const char *text),
                     void *payload, struct ft_text *damaged) {
  size_t taken = 0;
  for (size_t i = 0; i < shapes->count; ++i) {
    int status = take(payload, shapes->list[i].text);
    taken += status == FT_OK;
    if (status == FT_E_ARGUMENT) status = add_damaged(shapes, shapes->list[i].line);
    if (status != FT_OK) return status;
  }
  tell_damages(shapes, damaged);
  if (taken > 0) return ft_text_status(damaged);
  const char *const first = damaged->data;
  if (first)
    return ft_fail(FT_E_ARGUMENT, "%.*s; no line is a request", (int)strcspn(first, "\n"), first);
  return ft_fail(FT_E_ARGUMENT, "--shapes '%s' has no request; allowed: one text a line",
                 shapes->path);
}

int cli_shapes_read(const char *path, int (*take)(void *payload, const char *text), void *payload,
                    struct ft_text *damaged) {
  const bool is_stdin = strcmp(path, "-") == 0;
  struct shapes shapes = {.path = path};
  FILE *const file = is_stdin ? stdin : fopen(path, "re");
  if (!file) return ft_fail(FT_E_IO, "--shapes '%s': %s", path, strerror(errno));
  int status = read_lines(&shapes, file);
  if (status == FT_OK && shapes.count > 0) {
    add_up(&shapes);
    guess_times(&shapes);
    qsort(shapes.list, shapes.count, sizeof *shapes.list, by_time);
  }
  if (status == FT_OK) status = hand_over(&shapes, take, payload, damaged);
  for (size_t i = 0; i < shapes.count; ++i) free(shapes.list[i].text);
  for (size_t i = 0; i < shapes.damage_count; ++i) free(shapes.damages[i].why);
  free(shapes.damages);
  free(shapes.list);
  if (!is_stdin) fclose(file);
  return status;
}
