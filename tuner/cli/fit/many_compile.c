/* many_compile.c: the kernels of a list, by several threads. in -> out: see many_compile.h. */
#include "tuner/cli/fit/many_compile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "generator/clock.h"
#include "generator/recipe.h"
#include "generator/status.h"
#include "runtime/kernel_source.h"
#include "runtime/session.h"

enum { JOBS_MOST = 256 };

struct work {
  fatune_session *session;
  const struct ft_arch *arch;
  const struct ft_many_list *list;
  double until;
  pthread_mutex_t lock; /* of what follows */
  int next;
  struct ft_digest *seen; /* recipes of what was begun */
  int seen_count;
  struct ft_many_compiled done;
};

/* False where there is no more to do. */
static bool claim(struct work *work, int *item) {
  pthread_mutex_lock(&work->lock);
  if (work->next < work->list->item_count && ft_seconds_now() > work->until)
    work->done.out_of_time = true;
  const bool found = work->next < work->list->item_count && !work->done.out_of_time;
  if (found) *item = work->next++;
  pthread_mutex_unlock(&work->lock);
  return found;
}

/* Whether no thread has begun a kernel of this recipe. */
static bool is_new(struct work *work, const struct ft_digest *recipe) {
  bool known = false;
  pthread_mutex_lock(&work->lock);
  for (int n = 0; n < work->seen_count && !known; n++)
    known = ft_digest_equal(&work->seen[n], recipe);
  if (!known) work->seen[work->seen_count++] = *recipe;
  pthread_mutex_unlock(&work->lock);
  return !known;
}

static int recipe_of(const struct work *work, const struct ft_many_item *item,
                     struct ft_digest *recipe) {
  struct ft_source bare;
  pthread_mutex_lock(&work->session->lua_lock);
  const int status = ft_recipe(&bare, work->session->lua, &work->list->requests[item->request],
                               work->arch, &item->config, recipe);
  pthread_mutex_unlock(&work->session->lua_lock);
  return status;
}

static int compile(struct work *work, const struct ft_many_item *item, bool *is_one,
                   bool *compiled) {
  struct ft_digest recipe;
  struct ft_source source;
  struct ft_kernel kernel;
  *is_one = *compiled = false;
  FT_TRY(recipe_of(work, item, &recipe));
  *is_one = is_new(work, &recipe);
  if (!*is_one) return FT_OK;
  FT_TRY(ft_session_emit(work->session, &work->list->requests[item->request], work->arch,
                         &item->config, &source));
  const int status = ft_session_kernel(work->session, &source, NULL, &kernel, compiled);
  if (status == FT_OK) {
    ft_store_recipe_put(work->session->store, &recipe, &source.digest);
    ft_kernel_free(&kernel);
  }
  ft_source_free(&source);
  return status;
}

static void *work_main(void *payload) {
  struct work *const work = payload;
  int item;
  while (claim(work, &item)) {
    bool is_one, compiled;
    const int status = compile(work, &work->list->items[item], &is_one, &compiled);
    if (status != FT_OK) fprintf(stderr, "item %d: %s\n", item, ft_detail());
    pthread_mutex_lock(&work->lock);
    work->done.kernels += is_one && status == FT_OK;
    work->done.compiled += compiled && status == FT_OK;
    work->done.failed += status != FT_OK;
    pthread_mutex_unlock(&work->lock);
  }
  return NULL;
}

int ft_many_compile(fatune_session *session, const struct ft_arch *arch,
                    const struct ft_many_list *list, int jobs, double seconds,
                    struct ft_many_compiled *done) {
  const double begin = ft_seconds_now();
  struct work work = {.session = session, .arch = arch, .list = list, .until = begin + seconds};
  pthread_t threads[JOBS_MOST];
  int count = 0;
  work.seen = calloc((size_t)list->item_count + 1, sizeof *work.seen);
  if (!work.seen) return ft_fail(FT_E_MEMORY, "no memory for %d recipes", list->item_count);
  pthread_mutex_init(&work.lock, NULL);
  if (jobs > JOBS_MOST) jobs = JOBS_MOST;
  while (count < jobs && pthread_create(&threads[count], NULL, work_main, &work) == 0) count++;
  if (count == 0) work_main(&work);
  for (int n = 0; n < count; n++) pthread_join(threads[n], NULL);
  pthread_mutex_destroy(&work.lock);
  free(work.seen);
  *done = work.done;
  done->seconds = ft_seconds_now() - begin;
  return FT_OK;
}
