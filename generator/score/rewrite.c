/* rewrite.c: a score's Lua text, with comparisons, `and`, `or` and `not` as calls.
 * in -> out: text -> text of the same lines, token by token. */
#include "generator/score/rewrite.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "generator/status.h"

struct reader {
  const char *name;
  const char *at, *end;
  int line;
  struct ft_text *out;
};

static bool starts_with(const struct reader *reader, const char *token) {
  const size_t length = strlen(token);
  return (size_t)(reader->end - reader->at) >= length && memcmp(reader->at, token, length) == 0;
}

static void copy(struct reader *reader, size_t count) {
  const size_t left = (size_t)(reader->end - reader->at);
  if (count > left) count = left;
  for (size_t i = 0; i < count; ++i) reader->line += reader->at[i] == '\n';
  ft_text_append(reader->out, reader->at, count);
  reader->at += count;
}

/* The '=' between the brackets that open a long string, as in [==[; -1: none does. */
static int long_bracket_level(const char *at, const char *end) {
  const char *next = at + 1;
  while (next < end && *next == '=') ++next;
  return at < end && *at == '[' && next < end && *next == '[' ? (int)(next - at) - 1 : -1;
}

static void copy_long_string(struct reader *reader, int level) {
  copy(reader, (size_t)level + 2);
  while (reader->at < reader->end) {
    int equals = 0;
    if (*reader->at == ']')
      while (reader->at + 1 + equals < reader->end && reader->at[1 + equals] == '=') ++equals;
    const bool closes = *reader->at == ']' && equals == level &&
                        reader->at + 1 + equals < reader->end && reader->at[1 + equals] == ']';
    if (closes) {
      copy(reader, (size_t)level + 2);
      return;
    }
    copy(reader, 1);
  }
}

static void copy_string(struct reader *reader) {
  const char quote = *reader->at;
  copy(reader, 1);
  while (reader->at < reader->end && *reader->at != quote)
    copy(reader, *reader->at == '\\' ? 2 : 1);
  copy(reader, 1);
}

static void copy_comment(struct reader *reader) {
  copy(reader, 2);
  const int level = long_bracket_level(reader->at, reader->end);
  if (level >= 0) {
    copy_long_string(reader, level);
    return;
  }
  while (reader->at < reader->end && *reader->at != '\n') copy(reader, 1);
}

static void copy_number(struct reader *reader) {
  const bool hex = starts_with(reader, "0x") || starts_with(reader, "0X");
  const char *const exponent = hex ? "pP" : "eE";
  while (reader->at < reader->end && (isalnum((unsigned char)*reader->at) || *reader->at == '.')) {
    const bool signs = strchr(exponent, *reader->at) != NULL && reader->at + 1 < reader->end &&
                       strchr("+-", reader->at[1]) != NULL;
    copy(reader, signs ? 2 : 1);
  }
}

static int refuse(const struct reader *reader, const char *what, size_t length, const char *why) {
  return ft_fail(FT_E_ARGUMENT, "%s:%d: a score text has no '%.*s'; %s", reader->name, reader->line,
                 (int)length, what, why);
}

struct replacement {
  const char *token, *text;
};

static const char *replaced(const struct replacement *table, const char *word, size_t length) {
  for (; table->token != NULL; ++table)
    if (strlen(table->token) == length && memcmp(table->token, word, length) == 0)
      return table->text;
  return NULL;
}

/* What would take an expression, which is neither nil nor false, for true. */
static const char decides[] = "use where(condition, value, other)";

static int take_word(struct reader *reader) {
  static const struct replacement words[] = {
      {"and", "~__and~"}, {"or", "|__or|"}, {"not", "__not^"}, {NULL, NULL}};
  static const struct replacement refused[] = {
      {"if", decides},    {"elseif", decides}, {"while", decides}, {"repeat", decides},
      {"until", decides}, {"goto", decides},   {NULL, NULL}};
  size_t length = 0;
  const char *const word = reader->at;
  while (word + length < reader->end &&
         (isalnum((unsigned char)word[length]) || word[length] == '_'))
    ++length;
  const char *const why = replaced(refused, word, length);
  if (why != NULL) return refuse(reader, word, length, why);
  if (length >= 2 && word[0] == '_' && word[1] == '_')
    return refuse(reader, word, length, "names do not begin with two underscores");
  const char *const text = replaced(words, word, length);
  if (text == NULL) {
    copy(reader, length);
    return FT_OK;
  }
  ft_text_add(reader->out, " %s ", text);
  reader->at += length;
  return FT_OK;
}

/* The characters of `<const>` or `<close>` behind a local's name; 0: something else stands here. */
static size_t attribute_length(const struct reader *reader) {
  static const char *const attributes[] = {"<const>", "<close>"};
  for (int i = 0; i < 2; ++i)
    if (starts_with(reader, attributes[i])) return strlen(attributes[i]);
  return 0;
}

static int take_operator(struct reader *reader) {
  static const struct replacement pairs[] = {
      {"<=", "&__le&"}, {">=", "&__ge&"}, {"==", "&__eq&"}, {"~=", "&__ne&"}, {NULL, NULL}};
  static const struct replacement singles[] = {{"<", "&__lt&"}, {">", "&__gt&"}, {NULL, NULL}};
  static const char no_bits[] = "its operators on bools are and, or, not";
  if (starts_with(reader, "<<") || starts_with(reader, ">>"))
    return refuse(reader, reader->at, 2, no_bits);
  size_t length = attribute_length(reader);
  if (length > 0) {
    copy(reader, length);
    return FT_OK;
  }
  length = 2;
  const char *text = reader->end - reader->at >= 2 ? replaced(pairs, reader->at, length) : NULL;
  if (text == NULL) text = replaced(singles, reader->at, length = 1);
  if (text == NULL && strchr("&|~", *reader->at) != NULL)
    return refuse(reader, reader->at, 1, no_bits);
  if (text == NULL) {
    copy(reader, 1);
    return FT_OK;
  }
  ft_text_add(reader->out, " %s ", text);
  reader->at += length;
  return FT_OK;
}

static int take_token(struct reader *reader) {
  const unsigned char first = (unsigned char)*reader->at;
  const int level = long_bracket_level(reader->at, reader->end);
  const bool is_number = isdigit(first) || (first == '.' && reader->at + 1 < reader->end &&
                                            isdigit((unsigned char)reader->at[1]));
  if (first == '\0') return refuse(reader, "\\0", 2, "it is text");
  if (starts_with(reader, "--"))
    copy_comment(reader);
  else if (level >= 0)
    copy_long_string(reader, level);
  else if (first == '"' || first == '\'')
    copy_string(reader);
  else if (starts_with(reader, ".."))
    copy(reader, 2);
  else if (is_number)
    copy_number(reader);
  else if (isalpha(first) || first == '_')
    return take_word(reader);
  else
    return take_operator(reader);
  return FT_OK;
}

int ft_score_rewrite(const char *name, const char *text, size_t length, struct ft_text *rewritten) {
  struct reader reader = {
      .name = name, .at = text, .end = text + length, .line = 1, .out = rewritten};
  while (reader.at < reader.end) FT_TRY(take_token(&reader));
  return ft_text_status(rewritten);
}
