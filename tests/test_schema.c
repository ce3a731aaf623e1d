/* test_schema.c: what is written down of the schema is what SQLite makes of it.
 * in -> out: the steps of the schema -> digests of their entries -> Check suite. */
#include <sqlite3.h>

#include "cache/schema.h"
#include "generator/digest.h"
#include "generator/text.h"
#include "tests/suites.h"

/* In whatever way this SQLite writes a schema down. */
START_TEST(the_digests_of_schemas_are_those_of_files) {
  struct ft_text list = FT_TEXT_INIT;
  sqlite3 *handle = NULL;
  sqlite3_stmt *statement = NULL;
  char hex[FT_DIGEST_HEX];
  ck_assert_int_eq(sqlite3_open(":memory:", &handle), SQLITE_OK);
  for (int version = 1; version <= FT_SCHEMA_VERSION; version++) {
    ck_assert_int_eq(sqlite3_exec(handle, ft_schema_step(version), NULL, NULL, NULL), SQLITE_OK);
    sqlite3_prepare_v2(handle,
                       "SELECT group_concat(line, '') FROM (SELECT type || '|' || name || '|' || "
                       "tbl_name || '|' || coalesce(sql, '') || char(10) AS line FROM "
                       "sqlite_schema ORDER BY type, name)",
                       -1, &statement, NULL);
    ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
    ft_text_add(&list, "%s", (const char *)sqlite3_column_text(statement, 0));
    const struct ft_digest digest = ft_digest_of(list.data, list.length);
    ft_digest_hex(&digest, hex);
    ck_assert_str_eq(ft_schema_digest(version), hex);
    sqlite3_finalize(statement);
    ft_text_free(&list);
  }
  sqlite3_close(handle);
}
END_TEST

Suite *make_schema_suite(void) {
  Suite *const suite = suite_create("schema");
  TCase *const tests = tcase_create("schema");
  tcase_add_test(tests, the_digests_of_schemas_are_those_of_files);
  suite_add_tcase(suite, tests);
  return suite;
}
