/* cli_progress.c: how far a long command is.
 * in -> out: done, total, ETA -> one redrawn line with a bar on a terminal; else a line a minute,
 * and one at the end. */
#include "tuner/cli/cli_progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "generator/clock.h"

#define LIVE_INTERVAL 0.1 /* seconds between redraws: enough for the eye, cheap over ssh */
#define LINE_INTERVAL 60.0

enum { BAR_LEAST = 10, BAR_MOST = 40 }; /* cells */

/* A line longer than the terminal would wrap, and "\r" would then redraw the wrong one. */
static int line_width(void) {
  struct winsize size;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 79;
  return size.ws_col - 1;
}

/* Of so many cells those that are done; nothing where the terminal is too narrow for it. */
static void print_bar(struct ft_text *line, int done, int total) {
  const int room = line_width() / 4, cells = room < BAR_MOST ? room : BAR_MOST;
  if (cells < BAR_LEAST) return;
  const int full = total > 0 ? (int)((long)cells * done / total) : cells;
  ft_text_add(line, "[");
  for (int n = 0; n < cells; n++) ft_text_add(line, "%c", n < full ? '#' : '.');
  ft_text_add(line, "] ");
}

static void print_time(struct ft_text *line, const char *name, double seconds) {
  if (!(seconds >= 0 && seconds < 1e6)) return;
  const long whole = (long)(seconds + 0.5);
  ft_text_add(line, "  %s ", name);
  if (whole < 3600)
    ft_text_add(line, "%ld:%02ld", whole / 60, whole % 60);
  else
    ft_text_add(line, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
}

static void print(const struct cli_progress *progress, double eta_seconds) {
  struct cli *const cli = progress->cli;
  const int done = progress->done, total = progress->total;
  struct ft_text line = FT_TEXT_INIT;
  if (cli->live) print_bar(&line, done, total);
  ft_text_add(&line, "%d/%d %3.0f%%", done, total, total > 0 ? 100.0 * done / total : 100.0);
  print_time(&line, "elapsed", ft_seconds_now() - progress->begin_seconds);
  print_time(&line, "eta", eta_seconds);
  if (progress->note[0] != '\0') ft_text_add(&line, "  %s", progress->note);
  ft_text_add(&line, "  %s", progress->label);
  if (ft_text_status(&line) == 0) {
    if (cli->live) {
      fprintf(stderr, "\r\033[K%.*s", line_width(), line.data);
      cli->line_pending = true;
    } else {
      cli_note(cli, "%s", line.data);
    }
  }
  ft_text_free(&line);
}

void cli_progress_begin(struct cli_progress *progress, struct cli *cli, const char *label) {
  *progress = (struct cli_progress){.cli = cli, .label = label, .begin_seconds = ft_seconds_now()};
  /* The first plain line comes after an interval, the first drawn one at once. */
  if (!cli->live) progress->last_seconds = progress->begin_seconds;
}

void cli_progress_update(struct cli_progress *progress, int done, int total, double eta_seconds,
                         const char *note) {
  const struct cli *const cli = progress->cli;
  const double now = ft_seconds_now();
  const double interval = cli->live ? LIVE_INTERVAL : LINE_INTERVAL;
  progress->done = done;
  progress->total = total;
  snprintf(progress->note, sizeof progress->note, "%s", note);
  if (cli->options.verbosity < 0) return;
  if (now - progress->last_seconds < interval && !(cli->live && done == total)) return;
  progress->last_seconds = now;
  print(progress, eta_seconds);
}

void cli_progress_end(struct cli_progress *progress) {
  struct cli *const cli = progress->cli;
  if (!cli->live) {
    if (progress->total > 0) print(progress, -1);
    return;
  }
  if (!cli->line_pending) return;
  fputs("\r\033[K", stderr);
  cli->line_pending = false;
}
