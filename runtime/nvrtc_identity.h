/* nvrtc_identity.h: which build of NVRTC is open.
 * in -> out: library -> version with build. */
#ifndef RUNTIME_NVRTC_IDENTITY_H
#define RUNTIME_NVRTC_IDENTITY_H

#include "runtime/nvrtc.h"

/* "13.0.88+65be0db342ad": the release found in the library's own text, then the start of its ELF
 * build id. nvrtcVersion alone ("13.0") would give two builds that compile differently the same
 * key. FT_E_NO_NVRTC where the library's file cannot be read. */
int ft_nvrtc_identify(const struct ft_nvrtc *nvrtc, char version[64]);

#endif
