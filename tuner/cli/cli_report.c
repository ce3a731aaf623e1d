/* cli_report.c: what is known of requests as one page of pictures.
 * in -> out: requests + GPU -> a JSON document; documents + the files of report/ -> HTML. */
#include "tuner/cli/cli_report.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache/store.h"
#include "generator/families/wgmma_forward.h"
#include "generator/family.h"
#include "generator/status.h"
#include "runtime/fatune.h"
#include "runtime/scores.h"
#include "runtime/session.h"
#include "tuner/cli/cli_explain_request.h"
#include "tuner/cli/report_files.h"
#include "generator/model/model.h"

/* ---- a request ---- */

struct listing {
  json_t *trials;
  const struct ft_arch *arch;
  const struct ft_score_costs *score;
};

static json_t *knobs_json(const struct ft_config *config) {
  json_t *const knobs = json_object();
  for (int i = 0; i < config->family->knob_count; ++i)
    cli_json_set(knobs, config->family->knobs[i].name, json_integer(config->knobs[i]));
  return knobs;
}

static bool list_trial(void *payload, const struct ft_trial *trial) {
  const struct listing *const listing = payload;
  json_t *const row = cli_trial_json(trial);
  const double predicted_us = ft_model(&trial->request, listing->arch, &trial->config,
                                       listing->score, trial->registers, trial->spill_bytes)
                                  .us;
  cli_json_set(row, "family", cli_json_text(trial->config.family->name));
  cli_json_set(row, "knobs", knobs_json(&trial->config));
  cli_json_set(row, "predicted_us", cli_json_real(predicted_us));
  cli_json_set(row, "registers", json_integer(trial->registers));
  cli_json_set(row, "smem_bytes", json_integer(trial->smem_bytes));
  cli_json_set(row, "at", json_integer(trial->at));
  cli_json_append(listing->trials, row);
  return true;
}

/* Bytes of Q, K, V and O, each counted once, and of their gradients if there are any. */
static double bytes_of(const struct ft_request *request) {
  const double batch = request->ragged ? 1 : (double)request->batch;
  const double queries = batch * request->heads_q * (double)request->seqlen_q;
  const double keys = batch * request->heads_kv * (double)request->seqlen_k;
  const double in = ft_dtype_bytes(request->dtype), out = ft_dtype_bytes(ft_output_dtype(request));
  const double of_kv = ft_dtype_bytes(ft_kv_dtype(request));
  const double once = queries * (request->head_dim * in + request->head_dim_v * out) +
                      keys * (request->head_dim + request->head_dim_v) * of_kv;
  return request->pass == FT_BACKWARD ? 2 * once : once;
}

/* The most that the tensor cores do with elements of the request's dtype. */
static double peak_tflops(const struct ft_request *request, const struct ft_arch *arch) {
  const bool has_wgmma = arch->sm == 90 && !ft_dtype_is_fp32(request->dtype);
  const double by_wgmma = (request->dtype == FT_E4M3 ? 2 : 1) * FT_WGMMA_FLOPS_PER_CLK;
  const double per_clk = has_wgmma ? by_wgmma : ft_mma_flops_per_clk(arch, request->dtype);
  return per_clk * arch->sm_count * arch->clock_ghz * 1e-3;
}

static int add_trials(fatune_session *session, const struct ft_request *request,
                      const struct cli_target *target, json_t *document) {
  const struct ft_request bucket = ft_request_bucket(request);
  const struct ft_score_costs *score;
  FT_TRY(ft_session_score_costs(session, request->score, &score));
  const struct listing listing = {json_array(), &target->arch, score};
  cli_json_set(document, "trials", listing.trials);
  FT_TRY(ft_store_trials(session->store, &bucket, target->id, list_trial, (void *)&listing));
  cli_json_set(document, "gpu_name", cli_json_text(target->arch.name));
  cli_json_set(document, "gpu_id", cli_json_text(target->id));
  cli_json_set(document, "flops", cli_json_real(ft_request_flops(request)));
  cli_json_set(document, "bytes", cli_json_real(bytes_of(request)));
  cli_json_set(document, "peak_tflops", cli_json_real(peak_tflops(request, &target->arch)));
  cli_json_set(document, "dram_gbs", cli_json_real(target->arch.dram_gbs));
  return FT_OK;
}

int cli_report_request(struct cli *cli, fatune_session *session, const struct ft_request *request,
                       json_t **document) {
  struct cli_target target;
  json_t *const before = cli->json;
  const bool as_json = cli->options.json;
  FT_TRY(cli_target_find(cli, session, &target));
  *document = cli->json = json_object();
  cli->options.json = true; /* so that cli_explain_request fills the document and prints nothing */
  int status = cli_explain_request(cli, session, request);
  cli->json = before;
  cli->options.json = as_json;
  if (status == FT_OK) status = add_trials(session, request, &target, *document);
  if (status == FT_OK) return FT_OK;
  json_decref(*document);
  *document = NULL;
  return status;
}

/* ---- the page ---- */

static const struct ft_template *file_named(const char *name, size_t length) {
  const struct ft_template *file = ft_report_files;
  while (file->name && (strlen(file->name) != length || memcmp(file->name, name, length) != 0))
    ++file;
  return file->name ? file : NULL;
}

/* A '<' could begin the tag that ends the page's script element, so it is written as an escape. In
 * JSON it stands in strings alone. */
static int append_data(const json_t *data, struct ft_text *page) {
  char *const text = json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII);
  if (!text) return ft_fail(FT_E_MEMORY, "no memory for the data of a page");
  for (const char *at = text; *at;) {
    const size_t plain = strcspn(at, "<");
    ft_text_append(page, at, plain);
    at += plain;
    if (*at == '<') ft_text_add(page, "\\u003c");
    at += *at == '<';
  }
  free(text);
  return FT_OK;
}

/* Appends a file to the page. In page.html (depth 0) each "%(NAME)" becomes the file of that name,
 * or the data where there is no such file. */
static int fill(const struct ft_template *file, const json_t *data, int depth,
                struct ft_text *page) {
  const char *at = file->text, *const end = file->text + file->length;
  while (at < end) {
    const char *mark = depth == 0 ? memmem(at, (size_t)(end - at), "%(", 2) : NULL;
    const char *const close = mark ? memchr(mark, ')', (size_t)(end - mark)) : NULL;
    if (!close) mark = end;
    ft_text_append(page, at, (size_t)(mark - at));
    if (!close) return FT_OK;
    const size_t length = (size_t)(close - mark) - 2;
    const struct ft_template *const part = file_named(mark + 2, length);
    FT_TRY(part ? fill(part, data, depth + 1, page) : append_data(data, page));
    at = close + 1;
  }
  return FT_OK;
}

int cli_report_page(json_t *requests, struct ft_text *page) {
  json_t *const data = json_object();
  char version[64];
  snprintf(version, sizeof version, "fatune %s", fatune_version());
  cli_json_set(data, "version", cli_json_text(version));
  cli_json_set(data, "at", json_integer((json_int_t)time(NULL)));
  cli_json_set(data, "requests", requests);
  const struct ft_template *const whole = file_named("page.html", strlen("page.html"));
  const int status = fill(whole, data, 0, page);
  json_decref(data);
  return status == FT_OK ? ft_text_status(page) : status;
}
