/* gpu_child.h: processes of their own that tests and bench/overheads.py start.
 * in -> out: fatune_gpu_tests --child NAME ARGUMENT... -> one JSON object a line on stdout, exit 0.
 */
#ifndef TESTS_GPU_GPU_CHILD_H
#define TESTS_GPU_GPU_CHILD_H

#include <stddef.h>
#include <sys/types.h>

/* `emulate JOBS K N`: gpu_emulated_child.
 * `warm REQUEST`: opens a session on $FATUNE_CACHE_DIR and makes a plan: how long both take.
 * `shipped REQUEST`: the same with compile = -1; the plan must also run and be right.
 * `host-time REQUEST`: how long fatune_plan_run takes the host. */
int gpu_child_main(int argc, char **argv);

/* Starts this program so, with "NAME=VALUE" added to the environment (NULL-terminated), and reads
 * what it prints. The exit code, or -1. */
int gpu_child_run(char *output, size_t size, const char *name, const char *request,
                  char *const variables[]);

/* Starts it with these arguments (NULL-terminated) behind --child, and does not wait; -1 when it
 * cannot be started. */
pid_t gpu_child_start(const char *const arguments[]);

/* The number after "name": in output; fails the test where there is none. */
double gpu_child_number(const char *output, const char *name);

#endif
