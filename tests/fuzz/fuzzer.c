/* fuzzer.c: libFuzzer's way in (make fuzz).
 * in -> out: bytes that it made up -> fuzz_input.h. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Nothing may read what is typed. -1: not worth keeping. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static int ready;
  if (!ready++ && !freopen("/dev/null", "r", stdin)) abort();
  return fuzz_input(data, size) ? 0 : -1;
}
