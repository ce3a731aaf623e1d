/* lines.c: which lines of an emitted text addresses in its object belong to.
 * in -> out: object file + offsets in it -> lines, asked from addr2line, which comes with every
 * compiler. */
#include "runtime/emulator/lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/emulator/child.h"

static int read_lines(const char *output, int *lines, int most) {
  static const char name[] = "kernel.cu:";
  int count = 0;
  for (const char *at = strstr(output, name); at && count < most; at = strstr(at, name)) {
    at += sizeof name - 1;
    lines[count++] = (int)strtol(at, NULL, 10);
  }
  return count;
}

int ft_lines_of(const char *object, const uint64_t *offsets, int count, int *lines, int most) {
  const char *arguments[FT_OFFSETS_MOST + 5] = {"addr2line", "-i", "-e", object};
  char texts[FT_OFFSETS_MOST][20];
  if (count > FT_OFFSETS_MOST) count = FT_OFFSETS_MOST;
  for (int n = 0; n < count; n++) {
    (void)snprintf(texts[n], sizeof texts[n], "0x%" PRIx64, offsets[n]);
    arguments[4 + n] = texts[n];
  }
  struct ft_text output = FT_TEXT_INIT;
  int code, found = 0;
  if (ft_child_run(arguments, NULL, &output, &code) == FT_OK && code == 0 && output.data)
    found = read_lines(output.data, lines, most);
  ft_text_free(&output);
  return found;
}
