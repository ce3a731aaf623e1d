/* database_file.h: the bytes of a database file that connections may have open.
 * in -> out: path -> its first bytes, whether all of it can be read, a copy.
 * Through SQLite's file layer and not by read(2): close(2) on a file drops the locks that other
 * connections of this process hold on it. */
#ifndef CACHE_DATABASE_FILE_H
#define CACHE_DATABASE_FILE_H

#include <stddef.h>

/* The first `room` bytes; *length: how many there are. The functions here fail with FT_E_CACHE or
 * FT_E_MEMORY and set *code to SQLite's code. */
int ft_file_begin(const char *path, void *bytes, size_t room, size_t *length, int *code);

int ft_file_readable(const char *path, int *code);

/* Appends the file to the open descriptor `to`. */
int ft_file_copy(const char *path, int to, int *code);

#endif
