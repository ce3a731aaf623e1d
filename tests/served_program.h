/* served_program.h: a program that is started once and runs many times, since a sweep has more
 * runs than there is time to start programs.
 * in -> out: command line of a program with faulty/fault_order.c, orders -> wait statuses; output
 * in a folder's `out` and `err`. */
#ifndef TESTS_SERVED_PROGRAM_H
#define TESTS_SERVED_PROGRAM_H

#include <sys/types.h>

/* Descriptors of the program, and the size of an order: a value of FATUNE_TEST_FAULT, one of
 * FATUNE_FAKE_FAIL, which has a "*", or "" for a run without failures. */
enum { SERVED_ORDERS = 198, SERVED_ENDS = 199, SERVED_ORDER = 64 };

struct served_program {
  pid_t server;
  int orders, ends;
};

/* By the shell, with the environment of now. */
void served_begin(struct served_program *served, const char *line, const char *folder);

/* As waitpid says it. */
int served_run(const struct served_program *served, const char *order);

void served_end(struct served_program *served);

#endif
