/* store_verify.c: are the stores sound? Damage is told from what cannot be reached, and mended.
 * in -> out: every row and every page -> a verdict; a damaged user file -> its sound rows. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/folders.h"
#include "cache/rows.h"
#include "cache/schema.h"
#include "cache/store_parts.h"
#include "generator/status.h"

/* Of one file. */
struct check {
  struct ft_database *database;
  int64_t checked, damaged;
  bool broken;  /* more than single rows: pages, the header, the schema */
  bool foreign; /* it lies where ours should, and is not for us to change */
  int64_t *ids; /* of damaged kernels; owned */
  size_t id_count;
};

/* -- rows ----------------------------------------------------------------------------------- */

static int note_damage(struct check *check, int64_t id) {
  int64_t *const grown = realloc(check->ids, (check->id_count + 1) * sizeof *grown);
  check->damaged++;
  if (!grown) return ft_fail(FT_E_MEMORY, "no memory for a list of damaged kernels");
  check->ids = grown;
  grown[check->id_count++] = id;
  return FT_OK;
}

static int check_kernel(struct check *check, sqlite3_stmt *row) {
  struct ft_kernel kernel;
  int status = ft_row_read_kernel(row, &kernel);
  check->checked++;
  if (status == FT_OK) {
    status = ft_row_check_kernel(row, &kernel);
    ft_kernel_free(&kernel);
  }
  if (status == FT_E_CACHE) return note_damage(check, sqlite3_column_int64(row, 7));
  return status == FT_E_MEMORY ? status : FT_OK;
}

static int check_trial(struct check *check, sqlite3_stmt *row) {
  struct ft_trial trial;
  struct ft_digest identity;
  int status = ft_row_read_trial(row, &trial, &identity);
  if (status == FT_OK) status = ft_row_check_trial(row, &trial);
  check->checked++;
  if (status == FT_E_NOT_FOUND) ft_store_skip(check->database, &identity);
  if (status == FT_E_CACHE) check->damaged++;
  return status == FT_E_MEMORY ? status : FT_OK;
}

/* A failure of content is a finding; any other ends the check. */
static int find(struct check *check, int status) {
  if (status != FT_E_CACHE || !ft_database_is_damaged(check->database)) return status;
  check->damaged++;
  check->broken = true;
  return FT_OK;
}

static int check_rows(struct check *check, const char *sql,
                      int (*check_row)(struct check *, sqlite3_stmt *)) {
  sqlite3_stmt *statement = NULL;
  int code = SQLITE_DONE;
  const int prepared = ft_database_prepare(check->database, sql, &statement);
  if (prepared != FT_OK) return find(check, prepared);
  int status = FT_OK;
  while (status == FT_OK && (code = sqlite3_step(statement)) == SQLITE_ROW)
    status = check_row(check, statement);
  if (status == FT_OK && code != SQLITE_DONE)
    status = find(check, ft_database_fail(check->database, "cannot be read"));
  ft_database_done(statement);
  return status;
}

/* -- files ---------------------------------------------------------------------------------- */

/* Is one of the statements, each ended by ';', among the expected ones? Splits `own`. */
static bool shares_one(char *own, const char *expected) {
  for (char *one = strsep(&own, ";"); one; one = strsep(&own, ";"))
    if (one[0] && strstr(expected, one)) return true;
  return false;
}

/* How the tables and indexes of a file compare with those that this version makes. */
struct likeness {
  bool same;  /* all of them */
  bool alike; /* at least one */
  bool more;  /* it has more of them */
};

static int count_statements(const char *schema) {
  int count = 0;
  for (; *schema; schema++) count += *schema == ';';
  return count;
}

static int compare_schema(struct ft_database *database, struct likeness *likeness) {
  struct ft_database model = {0};
  struct ft_text own = FT_TEXT_INIT, expected = FT_TEXT_INIT;
  *likeness = (struct likeness){.same = false};
  int status = ft_database_open(&model, NULL, FT_DATABASE_MEMORY);
  if (status == FT_OK) status = ft_database_schema(&model, &expected);
  if (status == FT_OK) status = ft_database_schema(database, &own);
  if (status == FT_OK && own.data) {
    likeness->same = strcmp(own.data, expected.data) == 0;
    likeness->more = count_statements(own.data) > count_statements(expected.data);
    likeness->alike = likeness->same || shares_one(own.data, expected.data);
  }
  ft_database_close(&model);
  ft_text_free(&own);
  ft_text_free(&expected);
  return status;
}

static int check_schema(struct check *check) {
  struct likeness likeness;
  const int status = compare_schema(check->database, &likeness);
  if (status != FT_OK) return find(check, status);
  if (likeness.same) return FT_OK;
  check->damaged++;
  check->broken = true;
  return FT_OK;
}

/* Without a sound schema there is nothing to read rows by. */
static int check_database(struct ft_database *database, struct check *check) {
  check->database = database;
  FT_TRY(check_schema(check));
  if (check->broken) return FT_OK;
  FT_TRY(find(check, ft_database_check(database, false)));
  FT_TRY(check_rows(check,
                    "SELECT " FT_KERNEL_COLUMNS FT_KERNEL_COPIES ", id FROM kernels ORDER BY id",
                    check_kernel));
  return check_rows(check, "SELECT " FT_TRIAL_COLUMNS FT_TRIAL_COPIES " FROM trials ORDER BY id",
                    check_trial);
}

/* A database that was refused by what its header says. It is ours and damaged if it says it is ours
 * and lacks something, or has a table of ours under another name, or a version that no fatune will
 * have. A newer one has other tables, or ours and more. */
