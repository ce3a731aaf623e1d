/* threads.c: the same work by several threads. in -> out: number, function, payload -> done. */
#include "tuner/verify/threads.h"

#include <pthread.h>

void ft_work_together(int threads, void *(*work)(void *payload), void *payload) {
  enum { MOST = 64 };
  pthread_t helpers[MOST];
  int started = 0;
  const int wanted = threads < MOST ? threads : MOST;
  while (started + 1 < wanted && pthread_create(&helpers[started], NULL, work, payload) == 0)
    started++;
  (void)work(payload);
  for (int helper = 0; helper < started; helper++) pthread_join(helpers[helper], NULL);
}
