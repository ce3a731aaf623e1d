/* store_kernels.c: compiled kernels by key.
 * in -> out: key -> a kernel whose digests have been checked; kernel -> row. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache/rows.h"
#include "cache/schema.h"
#include "cache/store_parts.h"
#include "generator/status.h"

enum { RECENCY_SECONDS = 3600, HEAL_PATIENCE_MS = 1000 };

static const int64_t MEMORY_CAP = INT64_C(256) << 20;

static const char BY_KEY[] = "SELECT " FT_KERNEL_COLUMNS ", id, used FROM kernels WHERE key = ?1";
enum { COLUMN_ID = 4, COLUMN_USED = 5 };

/* -- looking up ----------------------------------------------------------------------------- */

/* What a pass over rows leaves to be done once its statement is at rest. */
struct found {
  int64_t damaged;  /* the id of a damaged row; 0: none was met */
  int64_t id, used; /* of the row taken */
};

static bool is_forgotten(const struct ft_store *store, const struct ft_digest *key) {
  for (size_t i = 0; i < store->forgotten_count; i++)
    if (ft_digest_equal(&store->forgotten[i], key)) return true;
  return false;
}

/* There is one at most, as keys are unique. */
static void delete_row(struct ft_database *database, int64_t id) {
  sqlite3_stmt *statement = NULL;
  if (!database->writable) return;
  if (ft_database_begin(database, HEAL_PATIENCE_MS) != FT_OK) return;
  if (ft_database_prepare(database, "DELETE FROM kernels WHERE id = ?1", &statement) == FT_OK) {
    sqlite3_bind_int64(statement, 1, id); /* a number takes no memory */
    ft_database_run(database, statement, "a damaged kernel cannot be deleted");
  }
  ft_database_commit(database);
}

/* Least recently used needs no more than hours; a write per look-up would make readers wait for
 * writers. Not worth waiting for either, nor a warning. A clock that jumped back is mended too. */
static void renew(struct ft_database *database, int64_t id, int64_t used) {
  const int64_t now = (int64_t)time(NULL);
  sqlite3_stmt *statement = NULL;
  if (!database->writable || llabs(now - used) < RECENCY_SECONDS) return;
  if (ft_database_begin(database, 0) != FT_OK) return;
  if (ft_database_prepare(database, "UPDATE kernels SET used = ?2 WHERE id = ?1", &statement) ==
      FT_OK) {
    sqlite3_bind_int64(statement, 1, id);
    sqlite3_bind_int64(statement, 2, now);
    ft_database_run(database, statement, "a kernel cannot be renewed");
  }
  ft_database_commit(database);
}

/* The first sound row; FT_E_NOT_FOUND at the end. The column searched by may be damaged
 * itself, so the kernel's own key is compared. */
static int take_row(struct ft_store *store, struct ft_source_of_rows *source,
                    sqlite3_stmt *statement, const struct ft_digest *key, struct ft_kernel *kernel,
                    struct found *found) {
  int code;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    int status = ft_row_read_kernel(statement, kernel);
    if (status == FT_E_MEMORY) return status;
    if (status == FT_OK) {
      const bool right = ft_digest_equal(&kernel->key, key);
      if (right && !(source->layer > 0 && is_forgotten(store, &kernel->key))) {
        found->id = sqlite3_column_int64(statement, COLUMN_ID);
        found->used = sqlite3_column_int64(statement, COLUMN_USED);
        return FT_OK;
      }
      ft_kernel_free(kernel);
      if (right) continue;
      status = ft_fail(FT_E_CACHE, "a row is damaged: a kernel lies under a key not its own");
    }
    if (status == FT_E_CACHE) found->damaged = sqlite3_column_int64(statement, COLUMN_ID);
  }
  return code == SQLITE_DONE ? FT_E_NOT_FOUND
                             : ft_database_fail(source->database, "a kernel cannot be read");
}

