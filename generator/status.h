/* status.h: the status codes of every layer, and the text of the last failure in this thread.
 * in -> out: a failure with its printf-style explanation -> an int code and ft_detail().
 * The codes are those of FATUNE_* in runtime/fatune.h (grep "ORDER STATUS"). */
#ifndef GENERATOR_STATUS_H
#define GENERATOR_STATUS_H

/* ORDER STATUS */
enum ft_status {
  FT_OK = 0,
  FT_E_ARGUMENT = -1,      /* an argument is outside what is allowed; the detail names it */
  FT_E_UNSUPPORTED = -2,   /* a sound request that no kernel family serves on this target */
  FT_E_MEMORY = -3,        /* host or device memory ran out */
  FT_E_TEMPLATE = -4,      /* a template is broken; the detail has file and line */
  FT_E_NO_DRIVER = -5,     /* no CUDA driver, or no GPU */
  FT_E_NO_NVRTC = -6,      /* no NVRTC library, and no compiled kernel to do without */
  FT_E_COMPILE = -7,       /* NVRTC refused the source; the detail holds its mapped log */
  FT_E_DEVICE = -8,        /* the CUDA driver reported an error */
  FT_E_CACHE = -9,         /* a store could not be read or written where that was the task */
  FT_E_NOT_FOUND = -10,    /* what was asked for by name is not there */
  FT_E_NOT_PREPARED = -11, /* would have to compile or load during a stream capture */
  FT_E_WRONG = -12,        /* a kernel's result failed verification */
  FT_E_IO = -13,           /* a file could not be read or written */
  FT_E_INTERRUPTED = -14,  /* stopped on request; what was finished is kept */
  FT_E_NO_CXX = -15        /* no C++ compiler, which the emulator needs */
};

/* A short fixed sentence for a status; never NULL. */
const char *ft_status_text(int status);

/* The explanation of the last failure in this thread: names the argument, its value and what is
 * allowed. Valid until the next failure in this thread; "" if there was none. */
const char *ft_detail(void);

/* Records the explanation and returns status, so that a caller can `return ft_fail(...)`. */
int ft_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " before the recorded explanation and returns status. */
int ft_fail_within(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Return at once on failure (functions that own nothing yet). */
#define FT_TRY(expression)                                                                         \
  do {                                                                                             \
    const int ft_try_status = (expression);                                                        \
    if (ft_try_status != FT_OK) return ft_try_status;                                              \
  } while (0)

/* Go to the function's one exit on failure; needs `int status` and a label `done`. */
#define FT_CHECK(expression)                                                                       \
  do {                                                                                             \
    status = (expression);                                                                         \
    if (status != FT_OK) goto done;                                                                \
  } while (0)

/* Go there in any case, after what has failed. */
#define FT_GIVE_UP(failure)                                                                        \
  do {                                                                                             \
    status = (failure);                                                                            \
    goto done;                                                                                     \
  } while (0)

#endif
