/* source.c: compiling a source, and reading the compiler's answer.
 * in -> out: struct ft_source -> NVRTC options; NVRTC log -> log in terms of template lines. */
#include "generator/emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char **ft_source_options(const struct ft_source *source, char *buffer,
                               const char *options[8]) {
  (void)snprintf(buffer, 64, "--gpu-architecture=%s", source->target);
  int count = 0;
  options[count++] = buffer;
  options[count++] = "--std=c++17";
  options[count++] = "-default-device";    /* wrappers need no __device__ each */
  options[count++] = "--ptxas-options=-v"; /* registers and spills into the log */
  options[count++] = "--no-cache";         /* fatune has a cache of its own; NVRTC 12.9 has, too */
  options[count] = NULL;
  return options;
}

/* Length of "name(12)" at the start of a log line and its line number; 0: the line begins
 * otherwise. */
static size_t position_prefix(const char *line, size_t length, int *number) {
  size_t open = 0;
  while (open < length && line[open] != '(' && line[open] != ':' && line[open] != ' ') ++open;
  if (open == 0 || open == length || line[open] != '(') return 0;
  size_t close = open + 1;
  long value = 0;
  while (close < length && line[close] >= '0' && line[close] <= '9' && value < 100000000)
    value = 10 * value + (line[close++] - '0');
  if (close == open + 1 || close == length || line[close] != ')') return 0;
  *number = (int)value;
  return close + 1;
}

void ft_source_map_log(const struct ft_source *source, const char *log, struct ft_text *mapped) {
  while (*log != '\0') {
    const char *const newline = strchr(log, '\n');
    const size_t length = newline == NULL ? strlen(log) : (size_t)(newline - log) + 1;
    int number = 0;
    const size_t prefix = position_prefix(log, length, &number);
    if (prefix > 0 && number >= 1 && number <= source->line_count) {
      const struct ft_origin *const origin = &source->origins[number - 1];
      ft_text_add(mapped, "templates/%s(%d)", origin->file, origin->line);
      ft_text_append(mapped, log + prefix, length - prefix);
    } else {
      ft_text_append(mapped, log, length);
    }
    log += length;
  }
}
