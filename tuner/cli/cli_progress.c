/* cli_progress.c: how far a long command is.
 * in -> out: done, total, ETA -> one redrawn line on a terminal, else one line every ten seconds.
 */
#include "tuner/cli/cli_progress.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "generator/clock.h"

#define LIVE_INTERVAL 0.1 /* seconds between redraws: enough for the eye, cheap over ssh */
#define LINE_INTERVAL 10.0

/* A line longer than the terminal would wrap, and "\r" would then redraw the wrong one. */
static int line_width(void) {
  struct winsize size;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 79;
  return size.ws_col - 1;
}

static void print_eta(struct ft_text *line, double seconds) {
  if (!(seconds >= 0 && seconds < 1e6)) return;
  const long whole = (long)(seconds + 0.5);
  ft_text_add(line, "  eta %ld:%02ld", whole / 60, whole % 60);
}

void cli_progress_begin(struct cli_progress *progress, struct cli *cli, const char *label) {
  *progress = (struct cli_progress){.cli = cli, .label = label};
  /* The first plain line comes after an interval, the first drawn one at once. */
  if (!cli->live) progress->last_seconds = ft_seconds_now();
}

void cli_progress_update(struct cli_progress *progress, int done, int total, double eta_seconds,
                         const char *note) {
  struct cli *const cli = progress->cli;
  const double now = ft_seconds_now();
  const double interval = cli->live ? LIVE_INTERVAL : LINE_INTERVAL;
  if (cli->options.verbosity < 0) return;
  if (now - progress->last_seconds < interval && !(cli->live && done == total)) return;
  progress->last_seconds = now;

  struct ft_text line = FT_TEXT_INIT;
  ft_text_add(&line, "%d/%d %3.0f%%", done, total, total > 0 ? 100.0 * done / total : 100.0);
  print_eta(&line, eta_seconds);
  if (note[0] != '\0') ft_text_add(&line, "  %s", note);
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

void cli_progress_end(struct cli_progress *progress) {
  if (!progress->cli->line_pending) return;
  fputs("\r\033[K", stderr);
  progress->cli->line_pending = false;
}
