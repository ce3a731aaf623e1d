/* hopper_kernel.h: small kernels for what the emulated device does of Hopper: TMA, mbarriers,
 * wgmma. in -> out: body of a kernel, tensors with their maps, words in -> words out, or the fault.
 */
#ifndef TESTS_HOPPER_KERNEL_H
#define TESTS_HOPPER_KERNEL_H

#include "tests/emulator_kernel.h"

enum { HOPPER_MAPS = 4, HOPPER_SMEM = 160 * 1024, PANEL_COLUMNS = 64 };

/* 16-bit elements; dimensions as tensor maps have them: column, row, head, batch. */
struct hopper_tensor {
  const char *name;
  uint64_t extents[4];
  uint64_t strides[4];  /* elements; the first is 1 */
  unsigned box_rows;    /* boxes are 64 columns wide */
  uint64_t rows_beyond; /* that its map claims to have and it does not */
  bool writable;
  uint16_t *host; /* [strides[3] * extents[3]]: in before the launch, out after it */
};

/* Strides for a tensor with so many elements of padding behind each row; its host memory holds
 * random numbers of the type, to be freed. */
void hopper_tensor_make(struct hopper_tensor *tensor, enum ft_dtype dtype, uint64_t padding);
uint64_t hopper_tensor_size(const struct hopper_tensor *tensor); /* elements */
/* The element, or 0 outside. */
uint16_t hopper_at(const struct hopper_tensor *tensor, int64_t column, int64_t row, int64_t head,
                   int64_t batch);

/* body: statements that see `in`, `out` (unsigned *), `maps` (TensorMap [4]), `smem` (shared
 * address, a multiple of 1024), `thread`, `warp`, `lane`, and the wrappers of Hopper. */
void hopper_open(struct small_kernel *kernel, enum ft_dtype dtype, const char *body);
/* clusters: "__cluster_dims__(2, 1, 1)". */
void hopper_open_clusters(struct small_kernel *kernel, enum ft_dtype dtype, const char *clusters,
                          const char *body);

/* Blocks of so many threads. The status of the launch; `out` holds noise before. Counts are of
 * words. */
int hopper_launch(struct small_kernel *kernel, unsigned grid, unsigned threads,
                  struct hopper_tensor *tensors, int tensor_count, const void *in, size_t in_count,
                  void *out, size_t out_count);

/* One block, all in one, where it must go well. */
void hopper_run(enum ft_dtype dtype, const char *body, unsigned threads,
                struct hopper_tensor *tensors, int tensor_count, const void *in, size_t in_count,
                void *out, size_t out_count);

/* The body with one piece, which is there once, in another form; to be freed. */
char *hopper_edited(const char *body, const char *piece, const char *other);
/* Asserts that the detail of the last failure names the line of the body that holds the piece, the
 * first one, and has all the words. NULL ends these early. */
void hopper_expect_fault(const char *name, const char *body, const char *piece,
                         const char *const *words, int word_count);

/* "Swizzling modes" of the PTX manual, Swizzle<3,4,3>: bits 4-6 of an address change by its bits
 * 7-9. */
unsigned hopper_swizzled(unsigned byte);

/* Near 1 and of both signs, at random. */
uint16_t hopper_element(enum ft_dtype dtype);

#endif
