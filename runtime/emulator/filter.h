/* filter.h: which system calls code may make that is not ours.
 * in -> out: this process -> it may use memory, read files, write to what is open, and end. */
#ifndef RUNTIME_EMULATOR_FILTER_H
#define RUNTIME_EMULATOR_FILTER_H

/* For good. Any other system call raises SIGSYS. -1: this machine has no such filters. */
int ft_filter_system_calls(void);

#endif
