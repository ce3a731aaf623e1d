/* problem_memory.c: the device buffers of a problem, and what is copied into them. */

#include "tuner/verify/problem_memory.h"

#include <stdlib.h>

#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/shape.h"

int ft_problem_allocate(struct ft_problem *problem, int buffer, size_t bytes, size_t fence) {
  const struct ft_driver *driver = &problem->session->driver;
  problem->bytes[buffer] = bytes;
  FT_TRY(ft_driver_status(driver, driver->memory_alloc(&problem->memory[buffer], bytes + 2 * fence),
                          "cuMemAlloc"));
  problem->data[buffer] = problem->memory[buffer] + fence;
  return FT_OK;
}

int ft_problem_copy_in(struct ft_problem *problem, int buffer, const void *from) {
  const struct ft_driver *driver = &problem->session->driver;
  FT_TRY(ft_driver_status(
      driver, driver->copy_to_device(problem->data[buffer], from, problem->bytes[buffer], NULL),
      "cuMemcpyHtoDAsync"));
  return ft_driver_status(driver, driver->stream_synchronize(NULL), "cuStreamSynchronize");
}

enum ft_dtype ft_problem_dtype(const struct ft_request *request, int buffer) {
  if (buffer == FT_Q) return request->dtype;
  return buffer == FT_K || buffer == FT_V ? ft_kv_dtype(request) : request->dtype;
}

/* Numbers of e4m3 as bytes; NaN in gaps is NaN there, too. dtype: of the patterns. */
static int to_bytes(uint8_t **bytes, const uint16_t *image, size_t count, enum ft_dtype dtype) {
  enum { PATTERNS = 1 << 16 };
  uint8_t of_pattern[PATTERNS];
  *bytes = malloc(count);
  if (!*bytes) return ft_fail(FT_E_MEMORY, "no memory for a tensor of %zu bytes", count);
  for (int n = 0; n < PATTERNS; n++)
    of_pattern[n] = ft_to_e4m3((float)ft_from_dtype(dtype, (uint16_t)n));
  for (size_t n = 0; n < count; n++) (*bytes)[n] = of_pattern[image[n]];
  return FT_OK;
}

int ft_problem_upload(struct ft_problem *problem, int buffer, const void *dense) {
  const void *image;
  void *owned = NULL;
  uint8_t *bytes = NULL;
  int status;
  FT_CHECK(ft_layout_image(&image, &owned, dense, &problem->shapes[buffer]));
  const struct ft_request *const request = &problem->options.request;
  const bool e4m3 = ft_problem_dtype(request, buffer) == FT_E4M3;
  const enum ft_dtype kept_as = request->dtype == FT_E4M3 ? FT_BF16 : request->dtype;
  if (e4m3) FT_CHECK(to_bytes(&bytes, image, problem->bytes[buffer], kept_as));
  FT_CHECK(ft_problem_copy_in(problem, buffer, e4m3 ? bytes : image));
done:
  free(bytes);
  free(owned);
  return status;
}

int ft_problem_make_workspace(struct ft_problem *problem, size_t bytes) {
  struct fatune_session *session = problem->session;
  cu_address *memory = &problem->memory[FT_WORKSPACE];
  int status = FT_OK;
  bytes = (bytes + 3) / 4 * 4; /* fences and poison are words */
  if (bytes == problem->bytes[FT_WORKSPACE]) return FT_OK;
  FT_TRY(ft_session_enter(session));
  if (*memory) session->driver.memory_free(*memory);
  *memory = problem->data[FT_WORKSPACE] = 0;
  problem->bytes[FT_WORKSPACE] = 0;
  if (bytes > 0) FT_CHECK(ft_problem_allocate(problem, FT_WORKSPACE, bytes, FT_FENCE_BYTES));
done:
  ft_session_leave(session);
  if (status != FT_OK) problem->bytes[FT_WORKSPACE] = 0;
  problem->arguments.workspace = (void *)(uintptr_t)problem->data[FT_WORKSPACE];
  return status;
}
