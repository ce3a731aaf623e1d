/* runner.h: code that is not ours, run in a child process.
 * in -> out: a job -> done, or how the child ended, in words. The host outlives whatever the job
 * does: crashes, exits, hangs, system calls.
 *
 * The child is a fork: it sees the host's memory as it is at that moment, and changes its own copy
 * of it. What the host is to see lies in memory of pages.h. */
#ifndef RUNTIME_EMULATOR_RUNNER_H
#define RUNTIME_EMULATOR_RUNNER_H

#include <stddef.h>
#include <stdint.h>

enum { FT_QUESTION_MOST = 32, FT_ANSWER_MOST = 16 };

struct ft_runner_job {
  void (*run)(void *payload); /* in the child */
  /* In the child, when the job has crashed: where it was, in words. NULL: nobody knows. */
  void (*where)(void *payload, char *words, size_t size);
  /* In the host, when the job asks (ft_runner_ask). NULL: it does not. */
  int (*answer)(void *payload, const uint64_t *question, int count, int answer[FT_ANSWER_MOST]);
  void *payload;
  const char *name; /* of the job; the words of a failure begin with it */
  int file;         /* stays open in the child, as FT_RUNNER_FILE; every other one is closed */
};

#define FT_RUNNER_FILE "/proc/self/fd/4"

/* 0: the job has returned. Else -1, and why not. Any number of threads at once. */
int ft_runner_run(const struct ft_runner_job *job, char *message, size_t size);

/* For the job. It has got on: the time limit begins anew. A job that does not say so for 10 s from
 * its begin is begun anew, twice. */
void ft_runner_progress(void);
/* What the host answers; how many numbers. */
int ft_runner_ask(const uint64_t *question, int count, int answer[FT_ANSWER_MOST]);

#endif
