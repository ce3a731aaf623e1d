/* problem_descales.c: the factors of Q, K and V of a problem in e4m3.
 * in -> out: request + seed -> values on the host and on the GPU, and where they lie. */
#include "tuner/verify/problem_descales.h"

#include <stdlib.h>

#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/verify/random_inputs.h"

enum { GAP = 3 }; /* numbers between those of two batch entries, which no kernel may use */

/* From 1/2 to 2. With `shared` those of all heads are the same, and lie in one place. */
static void fill(float *host, float *image, int64_t batch, int heads, bool shared,
                 uint64_t *state) {
  const int64_t stride = (shared ? 1 : heads) + GAP;
  for (int64_t b = 0; b < batch; b++)
    for (int head = 0; head < heads; head++) {
      const float value = 0.5f + (float)(ft_random_next(state) >> 40) * (1.5f * 0x1p-24f);
      float *const place = &image[b * stride + (shared ? 0 : head)];
      if (head == 0 || !shared) *place = value;
      host[b * heads + head] = *place;
    }
}

int ft_problem_descales_make(struct ft_problem_descales *descales, fatune_session *session,
                             const struct ft_request *request, uint64_t seed) {
  const struct ft_driver *const driver = &session->driver;
  uint64_t state = seed ^ 0x8EBC6AF09C88C6E3u;
  *descales = (struct ft_problem_descales){.memory = 0};
  if (ft_kv_dtype(request) != FT_E4M3) return FT_OK;
  const int64_t batch = request->batch;
  const int64_t room = batch * (request->heads_q + GAP);
  const uint64_t draw = ft_random_next(&state);
  const size_t bytes = (size_t)(room * FT_DESCALED) * sizeof(float);
  float *const image = calloc((size_t)room * FT_DESCALED, sizeof *image);
  int status = FT_OK;
  if (!image) status = ft_fail(FT_E_MEMORY, "no memory for the descales of a problem");
  FT_CHECK(status);
  FT_CHECK(ft_driver_status(driver, driver->memory_alloc(&descales->memory, bytes), "cuMemAlloc"));
  for (int n = 0; n < FT_DESCALED; n++) {
    const int heads = n == FT_DESCALE_Q ? request->heads_q : request->heads_kv;
    const bool shared = n == FT_DESCALE_K && draw % 4 == 0;
    if (n == FT_DESCALE_V && draw % 4 == 1) continue;
    if (n == FT_DESCALE_Q && request->dtype != FT_E4M3) continue;
    descales->host[n] = malloc((size_t)(batch * heads) * sizeof(float));
    if (!descales->host[n])
      status = ft_fail(FT_E_MEMORY, "no memory for the descales of a problem");
    FT_CHECK(status);
    fill(descales->host[n], image + n * room, batch, heads, shared, &state);
    const cu_address place = descales->memory + (cu_address)(n * room) * sizeof(float);
    descales->given[n] = (fatune_descale){.data = (const float *)(uintptr_t)place,
                                          .stride_batch = (shared ? 1 : heads) + GAP,
                                          .stride_head = shared ? 0 : 1};
  }
  FT_CHECK(ft_driver_status(driver, driver->copy_to_device(descales->memory, image, bytes, NULL),
                            "cuMemcpyHtoDAsync"));
  FT_CHECK(ft_driver_status(driver, driver->stream_synchronize(NULL), "cuStreamSynchronize"));
done:
  free(image);
  return status;
}

void ft_problem_descales_free(struct ft_problem_descales *descales, fatune_session *session) {
  if (descales->memory) session->driver.memory_free(descales->memory);
  for (int n = 0; n < FT_DESCALED; n++) free(descales->host[n]);
  *descales = (struct ft_problem_descales){.memory = 0};
}
