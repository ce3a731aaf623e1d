/* unfinished.h: files that are being made, under names of their own until they are whole.
 * in -> out: the name a file is to have -> a new empty file beside it; what others left is swept.
 */
#ifndef CACHE_UNFINISHED_H
#define CACHE_UNFINISHED_H

/* *temporary: "FILE.unfinished-XXXXXX", to be freed, made with mode 0600 and open as *descriptor.
 * Such files of ours for the same FILE that nobody has written to for ten minutes are deleted:
 * whoever made them was killed. FT_E_CACHE: also where FILE is a folder, a device, a pipe or a
 * socket. FT_E_MEMORY. */
int ft_unfinished_make(const char *file, char **temporary, int *descriptor);

#endif
