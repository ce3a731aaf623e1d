/* cli_explain_score.c: what `fatune explain` tells of a score function.
 * in -> out: score -> text and JSON: expression, derivatives, kernel text. */
#include "tuner/cli/cli_explain_score.h"

#include <stdio.h>
#include <stdlib.h>

#include "generator/score/cuda.h"
#include "generator/score/derive.h"
#include "generator/score/print.h"
#include "generator/status.h"

enum { MAX_LEAF_TEXT = 48 };

/* "d score / d s", "d score / d bias(h, i, j)"; without indices that take too much room. */
static int name_derivative(const struct ft_score *score, int leaf, const char *by,
                           struct ft_text *name) {
  struct ft_text whole = FT_TEXT_INIT;
  ft_score_print_node(score, leaf, &whole);
  const bool is_short = whole.data != NULL && whole.length <= MAX_LEAF_TEXT;
  ft_text_clear(name);
  ft_text_add(name, "d score / d %s", is_short ? whole.data : by);
  const int status = ft_text_status(&whole);
  ft_text_free(&whole);
  return status == FT_OK ? ft_text_status(name) : status;
}

/* One derivative, or why there is none: exists. */
static int explain_derivative(struct cli *cli, struct ft_score *score, const char *by,
                              uint64_t wanted, json_t *list, bool *exists) {
  struct ft_derivatives derivatives;
  struct ft_text text = FT_TEXT_INIT, name = FT_TEXT_INIT;
  const int status = ft_score_derive(score, wanted, &derivatives);
  int told = status == FT_E_MEMORY ? status : FT_OK;
  *exists = status == FT_OK;
  if (status != FT_OK) ft_text_add(&text, "-- %s\n", ft_detail());
  for (int i = 0; status == FT_OK && i < (wanted != 0 ? derivatives.count : 1); ++i) {
    const int named = name_derivative(
        score, wanted == 0 ? derivatives.leaf_s : derivatives.others[i].leaf, by, &name);
    if (told == FT_OK) told = named;
    const struct ft_named_node row = {name.data,
                                      wanted != 0 ? derivatives.others[i].node : derivatives.by_s};
    ft_score_print_nodes(score, &row, 1, &text);
  }
  if (told == FT_OK) told = ft_text_status(&text);
  if (told == FT_OK) {
    cli_print(cli, "\n%s", text.data != NULL ? text.data : "");
    json_t *const row = json_object();
    cli_json_set(row, "by", cli_json_text(by));
    cli_json_set(row, "text", cli_json_text(text.data));
    cli_json_append(list, row);
  }
  ft_text_free(&name);
  ft_text_free(&text);
  return told;
}

/* Where there is none by s, none is made by anything else. */
static int explain_derivatives(struct cli *cli, struct ft_score *score) {
  json_t *const list = json_array();
  bool by_s, exists;
  int status = explain_derivative(cli, score, "s", 0, list, &by_s);
  for (int i = 0; by_s && status == FT_OK && i < score->scalar_count; ++i)
    if (score->scalars[i].type == FT_VALUE_FLOAT)
      status = explain_derivative(cli, score, score->scalars[i].name, ft_source_scalar(i), list,
                                  &exists);
  for (int i = 0; by_s && status == FT_OK && i < score->tensor_count; ++i)
    if (ft_captured_dtype_type(score->tensors[i].dtype) == FT_VALUE_FLOAT)
      status = explain_derivative(cli, score, score->tensors[i].name, ft_source_tensor(i), list,
                                  &exists);
  cli_json(cli, "derivatives", list);
  return status;
}

/* The text that kernels are to have, forward and backward. */
static int explain_kernel(struct cli *cli, struct ft_score *score) {
  struct ft_derivatives derivatives;
  struct ft_exponent exponent;
  struct ft_text text = FT_TEXT_INIT;
  int status = ft_score_derive(score, 0, &derivatives);
  if (status == FT_E_MEMORY) return status;
  status = ft_score_emit(score, status == FT_OK ? &derivatives : NULL, &exponent, &text);
  if (status == FT_OK) {
    cli_json(cli, "cuda", cli_json_text(text.data));
    if (cli->options.verbosity > 0) cli_print(cli, "\n%s", text.data);
  }
  ft_text_free(&text);
  return status;
}

int cli_explain_score(struct cli *cli, struct ft_score *score, int64_t number) {
  char digest[FT_DIGEST_HEX], word[32];
  struct ft_text text = FT_TEXT_INIT;
  ft_digest_hex(&score->digest, digest);
  ft_score_print(score, &text);
  int status = ft_text_status(&text);
  if (status == FT_OK) {
    cli_field(cli, "score", "%s", score->name);
    cli_field(cli, "digest", "%.12s", digest);
    (void)snprintf(word, sizeof word, "score=%012llx", (unsigned long long)number);
    cli_field(cli, "in requests", "%s", word);
    cli_print(cli, "\n%s", text.data);
    cli_json(cli, "score", cli_json_text(score->name));
    cli_json(cli, "digest", cli_json_text(digest));
    cli_json(cli, "word", cli_json_text(word));
    cli_json(cli, "text", cli_json_text(text.data));
    status = explain_derivatives(cli, score);
  }
  ft_text_free(&text);
  return status == FT_OK ? explain_kernel(cli, score) : status;
}
