/* cli_tuned.c: what `fatune tune` reports of each request.
 * in -> out: ft_tune_summary -> a row of the table, an object of the document. */
#include "tuner/cli/cli_table.h"
#include "tuner/cli/cli_tuned.h"

#include <stdlib.h>

static json_t *result_json(const struct ft_request *request, const char *text,
                           const struct ft_tune_summary *summary) {
  json_t *const result = json_object();
  const struct ft_request bucket = ft_request_bucket(request);
  const bool found = summary->best_us > 0; /* else `best` has no family, and no text */
  char *const bucket_text = cli_request_text(&bucket);
  char *const config = found ? cli_config_text(&summary->best) : NULL;
  cli_json_set(result, "request", cli_json_text(text));
  cli_json_set(result, "bucket", cli_json_text(bucket_text));
  cli_json_set(result, "measured", json_boolean(summary->measured));
  cli_json_set(result, "config", found ? cli_json_text(config) : json_null());
  cli_json_set(result, "knobs", cli_knobs_json(config));
  cli_json_set(result, "best_us", found ? cli_json_real(summary->best_us) : json_null());
  cli_json_set(result, "tflops",
               found ? cli_json_real(ft_request_flops(request) / summary->best_us * 1e-6)
                     : json_null());
  cli_json_set(result, "default_us",
               summary->default_us > 0 ? cli_json_real(summary->default_us) : json_null());
  cli_json_set(result, "product", json_integer(summary->product));
  cli_json_set(result, "legal", json_integer(summary->legal));
  cli_json_set(result, "tried", json_integer(summary->tried));
  cli_json_set(result, "recalled", json_integer(summary->recalled));
  cli_json_set(result, "unstored", json_integer(summary->unstored));
  cli_json_set(result, "rounds_again", json_integer(summary->rounds_again));
  cli_json_set(result, "unsteady", json_integer(summary->unsteady));
  cli_json_set(result, "ok", json_integer(summary->ok));
  cli_json_set(result, "wrong", json_integer(summary->wrong));
  cli_json_set(result, "failed", json_integer(summary->failed));
  cli_json_set(result, "spilled", json_integer(summary->spilled));
  cli_json_set(result, "seconds", cli_json_real(summary->seconds));
  cli_json_set(result, "compile_seconds", cli_json_real(summary->compile_seconds));
  cli_json_set(result, "measure_seconds", cli_json_real(summary->measure_seconds));
  free(bucket_text);
  free(config);
  return result;
}

void cli_tuned_add(struct cli_tuned *tuned, const struct ft_request *request, const char *text,
                   const struct ft_tune_summary *summary, const struct cli_tuned_run *emulated) {
  struct cli_table *const table = &tuned->table;
  json_t *const result = result_json(request, text, summary);
  if (emulated != NULL && emulated->json != NULL) {
    cli_json_set(result, "emulated_run", emulated->json);
  }
  cli_json_append(tuned->results, result);
  if (!(summary->best_us > 0)) return;
  char *const config = cli_config_text(&summary->best);
  cli_table_add(table, "%.1f", summary->best_us);
  cli_table_add(table, "%.1f", ft_request_flops(request) / summary->best_us * 1e-6);
  if (summary->default_us > 0) {
    cli_table_add(table, "%.2fx", summary->default_us / summary->best_us);
  } else {
    cli_table_add(table, "-");
  }
  cli_table_add(table, "%d/%ld", summary->tried, summary->legal);
  if (emulated != NULL) cli_table_add(table, "%s", emulated->verdict);
  cli_table_add(table, "%s", text);
  cli_table_add(table, "%s", config);
  free(config);
}

void cli_tuned_begin(struct cli_tuned *tuned, const struct cli_target *target) {
  tuned->results = json_array();
  cli_table_begin(&tuned->table,
                  target->emulated
                      ? ">predicted us|>TFLOP/s|>vs default|>tried|emulated run|request|config"
                  : target->here ? ">us|>TFLOP/s|>vs default|>tried|request|config"
                                 : ">predicted us|>TFLOP/s|>vs default|>tried|request|config");
}

void cli_tuned_end(struct cli_tuned *tuned, struct cli *cli) {
  cli_table_end(cli, &tuned->table);
  cli_json(cli, "results", tuned->results);
}

void cli_tuned_drop(struct cli_tuned *tuned) {
  ft_text_free(&tuned->table.cells);
  json_decref(tuned->results);
}
