/* kernel.h: a compiled image and its resources (noun 4 of 5).
 * in -> out: what NVRTC made of a source -> struct ft_kernel; text form for people and tests. */
#ifndef CACHE_KERNEL_H
#define CACHE_KERNEL_H

#include <stddef.h>

#include "generator/digest.h"
#include "generator/text.h"

struct ft_kernel {
  struct ft_digest source;       /* ft_source.digest: text, options, target */
  struct ft_digest key;          /* ft_kernel_key(source, nvrtc): what the image is served by */
  struct ft_digest image_digest; /* of the image's bytes; checked before the image is loaded */
  char target[16];
  char nvrtc[64]; /* "13.0.88": version and build of the compiler */
  void *image;    /* cubin; owned */
  size_t image_size;
  int registers;   /* per thread */
  int spill_bytes; /* local memory per thread: spills and stack */
  int smem_bytes;  /* dynamic shared memory a launch asks for */
  int threads;
  char *log; /* NVRTC's log, mapped to template lines; owned, may be NULL */
};

/* The whole key: the source (text, options, target) and the compiler's version and build. Which
 * image it leads to is for the compiler to say, so the image is no part of it. */
struct ft_digest ft_kernel_key(const struct ft_digest *source, const char *nvrtc);

void ft_kernel_free(struct ft_kernel *kernel);

/* Deep copy; FT_E_MEMORY. */
int ft_kernel_copy(struct ft_kernel *to, const struct ft_kernel *from);

/* "kernel sm_90 nvrtc=13.0.88 registers=168 spills=0 smem=101376 threads=128 size=52144 key=<hex>
 * source=<hex> image=<hex>": everything but the image and the log. parse fills those fields. */
void ft_kernel_print(const struct ft_kernel *kernel, struct ft_text *text);
int ft_kernel_parse(struct ft_kernel *kernel, const char *text);

#endif
