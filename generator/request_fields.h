/* request_fields.h: the fields of a request as a table; it comes from request.def.
 * in -> out: field number -> its words, its values, what depends on it; get and set by number. */
#ifndef GENERATOR_REQUEST_FIELDS_H
#define GENERATOR_REQUEST_FIELDS_H

#include "generator/request.h"

enum ft_request_field_number {
#define FIELD(kind, type, name, ...) FT_REQUEST_##name,
#include "generator/request.def"
#undef FIELD
  FT_REQUEST_FIELDS
};

enum ft_request_kind {
  FT_KIND_CHOICE, /* one of `choices`, by number */
  FT_KIND_FLAG,   /* 0 or 1 */
  FT_KIND_COUNT,  /* a whole number from `least` to `most` */
  FT_KIND_SHARE,  /* a real number above 0, at most 1 */
  FT_KIND_DIGEST  /* a score's number, 12 or 13 hexadecimal digits; 0: there is no such word */
};

enum ft_request_part {
  FT_PART_KERNEL, /* the emitted text depends on it: part of the kernel class */
  FT_PART_SIZE,   /* of a run; 0 in a kernel class, rounded to a power of two in a bucket */
  FT_PART_HINT    /* likewise, but the fallback in a kernel class */
};

enum { FT_CHOICES_MOST = 5 };

/* A word of the text form is a field that has no `after`, and the fields behind it that have one.
 */
struct ft_request_field {
  enum ft_request_kind kind;
  enum ft_request_part part;
  const char *name;
  const char *word;    /* the text before its value; NULL: the choices are words themselves */
  bool equals;         /* '=' and a value always stand behind the word */
  const char *after;   /* the text between the field before and its value, in the same word */
  bool optional;       /* it and the rest of the word may be left out */
  const char *sign;    /* stands for the value in a message: N */
  const char *missing; /* the message when it was not given and must be; else NULL */
  int like;            /* the field whose value it takes when it was not given; 0: none */
  double fallback;     /* the value when neither was given */
  bool absent;         /* 0 is allowed, too, and means that the request has no such word */
  int64_t least, most;
  int multiple;                             /* 0: any number */
  const char *choices[FT_CHOICES_MOST + 1]; /* with a word, number 0 is its absence */
  const char *option;                       /* of the program: --option; NULL: none */
  const char *argument, *help;
  int second; /* the field that the option sets after a colon; 0: none */
};

const struct ft_request_field *ft_request_field(int field);

/* A SHARE has no whole number, anything else has no real one: 0. */
int64_t ft_request_get(const struct ft_request *request, int field);
double ft_request_get_real(const struct ft_request *request, int field);
void ft_request_set(struct ft_request *request, int field, int64_t value);
void ft_request_set_real(struct ft_request *request, int field, double value);

void ft_request_copy(struct ft_request *to, const struct ft_request *from, int field);
bool ft_request_same(const struct ft_request *a, const struct ft_request *b, int field);

/* FT_E_ARGUMENT naming the field, the value and what is allowed. In a word of a text, where the
 * field is, 0 does not mean that there is none. */
int ft_request_check(int field, int64_t value, bool in_word);

/* Gives a value to what was not given. FT_E_ARGUMENT where something has to be. */
int ft_request_complete(struct ft_request *request, const bool given[FT_REQUEST_FIELDS]);

/* The field behind those that make one word with this one. */
int ft_request_word_end(int field);
/* Appends how the word that begins with the field is written: "dN", "mask=ROWSxCOLS[@DENSITY]". */
void ft_request_word_form(int field, struct ft_text *text);

/* The length of the letters that a text begins with: 6 of "causal=top-left", 1 of "d64". */
int ft_request_stem(const char *text);
/* The field whose word the letters are, or of whose choices the text is one; -1: none. */
int ft_request_find_word(const char *text);
/* The word or choice that the text resembles, for "did you mean"; NULL: none. */
const char *ft_request_close_word(const char *text);

#endif
