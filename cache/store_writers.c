/* store_writers.c: waiting for those who write to a user file.
 * in -> out: kind -> a write transaction begun, or the end of patience.
 *
 * The store's lock is free while a thread waits, so that the session's other threads find what is
 * there. A writer that does not end is waited for once: until STUCK_SECONDS later each write tries,
 * and goes to memory if it cannot. */
#include <pthread.h>
#include <time.h>

#include "cache/store_parts.h"
#include "generator/clock.h"
#include "generator/status.h"

enum { PATIENCE_SECONDS = 5, STUCK_SECONDS = 60, PAUSE_MS = 5 };

static void pause_unlocked(struct ft_store *store) {
  const struct timespec nap = {0, PAUSE_MS * 1000000L};
  pthread_mutex_unlock(&store->lock);
  nanosleep(&nap, NULL);
  pthread_mutex_lock(&store->lock);
}

/* The file is asked for anew after each pause: another thread may have closed it. */
static int try_until(struct ft_store *store, enum ft_kind kind, double deadline,
                     struct ft_database **database) {
  for (;;) {
    *database = ft_store_user(store, kind, true);
    if (!*database) return FT_E_CACHE;
    const int status = ft_database_begin(*database, 0);
    if (status == FT_OK || !ft_database_is_busy(*database)) return status;
    if (ft_seconds_now() >= deadline) {
      store->user[kind].stuck_until = ft_seconds_now() + STUCK_SECONDS;
      return ft_fail_within(status, "another process does not end its writing");
    }
    pause_unlocked(store);
  }
}

int ft_store_begin(struct ft_store *store, enum ft_kind kind, struct ft_database **database) {
  struct ft_user_file *const file = &store->user[kind];
  const double now = ft_seconds_now();
  const int status =
      try_until(store, kind, now < file->stuck_until ? now : now + PATIENCE_SECONDS, database);
  if (status == FT_OK) file->stuck_until = 0;
  if (status == FT_E_CACHE && *database) ft_store_report(store, *database, FT_FAULT_WRITE);
  return status;
}