static int find_in(struct ft_store *store, struct ft_source_of_rows *source,
                   const struct ft_digest *key, struct ft_kernel *kernel) {
  struct ft_database *const database = source->database;
  struct found found = {.damaged = 0};
  sqlite3_stmt *statement = NULL;
  int status = ft_database_prepare(database, BY_KEY, &statement);
  if (status == FT_OK) status = ft_database_bound(database, ft_bind_digest(statement, 1, key));
  if (status == FT_OK) status = take_row(store, source, statement, key, kernel, &found);
  ft_database_done(statement);
  if (found.damaged > 0) {
    ft_fail_within(FT_E_CACHE, "%s", ft_database_name(database));
    ft_store_report(store, database, FT_FAULT_ROW);
    delete_row(database, found.damaged);
  }
  if (status == FT_E_CACHE) ft_store_report(store, database, FT_FAULT_READ);
  if (status == FT_OK && source->layer == 0) renew(database, found.id, found.used);
  return status;
}

/* *place: where it is. */
static int locate(struct ft_store *store, const struct ft_digest *key, struct ft_kernel *kernel,
                  struct ft_source_of_rows *place) {
  struct ft_sources sources;
  ft_store_sources(store, FT_KIND_KERNELS, &sources);
  for (int i = 0; i < sources.count; i++) {
    *place = sources.at[i];
    const int status = find_in(store, place, key, kernel);
    if (status == FT_OK || status == FT_E_MEMORY) return status;
  }
  memset(kernel, 0, sizeof *kernel);
  return ft_fail(FT_E_NOT_FOUND, "no such kernel in the caches");
}

int ft_store_find_kernel(struct ft_store *store, const struct ft_digest *key,
                         struct ft_kernel *kernel) {
  struct ft_source_of_rows place;
  return locate(store, key, kernel, &place);
}

/* Does the layer say that the recipe gives the source? */
static bool says(struct ft_store *store, struct ft_database *layer, const struct ft_digest *recipe,
                 struct ft_digest *source) {
  if (layer->version < FT_SCHEMA_WITH_RECIPES) return false;
  const int status = ft_store_recipe_in(layer, recipe, source);
  if (status == FT_E_CACHE) ft_store_report(store, layer, FT_FAULT_ROW);
  return status == FT_OK;
}

/* Spares reading an image where no layer knows the recipe. */
static bool any_says(struct ft_store *store, const struct ft_digest *recipe) {
  struct ft_digest source;
  for (int i = 0; i < store->layer_count; i++)
    if (says(store, &store->layers[i], recipe, &source)) return true;
  return false;
}

static int find_by_recipe(struct ft_store *store, const struct ft_digest *recipe,
                          const struct ft_digest *key, struct ft_kernel *kernel) {
  struct ft_source_of_rows place;
  struct ft_digest source;
  memset(kernel, 0, sizeof *kernel);
  if (!any_says(store, recipe)) return ft_fail(FT_E_NOT_FOUND, "the recipe is in no layer");
  FT_TRY(locate(store, key, kernel, &place));
  if (says(store, place.database, recipe, &source) && ft_digest_equal(&source, &kernel->source))
    return FT_OK;
  ft_kernel_free(kernel);
  return ft_fail(FT_E_NOT_FOUND, "the file of the kernel has not the recipe for it");
}

/* -- writing -------------------------------------------------------------------------------- */

/* Within a transaction, which it ends. */
static int put_into(struct ft_database *database, const struct ft_kernel *kernel, int64_t cap) {
  bool inserted = false;
  int status = ft_row_put_kernel(database, kernel, (int64_t)time(NULL), false, &inserted);
  /* Down to nine tenths, so that not every kernel from now on pays for a collection. */
  if (status == FT_OK) status = ft_store_keep_to(database, cap, cap / 10 * 9);
  if (status == FT_OK) return ft_database_commit(database);
  ft_database_rollback(database);
  return status;
}

