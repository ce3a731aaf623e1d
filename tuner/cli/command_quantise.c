/* command_quantise.c: `fatune quantise`: a tensor of 16-bit numbers as e4m3 with descales.
 * in -> out: a file of numbers + what tensor they are -> fatune_quantise -> a file of bytes, one of
 * descales; what there is in them. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/request_fields.h"
#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/cli/cli_emulator.h"
#include "tuner/cli/cli_file.h"
#include "tuner/cli/command.h"

enum { NUMBERS, BYTES, DESCALES, BUFFERS };

/* What the command works with. */
struct quantised {
  const struct ft_request *request; /* of which the tensor is Q */
  struct cli_target target;
  int64_t count, descales; /* of elements, of descales */
  size_t sizes[BUFFERS];
  void *host[BUFFERS]; /* owned */
  cu_address device[BUFFERS];

  int64_t nans, infinite;
  double least, largest; /* of the finite descales; NAN: there is none */
};

/* ---- what was asked for ---- */

/* A tensor has a dtype and four lengths; whatever else a request says is refused. */
static int check_request(const struct ft_request *request) {
  const bool given[FT_REQUEST_FIELDS] = {[FT_REQUEST_dtype] = true,
                                         [FT_REQUEST_head_dim] = true,
                                         [FT_REQUEST_heads_q] = true,
                                         [FT_REQUEST_batch] = true,
                                         [FT_REQUEST_seqlen_q] = true};
  struct ft_request tensor = {.dtype = request->dtype,
                              .head_dim = request->head_dim,
                              .heads_q = request->heads_q,
                              .batch = request->batch,
                              .seqlen_q = request->seqlen_q};
  FT_TRY(ft_request_complete(&tensor, given));
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i) {
    const struct ft_request_field *const field = ft_request_field(i);
    if (ft_request_same(request, &tensor, i)) continue;
    return ft_fail(FT_E_ARGUMENT,
                   "'%s' is nothing that a tensor has; allowed: fp16, bf16, dN, hqN, bN, nqN",
                   field->word ? field->word : field->choices[ft_request_get(request, i)]);
  }
  if (request->dtype == FT_FP16 || request->dtype == FT_BF16) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "dtype is %s; allowed: fp16, bf16", ft_dtype_name(request->dtype));
}

static int check_files(const struct cli *cli) {
  const struct cli_options *const options = &cli->options;
  const struct {
    const char *option, *path;
  } files[] = {
      {"--from", options->from}, {"--output", options->output}, {"--descales", options->descales}};
  for (int i = 0; i < 3; ++i) {
    if (files[i].path == NULL) return ft_fail(FT_E_ARGUMENT, "%s FILE is missing", files[i].option);
    if (i > 0) FT_TRY(cli_file_check(cli, files[i].option, files[i].path));
  }
  for (int i = 0; i < 3; ++i) {
    const int next = (i + 1) % 3;
    const char *const path = files[i].path, *const other = files[next].path;
    const bool both_stdout = i == 1 && strcmp(path, "-") == 0 && strcmp(other, "-") == 0;
    if (both_stdout || cli_file_same(path, other))
      return ft_fail(FT_E_ARGUMENT, "%s '%s' and %s '%s' are one file; allowed: two",
                     files[i].option, path, files[next].option, other);
  }
  return FT_OK;
}

static int find_sizes(struct quantised *all, const struct cli_options *options) {
  const struct ft_request *const request = all->request;
  int64_t bytes;
  if (__builtin_mul_overflow(request->batch, request->seqlen_q, &all->count) ||
      __builtin_mul_overflow(all->count, request->heads_q, &all->count) ||
      __builtin_mul_overflow(all->count, request->head_dim, &all->count) ||
      __builtin_mul_overflow(all->count, (int64_t)sizeof(uint16_t), &bytes))
    return ft_fail(FT_E_ARGUMENT, "the tensor has 2^63 bytes or more");
  all->descales = request->batch * request->heads_q *
                  ft_descale_blocks(options->descale_rows, request->seqlen_q);
  all->sizes[NUMBERS] = (size_t)bytes;
  all->sizes[BYTES] = (size_t)all->count;
  all->sizes[DESCALES] = (size_t)all->descales * sizeof(float);
  return FT_OK;
}

