/* cli_request.c: requests from a command line.
 * in -> out: option values, words, texts, a file of texts -> validated requests in cli_options. */
#include "tuner/cli/cli_request.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/request_fields.h"
#include "generator/status.h"
#include "tuner/cli/cli_shapes.h"
#include "tuner/cli/cli_values.h"

enum { REQUESTS_MOST = 100000 };

#define BLANKS " \t\r\n"

/* Keys of the options: the number of the field, from here on. */
enum { KEY_FIELD = 0x200, KEY_SHAPES = KEY_FIELD + FT_REQUEST_FIELDS };

enum { GROUP = 1, OPTIONS_MOST = FT_REQUEST_FIELDS + 3 };

static struct argp_option option_of(int i) {
  const struct ft_request_field *const field = ft_request_field(i);
  const bool has_default = field->kind == FT_KIND_CHOICE && field->word != NULL && !field->equals &&
                           ft_request_word_end(i) == i + 1;
  return (struct argp_option){.name = field->option,
                              .key = KEY_FIELD + i,
                              .arg = field->argument,
                              .flags = has_default ? OPTION_ARG_OPTIONAL : 0,
                              .doc = field->help,
                              .group = GROUP};
}

const struct argp_option *cli_tensor_options(void) {
  static const int fields[] = {FT_REQUEST_dtype, FT_REQUEST_head_dim, FT_REQUEST_heads_q,
                               FT_REQUEST_batch, FT_REQUEST_seqlen_q};
  static struct argp_option options[OPTIONS_MOST];
  int count = 0;
  options[count++] = (struct argp_option){
      .doc = "What the tensor is (or as text: \"bf16 d128 hq32 b2 nq4096\"):", .group = GROUP};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; ++i)
    options[count++] = option_of(fields[i]);
  return options;
}

const struct argp_option *cli_request_options(void) {
  static struct argp_option options[OPTIONS_MOST];
  int count = 0;
  options[count++] = (struct argp_option){
      .doc = "What is asked for (or as text: \"forward bf16 d128 hq32 hkv8 nq4096 causal\"):",
      .group = GROUP};
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i)
    if (ft_request_field(i)->option != NULL) options[count++] = option_of(i);
  options[count] = (struct argp_option){.name = "shapes",
                                        .key = KEY_SHAPES,
                                        .arg = "FILE",
                                        .doc = "Requests, one text a line, # comments, or what "
                                               "FATUNE_RECORD wrote; - is stdin",
                                        .group = GROUP};
  return options;
}