static int put(struct ft_store *store, const struct ft_kernel *kernel) {
  struct ft_database *user = NULL;
  int status = ft_store_begin(store, FT_KIND_KERNELS, &user);
  if (status == FT_OK) {
    status = put_into(user, kernel, store->cap);
    if (status == FT_E_CACHE) ft_store_report(store, user, FT_FAULT_WRITE);
  }
  if (status != FT_E_CACHE) return status;
  struct ft_database *const memory = ft_store_memory(store);
  if (!memory) return FT_E_MEMORY;
  int kept = ft_database_begin(memory, 0);
  if (kept == FT_OK)
    kept = put_into(memory, kernel, store->cap < MEMORY_CAP ? store->cap : MEMORY_CAP);
  return kept != FT_OK || store->memory_only || store->read_only ? kept : status;
}

/* -- public --------------------------------------------------------------------------------- */

int ft_store_kernel_get(struct ft_store *store, const struct ft_digest *key,
                        struct ft_kernel *kernel) {
  ft_store_enter(store);
  const int status = ft_store_find_kernel(store, key, kernel);
  *(status == FT_OK ? &store->hits : &store->misses) += 1;
  ft_store_leave(store);
  return status;
}

int ft_store_kernel_by_recipe(struct ft_store *store, const struct ft_digest *recipe,
                              const struct ft_digest *key, struct ft_kernel *kernel) {
  ft_store_enter(store);
  const int status = find_by_recipe(store, recipe, key, kernel);
  store->hits += status == FT_OK; /* a miss is followed by another look-up, which counts */
  ft_store_leave(store);
  return status;
}

int ft_store_kernel_put(struct ft_store *store, const struct ft_kernel *kernel) {
  ft_store_enter(store);
  const int status = put(store, kernel);
  ft_store_leave(store);
  return status;
}

/* Within a transaction, which it ends. */
static int forget_in(struct ft_database *database, const struct ft_digest *key) {
  sqlite3_stmt *statement = NULL;
  int status = ft_database_prepare(database, "DELETE FROM kernels WHERE key = ?1", &statement);
  if (status == FT_OK) status = ft_database_bound(database, ft_bind_digest(statement, 1, key));
  if (status == FT_OK) status = ft_database_run(database, statement, "a kernel cannot be deleted");
  if (status == FT_OK) return ft_database_commit(database);
  ft_database_rollback(database);
  return status;
}

static int forget_in_user_file(struct ft_store *store, const struct ft_digest *key) {
  struct ft_database *user = ft_store_user(store, FT_KIND_KERNELS, false);
  if (!user) return FT_OK;
  FT_TRY(ft_store_begin(store, FT_KIND_KERNELS, &user));
  const int status = forget_in(user, key);
  if (status == FT_E_CACHE) ft_store_report(store, user, FT_FAULT_WRITE);
  return status;
}

/* Layers are not ours to change: there the kernel is passed over for as long as the store lives. */
static int forget_in_layers(struct ft_store *store, const struct ft_digest *key) {
  if (store->layer_count == 0 || is_forgotten(store, key)) return FT_OK;
  struct ft_digest *const grown =
      realloc(store->forgotten, (store->forgotten_count + 1) * sizeof *grown);
  if (!grown) return ft_fail(FT_E_MEMORY, "no memory to forget a kernel");
  grown[store->forgotten_count++] = *key;
  store->forgotten = grown;
  return FT_OK;
}

int ft_store_kernel_forget(struct ft_store *store, const struct ft_digest *key) {
  ft_store_enter(store);
  int status = forget_in_layers(store, key);
  const int forgot = forget_in_user_file(store, key);
  if (forgot != FT_OK) status = forgot;
  if (store->memory.handle) {
    int in_memory = ft_database_begin(&store->memory, 0);
    if (in_memory == FT_OK) in_memory = forget_in(&store->memory, key);
    if (in_memory != FT_OK) status = in_memory;
  }
  ft_store_leave(store);
  return status;
}
