/* problem.c: one attention problem on the GPU.
 * in -> out: options -> inputs uploaded, outputs allocated between fences, arguments of a run. */
#include "tuner/problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tuner/problem_parts.h"

static int make_shapes(struct ft_problem *problem) {
  const struct ft_request *r = &problem->options.request;
  const enum ft_layout layout = problem->options.layout;
  struct ft_shape *shapes = problem->shapes;
  FT_TRY(ft_shape_make(&shapes[FT_Q], layout, r->batch, r->seqlen_q, r->heads_q, r->head_dim));
  FT_TRY(ft_shape_make(&shapes[FT_K], layout, r->batch, r->seqlen_k, r->heads_kv, r->head_dim));
  FT_TRY(ft_shape_make(&shapes[FT_V], layout, r->batch, r->seqlen_k, r->heads_kv, r->head_dim_v));
  return ft_shape_make(&shapes[FT_O], layout, r->batch, r->seqlen_q, r->heads_q, r->head_dim_v);
}

static int allocate(struct ft_problem *problem, int buffer, size_t bytes, size_t fence) {
  const struct ft_driver *driver = &problem->session->driver;
  problem->bytes[buffer] = bytes;
  FT_TRY(ft_driver_status(driver, driver->memory_alloc(&problem->memory[buffer], bytes + 2 * fence),
                          "cuMemAlloc"));
  problem->data[buffer] = problem->memory[buffer] + fence;
  return FT_OK;
}

int ft_problem_upload(struct ft_problem *problem, int buffer, const uint16_t *dense) {
  const struct ft_driver *driver = &problem->session->driver;
  const uint16_t *image;
  uint16_t *owned = NULL;
  int status;
  FT_CHECK(ft_layout_image(&image, &owned, dense, &problem->shapes[buffer]));
  FT_CHECK(ft_driver_status(
      driver, driver->copy_to_device(problem->data[buffer], image, problem->bytes[buffer], NULL),
      "cuMemcpyHtoDAsync"));
  FT_CHECK(ft_driver_status(driver, driver->stream_synchronize(NULL), "cuStreamSynchronize"));
done:
  free(owned);
  return status;
}

static int make_input(struct ft_problem *problem, int buffer) {
  const struct ft_shape *shape = &problem->shapes[buffer];
  const uint64_t seed = problem->options.seed + 0x5851F42D4C957F2Du * (uint64_t)(buffer + 1);
  int status;
  FT_CHECK(ft_random_tensor(&problem->dense[buffer], problem->options.request.dtype, shape->count,
                            seed));
  FT_CHECK(allocate(problem, buffer, (size_t)shape->span * 2, 0));
  FT_CHECK(ft_problem_upload(problem, buffer, problem->dense[buffer]));
done:
  if (status != FT_OK || !problem->options.keep_host) {
    free(problem->dense[buffer]);
    problem->dense[buffer] = NULL;
  }
  return status;
}

static int make_outputs(struct ft_problem *problem) {
  const struct ft_request *r = &problem->options.request;
  FT_TRY(allocate(problem, FT_O, (size_t)problem->shapes[FT_O].span * 2, FT_FENCE_BYTES));
  if (!problem->options.want_lse) return FT_OK;
  const size_t rows = (size_t)(r->batch * r->heads_q * r->seqlen_q);
  return allocate(problem, FT_LSE, rows * sizeof(float), FT_FENCE_BYTES);
}

static int make_mask(struct ft_problem *problem) {
  const struct ft_request *r = &problem->options.request;
  if (r->mask_rows == 0) return FT_OK;
  const bool broadcast = problem->options.broadcast_mask;
  const int64_t batch = broadcast ? 1 : r->batch;
  const int heads = broadcast ? 1 : r->heads_q;
  FT_TRY(ft_random_blocks(&problem->blocks, r, batch, heads, ~problem->options.seed));
  fatune_mask_options options = FATUNE_MASK_OPTIONS_INIT;
  options.blocks = problem->blocks;
  options.mask_rows = r->mask_rows;
  options.mask_cols = r->mask_cols;
  options.batch = batch;
  options.heads = heads;
  options.seqlen_q = r->seqlen_q;
  options.seqlen_k = r->seqlen_k;
  return fatune_mask_make(&problem->mask, problem->session, &options, NULL);
}

static fatune_tensor tensor_of(const struct ft_problem *problem, int buffer) {
  const struct ft_shape *shape = &problem->shapes[buffer];
  return (fatune_tensor){.data = (void *)(uintptr_t)problem->data[buffer], /* a device address */
                         .stride_batch = shape->stride_batch,
                         .stride_seq = shape->stride_row,
                         .stride_head = shape->stride_head};
}

