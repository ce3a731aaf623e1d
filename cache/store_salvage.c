/* store_salvage.c: the sound rows of a damaged file, read row by row.
 * in -> out: what is left of a file -> its sound rows in another one.
 * Where a page cannot be read, the range of ids is halved until the rows beside it are found. */
#include "cache/rows.h"
#include "cache/store_parts.h"
#include "generator/status.h"

struct salvage;

struct table {
  const char *rows;    /* ?1 and ?2: first and last id */
  const char *last[2]; /* the greatest id, by the table and by an index */
  const char *insert;  /* of a row as it stands */
  int (*take)(struct salvage *salvage, sqlite3_stmt *row);
};

struct salvage {
  struct ft_database *from, *into;
  const struct table *table;
  int64_t saved;
  int64_t patience; /* reads that may still fail */
  bool whole;       /* nothing was met that could not be read */
};

/* -- rows ----------------------------------------------------------------------------------- */

/* A sound row of another version: column for column. */
static int take_as_it_stands(struct salvage *salvage, sqlite3_stmt *row) {
  sqlite3_stmt *statement = NULL;
  FT_TRY(ft_database_prepare(salvage->into, salvage->table->insert, &statement));
  const int columns = sqlite3_bind_parameter_count(statement);
  int code = SQLITE_OK;
  for (int i = 0; i < columns && code == SQLITE_OK; i++)
    code = sqlite3_bind_value(statement, i + 1, sqlite3_column_value(row, i));
  int status = ft_database_bound(salvage->into, code);
  if (status == FT_OK)
    status = ft_database_run(salvage->into, statement, "a row cannot be written");
  ft_database_done(statement);
  if (status == FT_E_CACHE && (salvage->into->code & 0xFF) == SQLITE_CONSTRAINT) {
    salvage->whole = false; /* a column that must not be NULL is */
    return FT_OK;
  }
  if (status == FT_OK) salvage->saved += sqlite3_changes(salvage->into->handle);
  return status;
}

static int take_trial(struct salvage *salvage, sqlite3_stmt *row) {
  struct ft_trial trial;
  struct ft_digest identity;
  bool inserted = false;
  int status = ft_row_read_trial(row, &trial, &identity);
  if (status == FT_E_NOT_FOUND) return take_as_it_stands(salvage, row);
  if (status == FT_OK) status = ft_row_put_trial(salvage->into, &trial, &inserted);
  salvage->saved += inserted;
  return status;
}

static int take_kernel(struct salvage *salvage, sqlite3_stmt *row) {
  enum { COLUMN_USED = 8 };
  struct ft_kernel kernel;
  bool inserted = false;
  int status = ft_row_read_kernel(row, &kernel);
  if (status == FT_E_NOT_FOUND) return take_as_it_stands(salvage, row);
  if (status != FT_OK) return status;
  status = ft_row_put_kernel(salvage->into, &kernel, sqlite3_column_int64(row, COLUMN_USED), true,
                             &inserted);
  ft_kernel_free(&kernel);
  salvage->saved += inserted;
  return status;
}

static const struct table tables[] = {
    {"SELECT " FT_KERNEL_COLUMNS ", id" FT_KERNEL_COPIES ", used FROM kernels NOT INDEXED "
     "WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
     {"SELECT max(id) FROM kernels NOT INDEXED",
      "SELECT max(id) FROM kernels INDEXED BY kernels_by_source"},
     "INSERT INTO kernels (text, identity, log, image, id, key, source, target, used) "
     "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
     take_kernel},
    {"SELECT " FT_TRIAL_COLUMNS FT_TRIAL_COPIES
     ", id FROM trials NOT INDEXED WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
     {"SELECT max(id) FROM trials NOT INDEXED",
      "SELECT max(id) FROM trials INDEXED BY trials_by_bucket"},
     "INSERT INTO trials (text, identity, bucket, class, device, target, policy, outcome, at, "
     "templates) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING",
     take_trial},
};

/* -- ranges --------------------------------------------------------------------------------- */

/* Failures of content are what a salvage is for; SQLITE_ERROR is a schema without our columns. */
static bool is_content(const struct ft_database *database) {
  const int code = database->code & 0xFF;
  return ft_database_is_damaged(database) || code == SQLITE_ERROR || code == SQLITE_TOOBIG;
}

/* Reads the ids from *low on until the end or a failure; *low is then the id after the last row. */
static int read_range(struct salvage *salvage, int64_t *low, int64_t high) {
  sqlite3_stmt *statement = NULL;
  int code = SQLITE_DONE;
  FT_TRY(ft_database_prepare(salvage->from, salvage->table->rows, &statement));
  const int id = salvage->table->take == take_kernel ? 4 : 10;
  sqlite3_bind_int64(statement, 1, *low); /* a number takes no memory */
  sqlite3_bind_int64(statement, 2, high);
  int status = FT_OK;
  while (status == FT_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
    salvage->into->code = SQLITE_OK;
    status = salvage->table->take(salvage, statement);
    if (status == FT_E_CACHE && salvage->into->code == SQLITE_OK) {
      salvage->whole = false; /* the row is damaged */
      status = FT_OK;
    }
    const int64_t at = sqlite3_column_int64(statement, id);
    if (at >= *low && at < high) *low = at + 1;
  }
  if (status == FT_OK && code != SQLITE_DONE)
    status = ft_database_fail(salvage->from, "cannot be read");
  ft_database_done(statement);
  return status;
}

static int walk(struct salvage *salvage, int64_t low, int64_t high) { // NOLINT(misc-no-recursion)
  salvage->from->code = salvage->into->code = SQLITE_OK;
  const int status = read_range(salvage, &low, high);
  if (status == FT_OK || salvage->into->code != SQLITE_OK || !is_content(salvage->from))
    return status;
  salvage->whole = false;
  if (low >= high || salvage->patience-- <= 0) return FT_OK;
  const int64_t middle = low + (high - low) / 2;
  FT_TRY(walk(salvage, low, middle));
  return walk(salvage, middle + 1, high);
}

static int last_id(struct salvage *salvage, int64_t *last) {
  *last = 0;
  for (int i = 0; i < 2; i++) {
    int64_t id = 0;
    const int status = ft_database_number(salvage->from, salvage->table->last[i], &id);
    if (status != FT_OK && !is_content(salvage->from)) return status;
    if (status != FT_OK) salvage->whole = false;
    if (status == FT_OK && id > *last) *last = id;
  }
  return FT_OK;
}

int ft_store_salvage(struct ft_database *from, struct ft_database *into, int64_t patience,
                     int64_t *saved, bool *whole) {
  struct salvage salvage = {.from = from, .into = into, .patience = patience, .whole = true};
  FT_TRY(ft_database_begin(into, 0));
  int status = FT_OK;
  for (size_t i = 0; status == FT_OK && i < sizeof tables / sizeof tables[0]; i++) {
    int64_t last = 0;
    salvage.table = &tables[i];
    status = last_id(&salvage, &last);
    if (status == FT_OK && last > 0) status = walk(&salvage, 1, last);
  }
  *whole = salvage.whole;
  if (status == FT_OK) status = ft_database_commit(into);
  if (status == FT_OK) *saved += salvage.saved;
  if (status != FT_OK) ft_database_rollback(into);
  return status;
}
