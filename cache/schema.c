/* schema.c: the tables of every file of fatune: tuning.db, kernels.db, system layers, exports.
 * in -> out: version -> SQL that leads there from the version before.
 *
 * One schema for all: tuning.db leaves `kernels` empty and kernels.db leaves `trials` empty. A step
 * that was released is never edited: files of it exist. A step makes a table or an index more: a
 * file that says it is newer, and has none more, is taken for a damaged one (store_verify.c).
 *
 * Version log (PRAGMA user_version):
 *   1  first version: trials, kernels
 *   2  recipes: which source a recipe (generator/recipe.h) gives */
#include "cache/schema.h"

#include <stddef.h>

static const char *const steps[FT_SCHEMA_VERSION] = {
    "CREATE TABLE trials ("
    "  id INTEGER PRIMARY KEY,"
    "  identity BLOB NOT NULL UNIQUE," /* digest of text */
    "  bucket TEXT NOT NULL," /* from here to templates: copies out of text, to search by */
    "  class TEXT NOT NULL,"  /* kernel class of the bucket */
    "  device TEXT NOT NULL,"
    "  target TEXT NOT NULL,"
    "  policy TEXT NOT NULL,"
    "  outcome TEXT NOT NULL,"
    "  at INTEGER NOT NULL,"
    "  templates BLOB NOT NULL,"
    "  text TEXT NOT NULL" /* the trial in its text form; the only part that is read back */
    ");"
    "CREATE INDEX trials_by_bucket ON trials (bucket, device, outcome);"
    "CREATE INDEX trials_by_class ON trials (class, target, outcome, bucket, device, policy);"
    "CREATE TABLE kernels ("
    "  id INTEGER PRIMARY KEY," /* rising: the newest kernel of a source has the greatest */
    "  key BLOB NOT NULL UNIQUE,"
    "  source BLOB NOT NULL,"
    "  target TEXT NOT NULL,"
    "  used INTEGER NOT NULL,"  /* in seconds since 1970; the oldest goes first */
    "  identity BLOB NOT NULL," /* digest of text and log; text holds the digest of image */
    "  text TEXT NOT NULL,"     /* the kernel in its text form */
    "  log TEXT,"
    "  image BLOB NOT NULL" /* last: the columns before it are read without touching it */
    ");"
    "CREATE INDEX kernels_by_source ON kernels (source);"
    "PRAGMA application_id = 1178686549;" /* FT_APPLICATION_ID */
    "PRAGMA user_version = 1;",
    "CREATE TABLE recipes ("
    "  id INTEGER PRIMARY KEY," /* rising: the oldest goes first */
    "  recipe BLOB NOT NULL UNIQUE,"
    "  source BLOB NOT NULL,"
    "  identity BLOB NOT NULL" /* digest of recipe and source */
    ");"
    "PRAGMA user_version = 2;",
};

/* BLAKE2b-256 of what SQLite has in sqlite_schema after the step, as schema_check.c lists it. */
static const char *const digests[FT_SCHEMA_VERSION] = {
    "9cc6584c84b6d7eb069fce7bb3af5575d6f35b059fbbefad3d90268688b4eff0",
    "01e5d62df060fc427d7c8b521c78695655cd45faf06e7f55d5802f31453f191e",
};

const char *ft_schema_digest(int version) {
  return digests[version - 1];
}

const char *ft_schema_step(int version) {
  return steps[version - 1];
}