static int read_numbers(struct quantised *all, const char *path) {
  const struct ft_request *const request = all->request;
  const int status = cli_file_read("--from", path, all->sizes[NUMBERS], &all->host[NUMBERS]);
  if (status != FT_E_ARGUMENT) return status;
  return ft_fail(status, "%s, of %s [%" PRId64 ", %" PRId64 ", %d, %d]", ft_detail(),
                 ft_dtype_name(request->dtype), request->batch, request->seqlen_q, request->heads_q,
                 request->head_dim);
}

/* ---- the work ---- */

static int allocate(struct quantised *all, const struct ft_driver *driver) {
  for (int i = 0; i < BUFFERS; ++i) {
    FT_TRY(ft_driver_status(driver, driver->memory_alloc(&all->device[i], all->sizes[i]),
                            "cuMemAlloc"));
    if (i == NUMBERS) continue;
    all->host[i] = malloc(all->sizes[i]);
    if (all->host[i] == NULL)
      return ft_fail(FT_E_MEMORY, "no memory for %zu bytes of results", all->sizes[i]);
  }
  return FT_OK;
}

static fatune_tensor tensor_at(cu_address data, const struct ft_request *request) {
  const int64_t dim = request->head_dim, row = request->heads_q * dim;
  return (fatune_tensor){(void *)(uintptr_t)data, request->seqlen_q * row, row, dim};
}

static int quantise(struct quantised *all, fatune_session *session,
                    const struct cli_options *options) {
  const struct ft_request *const request = all->request;
  const struct ft_driver *const driver = &session->driver;
  fatune_quantise_arguments arguments = FATUNE_QUANTISE_ARGUMENTS_INIT;
  FT_TRY(allocate(all, driver));
  arguments.dtype = request->dtype == FT_FP16 ? FATUNE_FP16 : FATUNE_BF16;
  arguments.head_dim = request->head_dim;
  arguments.batch = request->batch;
  arguments.heads = request->heads_q;
  arguments.seqlen = request->seqlen_q;
  arguments.x = tensor_at(all->device[NUMBERS], request);
  arguments.out = tensor_at(all->device[BYTES], request);
  arguments.descale = (float *)(uintptr_t)all->device[DESCALES];
  arguments.rotate = options->rotate;
  arguments.seed = options->rotate_seed;
  arguments.descale_rows = options->descale_rows;
  FT_TRY(
      ft_driver_send(driver, all->device[NUMBERS], all->host[NUMBERS], all->sizes[NUMBERS], NULL));
  FT_TRY(fatune_quantise(session, &arguments, NULL));
  for (int i = BYTES; i < BUFFERS; ++i)
    FT_TRY(ft_driver_fetch(driver, all->host[i], all->device[i], all->sizes[i], NULL));
  return FT_OK;
}

/* The numbers on the host -> bytes and descales there. */
static int work(struct quantised *all, fatune_session *session, const struct cli_options *options) {
  FT_TRY(ft_session_enter(session));
  const int status = quantise(all, session, options);
  for (int i = 0; i < BUFFERS; ++i)
    if (all->device[i]) session->driver.memory_free(all->device[i]);
  ft_session_leave(session);
  return status;
}

/* ---- what it tells ---- */

static void look(struct quantised *all) {
  const uint16_t *const numbers = all->host[NUMBERS];
  const float *const descales = all->host[DESCALES];
  const int infinity = all->request->dtype == FT_FP16 ? 0x7C00 : 0x7F80;
  for (int64_t i = 0; i < all->count; ++i) all->nans += (numbers[i] & 0x7FFF) > infinity;
  all->least = all->largest = NAN;
  for (int64_t i = 0; i < all->descales; ++i) {
    const double descale = (double)descales[i];
    all->infinite += !isfinite(descale);
    if (!isfinite(descale)) continue;
    all->least = fmin(all->least, descale); /* of NaN and a number it is the number */
    all->largest = fmax(all->largest, descale);
  }
}

static void tell_document(struct cli *cli, const struct quantised *all) {
  const struct cli_options *const options = &cli->options;
  const struct ft_request *const request = all->request;
  const int64_t shape[] = {request->batch, request->seqlen_q, request->heads_q, request->head_dim};
  json_t *const lengths = json_array();
  for (int i = 0; i < 4; ++i) cli_json_append(lengths, json_integer(shape[i]));
  cli_json_target(cli, &all->target);
  cli_json(cli, "dtype", cli_json_text(ft_dtype_name(request->dtype)));
  cli_json(cli, "shape", lengths);
  cli_json(cli, "rotate",
           options->rotate ? json_integer((json_int_t)options->rotate_seed) : json_null());
  cli_json(cli, "bytes", json_integer(all->count));
  cli_json(cli, "descales", json_integer(all->descales));
  cli_json(cli, "descale_rows",
           options->descale_rows > 0 ? json_integer(options->descale_rows) : json_null());
  cli_json(cli, "least_descale", cli_json_real(all->least));
  cli_json(cli, "largest_descale", cli_json_real(all->largest));
  cli_json(cli, "infinite_descales", json_integer(all->infinite));
  cli_json(cli, "nans", json_integer(all->nans));
  cli_json(cli, "output", cli_json_text(options->output));
  cli_json(cli, "descales_file", cli_json_text(options->descales));
}

