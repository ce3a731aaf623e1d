/* nvrtc_search.h: the NVRTC library, found and opened.
 * in -> out: environment, loader, usual folders -> function pointers, path. */
#ifndef RUNTIME_NVRTC_SEARCH_H
#define RUNTIME_NVRTC_SEARCH_H

#include "runtime/nvrtc.h"

/* The search of compiler.h. FT_E_NO_NVRTC lists what was tried. */
int ft_nvrtc_open(struct ft_nvrtc *nvrtc);
void ft_nvrtc_close(struct ft_nvrtc *nvrtc);

#endif
