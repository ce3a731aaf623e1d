/* cli_request.c: requests from a command line.
 * in -> out: option values, words, texts, a file of texts -> validated requests in cli_options. */
#include "tuner/cli/cli_request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tuner/cli/cli_values.h"

enum { REQUESTS_MOST = 100000 };

#define BLANKS " \t\r\n"

/* A sound request; an option's value is put into it to be judged alone, by the one set of rules. */
static struct ft_request sound_request(void) {
  return (struct ft_request){.dtype = FT_BF16,
                             .head_dim = 128,
                             .head_dim_v = 128,
                             .heads_q = 1,
                             .heads_kv = 1,
                             .batch = 1,
                             .seqlen_q = 1,
                             .seqlen_k = 1,
                             .mask_density = 1};
}

static int judge(const struct ft_request *probe, const char *option, const char *value) {
  const int status = ft_request_validate(probe);
  return status == FT_OK ? FT_OK : ft_fail_within(status, "%s '%s'", option, value);
}

static int add_request(struct cli_options *options, const struct ft_request *request) {
  const int count = options->request_count;
  if (count >= REQUESTS_MOST) {
    return ft_fail(FT_E_ARGUMENT, "more than %d requests", REQUESTS_MOST);
  }
  if ((count & (count - 1)) == 0) { /* full whenever the count is a power of two */
    const size_t room = count == 0 ? 1 : 2 * (size_t)count;
    struct ft_request *more = realloc(options->requests, room * sizeof *more);
    if (more == NULL) return ft_fail(FT_E_MEMORY, "no memory for %zu requests", room);
    options->requests = more;
  }
  options->requests[options->request_count++] = *request;
  return FT_OK;
}

/* The forward of a backward request, and the request. */
static int add_both(struct cli_options *options, const struct ft_request *backward) {
  struct ft_request forward = *backward;
  forward.pass = FT_FORWARD;
  forward.deterministic = false; /* the forward always is */
  options->draft.both = true;
  FT_TRY(ft_request_validate(&forward));
  FT_TRY(ft_request_validate(backward));
  FT_TRY(add_request(options, &forward));
  return add_request(options, backward);
}

/* "both bf16 ..." stands for the forward and the backward request. */
static int add_text(struct cli_options *options, const char *text) {
  struct ft_request request;
  text += strspn(text, BLANKS);
  const size_t first = strcspn(text, BLANKS);
  if (first != 4 || strncmp(text, "both", 4) != 0) {
    FT_TRY(ft_request_parse(&request, text));
    return add_request(options, &request);
  }
  struct ft_text whole = FT_TEXT_INIT;
  ft_text_add(&whole, "backward%s", text + first);
  int status = ft_text_status(&whole);
  if (status == FT_OK) status = ft_request_parse(&request, whole.data);
  ft_text_free(&whole);
  return status == FT_OK ? add_both(options, &request) : status;
}

static int flush_words(struct cli_options *options) {
  struct ft_text *const words = &options->draft.words;
  if (words->length == 0) return FT_OK;
  FT_TRY(ft_text_status(words));
  const int status = add_text(options, words->data);
  ft_text_clear(words);
  return status;
}

static int set_pair(struct cli_options *options, int key, const char *value) {
  struct ft_request probe = sound_request(), *const fields = &options->draft.fields;
  int64_t first, second;
  if (key == CLI_KEY_HEAD_DIM) {
    FT_TRY(cli_pair("--head-dim", value, INT32_MAX, &first, &second));
    probe.head_dim = (int)first;
    probe.head_dim_v = (int)second;
    FT_TRY(judge(&probe, "--head-dim", value));
    fields->head_dim = probe.head_dim;
    fields->head_dim_v = probe.head_dim_v;
    options->draft.has_head_dim = true;
  } else if (key == CLI_KEY_HEADS) {
    FT_TRY(cli_pair("--heads", value, INT32_MAX, &first, &second));
    probe.heads_q = (int)first;
    probe.heads_kv = (int)second;
    FT_TRY(judge(&probe, "--heads", value));
    fields->heads_q = probe.heads_q;
    fields->heads_kv = probe.heads_kv;
  } else {
    FT_TRY(cli_pair("--seqlen", value, INT32_MAX, &first, &second));
    fields->seqlen_q = first;
    fields->seqlen_k = second;
    options->draft.has_seqlen = true;
  }
  return FT_OK;
}

/* RxC or RxC@DENSITY: by the parser of the text form, which knows mask=RxC@DENSITY. */
static int set_mask(struct cli_options *options, const char *value) {
  struct ft_request parsed;
  struct ft_text text = FT_TEXT_INIT;
  const bool one_word = value[0] != '\0' && value[strcspn(value, BLANKS)] == '\0';
  ft_text_add(&text, "d128 nq128 mask=%s", one_word ? value : "?");
  int status = ft_text_status(&text);
  if (status == FT_OK) status = ft_request_parse(&parsed, text.data);
  ft_text_free(&text);
  if (status != FT_OK) {
    return ft_fail_within(status, "--mask is '%s'; allowed: ROWSxCOLS or ROWSxCOLS@DENSITY", value);
  }
  options->draft.fields.mask_rows = parsed.mask_rows;
  options->draft.fields.mask_cols = parsed.mask_cols;
  options->draft.fields.mask_density = parsed.mask_density;
  return FT_OK;
}

