/* problem.c: one attention problem on the GPU.
 * in -> out: options -> inputs uploaded, outputs allocated between fences, arguments of a run. */

#include "tuner/verify/problem.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/verify/answers.h"
#include "tuner/verify/gradients.h"
#include "tuner/verify/page_table.h"
#include "tuner/verify/problem_backward.h"
#include "tuner/verify/problem_gradients.h"
#include "tuner/verify/problem_memory.h"
#include "tuner/verify/problem_options.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/random_inputs.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/shape.h"
#include "tuner/verify/threads.h"

static bool is_backward(const struct ft_problem *problem) {
  return problem->options.request.pass == FT_BACKWARD;
}

static int make_shapes(struct ft_problem *problem) {
  const struct ft_request *r = &problem->options.request;
  const enum ft_layout layout = problem->options.layout;
  /* dO gets other strides than Q, K, V, O, so that a kernel that confuses them is found. */
  const enum ft_layout other = layout == FT_LAYOUT_PADDED ? FT_LAYOUT_WIDE : layout;
  const struct {
    bool of_queries, of_values;
  } tensors[FT_TENSORS] = {
      [FT_Q] = {true, false},   [FT_K] = {false, false},  [FT_V] = {false, true},
      [FT_O] = {true, true},    [FT_DOUT] = {true, true}, [FT_DQ] = {true, false},
      [FT_DK] = {false, false}, [FT_DV] = {false, true}};
  for (int n = 0; n < FT_TENSORS; n++) {
    const bool of_queries = tensors[n].of_queries;
    const bool written = n >= FT_DQ || (n == FT_O && r->pass == FT_FORWARD);
    const int bytes = ft_dtype_bytes(written ? ft_output_dtype(r) : ft_problem_dtype(r, n));
    const int heads = of_queries ? r->heads_q : r->heads_kv;
    const int dim = tensors[n].of_values ? r->head_dim_v : r->head_dim;
    const enum ft_layout own = n >= FT_DOUT ? other : layout;
    const struct ft_sequences *const all = &problem->sequences;
    if (r->pages > 0 && !of_queries)
      FT_TRY(ft_shape_make_paged(&problem->shapes[n], own, bytes, &all->k, all->count, heads, dim));
    else
      FT_TRY(r->ragged
                 ? ft_shape_make_packed(&problem->shapes[n], own, bytes,
                                        of_queries ? &all->q : &all->k, all->count, heads, dim)
                 : ft_shape_make(&problem->shapes[n], own, bytes, r->batch,
                                 of_queries ? r->seqlen_q : r->seqlen_k, heads, dim));
  }
  return FT_OK;
}

/* ---- inputs: drawn by a thread each, then uploaded ---- */

enum { INPUTS = 4 };

static const int inputs[INPUTS] = {FT_Q, FT_K, FT_V, FT_DOUT};

static int input_count(const struct ft_problem *problem) {
  return is_backward(problem) ? INPUTS : INPUTS - 1;
}

static int draw_input(struct ft_problem *problem, int buffer) {
  const struct ft_shape *shape = &problem->shapes[buffer];
  const enum ft_dtype dtype = problem->options.request.dtype;
  const enum ft_dtype of_buffer = ft_problem_dtype(&problem->options.request, buffer);
  const uint64_t seed = problem->options.seed + 0x5851F42D4C957F2Du * (uint64_t)(buffer + 1);
  const bool made_up = problem->options.made_up;
  FT_TRY((made_up ? ft_random_pieces : ft_random_tensor)(&problem->dense[buffer], dtype,
                                                         shape->count, seed));
  if (problem->options.coarse && buffer <= FT_K)
    ft_random_make_coarse(problem->dense[buffer], dtype, shape->count);
  if (of_buffer == FT_E4M3 && dtype != FT_E4M3 && !made_up) /* else rounded when it is uploaded */
    ft_random_make_e4m3(problem->dense[buffer], dtype, shape->count);
  return FT_OK;
}

struct drawing {
  struct ft_problem *problem;
  atomic_int next; /* of the inputs */
};

static void *draw_some(void *payload) {
  struct drawing *const drawing = payload;
  for (int n; (n = atomic_fetch_add(&drawing->next, 1)) < input_count(drawing->problem);)
    draw_input(drawing->problem, inputs[n]);
  return NULL;
}

