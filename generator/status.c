/* status.c: status sentences and the thread's last failure.
 * in -> out: printf pieces -> the thread-local detail text. */
#include "generator/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Long enough for the first screens of a compiler log; what is longer is cut. */
enum { DETAIL_BYTES = 8192 };

static _Thread_local char detail_text[DETAIL_BYTES];

const char *ft_status_text(int status) {
  switch ((enum ft_status)status) { /* ORDER STATUS */
  case FT_OK: return "success";
  case FT_E_ARGUMENT: return "invalid argument";
  case FT_E_UNSUPPORTED: return "not supported on this target";
  case FT_E_MEMORY: return "out of memory";
  case FT_E_TEMPLATE: return "broken template";
  case FT_E_NO_DRIVER: return "no CUDA driver or no GPU";
  case FT_E_NO_NVRTC: return "no NVRTC library";
  case FT_E_COMPILE: return "the kernel does not compile";
  case FT_E_DEVICE: return "the CUDA driver reported an error";
  case FT_E_CACHE: return "the cache could not be read or written";
  case FT_E_NOT_FOUND: return "not found";
  case FT_E_NOT_PREPARED: return "not prepared for stream capture";
  case FT_E_WRONG: return "wrong result";
  case FT_E_IO: return "file could not be read or written";
  case FT_E_INTERRUPTED: return "interrupted";
  case FT_E_NO_CXX: return "no C++ compiler";
  }
  return "unknown status";
}

const char *ft_detail(void) {
  return detail_text;
}

int ft_fail(int status, const char *format, ...) {
  /* The arguments may point into the old detail, so the new one is built aside. */
  char fresh[DETAIL_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(fresh, sizeof fresh, format, arguments);
  va_end(arguments);
  memcpy(detail_text, fresh, strlen(fresh) + 1);
  return status;
}

int ft_fail_within(int status, const char *format, ...) {
  char fresh[DETAIL_BYTES];
  va_list arguments;
  va_start(arguments, format);
  const int printed = vsnprintf(fresh, sizeof fresh, format, arguments);
  va_end(arguments);
  /* What does not fit falls off at the end. */
  const char *const pieces[] = {": ", detail_text};
  size_t used = printed < 0 ? 0 : strlen(fresh);
  for (int i = 0; i < 2; ++i) {
    const size_t room = sizeof fresh - 1 - used, length = strlen(pieces[i]);
    const size_t count = length < room ? length : room;
    memcpy(fresh + used, pieces[i], count);
    used += count;
  }
  fresh[used] = '\0';
  memcpy(detail_text, fresh, used + 1);
  return status;
}
