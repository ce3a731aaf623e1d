/* schema.h: the schema of fatune files and its version.
 * in -> out: a version number -> the SQL that leads there from the version before. */
#ifndef CACHE_SCHEMA_H
#define CACHE_SCHEMA_H

enum {
  FT_APPLICATION_ID = 0x46415455, /* "FATU": how file(1) and we know our own files */
  FT_SCHEMA_VERSION = 2,
  FT_SCHEMA_WITH_RECIPES = 2 /* the first version that has them */
};

/* SQL from version - 1 to version (1 .. FT_SCHEMA_VERSION); its last statement sets user_version.
 */
const char *ft_schema_step(int version);

/* Of the entries that a file of the version has, in hexadecimal: spares writing them to compare. */
const char *ft_schema_digest(int version);

#endif
