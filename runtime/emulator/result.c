/* result.c: what calls of the emulated driver give, in words.
 * in -> out: CUresult -> name, text; what was said last in this thread. */
#include "runtime/emulator/result.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local struct {
  cu_result result;
  char text[1024];
} said;

cu_result ft_emulator_refuse(cu_result result, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(said.text, sizeof said.text, format, arguments);
  va_end(arguments);
  said.result = result;
  return result;
}

cu_result ft_emulator_fail(cu_result result) {
  said.result = 0;
  return result;
}

/* Number, name and what it means where nothing was said. */
static const struct {
  cu_result result;
  const char *name, *text;
} errors[] = {{0, "CUDA_SUCCESS", "no error"},
              {CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "an argument is outside its range"},
              {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
              {CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "no such GPU is emulated"},
              {CU_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "no image of the emulator"},
              {CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "no context is current"},
              {CU_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "a system call failed"},
              {CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "no such kernel"},
              {CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"},
              {CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "not emulated"}};

cu_result ft_emulator_error_name(cu_result error, const char **name) {
  *name = NULL;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].result == error) *name = errors[i].name;
  return *name ? 0 : CU_INVALID_VALUE;
}

cu_result ft_emulator_error_string(cu_result error, const char **text) {
  *text = NULL;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].result == error) *text = errors[i].text;
  if (error && said.result == error) *text = said.text;
  return *text ? 0 : CU_INVALID_VALUE;
}
