/* unfinished.h: files that are being made, under names of their own until they are whole.
 * in -> out: the name a file is to have -> a new empty file beside it; what others left is swept.
 */
#ifndef CACHE_UNFINISHED_H
#define CACHE_UNFINISHED_H

struct ft_unfinished {
  char *path; /* "FILE.unfinished-XXXXXX"; NULL: there is none */
  int file;   /* open for writing; the caller closes it */
  int folder; /* its lock tells others that somebody is at work; -1: none */
};

#define FT_UNFINISHED_INIT                                                                         \
  { NULL, -1, -1 }

/* A file of mode 0600, after ft_unfinished_sweep. FT_E_CACHE: also where FILE is a folder, a
 * device, a pipe or a socket. FT_E_MEMORY. */
int ft_unfinished_make(struct ft_unfinished *unfinished, const char *file);

/* Gives up the file, if it still has that name, and the lock. */
void ft_unfinished_end(struct ft_unfinished *unfinished);

/* Deletes such files of ours for the same FILE, which those who were killed left: all where nobody
 * makes a file in the folder now, else those that nobody has written to for ten minutes. */
void ft_unfinished_sweep(const char *file);

#endif
