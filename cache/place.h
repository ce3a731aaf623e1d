/* place.h: who could change what lies at a path.
 * in -> out: path of a file or folder -> its real name, if root and the user of this process alone
 * decide what is there; else who else could. */
#ifndef CACHE_PLACE_H
#define CACHE_PLACE_H

/* Looks at every folder and symbolic link on the way, and at what is at its end: each must belong
 * to root or to the user of this process, and nobody else may write to it. A sticky folder as /tmp
 * may be written to by all, since what is in it is not theirs to replace. *real: the
 * path without links, to be freed; while the call's answer holds nobody else can put another file
 * there. FT_E_NOT_FOUND: nothing is there. FT_E_CACHE: not safe, and why. */
int ft_place_check(const char *path, char **real);

#endif