static void tell_text(struct cli *cli, const struct quantised *all) {
  const struct cli_options *const options = &cli->options;
  const struct ft_request *const request = all->request;
  char of_rows[32] = "each head";
  if (options->descale_rows > 0)
    snprintf(of_rows, sizeof of_rows, "%d rows of a head", options->descale_rows);
  cli_field(cli, "gpu", "%s", all->target.arch.name);
  cli_emulator_tell(cli, &all->target);
  cli_field(cli, "tensor", "%s [%" PRId64 ", %" PRId64 ", %d, %d]: batch, rows, heads, head dim",
            ft_dtype_name(request->dtype), request->batch, request->seqlen_q, request->heads_q,
            request->head_dim);
  if (options->rotate) cli_field(cli, "rotated", "by seed %" PRIu64, options->rotate_seed);
  cli_field(cli, "bytes", "%" PRId64 " of e4m3", all->count);
  cli_field(cli, "descales", "%" PRId64 ", one of %s", all->descales, of_rows);
  if (!isnan(all->least)) cli_field(cli, "from, to", "%.9g, %.9g", all->least, all->largest);
  cli_field(cli, "infinite", "%" PRId64 " descales", all->infinite);
  cli_field(cli, "NaN", "%" PRId64 " numbers of the tensor", all->nans);
}

static int write_files(struct cli *cli, const struct quantised *all) {
  const struct cli_options *const options = &cli->options;
  const struct cli_result results[] = {
      {"--descales", options->descales, all->host[DESCALES], all->sizes[DESCALES]},
      {"--output", options->output, all->host[BYTES], all->sizes[BYTES]}};
  return cli_files_write(cli, results, 2);
}

static int run(struct cli *cli) {
  const struct cli_options *const options = &cli->options;
  struct quantised all = {.request = &options->requests[0]};
  fatune_session *session = NULL;
  int status;
  FT_CHECK(check_request(all.request));
  FT_CHECK(check_files(cli));
  FT_CHECK(find_sizes(&all, options));
  FT_CHECK(cli_session_open(cli, &session));
  FT_CHECK(cli_target_run(cli, session, &all.target));
  FT_CHECK(cli_emulator_ready(&all.target));
  FT_CHECK(read_numbers(&all, options->from));
  FT_CHECK(work(&all, session, options));
  FT_CHECK(write_files(cli, &all));
  look(&all);
  tell_document(cli, &all);
  /* With results on stdout the description would be in their way. */
  if (strcmp(options->output, "-") != 0 && strcmp(options->descales, "-") != 0)
    tell_text(cli, &all);
done:;
  const int code = status == FT_OK ? CLI_EXIT_OK : cli_fail(cli, status);
  for (int i = 0; i < BUFFERS; ++i) free(all.host[i]);
  fatune_session_close(session);
  return code;
}

const struct command command_quantise = {
    .name = "quantise",
    .summary = "Turn a file of 16-bit numbers into e4m3 with descales, on a GPU or emulated",
    .arguments = "REQUEST --from FILE -o FILE --descales FILE",
    .details =
        "The tensor is [batch, rows, heads, head dim], little-endian, without gaps: of REQUEST "
        "bN, nqN, hqN and dN. The result is as many bytes of e4m3, and fp32 descales [batch, "
        "heads], with --descale-rows [batch, heads, blocks of rows]. A byte times its descale is "
        "the number, rounded to nearest. NaN stays NaN; infinity becomes NaN, and its descale is "
        "infinite.\n"
        "Needs a GPU of sm_89 or later, or an emulated one: --gpu emulator:h200.",
    .takes = CLI_REQUESTS | CLI_ONE_REQUEST | CLI_GPU | CLI_DEVICE | CLI_OUTPUT | CLI_QUANTISE,
    .run = run};
