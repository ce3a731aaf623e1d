/* problem_descales.c: the factors of Q, K and V of a problem in e4m3.
 * in -> out: request + seed -> values on the host and on the GPU, and where they lie. */
#include "tuner/verify/problem_descales.h"

#include <math.h>
#include <stdlib.h>

#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/verify/random_inputs.h"

enum { GAP = 3 };  /* numbers between those of two batch entries, which no kernel may use */
enum { OF_V = 5 }; /* Where V has descales of blocks, 2^-5 to 2^5 is their magnitude. */

/* Those of one tensor. */
struct factors {
  int64_t batch, blocks; /* of a head */
  int heads;
  bool shared;   /* those of all heads are the same, and lie in one place */
  int magnitude; /* of those of a block, at most: a power of 2 besides */
};

static int64_t stride_of(const struct factors *of) {
  return (of->shared ? 1 : of->heads) * of->blocks + GAP;
}

/* From 1/2 to 2, times the power. */
static float draw_factor(const struct factors *of, uint64_t *state) {
  const float value = 0.5f + (float)(ft_random_next(state) >> 40) * (1.5f * 0x1p-24f);
  const uint64_t range = 2 * (uint64_t)of->magnitude + 1;
  return ldexpf(value, (int)(ft_random_next(state) % range) - of->magnitude);
}

static void fill(float *host, float *image, const struct factors *of, uint64_t *state) {
  for (int64_t b = 0; b < of->batch; b++)
    for (int64_t n = 0; n < of->heads * of->blocks; n++) {
      const float value = draw_factor(of, state);
      float *const place = &image[b * stride_of(of) + (of->shared ? n % of->blocks : n)];
      if (n < of->blocks || !of->shared) *place = value;
      host[b * of->heads * of->blocks + n] = *place;
    }
}

int ft_problem_descales_make(struct ft_problem_descales *descales, fatune_session *session,
                             const struct ft_request *request, uint64_t seed) {
  const struct ft_driver *const driver = &session->driver;
  uint64_t state = seed ^ 0x8EBC6AF09C88C6E3u;
  *descales = (struct ft_problem_descales){.memory = 0};
  if (ft_kv_dtype(request) != FT_E4M3) return FT_OK;
  const int64_t batch = request->batch;
  const int64_t longest =
      request->seqlen_q > request->seqlen_k ? request->seqlen_q : request->seqlen_k;
  const int64_t room =
      batch * (request->heads_q * ft_descale_blocks(request->descale_rows, longest) + GAP);
  const uint64_t draw = ft_random_next(&state);
  const size_t bytes = (size_t)(room * FT_DESCALED) * sizeof(float);
  float *const image = calloc((size_t)room * FT_DESCALED, sizeof *image);
  int status = FT_OK;
  if (!image) status = ft_fail(FT_E_MEMORY, "no memory for the descales of a problem");
  FT_CHECK(status);
  FT_CHECK(ft_driver_status(driver, driver->memory_alloc(&descales->memory, bytes), "cuMemAlloc"));
  for (int n = 0; n < FT_DESCALED; n++) {
    const bool of_q = n == FT_DESCALE_Q;
    const struct factors of = {
        .batch = batch,
        .blocks =
            ft_descale_blocks(request->descale_rows, of_q ? request->seqlen_q : request->seqlen_k),
        .heads = of_q ? request->heads_q : request->heads_kv,
        .shared = n == FT_DESCALE_K && draw % 4 == 0,
        .magnitude = n == FT_DESCALE_V && request->descale_rows > 0 ? OF_V : 0};
    if (n == FT_DESCALE_V && draw % 4 == 1) continue;
    if (of_q && request->dtype != FT_E4M3) continue;
    descales->host[n] = malloc((size_t)(batch * of.heads * of.blocks) * sizeof(float));
    if (!descales->host[n])
      status = ft_fail(FT_E_MEMORY, "no memory for the descales of a problem");
    FT_CHECK(status);
    fill(descales->host[n], image + n * room, &of, &state);
    const cu_address place = descales->memory + (cu_address)(n * room) * sizeof(float);
    descales->given[n] = (fatune_descale){.data = (const float *)(uintptr_t)place,
                                          .stride_batch = stride_of(&of),
                                          .stride_head = of.shared ? 0 : of.blocks};
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
