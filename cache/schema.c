/* schema.c: the statements of schema.sql as strings, one per version.
 * in -> out: version -> SQL. A step that was released is never edited: files of it exist.
 *
 * Version log:
 *   1  first version: trials, kernels */
#include "cache/schema.h"

#include <stddef.h>

static const char *const steps[FT_SCHEMA_VERSION] = {
    "CREATE TABLE trials ("
    "  id INTEGER PRIMARY KEY,"
    "  identity BLOB NOT NULL UNIQUE,"
    "  bucket TEXT NOT NULL,"
    "  class TEXT NOT NULL,"
    "  device TEXT NOT NULL,"
    "  target TEXT NOT NULL,"
    "  policy TEXT NOT NULL,"
    "  outcome TEXT NOT NULL,"
    "  at INTEGER NOT NULL,"
    "  templates BLOB NOT NULL,"
    "  text TEXT NOT NULL"
    ");"
    "CREATE INDEX trials_by_bucket ON trials (bucket, device, outcome);"
    "CREATE INDEX trials_by_class ON trials (class, target, outcome, bucket, device, policy);"
    "CREATE TABLE kernels ("
    "  id INTEGER PRIMARY KEY,"
    "  key BLOB NOT NULL UNIQUE,"
    "  source BLOB NOT NULL,"
    "  target TEXT NOT NULL,"
    "  used INTEGER NOT NULL,"
    "  identity BLOB NOT NULL,"
    "  text TEXT NOT NULL,"
    "  log TEXT,"
    "  image BLOB NOT NULL"
    ");"
    "CREATE INDEX kernels_by_source ON kernels (source);"
    "PRAGMA application_id = 1178686549;"
    "PRAGMA user_version = 1;",
};

const char *ft_schema_step(int version) {
  return version >= 1 && version <= FT_SCHEMA_VERSION ? steps[version - 1] : NULL;
}
