/* text.h: a growable text buffer.
 * in -> out: printf-style pieces -> one NUL-terminated string.
 * Running out of memory sets `failed` and makes later additions no-ops: check once, at the end. */
#ifndef GENERATOR_TEXT_H
#define GENERATOR_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct ft_text {
  char *data;    /* NUL-terminated once anything was added, else NULL; owned */
  size_t length; /* bytes before the NUL */
  size_t capacity;
  bool failed; /* an allocation failed; data holds what fitted */
};

#define FT_TEXT_INIT                                                                               \
  { 0 }

void ft_text_add(struct ft_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void ft_text_append(struct ft_text *text, const char *bytes, size_t count);
void ft_text_clear(struct ft_text *text); /* length 0, memory kept */
void ft_text_free(struct ft_text *text);

/* FT_OK, or FT_E_MEMORY if any addition failed. */
int ft_text_status(const struct ft_text *text);

#endif
