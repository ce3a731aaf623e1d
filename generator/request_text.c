/* request_text.c: the text form of a request.
 * in -> out: "forward bf16 d128 hq32 hkv8 nq4096 causal" <-> struct ft_request. */
#include "generator/request.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"

/* The words a request is made of; each may be given once. */
enum word {
  WORD_PASS,
  WORD_DTYPE,
  WORD_D,
  WORD_DV,
  WORD_HQ,
  WORD_HKV,
  WORD_B,
  WORD_NQ,
  WORD_NK,
  WORD_CAUSAL,
  WORD_DROPOUT,
  WORD_DETERMINISTIC,
  WORD_MASK,
  WORD_COUNT
};

static const struct {
  enum word word;
  const char *name;
} counts[] = {{WORD_D, "d"}, {WORD_DV, "dv"}, {WORD_HQ, "hq"}, {WORD_HKV, "hkv"},
              {WORD_B, "b"}, {WORD_NQ, "nq"}, {WORD_NK, "nk"}};

struct parser {
  struct ft_request request;
  bool given[WORD_COUNT];
};

/* Numbers are read and printed in the C locale: the host program may have set one that writes
 * decimal commas. newlocale gives glibc's static C locale and cannot fail for it. */
static locale_t enter_c_locale(locale_t *c_locale) {
  *c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return *c_locale == (locale_t)0 ? (locale_t)0 : uselocale(*c_locale);
}

static void leave_c_locale(locale_t before, locale_t c_locale) {
  if (c_locale == (locale_t)0) return;
  uselocale(before);
  freelocale(c_locale);
}

/* The shortest text that reads back as the same number, so that equal numbers print alike. */
static void print_density(double density, struct ft_text *text) {
  locale_t c_locale;
  const locale_t before = enter_c_locale(&c_locale);
  char digits[40];
  for (int precision = 1; precision <= 17; ++precision) {
    (void)snprintf(digits, sizeof digits, "%.*g", precision, density);
    if (strtod(digits, NULL) == density) break;
  }
  leave_c_locale(before, c_locale);
  ft_text_add(text, "@%s", digits);
}

void ft_request_print(const struct ft_request *request, struct ft_text *text) {
  ft_text_add(text, "%s %s d%d", ft_pass_name(request->pass), ft_dtype_name(request->dtype),
              request->head_dim);
  if (request->head_dim_v != request->head_dim) ft_text_add(text, " dv%d", request->head_dim_v);
  /* A kernel class has no heads, batch or lengths (0) and prints none. */
  if (request->heads_q > 1) ft_text_add(text, " hq%d", request->heads_q);
  if (request->heads_kv != request->heads_q) ft_text_add(text, " hkv%d", request->heads_kv);
  if (request->batch > 1) ft_text_add(text, " b%lld", (long long)request->batch);
  if (request->seqlen_q > 0) ft_text_add(text, " nq%lld", (long long)request->seqlen_q);
  if (request->seqlen_k != request->seqlen_q)
    ft_text_add(text, " nk%lld", (long long)request->seqlen_k);
  if (request->causal == FT_CAUSAL_BOTTOM_RIGHT) ft_text_add(text, " causal");
  if (request->causal == FT_CAUSAL_TOP_LEFT) ft_text_add(text, " causal=top-left");
  if (request->dropout) ft_text_add(text, " dropout");
  if (request->deterministic) ft_text_add(text, " deterministic");
  if (request->mask_rows == 0) return;
  ft_text_add(text, " mask=%dx%d", request->mask_rows, request->mask_cols);
  if (request->mask_density != 1) print_density(request->mask_density, text);
}

/* A whole number without sign or spaces at *cursor, which moves past it. */
static bool read_count(const char **cursor, long long *value) {
  const size_t digits = strspn(*cursor, "0123456789");
  if (digits == 0) return false;
  errno = 0;
  *value = strtoll(*cursor, NULL, 10);
  *cursor += digits;
  return errno == 0;
}

static int claim(struct parser *parser, enum word which, const char *word) {
  if (parser->given[which])
    return ft_fail(FT_E_ARGUMENT, "request: '%s' repeats or contradicts an earlier word", word);
  parser->given[which] = true;
  return FT_OK;
}

static int store_count(struct parser *parser, enum word which, const char *word, long long value) {
  struct ft_request *const request = &parser->request;
  FT_TRY(claim(parser, which, word));
  const bool is_int = which == WORD_D || which == WORD_DV || which == WORD_HQ || which == WORD_HKV;
  if (is_int && value > INT_MAX)
    return ft_fail(FT_E_ARGUMENT, "request: '%s' is too large; allowed: up to %d", word, INT_MAX);
  switch (which) {
  case WORD_D: request->head_dim = (int)value; break;
  case WORD_DV: request->head_dim_v = (int)value; break;
  case WORD_HQ: request->heads_q = (int)value; break;
  case WORD_HKV: request->heads_kv = (int)value; break;
  case WORD_B: request->batch = value; break;
  case WORD_NQ: request->seqlen_q = value; break;
  default: request->seqlen_k = value; break;
  }
  return FT_OK;
}

