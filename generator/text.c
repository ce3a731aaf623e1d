/* text.c: a growable text buffer.
 * in -> out: printf-style pieces -> one NUL-terminated string. */
#include "generator/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"

/* Room for `more` bytes and the NUL; false (and text->failed) when there is none. */
static bool reserve(struct ft_text *text, size_t more) {
  if (text->failed) return false;
  if (more >= SIZE_MAX / 2 - text->length) {
    text->failed = true;
    return false;
  }
  const size_t needed = text->length + more + 1;
  if (needed <= text->capacity) return true;
  const size_t doubled = 2 * text->capacity;
  const size_t capacity = needed > doubled ? (needed < 64 ? 64 : needed) : doubled;
  char *const data = realloc(text->data, capacity);
  if (data == NULL) {
    text->failed = true;
    return false;
  }
  text->data = data;
  text->capacity = capacity;
  return true;
}

void ft_text_add(struct ft_text *text, const char *format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int count = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (count < 0) text->failed = true;
  if (count >= 0 && reserve(text, (size_t)count)) {
    (void)vsnprintf(text->data + text->length, (size_t)count + 1, format, again);
    text->length += (size_t)count;
  }
  va_end(again);
}

void ft_text_append(struct ft_text *text, const char *bytes, size_t count) {
  if (!reserve(text, count)) return;
  if (count > 0) memcpy(text->data + text->length, bytes, count);
  text->length += count;
  text->data[text->length] = '\0';
}

void ft_text_clear(struct ft_text *text) {
  text->length = 0;
  text->failed = false;
  if (text->data != NULL) text->data[0] = '\0';
}

void ft_text_free(struct ft_text *text) {
  free(text->data);
  *text = (struct ft_text)FT_TEXT_INIT;
}

int ft_text_status(const struct ft_text *text) {
  return text->failed ? ft_fail(FT_E_MEMORY, "out of memory after %zu bytes of text", text->length)
                      : FT_OK;
}
