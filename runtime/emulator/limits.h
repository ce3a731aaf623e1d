/* limits.h: what a launch may use up: steps, memory for what is under way. */
#ifndef RUNTIME_EMULATOR_LIMITS_H
#define RUNTIME_EMULATOR_LIMITS_H

#include <stddef.h>

/* One step of the running block; the launch ends when there are too many. */
void ft_count_step(int line);
/* The block has taken all its steps. */
void ft_step(void);
/* The memory, which must not be NULL. */
void *ft_need(void *memory);
/* Room for one more than `count` things of this size in *array, which it returns. */
void *ft_make_room(void *array, int *room, int count, size_t size);

#endif
