/* sized_struct.h: structs of fatune.h that begin with their size, as callers of any version pass
 * them. in -> out: a caller's struct, of this version's size or another -> one of this version. A
 * version adds fields at the end of a struct and nowhere else, and not in the padding that ends it.
 */
#ifndef RUNTIME_SIZED_STRUCT_H
#define RUNTIME_SIZED_STRUCT_H

#include <stddef.h>

/* What is known of one such struct. */
struct ft_sized_struct {
  const char *name;    /* of the argument, as messages have it: "options" */
  const char *type;    /* "fatune_session_options" */
  size_t size;         /* in this version */
  size_t first_size;   /* in the first version that had the struct */
  const void *initial; /* its FATUNE_..._INIT, from which an older struct takes what it lacks */
};

/* Bytes of a struct up to and with a field. */
#define FT_SIZE_THROUGH(type, field) (offsetof(type, field) + sizeof((type){0}.field))

/* `last`: the field that ended the struct in the first version; `initial` points to its INIT value.
 */
#define FT_SIZED_STRUCT(argument, type_, last, initial_)                                           \
  {                                                                                                \
    .name = argument, .type = #type_, .size = sizeof(type_),                                       \
    .first_size = FT_SIZE_THROUGH(type_, last), .initial = initial_                                \
  }

/* *whole: `given` itself where it is of this version's size, else `room`, filled from it; `room`
 * has the size of this version. FT_E_ARGUMENT names the struct, its size and what is allowed. */
int ft_sized_read(const struct ft_sized_struct *form, const void *given, void *room,
                  const void **whole);

/* The other way, for a struct that the caller wants filled: as much of `whole` as the caller's
 * struct has room for; its size stays. FT_E_ARGUMENT, and nothing written, where what it has no
 * room for is not as in `initial`. */
int ft_sized_write(const struct ft_sized_struct *form, const void *whole, void *given);

#endif