static int upload_input(struct ft_problem *problem, int buffer) {
  const struct ft_shape *shape = &problem->shapes[buffer];
  const size_t bytes = (size_t)ft_dtype_bytes(ft_problem_dtype(&problem->options.request, buffer));
  const struct ft_sequences *const all = &problem->sequences;
  if (shape->packed && shape->packed->table.page > 0)
    ft_page_table_share(&all->k.table, all->k.used, all->count, problem->dense[buffer], shape->rows,
                        (int64_t)shape->heads * shape->dim * shape->host_bytes);
  FT_TRY(ft_problem_allocate(problem, buffer, (size_t)shape->span * bytes, 0));
  return ft_problem_upload(problem, buffer, problem->dense[buffer]);
}

static int make_inputs(struct ft_problem *problem) {
  struct drawing drawing = {.problem = problem};
  ft_work_together(input_count(problem), draw_some, &drawing);
  for (int n = 0; n < input_count(problem); n++) {
    /* What a thread had no memory for is tried once more, or fails in this thread's words. */
    if (!problem->dense[inputs[n]]) FT_TRY(draw_input(problem, inputs[n]));
    FT_TRY(upload_input(problem, inputs[n]));
  }
  return FT_OK;
}

static int make_output(struct ft_problem *problem, int buffer) {
  const struct ft_shape *const shape = &problem->shapes[buffer];
  return ft_problem_allocate(problem, buffer, (size_t)(shape->span * shape->host_bytes),
                             FT_FENCE_BYTES);
}

static size_t lse_bytes(const struct ft_problem *problem) {
  const struct ft_request *const r = &problem->options.request;
  const int64_t rows = r->ragged ? r->heads_q * r->seqlen_q : ft_gradient_rows(r, FT_GRADIENT_Q);
  return (size_t)rows * sizeof(float);
}

static int make_page_table(struct ft_problem *problem) {
  const struct ft_page_table *const table = &problem->sequences.k.table;
  const size_t count = (size_t)(problem->sequences.count * table->columns);
  if (table->page == 0) return FT_OK;
  FT_TRY(ft_problem_allocate(problem, FT_PAGES, count * sizeof *table->numbers, 0));
  return ft_problem_copy_in(problem, FT_PAGES, table->numbers);
}

/* The lengths of a problem that has such; of another nothing. */
static int make_sequences(struct ft_problem *problem) {
  const struct ft_request *const r = &problem->options.request;
  struct ft_sequences *const all = &problem->sequences;
  if (!ft_request_has_sequences(r)) return FT_OK;
  FT_TRY(ft_sequences_make(all, r, problem->options.alike, problem->options.seed));
  FT_TRY(make_page_table(problem));
  const size_t count = (size_t)all->count, numbers = 4 * count + 2;
  FT_TRY(ft_problem_allocate(problem, FT_LENGTHS, numbers * sizeof(int32_t), 0));
  int32_t *const lengths = malloc(numbers * sizeof *lengths);
  if (!lengths) return ft_fail(FT_E_MEMORY, "no memory for %zu lengths", numbers);
  memcpy(lengths, all->q.starts, (count + 1) * sizeof *lengths);
  memcpy(lengths + count + 1, all->k.starts, (count + 1) * sizeof *lengths);
  memcpy(lengths + 2 * count + 2, all->q.used, count * sizeof *lengths);
  memcpy(lengths + 3 * count + 2, all->k.used, count * sizeof *lengths);
  const int status = ft_problem_copy_in(problem, FT_LENGTHS, lengths);
  free(lengths);
  return status;
}

/* The request with the lengths that host copies have room for. */
static struct ft_request host_request(const struct ft_problem *problem) {
  struct ft_request request = problem->options.request;
  if (!ft_request_has_sequences(&request)) return request;
  request.seqlen_q = problem->sequences.q.longest;
  request.seqlen_k = problem->sequences.k.longest;
  return request;
}

static int make_outputs(struct ft_problem *problem) {
  FT_TRY(make_output(problem, FT_O));
  if (!problem->options.want_lse) return FT_OK;
  return ft_problem_allocate(problem, FT_LSE, lse_bytes(problem), FT_FENCE_BYTES);
}

/* Makes the outputs of a backward, and room for the O and LSE that it is given. */
static int make_gradients(struct ft_problem *problem) {
  for (int buffer = FT_DQ; buffer <= FT_DV; buffer++) FT_TRY(make_output(problem, buffer));
  FT_TRY(ft_problem_allocate(
      problem, FT_O, (size_t)(problem->shapes[FT_O].span * problem->shapes[FT_O].host_bytes), 0));
  FT_TRY(ft_problem_allocate(problem, FT_LSE, lse_bytes(problem), 0));
  if (!problem->options.want_dlse) return FT_OK;
  return ft_problem_allocate(problem, FT_DLSE, lse_bytes(problem), 0);
}

