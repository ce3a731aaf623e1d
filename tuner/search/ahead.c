/* ahead.c: a thread that opens the next search. in -> out: see ahead.h. */
#include "tuner/search/ahead.h"

#include <pthread.h>
#include <stdlib.h>

#include "generator/status.h"

struct ft_ahead {
  pthread_t thread;
  bool started; /* the thread is there, to be joined */
  fatune_session *session;
  struct ft_request request;
  struct ft_tune_options options;
  struct ft_tuning *opened; /* the thread's, until it is joined; NULL: it could not be opened */
};

int ft_ahead_make(struct ft_ahead **ahead) {
  *ahead = calloc(1, sizeof **ahead);
  return *ahead ? FT_OK : ft_fail(FT_E_MEMORY, "no memory for a search ahead");
}

static void *open_it(void *payload) {
  struct ft_ahead *const ahead = payload;
  if (ft_tuning_open(&ahead->opened, ahead->session, &ahead->request, &ahead->options) != FT_OK)
    ahead->opened = NULL;
  return NULL;
}

/* What the thread has opened; NULL: nothing. */
static struct ft_tuning *join(struct ft_ahead *ahead) {
  if (!ahead->started) return NULL;
  pthread_join(ahead->thread, NULL);
  ahead->started = false;
  return ahead->opened;
}

void ft_ahead_begin(struct ft_ahead *ahead, fatune_session *session,
                    const struct ft_request *request, const struct ft_tune_options *options) {
  ft_tuning_close(join(ahead));
  ahead->session = session;
  ahead->request = *request;
  ahead->options = *options;
  ahead->started = pthread_create(&ahead->thread, NULL, open_it, ahead) == 0;
}

struct ft_tuning *ft_ahead_take(struct ft_ahead *ahead, const struct ft_request *request) {
  struct ft_tuning *const opened = ahead ? join(ahead) : NULL;
  if (!opened) return NULL;
  if (ft_tuning_is_of(opened, request) && ft_tuning_is_current(opened)) return opened;
  ft_tuning_close(opened);
  return NULL;
}

void ft_ahead_free(struct ft_ahead *ahead) {
  if (ahead) ft_tuning_close(join(ahead));
  free(ahead);
}
