/* problem_outputs.h: what any output can have wrong, whatever its values should be. */
#ifndef TUNER_PROBLEM_OUTPUTS_H
#define TUNER_PROBLEM_OUTPUTS_H

#include "tuner/verify/problem_parts.h"

/* Each of these returns true if it has found something, and says so in *comparison. An image is a
 * buffer with its fences. */
__attribute__((format(printf, 2, 3))) bool ft_output_found(struct ft_comparison *comparison,
                                                           const char *format, ...);
bool ft_output_fence_broken(const unsigned char *image, size_t bytes, const char *name,
                            struct ft_comparison *comparison);
/* `what` names its rows: "row" or "key". */
bool ft_output_unwritten(const struct ft_shape *shape, enum ft_dtype dtype, const void *values,
                         const char *name, const char *what, struct ft_comparison *comparison);
/* Whether the element still holds what outputs are filled with. */
bool ft_is_poison(const struct ft_shape *shape, const void *values, int64_t index);

/* Whether the gaps were written, of a tensor in which no element is poison any more. */
bool ft_output_gaps_written(const struct ft_shape *shape, const void *values, const char *name,
                            struct ft_comparison *comparison);
/* Copies the buffer with its fences to host memory, and waits. The context is current. */
int ft_output_fetch(struct ft_problem *problem, int buffer, unsigned char *to);

/* The same into memory that the problem keeps for outputs of a second run: fresh memory costs as
 * much as the copy. NULL in *to where there is none. */
int ft_output_fetch_again(struct ft_problem *problem, int buffer, const unsigned char **to);

/* Checks the fences of the workspace without fetching the rest, which may be as large as the
 * tensors. */
int ft_output_workspace(struct ft_problem *problem, struct ft_comparison *comparison, bool *broken);

#endif
