/* image.h: what a cubin says about itself.
 * in -> out: ELF image -> registers and local memory of the entry. Nothing of it is trusted. */
#ifndef RUNTIME_IMAGE_H
#define RUNTIME_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

struct ft_image_resources {
  int registers;   /* per thread */
  int local_bytes; /* local memory per thread: spills and stack */
};

/* false when the image is no cubin with such an entry or says nothing; *resources is then 0. */
bool ft_image_read(const void *image, size_t size, const char *entry,
                   struct ft_image_resources *resources);

/* Whether the image is a cubin whose table of symbols has no such entry. false: it may have it. */
bool ft_image_lacks(const void *image, size_t size, const char *entry);

#endif
