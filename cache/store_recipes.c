/* store_recipes.c: which source a recipe gives.
 * in -> out: recipe -> digest of the source whose text it stands for; the newest RECIPES_MOST. */
#include "cache/rows.h"
#include "cache/store_parts.h"
#include "generator/status.h"

#define RECIPES_MOST "4096"

/* The digest of a row that a spoilt index led to is that of another recipe than the asked one. */
static const char GET[] = "SELECT ?1, source, identity FROM recipes WHERE recipe = ?1";
static const char TRIM[] = "DELETE FROM recipes WHERE id <= ?1 - " RECIPES_MOST;

/* -- rows ----------------------------------------------------------------------------------- */

static int take_row(struct ft_database *database, sqlite3_stmt *row, struct ft_digest *source) {
  struct ft_digest recipe;
  const int code = sqlite3_step(row);
  if (code == SQLITE_DONE) return FT_E_NOT_FOUND;
  if (code != SQLITE_ROW) return ft_database_fail(database, "a recipe cannot be read");
  const int status = ft_row_read_recipe(row, &recipe, source);
  return status == FT_OK ? FT_OK : ft_fail_within(status, "%s", ft_database_name(database));
}

int ft_store_recipe_in(struct ft_database *database, const struct ft_digest *recipe,
                       struct ft_digest *source) {
  sqlite3_stmt *statement = NULL;
  FT_TRY(ft_database_prepare(database, GET, &statement));
  int status = ft_database_bound(database, ft_bind_digest(statement, 1, recipe));
  if (status == FT_OK) status = take_row(database, statement, source);
  ft_database_done(statement);
  return status;
}

int ft_store_recipe_put_in(struct ft_database *database, const struct ft_digest *recipe,
                           const struct ft_digest *source) {
  sqlite3_stmt *statement = NULL;
  FT_TRY(ft_row_put_recipe(database, recipe, source));
  FT_TRY(ft_database_prepare(database, TRIM, &statement));
  sqlite3_bind_int64(statement, 1, sqlite3_last_insert_rowid(database->handle));
  const int status = ft_database_run(database, statement, "recipes cannot be deleted");
  ft_database_done(statement);
  return status;
}

/* -- public --------------------------------------------------------------------------------- */

/* A damaged row is a miss without a word, as the next put replaces it. So is a user file of the
 * first version on a read-only medium, which has no such table. */
int ft_store_recipe_get(struct ft_store *store, const struct ft_digest *recipe,
                        struct ft_digest *source) {
  ft_store_enter(store);
  struct ft_database *const user = ft_store_user(store, FT_KIND_KERNELS, false);
  const bool found =
      (user && ft_store_recipe_in(user, recipe, source) == FT_OK) ||
      (store->memory.handle && ft_store_recipe_in(&store->memory, recipe, source) == FT_OK);
  ft_store_leave(store);
  return found ? FT_OK : ft_fail(FT_E_NOT_FOUND, "the recipe is not known");
}

void ft_store_recipe_put(struct ft_store *store, const struct ft_digest *recipe,
                         const struct ft_digest *source) {
  ft_store_enter(store);
  struct ft_database *into = ft_store_user(store, FT_KIND_KERNELS, false);
  if (!into || !into->writable) into = ft_store_memory(store);
  if (into && ft_database_begin(into, 0) == FT_OK) {
    if (ft_store_recipe_put_in(into, recipe, source) == FT_OK)
      ft_database_commit(into);
    else
      ft_database_rollback(into);
  }
  ft_store_leave(store);
}
