/* nvrtc.h: the NVRTC library once it is open: its functions, its file. */
#ifndef RUNTIME_NVRTC_H
#define RUNTIME_NVRTC_H

#include <stddef.h>

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

#endif