static int set_choice(struct cli_options *options, int key, const char *value) {
  static const char *const passes[] = {"forward", "backward", "both", NULL};
  static const char *const dtypes[] = {"fp16", "bf16", NULL};
  static const char *const causals[] = {"bottom-right", "top-left", NULL};
  struct cli_draft *const draft = &options->draft;
  int index = 0;
  if (key == CLI_KEY_PASS) {
    FT_TRY(cli_choice("--pass", value, passes, &index));
    draft->both = index == 2;
    draft->fields.pass = index == 1 ? FT_BACKWARD : FT_FORWARD;
  } else if (key == CLI_KEY_DTYPE) {
    FT_TRY(cli_choice("--dtype", value, dtypes, &index));
    draft->fields.dtype = index == 0 ? FT_FP16 : FT_BF16;
  } else {
    if (value != NULL) FT_TRY(cli_choice("--causal", value, causals, &index));
    draft->fields.causal = index == 0 ? FT_CAUSAL_BOTTOM_RIGHT : FT_CAUSAL_TOP_LEFT;
  }
  return FT_OK;
}

/* Lines of request texts; '#' begins a comment. Every bad line is told with its number. */
static int read_shapes(struct cli_options *options, const char *path) {
  const bool is_stdin = strcmp(path, "-") == 0;
  FILE *file = is_stdin ? stdin : fopen(path, "re");
  if (file == NULL) return ft_fail(FT_E_IO, "--shapes '%s': %s", path, strerror(errno));
  char *line = NULL;
  size_t room = 0;
  int status = FT_OK, number = 0;
  errno = 0;
  while (status == FT_OK && getline(&line, &room, file) >= 0) {
    ++number;
    line[strcspn(line, "#\r\n")] = '\0';
    if (line[strspn(line, BLANKS)] == '\0') continue;
    status = add_text(options, line);
    if (status != FT_OK) ft_fail_within(status, "--shapes '%s', line %d", path, number);
  }
  if (status == FT_OK && ferror(file)) {
    status = ft_fail(FT_E_IO, "--shapes '%s': %s", path, strerror(errno));
  } else if (status == FT_OK && options->request_count == 0) {
    status = ft_fail(FT_E_ARGUMENT, "--shapes '%s' has no request; allowed: one text a line", path);
  }
  free(line);
  if (!is_stdin) fclose(file);
  return status;
}

static int finish_fields(struct cli_options *options) {
  struct cli_draft *const draft = &options->draft;
  const char *const missing = !draft->has_head_dim ? "--head-dim" : "--seqlen";
  if (!draft->has_head_dim || !draft->has_seqlen) {
    return ft_fail(FT_E_ARGUMENT, "%s is missing; a request needs at least --head-dim and --seqlen",
                   missing);
  }
  struct ft_request request = draft->fields;
  if (draft->both) {
    request.pass = FT_BACKWARD;
    return add_both(options, &request);
  }
  FT_TRY(ft_request_validate(&request));
  return add_request(options, &request);
}

void cli_request_begin(struct cli_options *options) {
  options->draft.fields = sound_request();
}

int cli_request_option(struct cli_options *options, int key, const char *value) {
  struct cli_draft *const draft = &options->draft;
  if (key < CLI_KEY_PASS || key > CLI_KEY_SHAPES) return FT_E_NOT_FOUND;
  if (key == CLI_KEY_SHAPES) {
    draft->shapes = value;
    return FT_OK;
  }
  draft->by_option = true;
  switch (key) {
  case CLI_KEY_HEAD_DIM:
  case CLI_KEY_HEADS:
  case CLI_KEY_SEQLEN: return set_pair(options, key, value);
  case CLI_KEY_BATCH: return cli_integer("--batch", value, 1, INT32_MAX, &draft->fields.batch);
  case CLI_KEY_DROPOUT:
    draft->fields.dropout = true;
    /* 2^-14 is the step of the probability; 0 would mean "not given". */
    return cli_real("--dropout", value, 1.0 / 16384, 1, &options->dropout);
  case CLI_KEY_MASK: return set_mask(options, value);
  case CLI_KEY_DETERMINISTIC: draft->fields.deterministic = true; return FT_OK;
  default: return set_choice(options, key, value);
  }
}

int cli_request_word(struct cli_options *options, const char *word) {
  struct ft_text *const words = &options->draft.words;
  const bool names_pass =
      strcmp(word, "forward") == 0 || strcmp(word, "backward") == 0 || strcmp(word, "both") == 0;
  if (word[0] == '\0') {
    return ft_fail(FT_E_ARGUMENT, "a request is ''; allowed: as \"forward bf16 d128 nq4096\"");
  }
  if (word[strcspn(word, BLANKS)] != '\0') {
    FT_TRY(flush_words(options));
    return add_text(options, word);
  }
  if (names_pass) FT_TRY(flush_words(options));
  ft_text_add(words, "%s%s", words->length > 0 ? " " : "", word);
  return ft_text_status(words);
}

int cli_request_end(struct cli_options *options, bool exactly_one) {
  struct cli_draft *const draft = &options->draft;
  FT_TRY(flush_words(options));
  if (draft->by_option && (options->request_count > 0 || draft->shapes != NULL)) {
    return ft_fail(FT_E_ARGUMENT, "request options and a request text exclude each other; allowed: "
                                  "either --head-dim ... or \"forward bf16 d128 ...\"");
  }
  if (draft->shapes != NULL) FT_TRY(read_shapes(options, draft->shapes));
  if (draft->by_option) FT_TRY(finish_fields(options));
  if (options->request_count == 0) {
    return ft_fail(FT_E_ARGUMENT,
                   "no request; give one as \"forward bf16 d128 hq32 nq4096 causal\" "
                   "or by --head-dim 128 --heads 32 --seqlen 4096 --causal");
  }
  if (!exactly_one || options->request_count == 1) return FT_OK;
  if (options->request_count > 2 || !draft->both) {
    return ft_fail(FT_E_ARGUMENT, "%d requests; allowed: one, or both passes of one",
                   options->request_count);
  }
  if (options->output == NULL) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "--output '%s' with both passes; allowed: one of them",
                 options->output);
}
