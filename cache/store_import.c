/* store_import.c: rows of another file into the user's: an export, or another user's stores.
 * in -> out: an untrusted file -> new rows here, or none and the reason. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache/rows.h"
#include "cache/schema.h"
#include "cache/store_parts.h"
#include "generator/status.h"

struct intake {
  struct ft_database from;
  struct ft_database *tuning, *kernels; /* one and the same when only memory is used */
  struct ft_proof proof;
  int64_t trial_count, kernel_count;
};

/* Sound rows of another version, which this one cannot read, are skipped; a damaged row damns the
 * file. */
static int take_trial(struct intake *intake, sqlite3_stmt *row) {
  struct ft_trial trial;
  struct ft_digest identity;
  bool inserted = false;
  const int status = ft_row_read_trial(row, &trial, &identity);
  if (status == FT_E_NOT_FOUND) ft_store_skip(&intake->from, &identity);
  if (status == FT_E_NOT_FOUND) return FT_OK;
  FT_TRY(status);
  FT_TRY(ft_row_put_trial(intake->tuning, &trial, &inserted));
  if (inserted) intake->trial_count++;
  return FT_OK;
}

static int take_kernel(struct intake *intake, sqlite3_stmt *row) {
  struct ft_kernel kernel;
  bool inserted = false;
  int status = ft_row_read_kernel(row, &kernel);
  if (status == FT_E_NOT_FOUND) return FT_OK;
  FT_TRY(status);
  status = ft_row_put_kernel(intake->kernels, &kernel, (int64_t)time(NULL), true, &inserted);
  if (inserted) intake->kernel_count++;
  ft_kernel_free(&kernel);
  return status;
}

/* A user's own recipes are believed without a trial beside them, so this library has emitted the
 * text of each: the others stay where they are. */
static int take_recipe(struct intake *intake, sqlite3_stmt *row) {
  struct ft_digest recipe, source;
  FT_TRY(ft_row_read_recipe(row, &recipe, &source));
  if (!ft_proof_has(&intake->proof, &recipe)) return FT_OK;
  return ft_store_recipe_put_in(intake->kernels, &recipe, &source);
}

static int take_rows(struct intake *intake, const char *sql,
                     int (*take)(struct intake *, sqlite3_stmt *)) {
  sqlite3_stmt *statement = NULL;
  int code = SQLITE_DONE;
  FT_TRY(ft_database_prepare(&intake->from, sql, &statement));
  int status = FT_OK;
  while (status == FT_OK && (code = sqlite3_step(statement)) == SQLITE_ROW)
    status = take(intake, statement);
  if (status == FT_OK && code != SQLITE_DONE)
    status = ft_database_fail(&intake->from, "cannot be read");
  ft_database_done(statement);
  return status;
}

static int take_recipes(struct intake *intake) {
  if (intake->from.version < FT_SCHEMA_WITH_RECIPES) return FT_OK;
  return take_rows(intake, "SELECT " FT_RECIPE_COLUMNS " FROM recipes ORDER BY id", take_recipe);
}

/* Kernels first: should the second commit fail, kernels without trials are harmless, while the
 * other way round the trials would name kernels that are not there. */
static int take_all(struct intake *intake) {
  const bool both = intake->kernels != intake->tuning;
  FT_TRY(ft_database_begin(intake->kernels, 30000));
  int status = both ? ft_database_begin(intake->tuning, 30000) : FT_OK;
  if (status == FT_OK)
    status =
        take_rows(intake, "SELECT " FT_KERNEL_COLUMNS " FROM kernels ORDER BY id", take_kernel);
  if (status == FT_OK) status = take_recipes(intake);
  if (status == FT_OK)
    status = take_rows(intake, "SELECT " FT_TRIAL_COLUMNS " FROM trials ORDER BY id", take_trial);
  if (status == FT_OK) status = ft_database_commit(intake->kernels);
  if (status == FT_OK && both) status = ft_database_commit(intake->tuning);
  if (status != FT_OK) {
    ft_database_rollback(intake->kernels);
    ft_database_rollback(intake->tuning);
  }
  return status;
}

static int trim(struct ft_store *store, struct ft_database *database) {
  FT_TRY(ft_database_begin(database, 30000));
  const int status = ft_store_keep_to(database, store->cap, store->cap);
  if (status == FT_OK) return ft_database_commit(database);
  ft_database_rollback(database);
  return status;
}

/* A signed file is taken from the bytes whose signature was checked. */
static int open_named(struct ft_store *store, const char *file, struct intake *intake) {
  struct ft_admission admission;
  FT_TRY(ft_trust_admit_named(&store->trust, file, &admission));
  void *const bytes = admission.bytes;
  admission.bytes = NULL; /* taken */
  const int status = bytes ? ft_database_open_bytes(&intake->from, file, bytes, admission.size)
                           : ft_database_open(&intake->from, file, FT_DATABASE_NAMED);
  ft_admission_free(&admission);
  return status;
}

/* Before anybody has to wait for what is written: a text takes milliseconds. */
static int prove(struct ft_store *store, struct intake *intake) {
  FT_TRY(ft_store_prove(store, &intake->from, &intake->proof));
  if (intake->proof.wrong == 0) return FT_OK;
  return ft_fail(FT_E_CACHE, "%lld recipes are of a text that they do not give",
                 (long long)intake->proof.wrong);
}

static int import(struct ft_store *store, const char *file, struct intake *intake) {
  if (store->unkept)
    return ft_fail(FT_E_CACHE, "FATUNE_CACHE is '%s': nothing that is taken in would be kept",
                   store->unkept);
  FT_TRY(open_named(store, file, intake));
  FT_TRY(ft_database_check(&intake->from, true));
  FT_TRY(prove(store, intake));
  if (store->memory_only) {
    intake->tuning = intake->kernels = ft_store_memory(store);
    if (!intake->tuning) return FT_E_MEMORY;
  } else {
    intake->kernels = ft_store_user(store, FT_KIND_KERNELS, true);
    if (!intake->kernels) return FT_E_CACHE;
    intake->tuning = ft_store_user(store, FT_KIND_TUNING, true);
    if (!intake->tuning) return FT_E_CACHE;
  }
  FT_TRY(take_all(intake));
  return trim(store, intake->kernels);
}

int ft_store_import(struct ft_store *store, const char *file, int64_t *trials, int64_t *kernels) {
  struct intake intake = {.trial_count = 0};
  ft_store_enter(store);
  int status = import(store, file, &intake);
  atomic_fetch_add(&store->taken_in, 1);
  ft_store_tell_skipped_in(store, &intake.from);
  ft_database_close(&intake.from);
  free(intake.proof.at);
  ft_store_leave(store);
  *trials = status == FT_OK ? intake.trial_count : 0;
  *kernels = status == FT_OK ? intake.kernel_count : 0;
  return status == FT_OK ? FT_OK : ft_fail_within(status, "taking in '%s'", file);
}

/* User files and exports have the same tables, so taking in is the same for all of them. */
int ft_store_merge(struct ft_store *store, const char *file, int64_t *trials, int64_t *kernels) {
  return ft_store_import(store, file, trials, kernels);
}