static int is_ours(struct ft_database *look, bool *ours) {
  enum { VERSIONS_TO_COME = 100 };
  int64_t application = 0, version = 0;
  struct likeness likeness;
  FT_TRY(ft_database_number(look, "PRAGMA application_id", &application));
  FT_TRY(ft_database_number(look, "PRAGMA user_version", &version));
  FT_TRY(compare_schema(look, &likeness));
  const bool newer = version > FT_SCHEMA_VERSION && version <= FT_SCHEMA_VERSION + VERSIONS_TO_COME;
  const bool grown = newer && !likeness.same && (likeness.more || !likeness.alike);
  *ours = application == FT_APPLICATION_ID ? !grown : likeness.alike;
  return FT_OK;
}

/* Why did the user's file not open? FT_OK: *check says. Any other status: it could not be reached.
 */
static int check_refused(struct ft_user_file *file, struct check *check, int why) {
  const char *const path = file->path;
  struct ft_database look = {0};
  bool ours = false;
  if (ft_database_is_damaged(&file->database)) return find(check, why);
  if (why != FT_E_CACHE || file->database.code != SQLITE_OK) return why;
  int status = ft_file_check(path);
  if (status == FT_E_IO) return why;
  check->damaged++;
  if (status != FT_OK) { /* a link, a pipe, a file of others */
    check->foreign = true;
    return FT_OK;
  }
  status = ft_database_open(&look, path, FT_DATABASE_LOOK);
  if (status == FT_OK) status = is_ours(&look, &ours);
  if (status != FT_OK && (ft_database_is_damaged(&look) || look.code == SQLITE_ERROR)) {
    status = FT_OK;
    ours = true; /* nobody can use it as it is */
  }
  ft_database_close(&look);
  check->broken = ours;
  check->foreign = !ours;
  return status;
}

static int check_user(struct ft_store *store, enum ft_kind kind, struct check *check) {
  struct ft_user_file *const file = &store->user[kind];
  struct ft_database *database = NULL;
  check->database = &file->database;
  const int status = ft_store_try_user(store, kind, &database);
  if (status == FT_E_NOT_FOUND) return FT_OK;
  if (status == FT_OK) return check_database(database, check);
  return check_refused(file, check, status);
}

/* -- repair --------------------------------------------------------------------------------- */

static int delete_kernels(struct ft_database *database, const struct check *check) {
  sqlite3_stmt *statement = NULL;
  FT_TRY(ft_database_begin(database, 30000));
  int status = FT_OK;
  for (size_t i = 0; status == FT_OK && i < check->id_count; i++) {
    status = ft_database_prepare(database, "DELETE FROM kernels WHERE id = ?1", &statement);
    if (status != FT_OK) break;
    sqlite3_bind_int64(statement, 1, check->ids[i]);
    status = ft_database_run(database, statement, "a damaged kernel cannot be deleted");
  }
  if (status == FT_OK) return ft_database_commit(database);
  ft_database_rollback(database);
  return status;
}

/* Kernels can be compiled again, so single damaged ones of a sound file are deleted. Of trials the
 * file as it was is kept. */
static int repair_user(struct ft_store *store, enum ft_kind kind, const struct check *check,
                       struct ft_store_verdict *verdict) {
  struct ft_user_file *const file = &store->user[kind];
  const bool rows_alone = !check->broken && kind == FT_KIND_KERNELS;
  if (rows_alone && (int64_t)check->id_count == check->damaged) {
    if (!file->database.writable) return ft_fail(FT_E_CACHE, "'%s' is read-only", file->path);
    return delete_kernels(&file->database, check);
  }
  ft_database_close(&file->database);
  FT_TRY(ft_store_mend(file->path, &verdict->mended[kind].saved, &verdict->mended[kind].kept));
  file->retry_at = 0;
  return FT_OK;
}

static int verify_user(struct ft_store *store, enum ft_kind kind, bool repair,
                       struct ft_store_verdict *verdict) {
  struct check check = {0};
  int status = FT_OK;
  if (!store->user[kind].path) return FT_OK;
  status = check_user(store, kind, &check);
  const bool mends = repair && check.damaged > 0 && !check.foreign;
  if (status == FT_OK && mends) status = repair_user(store, kind, &check, verdict);
  verdict->checked += check.checked;
  verdict->damaged += check.damaged;
  if (!mends || status != FT_OK) verdict->left += check.damaged;
  free(check.ids);
  return status;
}

static int verify_other(struct ft_database *database, struct ft_store_verdict *verdict) {
  struct check check = {0};
  const int status = check_database(database, &check);
  verdict->checked += check.checked;
  verdict->damaged += check.damaged;
  verdict->left += check.damaged;
  free(check.ids);
  return status;
}

int ft_store_verify(struct ft_store *store, bool repair, struct ft_store_verdict *verdict) {
  *verdict = (struct ft_store_verdict){0};
  ft_store_enter(store);
  int status = verify_user(store, FT_KIND_KERNELS, repair, verdict);
  if (status == FT_OK) status = verify_user(store, FT_KIND_TUNING, repair, verdict);
  if (status == FT_OK && store->memory.handle) status = verify_other(&store->memory, verdict);
  for (int i = 0; status == FT_OK && i < store->layer_count; i++)
    status = verify_other(&store->layers[i], verdict);
  ft_store_tell_skipped(store);
  ft_store_leave(store);
  /* All that is left of FT_E_CACHE here is what could not be read or written. */
  return status == FT_E_CACHE ? ft_fail(FT_E_IO, "%s", ft_detail()) : status;
}

void ft_store_verdict_free(struct ft_store_verdict *verdict) {
  for (int kind = 0; kind < FT_KINDS; kind++) free(verdict->mended[kind].kept);
  *verdict = (struct ft_store_verdict){0};
}
