/* store_proof.c: are the recipes of a file right?
 * in -> out: a file's trials -> what this library emits for them -> the recipes that are proved. */
#include <stdlib.h>

#include "cache/rows.h"
#include "cache/schema.h"
#include "cache/store_parts.h"
#include "generator/status.h"

int ft_store_derive(struct ft_store *store, const struct ft_trial *trial, struct ft_digest *recipe,
                    struct ft_digest *source) {
  char target[16];
  if (!store->derive) return ft_fail(FT_E_NOT_FOUND, "nothing is emitted here");
  ft_device_target(trial->device, target);
  const int status = store->derive(store->deriver, trial, target, recipe, source);
  return status == FT_OK || status == FT_E_MEMORY ? status : FT_E_NOT_FOUND;
}

bool ft_proof_has(const struct ft_proof *proof, const struct ft_digest *recipe) {
  for (size_t i = 0; i < proof->count; i++)
    if (ft_digest_equal(&proof->at[i].recipe, recipe)) return true;
  return false;
}

static int add(struct ft_proof *proof, const struct ft_proved *one) {
  struct ft_proved *const grown = realloc(proof->at, (proof->count + 1) * sizeof *grown);
  if (!grown) return ft_fail(FT_E_MEMORY, "no memory for a list of recipes");
  proof->at = grown;
  grown[proof->count++] = *one;
  return FT_OK;
}

/* A row that is damaged is told of elsewhere. */
static int prove(struct ft_store *store, struct ft_database *file, const struct ft_trial *trial,
                 struct ft_proof *proof) {
  struct ft_proved one;
  struct ft_digest given;
  int status = ft_store_derive(store, trial, &one.recipe, NULL);
  if (status != FT_OK) return status == FT_E_MEMORY ? status : FT_OK;
  if (ft_proof_has(proof, &one.recipe)) return FT_OK;
  status = ft_store_recipe_in(file, &one.recipe, &given);
  if (status != FT_OK) return status == FT_E_MEMORY ? status : FT_OK;
  status = ft_store_derive(store, trial, &one.recipe, &one.source);
  if (status != FT_OK) return status == FT_E_MEMORY ? status : FT_OK;
  proof->wrong += !ft_digest_equal(&one.source, &given);
  return add(proof, &one);
}

int ft_store_prove(struct ft_store *store, struct ft_database *file, struct ft_proof *proof) {
  sqlite3_stmt *statement = NULL;
  int64_t recipes = 0;
  int code = SQLITE_DONE, status = FT_OK;
  *proof = (struct ft_proof){.at = NULL};
  if (!store->derive || file->version < FT_SCHEMA_WITH_RECIPES) return FT_OK;
  FT_TRY(ft_database_number(file, "SELECT count(*) FROM recipes", &recipes));
  if (recipes == 0) return FT_OK;
  FT_TRY(
      ft_database_prepare(file, "SELECT " FT_TRIAL_COLUMNS " FROM trials ORDER BY id", &statement));
  while (status == FT_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
    struct ft_trial trial;
    struct ft_digest identity;
    status = ft_row_read_trial(statement, &trial, &identity);
    if (status == FT_OK) status = prove(store, file, &trial, proof);
    if (status != FT_E_MEMORY) status = FT_OK;
  }
  if (status == FT_OK && code != SQLITE_DONE)
    status = ft_database_fail(file, "trials cannot be read");
  ft_database_done(statement);
  return status;
}
