/* store_recipes.c: which source a recipe gives.
 * in -> out: recipe -> digest of the source whose text it stands for; the newest RECIPES_MOST. */
#include <string.h>

#include "cache/rows.h"
#include "cache/store_parts.h"
#include "generator/status.h"

#define RECIPES_MOST "4096"

static const char GET[] = "SELECT source, identity FROM recipes WHERE recipe = ?1";
static const char PUT[] =
    "INSERT OR REPLACE INTO recipes (recipe, source, identity) VALUES (?1, ?2, ?3)";
static const char TRIM[] = "DELETE FROM recipes WHERE id <= ?1 - " RECIPES_MOST;

static struct ft_digest identity_of(const struct ft_digest *recipe,
                                    const struct ft_digest *source) {
  struct ft_hasher hasher;
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "recipe", recipe->bytes, sizeof recipe->bytes);
  ft_hasher_section(&hasher, "source", source->bytes, sizeof source->bytes);
  return ft_hasher_final(&hasher);
}

static bool column_digest(sqlite3_stmt *row, int column, struct ft_digest *digest) {
  const void *const bytes = sqlite3_column_blob(row, column);
  if (!bytes || sqlite3_column_bytes(row, column) != FT_DIGEST_BYTES) return false;
  memcpy(digest->bytes, bytes, FT_DIGEST_BYTES);
  return true;
}

/* A damaged row is a miss; the next put replaces it. */
static bool take_row(sqlite3_stmt *row, const struct ft_digest *recipe, struct ft_digest *source) {
  struct ft_digest identity;
  if (sqlite3_step(row) != SQLITE_ROW) return false;
  if (!column_digest(row, 0, source) || !column_digest(row, 1, &identity)) return false;
  const struct ft_digest expected = identity_of(recipe, source);
  return ft_digest_equal(&identity, &expected);
}

/* A user file of the first version on a read-only medium has no such table. */
static bool find_in(struct ft_database *database, const struct ft_digest *recipe,
                    struct ft_digest *source) {
  sqlite3_stmt *statement = NULL;
  bool found = false;
  if (ft_database_prepare(database, GET, &statement) == FT_OK &&
      ft_bind_digest(statement, 1, recipe) == SQLITE_OK)
    found = take_row(statement, recipe, source);
  ft_database_done(statement);
  return found;
}

/* Within a transaction. */
static int put_into(struct ft_database *database, const struct ft_digest *recipe,
                    const struct ft_digest *source) {
  const struct ft_digest identity = identity_of(recipe, source);
  sqlite3_stmt *statement = NULL;
  FT_TRY(ft_database_prepare(database, PUT, &statement));
  int failed = ft_bind_digest(statement, 1, recipe);
  failed |= ft_bind_digest(statement, 2, source);
  failed |= ft_bind_digest(statement, 3, &identity);
  int status = ft_database_bound(database, failed);
  if (status == FT_OK) status = ft_database_run(database, statement, "a recipe cannot be written");
  ft_database_done(statement);
  FT_TRY(status);
  FT_TRY(ft_database_prepare(database, TRIM, &statement));
  sqlite3_bind_int64(statement, 1, sqlite3_last_insert_rowid(database->handle));
  status = ft_database_run(database, statement, "recipes cannot be deleted");
  ft_database_done(statement);
  return status;
}

int ft_store_recipe_get(struct ft_store *store, const struct ft_digest *recipe,
                        struct ft_digest *source) {
  ft_store_enter(store);
  struct ft_database *const user = ft_store_user(store, FT_KIND_KERNELS, false);
  const bool found = (user && find_in(user, recipe, source)) ||
                     (store->memory.handle && find_in(&store->memory, recipe, source));
  ft_store_leave(store);
  return found ? FT_OK : ft_fail(FT_E_NOT_FOUND, "the recipe is not known");
}

void ft_store_recipe_put(struct ft_store *store, const struct ft_digest *recipe,
                         const struct ft_digest *source) {
  ft_store_enter(store);
  struct ft_database *into = ft_store_user(store, FT_KIND_KERNELS, false);
  if (!into || !into->writable) into = ft_store_memory(store);
  if (into && ft_database_begin(into, 0) == FT_OK) {
    if (put_into(into, recipe, source) == FT_OK)
      ft_database_commit(into);
    else
      ft_database_rollback(into);
  }
  ft_store_leave(store);
}
