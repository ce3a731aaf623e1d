/* store_bundle.c: a file to ship, looked through before anybody trusts it.
 * in -> out: file -> who signed it, how many rows it has, which of them are damaged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/rows.h"
#include "cache/schema.h"
#include "cache/store_parts.h"
#include "generator/status.h"

/* The file, or the bytes of it that are signed. */
static int open_bundle(struct ft_store *store, const char *file, struct ft_database *database,
                       struct ft_bundle_verdict *verdict) {
  struct ft_admission admission;
  FT_TRY(ft_trust_check_named(file));
  int status = ft_trust_check_signature(&store->trust, file, &admission);
  verdict->is_signed = status == FT_OK;
  snprintf(verdict->how, sizeof verdict->how, "%s", status == FT_OK ? admission.how : ft_detail());
  if (status == FT_E_NOT_FOUND && store->trust.policy != FT_TRUST_SIGNED)
    return ft_database_open(database, file, FT_DATABASE_NAMED);
  if (status != FT_OK) return status == FT_E_MEMORY ? status : FT_E_CACHE;
  void *const bytes = admission.bytes;
  admission.bytes = NULL; /* taken */
  status = ft_database_open_bytes(database, file, bytes, admission.size);
  ft_admission_free(&admission);
  return status;
}

static int check_kernels(struct ft_database *database, struct ft_bundle_verdict *verdict) {
  sqlite3_stmt *statement = NULL;
  int code = SQLITE_DONE, status = FT_OK;
  FT_TRY(ft_database_prepare(
      database, "SELECT " FT_KERNEL_COLUMNS FT_KERNEL_COPIES " FROM kernels ORDER BY id",
      &statement));
  while (status != FT_E_MEMORY && (code = sqlite3_step(statement)) == SQLITE_ROW) {
    struct ft_kernel kernel;
    status = ft_row_read_kernel(statement, &kernel);
    if (status == FT_OK) {
      status = ft_row_check_kernel(statement, &kernel);
      ft_kernel_free(&kernel);
    }
    verdict->kernels++;
    verdict->damaged += status == FT_E_CACHE;
  }
  if (status != FT_E_MEMORY)
    status = code == SQLITE_DONE ? FT_OK : ft_database_fail(database, "a kernel cannot be read");
  ft_database_done(statement);
  return status;
}

static int check_trials(struct ft_database *database, struct ft_bundle_verdict *verdict) {
  sqlite3_stmt *statement = NULL;
  int code = SQLITE_DONE, status = FT_OK;
  FT_TRY(ft_database_prepare(
      database, "SELECT " FT_TRIAL_COLUMNS FT_TRIAL_COPIES " FROM trials ORDER BY id", &statement));
  while (status != FT_E_MEMORY && (code = sqlite3_step(statement)) == SQLITE_ROW) {
    struct ft_trial trial;
    struct ft_digest identity;
    status = ft_row_read_trial(statement, &trial, &identity);
    if (status == FT_OK) status = ft_row_check_trial(statement, &trial);
    if (status == FT_E_NOT_FOUND) ft_store_skip(database, &identity);
    verdict->trials++;
    verdict->damaged += status == FT_E_CACHE;
  }
  if (status != FT_E_MEMORY)
    status = code == SQLITE_DONE ? FT_OK : ft_database_fail(database, "trials cannot be read");
  ft_database_done(statement);
  return status;
}

static int check_recipes(struct ft_database *database, struct ft_bundle_verdict *verdict) {
  sqlite3_stmt *statement = NULL;
  int code = SQLITE_DONE, status = FT_OK;
  if (database->version < FT_SCHEMA_WITH_RECIPES) return FT_OK;
  FT_TRY(ft_database_prepare(database, "SELECT " FT_RECIPE_COLUMNS " FROM recipes ORDER BY id",
                             &statement));
  while (status != FT_E_MEMORY && (code = sqlite3_step(statement)) == SQLITE_ROW) {
    struct ft_digest recipe, source;
    status = ft_row_read_recipe(statement, &recipe, &source);
    verdict->recipes++;
    verdict->damaged += status == FT_E_CACHE;
  }
  if (status != FT_E_MEMORY)
    status = code == SQLITE_DONE ? FT_OK : ft_database_fail(database, "recipes cannot be read");
  ft_database_done(statement);
  return status;
}

static int prove_recipes(struct ft_store *store, struct ft_database *database, int64_t *wrong) {
  struct ft_proof proof;
  const int status = ft_store_prove(store, database, &proof);
  *wrong = proof.wrong;
  free(proof.at);
  return status;
}

static int verify(struct ft_store *store, const char *file, struct ft_database *database,
                  struct ft_bundle_verdict *verdict) {
  int64_t wrong = 0;
  FT_TRY(open_bundle(store, file, database, verdict));
  FT_TRY(ft_database_check(database, false));
  FT_TRY(check_kernels(database, verdict));
  FT_TRY(check_trials(database, verdict));
  FT_TRY(check_recipes(database, verdict));
  FT_TRY(prove_recipes(store, database, &wrong));
  verdict->damaged += wrong;
  if (wrong > 0)
    return ft_fail(FT_E_CACHE, "'%s' has %lld recipes of a text that they do not give", file,
                   (long long)wrong);
  if (verdict->damaged == 0) return FT_OK;
  return ft_fail(FT_E_CACHE, "'%s' has %lld damaged rows", file, (long long)verdict->damaged);
}

int ft_store_verify_bundle(struct ft_store *store, const char *file,
                           struct ft_bundle_verdict *verdict) {
  struct ft_database database = {0};
  *verdict = (struct ft_bundle_verdict){.how = ""};
  ft_store_enter(store);
  const int status = verify(store, file, &database, verdict);
  ft_store_tell_skipped_in(store, &database);
  ft_database_close(&database);
  ft_store_leave(store);
  return status;
}