/* A sound request; an option's value is put into it to be judged alone, by the one set of rules. */
static struct ft_request sound_request(void) {
  struct ft_request request = {.head_dim = 128, .seqlen_q = 1};
  const bool given[FT_REQUEST_FIELDS] = {
      [FT_REQUEST_head_dim] = true, [FT_REQUEST_seqlen_q] = true};
  ft_request_complete(&request, given);
  return request;
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

static bool names_pass(const char *word) {
  return ft_request_find_word(word) == FT_REQUEST_pass || strcmp(word, "both") == 0;
}

static int flush_words(struct cli_options *options) {
  struct ft_text *const words = &options->draft.words;
  if (words->length == 0) return FT_OK;
  FT_TRY(ft_text_status(words));
  const int status = add_text(options, words->data);
  /* In "d128 nq128 backward" the first two words are a request, and the last begins another. */
  if (status == FT_E_ARGUMENT && names_pass(words->data))
    ft_fail_within(status, "'%s' begins a request, and is all of it", words->data);
  ft_text_clear(words);
  return status;
}

/* N or N:M; N alone is both. */
static int set_count(struct cli_options *options, int i, const char *option, const char *value) {
  const struct ft_request_field *const field = ft_request_field(i);
  struct ft_request probe = sound_request(), *const fields = &options->draft.fields;
  int64_t first, second;
  if (field->second == 0)
    FT_TRY(cli_integer(option, value, field->least, field->most, &first));
  else
    FT_TRY(cli_pair(option, value, INT32_MAX, &first, &second));
  if (i == FT_REQUEST_descale_rows) probe.dtype = FT_E4M3; /* which alone has them */
  ft_request_set(&probe, i, first);
  if (field->second > 0) ft_request_set(&probe, field->second, second);
  FT_TRY(judge(&probe, option, value));
  ft_request_set(fields, i, first);
  if (field->second > 0) ft_request_set(fields, field->second, second);
  return FT_OK;
}

/* What may stand behind the word and '=' or, where that is left out, what joins the next value,
 * such as RxC@DENSITY: by the parser of the text form. */
static int set_word(struct cli_options *options, int first, const char *option, const char *value) {
  struct ft_request parsed;
  struct ft_text text = FT_TEXT_INIT;
  const struct ft_request_field *const field = ft_request_field(first);
  const bool equals = field->equals || isalpha((unsigned char)value[0]);
  const char *const joint = equals ? "=" : ft_request_field(first + 1)->after;
  const bool one_word = value[0] != '\0' && value[strcspn(value, BLANKS)] == '\0';
  ft_text_add(&text, "d128 nq128 %s%s%s", field->word, joint, one_word ? value : "?");
  int status = ft_text_status(&text);
  if (status == FT_OK) status = ft_request_parse(&parsed, text.data);
  if (status == FT_OK) {
    for (int i = first; i < ft_request_word_end(first); ++i)
      ft_request_copy(&options->draft.fields, &parsed, i);
  } else {
    ft_fail_within(status, "%s is '%s'; allowed: %s", option, value, field->argument);
  }
  ft_text_free(&text);
  return status;
}

/* With a word of its own number 0 is its absence, and number 1 goes without a value. Of a pass both
 * may be asked for. */
static int set_choice(struct cli_options *options, int i, const char *option, const char *value) {
  const struct ft_request_field *const field = ft_request_field(i);
  const char *names[FT_CHOICES_MOST + 2];
  const int skipped = field->word == NULL ? 0 : 1;
  int count = 0, index = 0;
  for (int n = skipped; field->choices[n] != NULL; ++n) names[count++] = field->choices[n];
  const int both = i == FT_REQUEST_pass ? count : -1;
  if (i == FT_REQUEST_pass) names[count++] = "both";
  names[count] = NULL;
  if (value != NULL) FT_TRY(cli_choice(option, value, names, &index));
  if (i == FT_REQUEST_pass) options->draft.both = index == both;
  ft_request_set(&options->draft.fields, i, index == both ? FT_BACKWARD : index + skipped);
  return FT_OK;
}

static int set_field(struct cli_options *options, int i, const char *option, const char *value) {
  const struct ft_request_field *const field = ft_request_field(i);
  options->draft.given[i] = true;
  if (ft_request_word_end(i) > i + 1) return set_word(options, i, option, value);
  switch (field->kind) {
  case FT_KIND_CHOICE: return set_choice(options, i, option, value);
  case FT_KIND_COUNT: return set_count(options, i, option, value);
  default: ft_request_set(&options->draft.fields, i, 1);
  }
  if (i != FT_REQUEST_dropout) return FT_OK;
  /* 2^-14 is the step of the probability; 0 would mean "not given". */
  return cli_real(option, value, 1.0 / 16384, 1, &options->dropout);
}

static int take_shape(void *payload, const char *text) {
  return add_text(payload, text);
}

static int finish_fields(struct cli_options *options) {
  struct cli_draft *const draft = &options->draft;
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i) {
    const struct ft_request_field *const field = ft_request_field(i);
    if (field->missing == NULL || draft->given[i]) continue;
    return ft_fail(FT_E_ARGUMENT,
                   "--%s is missing; a request needs at least --head-dim and --seqlen",
                   field->option);
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
  if (key < KEY_FIELD || key > KEY_SHAPES) return FT_E_NOT_FOUND;
  if (key == KEY_SHAPES) {
    if (draft->shapes != NULL)
      return ft_fail(FT_E_ARGUMENT, "--shapes is given twice, as '%s' and '%s'; allowed: once",
                     draft->shapes, value);
    draft->shapes = value;
    return FT_OK;
  }
  char option[32];
  (void)snprintf(option, sizeof option, "--%s", ft_request_field(key - KEY_FIELD)->option);
  if (key == KEY_FIELD + FT_REQUEST_score) { /* a session makes a number of it */
    if (value[0] == '\0') return ft_fail(FT_E_ARGUMENT, "%s is ''; a value is needed", option);
    options->score = value;
    return FT_OK;
  }
  draft->by_option = true;
  return set_field(options, key - KEY_FIELD, option, value);
}

int cli_request_word(struct cli_options *options, const char *word) {
  struct ft_text *const words = &options->draft.words;
  if (word[0] == '\0') {
    return ft_fail(FT_E_ARGUMENT, "a request is ''; allowed: as \"forward bf16 d128 nq4096\"");
  }
  if (word[strcspn(word, BLANKS)] != '\0') {
    FT_TRY(flush_words(options));
    return add_text(options, word);
  }
  if (names_pass(word)) FT_TRY(flush_words(options));
  ft_text_add(words, "%s%s", words->length > 0 ? " " : "", word);
  return ft_text_status(words);
}

int cli_request_end(struct cli_options *options, bool exactly_one) {
  struct cli_draft *const draft = &options->draft;
  FT_TRY(flush_words(options));
  if (draft->by_option && (options->request_count > 0 || draft->shapes != NULL)) {
    return ft_fail(FT_E_ARGUMENT,
                   "request options and %s exclude each other; allowed: either --head-dim ... or "
                   "\"forward bf16 d128 ...\"",
                   draft->shapes != NULL ? "--shapes" : "a request text");
  }
  if (draft->shapes != NULL)
    FT_TRY(cli_shapes_read(draft->shapes, take_shape, options, &options->damaged));
  if (draft->by_option) FT_TRY(finish_fields(options));
  if (options->request_count == 0) {
    return ft_fail(FT_E_ARGUMENT, "no request; give one as \"forward bf16 d128 hq32 nq4096\" "
                                  "or by --head-dim 128 --heads 32 --seqlen 4096");
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
