/* problem_memory.c: the device buffers of a problem, and what is copied into them. */

#include "tuner/verify/problem_memory.h"

#include <stdlib.h>

#include "generator/status.h"
#include "runtime/session.h"
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

int ft_problem_upload(struct ft_problem *problem, int buffer, const uint16_t *dense) {
  const uint16_t *image;
  uint16_t *owned = NULL;
  int status;
  FT_CHECK(ft_layout_image(&image, &owned, dense, &problem->shapes[buffer]));
  FT_CHECK(ft_problem_copy_in(problem, buffer, image));
done:
  free(owned);
  return status;
}
