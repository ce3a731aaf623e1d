/* emulator_kernel.h: kernels written in tests, for what the emulated device's primitives do.
 * in -> out: body of a kernel, words in -> words out, or the fault. */
#ifndef TESTS_EMULATOR_KERNEL_H
#define TESTS_EMULATOR_KERNEL_H

#include "cache/kernel.h"
#include "runtime/module.h"
#include "tests/emulator_lab.h"

struct small_kernel {
  fatune_session *session;
  struct ft_kernel kernel;
  struct ft_module module;
};

/* body: statements that see `in` and `out` (unsigned *, global memory), `smem` (shared address),
 * `lane`, and the wrappers of templates/parts/ptx_{common,memory,mma,copies}.cu.in. */
void small_kernel_open(struct small_kernel *kernel, const char *gpu, enum ft_dtype dtype,
                       const char *body);
/* Of templates in which a test has written the main one, and a config that chooses it. */
void small_kernel_load(struct small_kernel *kernel, const char *gpu, const char *templates,
                       enum ft_dtype dtype, const char *config);
void small_kernel_close(struct small_kernel *kernel);

/* The status of the launch; `out` holds noise before. Counts are of words. */
int small_kernel_launch(struct small_kernel *kernel, unsigned grid, unsigned threads,
                        const void *in, size_t in_count, void *out, size_t out_count);

/* One block of one warp on an a100, all in one. */
void small_kernel_run(const char *body, const void *in, size_t in_count, void *out,
                      size_t out_count);
/* The same where it must fail with this in its message, at this line of the body (1 ..). */
void small_kernel_fault(const char *body, int line, const char *words);

/* 16-bit patterns as numbers, from what the formats say. */
double number_of(enum ft_dtype dtype, uint16_t bits);

#endif
