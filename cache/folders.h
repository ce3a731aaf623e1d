/* folders.h: where the files of the stores lie, and whether that place can be trusted.
 * in -> out: environment -> folder names; a folder -> made, checked, known to be local. */
#ifndef CACHE_FOLDERS_H
#define CACHE_FOLDERS_H

#include <stdbool.h>

enum ft_folder { FT_FOLDER_TUNING, FT_FOLDER_KERNELS };

/* The folder of a user file, to be freed: `given`, else FATUNE_CACHE_DIR, else
 * $XDG_STATE_HOME/fatune or $XDG_CACHE_HOME/fatune, else below $HOME. FT_E_NOT_FOUND when none of
 * them is set. */
int ft_folder_name(enum ft_folder folder, const char *given, char **name);

/* Makes the folder and its missing parents, all 0700. */
int ft_folder_make(const char *name);

/* *real: the folder's name without symbolic links, to be freed. Fails with FT_E_NOT_FOUND when it
 * is not there, with FT_E_CACHE when somebody else owns it or could write to it: who can replace a
 * file of ours chooses the code that runs on the GPU. FT_E_IO when it could not be looked at. */
int ft_folder_check(const char *name, char **real);

/* The same for a file in a checked folder: a plain file of ours, no link, not open to others.
 * FT_E_NOT_FOUND when it is not there. */
int ft_file_check(const char *path);

/* Is the folder on a file system of this host alone? Write-ahead logs need shared memory between
 * the processes that use a file, so they must not be used over a network. Unknown types are not
 * local: an entry missing from the list costs speed, not data. */
bool ft_folder_is_local(const char *name);

#endif
