/* result.h: what calls of the emulated driver give.
 * in -> out: CUresult and what went wrong -> the words that cuGetErrorString gives this thread. */
#ifndef RUNTIME_EMULATOR_RESULT_H
#define RUNTIME_EMULATOR_RESULT_H

#include "runtime/driver.h"

/* CUresult */
enum {
  CU_INVALID_VALUE = 1,
  CU_OUT_OF_MEMORY = 2,
  CU_INVALID_DEVICE = 101,
  CU_INVALID_IMAGE = 200,
  CU_INVALID_CONTEXT = 201,
  CU_OPERATING_SYSTEM = 304,
  CU_NOT_FOUND = 500,
  CU_LAUNCH_FAILED = 719,
  CU_NOT_SUPPORTED = 801
};

/* Keeps the words for error_string in this thread and returns result. */
cu_result ft_emulator_refuse(cu_result result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same without words of its own. */
cu_result ft_emulator_fail(cu_result result);

/* Of the driver's table. */
cu_result ft_emulator_error_name(cu_result error, const char **name);
cu_result ft_emulator_error_string(cu_result error, const char **text);

#endif
