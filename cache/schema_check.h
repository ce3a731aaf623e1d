/* schema_check.h: a file of others has the tables and indexes of its version, and nothing else.
 * in -> out: an open file -> FT_OK, or what is in it that does not belong there. */
#ifndef CACHE_SCHEMA_CHECK_H
#define CACHE_SCHEMA_CHECK_H

#include "cache/database.h"

/* Compares the SQL of all tables, indexes, views and triggers with that of the version, by the
 * digest of all their bytes: an expression in a schema (of a generated column, an index, a view, a
 * trigger) would be run by looking at a row. To be called before anything else is read. FT_E_CACHE.
 */
int ft_schema_check(struct ft_database *database, int version);

/* What a file of others may ask of SQLite: rows no longer than the file, and no statement of more
 * steps than a file of `bytes` bytes can need. Past that the file is not read any more. */
void ft_database_restrict(struct ft_database *database, int64_t bytes);

#endif
