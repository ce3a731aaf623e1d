/* version.c: the words of fatune.h: what a status means, what went wrong, which version this is. */
#include "generator/status.h"
#include "runtime/fatune.h"

#define SAME(name) _Static_assert((int)FATUNE_##name == (int)FT_##name, #name)
SAME(OK); /* ORDER STATUS */
SAME(E_ARGUMENT);
SAME(E_UNSUPPORTED);
SAME(E_MEMORY);
SAME(E_TEMPLATE);
SAME(E_NO_DRIVER);
SAME(E_NO_NVRTC);
SAME(E_COMPILE);
SAME(E_DEVICE);
SAME(E_CACHE);
SAME(E_NOT_FOUND);
SAME(E_NOT_PREPARED);
SAME(E_WRONG);
SAME(E_IO);
SAME(E_INTERRUPTED);
SAME(E_NO_CXX);
#undef SAME

const char *fatune_status_text(int status) {
  return ft_status_text(status);
}

const char *fatune_detail(void) {
  return ft_detail();
}

const char *fatune_version(void) {
#define TEXT_OF(number)          #number
#define VERSION_OF(major, minor) TEXT_OF(major) "." TEXT_OF(minor) ".0"
  return VERSION_OF(FATUNE_VERSION_MAJOR, FATUNE_VERSION_MINOR);
#undef VERSION_OF
#undef TEXT_OF
}
