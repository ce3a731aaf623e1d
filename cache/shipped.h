/* shipped.h: winners that the project has measured, inside the library: bytes of a file of trials.
 * in -> out: cache/shipped/<gpu>.trials, by a program of the build -> a layer for a store's
 * options. */
#ifndef CACHE_SHIPPED_H
#define CACHE_SHIPPED_H

#include <stddef.h>

extern const unsigned char ft_shipped_layer[];
extern const size_t ft_shipped_layer_size;

#endif
