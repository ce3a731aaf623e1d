/* threads.h: the same work by several threads. in -> out: number, function, payload -> done. */
#ifndef TUNER_THREADS_H
#define TUNER_THREADS_H

/* Calls work(payload) in so many threads, in 1 to 64, of which the caller's is one, and returns
 * when all have ended. Threads that cannot be started are done without: the calls have to share out
 * among themselves what is to be done. */
void ft_work_together(int threads, void *(*work)(void *payload), void *payload);

#endif
