/* fault_lines.h: the command lines that are swept by failing calls (fault_sweep.h).
 * in -> out: nothing -> the lines that need no GPU, those for the fake or an emulated one. */
#ifndef TESTS_FAULT_LINES_H
#define TESTS_FAULT_LINES_H

#include <stdbool.h>

struct fault_line {
  const char *words; /* "%s": the sweep's folder; three at most */
  const char *tells; /* what stands in its output when it says there that something failed; "": its
                        output differs anyway */
  const char *with;  /* variables of its environment, as "NAME=VALUE NAME=VALUE"; "%s" likewise */
  int code;          /* without a failure: the fake GPU runs no kernel, so its results are wrong */
  bool calls;        /* of fatune_calls, not fatune */
};

struct fault_lines {
  const struct fault_line *lines;
  int count;
};

extern const struct fault_lines fault_lines_alone, fault_lines_on_gpu;

#endif
