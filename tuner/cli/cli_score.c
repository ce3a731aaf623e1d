/* cli_score.c: the score function of a command line.
 * in -> out: --score -> struct ft_score; score -> text and JSON. */
#include "tuner/cli/cli_score.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "generator/score/builtin.h"
#include "generator/score/cuda.h"
#include "generator/score/derive.h"
#include "generator/score/print.h"
#include "generator/status.h"
#include "runtime/session.h"

enum { MAX_FILE_BYTES = 1 << 20, MAX_LEAF_TEXT = 48 };

static int read_score_file(const char *path, struct ft_score *score) {
  FILE *const file = fopen(path, "rbe");
  if (file == NULL) return ft_fail(FT_E_IO, "--score '%s': %s", path, strerror(errno));
  int status = FT_OK;
  char *const text = malloc(MAX_FILE_BYTES + 1);
  if (text == NULL) {
    status = ft_fail(FT_E_MEMORY, "--score '%s': out of memory", path);
    goto done;
  }
  const size_t length = fread(text, 1, MAX_FILE_BYTES + 1, file);
  const char *const slash = strrchr(path, '/');
  if (ferror(file))
    status = ft_fail(FT_E_IO, "--score '%s': %s", path, strerror(errno));
  else if (length > MAX_FILE_BYTES)
    status = ft_fail(FT_E_IO, "--score '%s' is larger than %d bytes", path, MAX_FILE_BYTES);
  else
    status = ft_score_read(score, slash != NULL ? slash + 1 : path, text, length);
  free(text);

done:
  fclose(file);
  return status;
}

int cli_score_read(const char *given, const fatune_session *session, struct ft_score *score) {
  const size_t length = strlen(given);
  const bool is_file =
      strchr(given, '/') != NULL || (length > 4 && strcmp(given + length - 4, ".lua") == 0);
  if (is_file) return read_score_file(given, score);
  const int status = ft_score_read_builtin(score, ft_lua_files(session->lua), given);
  /* A name that there is not is a wrong value of an option. */
  return status == FT_E_NOT_FOUND ? FT_E_ARGUMENT : status;
}

/* "d score / d s", "d score / d bias(h, i, j)"; without indices that take too much room. */
static void name_derivative(const struct ft_score *score, int leaf, const char *by,
                            struct ft_text *name) {
  struct ft_text whole = FT_TEXT_INIT;
  ft_score_print_node(score, leaf, &whole);
  const bool is_short = whole.data != NULL && whole.length <= MAX_LEAF_TEXT;
  ft_text_clear(name);
  ft_text_add(name, "d score / d %s", is_short ? whole.data : by);
  ft_text_free(&whole);
}

/* One derivative, or why there is none. */
static void explain_derivative(struct cli *cli, struct ft_score *score, const char *by,
                               uint64_t wanted, json_t *list) {
  struct ft_derivatives derivatives;
  struct ft_text text = FT_TEXT_INIT, name = FT_TEXT_INIT;
  const int status = ft_score_derive(score, wanted, &derivatives);
  if (status != FT_OK) ft_text_add(&text, "-- %s\n", ft_detail());
  for (int i = 0; status == FT_OK && i < (wanted != 0 ? derivatives.count : 1); ++i) {
    name_derivative(score, wanted == 0 ? derivatives.leaf_s : derivatives.others[i].leaf, by,
                    &name);
    const struct ft_named_node row = {name.data,
                                      wanted != 0 ? derivatives.others[i].node : derivatives.by_s};
    ft_score_print_nodes(score, &row, 1, &text);
  }
  cli_print(cli, "\n%s", text.data != NULL ? text.data : "");
  json_t *const row = json_object();
  cli_json_set(row, "by", cli_json_text(by));
  cli_json_set(row, "text", cli_json_text(text.data));
  json_array_append_new(list, row);
  ft_text_free(&name);
  ft_text_free(&text);
}

static void explain_derivatives(struct cli *cli, struct ft_score *score) {
  json_t *const list = json_array();
  explain_derivative(cli, score, "s", 0, list);
  for (int i = 0; i < score->scalar_count; ++i)
    if (score->scalars[i].type == FT_VALUE_FLOAT)
      explain_derivative(cli, score, score->scalars[i].name, ft_source_scalar(i), list);
  for (int i = 0; i < score->tensor_count; ++i)
    if (ft_captured_dtype_type(score->tensors[i].dtype) == FT_VALUE_FLOAT)
      explain_derivative(cli, score, score->tensors[i].name, ft_source_tensor(i), list);
  cli_json(cli, "derivatives", list);
}

/* The text that kernels are to have, forward and backward. */
static int explain_kernel(struct cli *cli, struct ft_score *score) {
  struct ft_derivatives derivatives;
  struct ft_text text = FT_TEXT_INIT;
  const bool has_slope = ft_score_derive(score, 0, &derivatives) == FT_OK;
  const int status = ft_score_emit(score, has_slope ? &derivatives : NULL, &text);
  if (status == FT_OK) {
    cli_json(cli, "cuda", cli_json_text(text.data));
    if (cli->options.verbosity > 0) cli_print(cli, "\n%s", text.data);
  }
  ft_text_free(&text);
  return status;
}

int cli_explain_score(struct cli *cli, struct ft_score *score) {
  char digest[FT_DIGEST_HEX];
  struct ft_text text = FT_TEXT_INIT;
  ft_digest_hex(&score->digest, digest);
  ft_score_print(score, &text);
  const int status = ft_text_status(&text);
  if (status == FT_OK) {
    cli_field(cli, "score", "%s", score->name);
    cli_field(cli, "digest", "%.12s", digest);
    cli_print(cli, "\n%s", text.data);
    cli_json(cli, "score", cli_json_text(score->name));
    cli_json(cli, "digest", cli_json_text(digest));
    cli_json(cli, "text", cli_json_text(text.data));
    explain_derivatives(cli, score);
  }
  ft_text_free(&text);
  return status == FT_OK ? explain_kernel(cli, score) : status;
}
