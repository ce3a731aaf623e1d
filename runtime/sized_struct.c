/* sized_struct.c: older and newer structs of fatune.h.
 * in -> out: a caller's struct -> this version's, or why not. */
#include "runtime/sized_struct.h"

#include <stdbool.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/fatune.h"

/* All structs consist of whole words. Of a larger one every byte is looked at: a size that nobody
 * wrote must not lead far away. */
enum { WORD = 8, SIZE_MOST = 4096 };

static size_t size_of(const void *given) {
  size_t size;
  memcpy(&size, given, sizeof size);
  return size;
}

static bool is_zero(const char *bytes, size_t count) {
  for (size_t n = 0; n < count; n++)
    if (bytes[n]) return false;
  return true;
}

static int refuse_size(const struct ft_sized_struct *form, size_t size) {
  return ft_fail(FT_E_ARGUMENT,
                 "%s.size is %zu; allowed: %zu, that of %s in version %s, or another version's: a "
                 "multiple of %d, from %zu to %d. Start from the _INIT value",
                 form->name, size, form->size, form->type, fatune_version(), WORD, form->first_size,
                 SIZE_MOST);
}

static int refuse_newer(const struct ft_sized_struct *form, size_t size) {
  return ft_fail(FT_E_ARGUMENT,
                 "%s.size is %zu; %s has %zu bytes in version %s, which knows none of the fields "
                 "beyond; allowed there: 0",
                 form->name, size, form->type, form->size, fatune_version());
}

static int check_size(const struct ft_sized_struct *form, const void *given) {
  const size_t size = size_of(given);
  if (size < form->first_size || size > SIZE_MOST || size % WORD != 0)
    return refuse_size(form, size);
  if (size > form->size && !is_zero((const char *)given + form->size, size - form->size))
    return refuse_newer(form, size);
  return FT_OK;
}

int ft_sized_read(const struct ft_sized_struct *form, const void *given, void *room,
                  const void **whole) {
  *whole = given;
  if (size_of(given) == form->size) return FT_OK;
  FT_TRY(check_size(form, given));
  const size_t size = size_of(given);
  memcpy(room, form->initial, form->size);
  memcpy(room, given, size < form->size ? size : form->size);
  memcpy(room, &form->size, sizeof form->size);
  *whole = room;
  return FT_OK;
}

int ft_sized_write(const struct ft_sized_struct *form, const void *whole, void *given) {
  FT_TRY(check_size(form, given));
  const size_t size = size_of(given);
  const size_t common = size < form->size ? size : form->size;
  const char *const from = whole, *const initial = form->initial;
  if (memcmp(from + common, initial + common, form->size - common) != 0)
    return ft_fail(
        FT_E_ARGUMENT,
        "%s.size is %zu, which has no room for all that is asked for; allowed: %zu, that "
        "of %s in version %s",
        form->name, size, form->size, form->type, fatune_version());
  memcpy((char *)given + sizeof size, from + sizeof size, common - sizeof size);
  return FT_OK;
}
