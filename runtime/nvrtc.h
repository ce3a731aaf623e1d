/* nvrtc.h: the NVRTC library itself, found and opened; only compiler.c uses it.
 * in -> out: environment, loader, usual folders -> function pointers, path, version with build. */
#ifndef RUNTIME_NVRTC_H
#define RUNTIME_NVRTC_H

#include <stddef.h>

#include "generator/text.h"

typedef struct _nvrtcProgram *nvrtc_program;

/* RT(member, exported symbol, arguments); every function gives 0 for success. */
#define FT_NVRTC_FUNCTIONS(RT)                                                                     \
  RT(version, "nvrtcVersion", (int *major, int *minor))                                            \
  RT(create, "nvrtcCreateProgram",                                                                 \
     (nvrtc_program * program, const char *source, const char *name, int header_count,             \
      const char *const *headers, const char *const *header_names))                                \
  RT(compile, "nvrtcCompileProgram",                                                               \
     (nvrtc_program program, int option_count, const char *const *options))                        \
  RT(image_size, "nvrtcGetCUBINSize", (nvrtc_program program, size_t * size))                      \
  RT(image, "nvrtcGetCUBIN", (nvrtc_program program, char *image))                                 \
  RT(log_size, "nvrtcGetProgramLogSize", (nvrtc_program program, size_t * size))                   \
  RT(log, "nvrtcGetProgramLog", (nvrtc_program program, char *log))                                \
  RT(target_count, "nvrtcGetNumSupportedArchs", (int *count))                                      \
  RT(targets, "nvrtcGetSupportedArchs", (int *targets))                                            \
  RT(destroy, "nvrtcDestroyProgram", (nvrtc_program * program))

struct ft_nvrtc {
  void *library;
  char *path; /* of the file in use; owned */
  const char *(*error_text)(int result);
#define RT(member, symbol, arguments) int(*member) arguments;
  FT_NVRTC_FUNCTIONS(RT)
#undef RT
};

/* The search of compiler.h. FT_E_NO_NVRTC lists what was tried. */
int ft_nvrtc_open(struct ft_nvrtc *nvrtc);
void ft_nvrtc_close(struct ft_nvrtc *nvrtc);

/* "13.0.88+65be0db342ad": the release found in the library's own text, then the start of its ELF
 * build id. nvrtcVersion alone ("13.0") would give two builds that compile differently the same
 * key. */
int ft_nvrtc_identify(const struct ft_nvrtc *nvrtc, char version[64]);

#endif
