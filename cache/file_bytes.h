/* file_bytes.h: a plain file as a whole.
 * in -> out: path -> its bytes, from one descriptor; never a pipe, a device or more than is
 * allowed. */
#ifndef CACHE_FILE_BYTES_H
#define CACHE_FILE_BYTES_H

#include <stddef.h>

/* *bytes from sqlite3_malloc64, with a NUL behind the last one. FT_E_NOT_FOUND when there is no
 * file, FT_E_CACHE when it is none to read or longer than most. */
int ft_file_bytes(const char *path, size_t most, void **bytes, size_t *size);
void ft_file_bytes_free(void *bytes);

#endif