/* mask=ROWSxCOLS or mask=ROWSxCOLS@DENSITY; `text` begins after "mask=". */
static int parse_mask(struct parser *parser, const char *word, const char *text) {
  long long rows = 0, cols = 0;
  double density = 1;
  bool good = read_count(&text, &rows) && *text++ == 'x' && read_count(&text, &cols) &&
              rows <= INT_MAX && cols <= INT_MAX;
  if (good && *text == '@') {
    locale_t c_locale;
    const locale_t before = enter_c_locale(&c_locale);
    char *end;
    density = strtod(text + 1, &end);
    leave_c_locale(before, c_locale);
    /* strtod alone would take " 1", "nan" and "0x1p-2" too. */
    good = text[1] >= '0' && text[1] <= '9' && *end == '\0' &&
           text[1 + strspn(text + 1, "0123456789.e+-")] == '\0';
  } else if (good) {
    good = *text == '\0';
  }
  if (!good)
    return ft_fail(FT_E_ARGUMENT, "request: '%s' is not mask=ROWSxCOLS or mask=ROWSxCOLS@DENSITY",
                   word);
  if (rows == 0 || cols == 0)
    return ft_fail(FT_E_ARGUMENT, "request: '%s': rows and columns must be multiples of 16 from 16",
                   word);
  parser->request.mask_rows = (int)rows;
  parser->request.mask_cols = (int)cols;
  parser->request.mask_density = density;
  return claim(parser, WORD_MASK, word);
}

/* Words without a number: what they set, or FT_E_NOT_FOUND (no detail) when it is none of them. */
static int parse_fixed_word(struct parser *parser, const char *word) {
  struct ft_request *const request = &parser->request;
  const struct {
    const char *name;
    enum word which;
    int value;
  } fixed[] = {
      {"forward", WORD_PASS, FT_FORWARD},
      {"backward", WORD_PASS, FT_BACKWARD},
      {"fp16", WORD_DTYPE, FT_FP16},
      {"bf16", WORD_DTYPE, FT_BF16},
      {"causal", WORD_CAUSAL, FT_CAUSAL_BOTTOM_RIGHT},
      {"causal=bottom-right", WORD_CAUSAL, FT_CAUSAL_BOTTOM_RIGHT},
      {"causal=top-left", WORD_CAUSAL, FT_CAUSAL_TOP_LEFT},
      {"dropout", WORD_DROPOUT, true},
      {"deterministic", WORD_DETERMINISTIC, true},
  };
  size_t i = 0;
  while (i < sizeof fixed / sizeof fixed[0] && strcmp(word, fixed[i].name) != 0) ++i;
  if (i == sizeof fixed / sizeof fixed[0]) return FT_E_NOT_FOUND;
  switch (fixed[i].which) {
  case WORD_PASS: request->pass = (enum ft_pass)fixed[i].value; break;
  case WORD_DTYPE: request->dtype = (enum ft_dtype)fixed[i].value; break;
  case WORD_CAUSAL: request->causal = (enum ft_causal)fixed[i].value; break;
  case WORD_DROPOUT: request->dropout = true; break;
  default: request->deterministic = true; break;
  }
  return claim(parser, fixed[i].which, word);
}

static int parse_word(struct parser *parser, const char *word) {
  const int status = parse_fixed_word(parser, word);
  if (status != FT_E_NOT_FOUND) return status;
  if (strncmp(word, "mask=", 5) == 0) return parse_mask(parser, word, word + 5);

  const size_t letters = strspn(word, "abcdefghijklmnopqrstuvwxyz");
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
    if (strlen(counts[i].name) != letters || strncmp(word, counts[i].name, letters) != 0) continue;
    long long value;
    const char *cursor = word + letters;
    if (read_count(&cursor, &value) && *cursor == '\0')
      return store_count(parser, counts[i].word, word, value);
    return ft_fail(FT_E_ARGUMENT, "request: '%s' needs a whole number after '%s'", word,
                   counts[i].name);
  }
  return ft_fail(FT_E_ARGUMENT,
                 "request: '%s' is no word of a request; allowed: forward backward fp16 bf16 dN "
                 "dvN hqN hkvN bN nqN nkN causal[=top-left] dropout deterministic mask=RxC[@D]",
                 word);
}

/* What was left out, and the check that what may not be left out is there. */
static int fill_defaults(struct parser *parser) {
  struct ft_request *const request = &parser->request;
  const bool *const given = parser->given;
  if (!given[WORD_D]) return ft_fail(FT_E_ARGUMENT, "request: the head dim is missing, as in d128");
  if (!given[WORD_NQ])
    return ft_fail(FT_E_ARGUMENT, "request: the query length is missing, as in nq4096");
  if (!given[WORD_DV]) request->head_dim_v = request->head_dim;
  if (!given[WORD_HQ]) request->heads_q = given[WORD_HKV] ? request->heads_kv : 1;
  if (!given[WORD_HKV]) request->heads_kv = request->heads_q;
  if (!given[WORD_NK]) request->seqlen_k = request->seqlen_q;
  return FT_OK;
}

int ft_request_parse(struct ft_request *request, const char *text) {
  if (text == NULL) return ft_fail(FT_E_ARGUMENT, "request: no text");
  struct parser parser = {
      .request = {.pass = FT_FORWARD, .dtype = FT_BF16, .batch = 1, .mask_density = 1}};
  char *const copy = strdup(text);
  if (copy == NULL) return ft_fail(FT_E_MEMORY, "request: out of memory");

  int status = FT_OK;
  char *rest = copy;
  for (const char *word = strtok_r(copy, " \t\n", &rest); word != NULL;
       word = strtok_r(NULL, " \t\n", &rest))
    FT_CHECK(parse_word(&parser, word));
  FT_CHECK(fill_defaults(&parser));
  status = ft_request_validate(&parser.request);
  if (status != FT_OK) ft_fail_within(status, "request");
  if (status == FT_OK) *request = parser.request;

done:
  free(copy);
  return status;
}