static void make_arguments(struct ft_problem *problem) {
  const struct ft_request *r = &problem->options.request;
  const struct ft_problem_options *options = &problem->options;
  uint64_t state = options->seed ^ 0xD1B54A32D192ED03u;
  fatune_arguments arguments = FATUNE_ARGUMENTS_INIT;
  arguments.q = tensor_of(problem, FT_Q);
  arguments.k = tensor_of(problem, FT_K);
  arguments.v = tensor_of(problem, FT_V);
  arguments.o = tensor_of(problem, FT_O);
  arguments.lse = (float *)(uintptr_t)problem->data[FT_LSE];
  arguments.batch = r->batch;
  arguments.heads_q = r->heads_q;
  arguments.heads_kv = r->heads_kv;
  arguments.seqlen_q = r->seqlen_q;
  arguments.seqlen_k = r->seqlen_k;
  arguments.scale = (float)(options->scale > 0 ? options->scale : 1 / sqrt(r->head_dim));
  if (r->dropout) arguments.dropout = (float)(options->dropout > 0 ? options->dropout : 0.1);
  arguments.seed = ft_random_next(&state);
  arguments.offset = ft_random_next(&state);
  arguments.mask = problem->mask;
  problem->arguments = arguments;

  problem->host =
      (struct ft_host_problem){.request = *r,
                               .q = problem->dense[FT_Q],
                               .k = problem->dense[FT_K],
                               .v = problem->dense[FT_V],
                               .blocks = problem->blocks,
                               .mask_batch = options->broadcast_mask ? 1 : (int)r->batch,
                               .mask_heads = options->broadcast_mask ? 1 : r->heads_q,
                               .scale = (double)arguments.scale,
                               .dropout = (double)arguments.dropout,
                               .seed = arguments.seed,
                               .offset = arguments.offset};
}

int ft_problem_make(struct ft_problem **problem, fatune_session *session,
                    const struct ft_problem_options *options) {
  *problem = NULL;
  FT_TRY(ft_request_validate(&options->request));
  struct ft_problem *made = calloc(1, sizeof *made);
  if (!made) return ft_fail(FT_E_MEMORY, "no memory for a problem");
  made->session = session;
  made->options = *options;
  const int entered = ft_session_enter(session);
  int status = entered;
  if (entered != FT_OK) goto done;
  FT_CHECK(make_shapes(made));
  for (int buffer = FT_Q; buffer < FT_O; buffer++) FT_CHECK(make_input(made, buffer));
  FT_CHECK(make_outputs(made));
  FT_CHECK(make_mask(made));
  make_arguments(made);
  FT_CHECK(ft_problem_poison(made, NULL));
  *problem = made;
done:
  if (entered == FT_OK) ft_session_leave(session);
  if (status != FT_OK) ft_problem_free(made);
  return status;
}

void ft_problem_free(struct ft_problem *problem) {
  if (!problem) return;
  fatune_mask_free(problem->mask);
  if (ft_session_enter(problem->session) == FT_OK) {
    for (int buffer = 0; buffer < FT_BUFFERS; buffer++) {
      if (problem->memory[buffer]) problem->session->driver.memory_free(problem->memory[buffer]);
    }
    ft_session_leave(problem->session);
  }
  for (int buffer = FT_Q; buffer < FT_O; buffer++) free(problem->dense[buffer]);
  free(problem->blocks);
  free(problem->rows);
  ft_answers_free(problem->answers);
  free(problem->o_image);
  free(problem->lse_image);
  free(problem->o_rows);
  free(problem->lse_rows);
  free(problem);
}

const fatune_arguments *ft_problem_arguments(const struct ft_problem *problem) {
  return &problem->arguments;
}

double ft_problem_mask_density(const struct ft_problem *problem) {
  return problem->mask ? fatune_mask_density(problem->mask) : 1;
}

static int set_words(struct ft_problem *problem, cu_address to, unsigned word, size_t bytes,
                     cu_stream stream) {
  const struct ft_driver *driver = &problem->session->driver;
  return ft_driver_status(driver, driver->set_words(to, word, bytes / 4, stream),
                          "cuMemsetD32Async");
}

static int poison_buffer(struct ft_problem *problem, int buffer, unsigned word, cu_stream stream) {
  if (!problem->memory[buffer]) return FT_OK;
  const cu_address end = problem->data[buffer] + problem->bytes[buffer];
  FT_TRY(set_words(problem, problem->memory[buffer], FT_FENCE_WORD, FT_FENCE_BYTES, stream));
  FT_TRY(set_words(problem, problem->data[buffer], word, problem->bytes[buffer], stream));
  return set_words(problem, end, FT_FENCE_WORD, FT_FENCE_BYTES, stream);
}

int ft_problem_poison(struct ft_problem *problem, cu_stream stream) {
  FT_TRY(ft_session_enter(problem->session));
  int status;
  FT_CHECK(poison_buffer(problem, FT_O, FT_POISON_O * 0x10001u, stream));
  FT_CHECK(poison_buffer(problem, FT_LSE, FT_POISON_LSE, stream));
done:
  ft_session_leave(problem->session);
  return status;
}
