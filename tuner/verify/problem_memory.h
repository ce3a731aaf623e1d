/* problem_memory.h: the device buffers of a problem, and what is copied into them. */
#ifndef TUNER_PROBLEM_MEMORY_H
#define TUNER_PROBLEM_MEMORY_H

#include "tuner/verify/problem_parts.h"

/* Device memory for a buffer, with a fence on either side. */
int ft_problem_allocate(struct ft_problem *problem, int buffer, size_t bytes, size_t fence);
int ft_problem_copy_in(struct ft_problem *problem, int buffer, const void *from);

/* Of the elements of an input. */
enum ft_dtype ft_problem_dtype(const struct ft_request *request, int buffer);

/* Fills an input with the dense tensor in its layout, and waits. The context is current. */
int ft_problem_upload(struct ft_problem *problem, int buffer, const void *dense);

/* Makes a workspace of so many bytes for the arguments, with fences; 0: none. */
int ft_problem_make_workspace(struct ft_problem *problem, size_t bytes);

#endif