int ft_problem_reserve(struct ft_problem *problem, size_t bytes) {
  return ft_problem_make_workspace(problem, bytes);
}

int ft_problem_fit(struct ft_problem *problem, const fatune_plan *plan) {
  size_t bytes;
  FT_TRY(fatune_plan_workspace_for(plan, &problem->arguments, &bytes));
  return ft_problem_reserve(problem, bytes);
}

/* By the mask function of the score: what it hides, the reference knows. */
static int make_visible_mask(struct ft_problem *problem) {
  const struct ft_request *r = &problem->options.request;
  fatune_visible_options options = FATUNE_VISIBLE_OPTIONS_INIT;
  options.score = r->score;
  options.mask_rows = r->mask_rows;
  options.mask_cols = r->mask_cols;
  options.batch = r->batch;
  options.heads_q = r->heads_q;
  options.heads_kv = r->heads_kv;
  options.seqlen_q = r->seqlen_q;
  options.seqlen_k = r->seqlen_k;
  FT_TRY(fatune_visible_mask(&problem->mask, problem->session, &options));
  return fatune_mask_update(problem->mask, problem->score.captured, problem->score.count, NULL);
}

/* Where no share of blocks is given and the score hides keys, its function says which are kept. */
static int make_mask(struct ft_problem *problem) {
  const struct ft_request *r = &problem->options.request;
  if (r->mask_rows == 0) return FT_OK;
  if (r->mask_density == 1 && problem->score.known && problem->score.known->has_visible)
    return make_visible_mask(problem);
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

/* Fills in what the reference needs before O and LSE of a backward are known. */
static void make_host(struct ft_problem *problem) {
  const struct ft_problem_options *options = &problem->options;
  const fatune_arguments *arguments = &problem->arguments;
  problem->host = (struct ft_host_problem){
      .request = host_request(problem),
      .sequences = ft_request_has_sequences(&options->request) ? &problem->sequences : NULL,
      .q = problem->dense[FT_Q],
      .k = problem->dense[FT_K],
      .v = problem->dense[FT_V],
      .dout = problem->dense[FT_DOUT],
      .blocks = problem->blocks,
      .mask_batch = options->broadcast_mask ? 1 : (int)options->request.batch,
      .mask_heads = options->broadcast_mask ? 1 : options->request.heads_q,
      .score = problem->score.known,
      .score_inputs = problem->score.inputs,
      .sinks = problem->sinks.host,
      .descales = {problem->descales.host[FT_DESCALE_Q], problem->descales.host[FT_DESCALE_K],
                   problem->descales.host[FT_DESCALE_V]},
      .scale = (double)arguments->scale,
      .dropout = (double)arguments->dropout,
      .seed = arguments->seed,
      .offset = arguments->offset};
}

static void drop_host(struct ft_problem *problem) {
  for (int buffer = 0; buffer < FT_TENSORS; buffer++) {
    free(problem->dense[buffer]);
    problem->dense[buffer] = NULL;
  }
  free(problem->lse);
  free(problem->dlse);
  problem->lse = problem->dlse = NULL;
}

/* The lengths and the page table, where there are such. */
static void set_sequences(const struct ft_problem *problem, fatune_arguments *arguments) {
  const struct ft_request *const r = &problem->options.request;
  const struct ft_sequences *const all = &problem->sequences;
  const struct ft_page_table *const table = &all->k.table;
  const int32_t *const lengths = (const int32_t *)(uintptr_t)problem->data[FT_LENGTHS];
  if (!ft_request_has_sequences(r)) return;
  if (r->ragged) arguments->cu_seqlens_q = lengths;
  if (r->ragged && all->some_unused) arguments->seqused_q = lengths + 2 * all->count + 2;
  if (r->pages > 0 || all->some_unused) arguments->seqused_k = lengths + 3 * all->count + 2;
  if (r->pages == 0)
    arguments->cu_seqlens_k = lengths + all->count + 1;
  else
    arguments->page_table =
        (fatune_page_table){.data = (const int32_t *)(uintptr_t)problem->data[FT_PAGES],
                            .stride_batch = table->columns,
                            .stride_page = 1,
                            .columns = table->columns,
                            .pages = table->pages};
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
  if (is_backward(problem)) {
    arguments.dout = tensor_of(problem, FT_DOUT);
    arguments.dq = tensor_of(problem, FT_DQ);
    arguments.dk = tensor_of(problem, FT_DK);
    arguments.dv = tensor_of(problem, FT_DV);
    arguments.dlse = (const float *)(uintptr_t)problem->data[FT_DLSE];
  }
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
  arguments.captured = problem->score.captured;
  arguments.captured_count = problem->score.count;
  arguments.sinks = (const float *)(uintptr_t)problem->sinks.memory;
  arguments.dsinks = (float *)(uintptr_t)problem->sinks.gradient;
  arguments.descale_q = problem->descales.given[FT_DESCALE_Q];
  arguments.descale_k = problem->descales.given[FT_DESCALE_K];
  arguments.descale_v = problem->descales.given[FT_DESCALE_V];
  arguments.window_left = r->window_left;
  arguments.window_right = r->window_right;
  set_sequences(problem, &arguments);
  problem->arguments = arguments;
}

int ft_problem_make(struct ft_problem **problem, fatune_session *session,
                    const struct ft_problem_options *options) {
  *problem = NULL;
  FT_TRY(ft_request_validate(&options->request));
  struct ft_problem *made = calloc(1, sizeof *made);
  if (!made) return ft_fail(FT_E_MEMORY, "no memory for a problem");
  made->session = session;
  made->options = *options;
  made->options.want_lse &= !options->request.fast_exp; /* which gives O alone */
  const int entered = ft_session_enter(session);
  int status = entered;
  if (entered != FT_OK) goto done;
  FT_CHECK(make_sequences(made));
  FT_CHECK(make_shapes(made));
  FT_CHECK(make_inputs(made));
  FT_CHECK(is_backward(made) ? make_gradients(made) : make_outputs(made));
  FT_CHECK(ft_problem_score_make(&made->score, session, &options->request, options->seed));
  FT_CHECK(make_mask(made));
  FT_CHECK(ft_problem_sinks_make(&made->sinks, session, &options->request, options->seed));
  FT_CHECK(ft_problem_descales_make(&made->descales, session, &options->request, options->seed));
  make_arguments(made);
  make_host(made);
  if (is_backward(made)) FT_CHECK(ft_problem_forward(made));
  if (!options->keep_host) drop_host(made);
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
  /* An address names its context, so a buffer can be given back beside another one, too. */
  const bool entered = ft_session_enter(problem->session) == FT_OK;
  for (int buffer = 0; buffer < FT_BUFFERS; buffer++) {
    if (problem->memory[buffer]) problem->session->driver.memory_free(problem->memory[buffer]);
  }
  ft_problem_score_free(&problem->score, problem->session);
  ft_problem_sinks_free(&problem->sinks, problem->session);
  ft_problem_descales_free(&problem->descales, problem->session);
  if (entered) ft_session_leave(problem->session);
  drop_host(problem);
  ft_problem_forget_gradients(problem);
  free(problem->blocks);
  free(problem->rows);
  ft_answers_free(problem->answers);
  free(problem->o_image);
  free(problem->lse_image);
  free(problem->again);
  free(problem->o_rows);
  free(problem->lse_rows);
  ft_sequences_free(&problem->sequences);
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
  /* An emulated GPU reports reads of memory that no kernel has written. Poison would count as
   * written. */
  if (buffer != FT_WORKSPACE || !problem->session->driver.emulated)
    FT_TRY(set_words(problem, problem->data[buffer], word, problem->bytes[buffer], stream));
  return set_words(problem, end, FT_FENCE_WORD, FT_FENCE_BYTES, stream);
}

int ft_problem_poison(struct ft_problem *problem, cu_stream stream) {
  const unsigned poison = FT_POISON_16 * 0x10001u;
  FT_TRY(ft_session_enter(problem->session));
  int status;
  if (is_backward(problem)) {
    for (int buffer = FT_DQ; buffer <= FT_DV; buffer++)
      FT_CHECK(poison_buffer(problem, buffer, poison, stream));
    FT_CHECK(ft_problem_score_poison(&problem->score, problem->session, stream));
    FT_CHECK(ft_problem_sinks_poison(&problem->sinks, problem->session, stream));
  } else {
    FT_CHECK(poison_buffer(problem, FT_O, poison, stream));
    FT_CHECK(poison_buffer(problem, FT_LSE, FT_POISON_LSE, stream));
  }
  FT_CHECK(poison_buffer(problem, FT_WORKSPACE, poison, stream));
done:
  ft_session_leave(problem->session);
  return status;
}
