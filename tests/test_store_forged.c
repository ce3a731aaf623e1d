/* test_store_forged.c: bundles made to deceive; nothing of them is served.
 * in -> out: a good bundle, which is served; the same one forged in many ways, which is not ->
 * Check suite. */
#include <time.h>

#include "cache/database.h"
#include "tests/suites.h"
#include "tests/trust_lab.h"

static struct trust_lab lab;

static void set_up(void) {
  trust_lab_open(&lab);
}

static void tear_down(void) {
  trust_lab_close(&lab);
}

/* -- of the signature ----------------------------------------------------------------------- */

static void change_file(const char *path, size_t at, unsigned char by) {
  struct bytes bytes = read_bytes(path);
  ck_assert_uint_lt(at, bytes.size);
  bytes.data[at] ^= by;
  write_bytes(path, bytes.data, bytes.size);
  free(bytes.data);
}

/* Replaces the n-th line of the signature file, or with NULL drops it and those after it. */
static void change_line(int n, const char *by) {
  struct bytes bytes = read_bytes(lab.signature);
  struct ft_text text = FT_TEXT_INIT;
  bytes.data[bytes.size] = '\0';
  char *rest = (char *)bytes.data;
  for (int i = 0; rest && *rest; i++) {
    char *const line = strsep(&rest, "\n");
    if (i == n && !by) break;
    ft_text_add(&text, "%s\n", i == n ? by : line);
  }
  write_bytes(lab.signature, text.data, text.length);
  ft_text_free(&text);
  free(bytes.data);
}

/* Flips bits of the base64 text such that it stays base64. */
static void change_letter(int n, int letter) {
  struct bytes bytes = read_bytes(lab.signature);
  char *line = (char *)bytes.data;
  bytes.data[bytes.size] = '\0';
  while (n-- > 0) line = strchr(line, '\n') + 1;
  line[letter] = line[letter] == 'A' ? 'B' : 'A';
  write_bytes(lab.signature, bytes.data, bytes.size);
  free(bytes.data);
}

static void no_signature(void) {
  ck_assert_int_eq(unlink(lab.signature), 0);
}
static void untrusted_key(void) {
  trust_lab_sign(&lab, &lab.stranger);
}
static void key_id_of_another(void) {
  memcpy(lab.stranger.id, lab.trusted.id, sizeof lab.trusted.id);
  trust_lab_sign(&lab, &lab.stranger);
}
static void key_gone(void) {
  ck_assert_int_eq(unlink(lab.key_file), 0);
}
static void key_that_others_can_change(void) {
  ck_assert_int_eq(chmod(lab.key_file, 0646), 0);
}
static void signature_changed(void) {
  change_letter(1, 40);
}
static void key_id_changed(void) {
  change_letter(1, 5);
}
static void second_signature_changed(void) {
  change_letter(3, 40);
}
static void comment_changed(void) {
  change_line(2, "trusted comment: a hundred kernels for sm_90");
}
static void comment_gone(void) {
  change_line(2, NULL);
}
static void line_more(void) {
  FILE *const file = fopen(lab.signature, "ab");
  fputs("one line more\n", file);
  fclose(file);
}
static void old_algorithm(void) {
  change_letter(1, 2); /* "RUR" of "ED" becomes another two letters */
}
static void endless_signature(void) {
  ck_assert_int_eq(truncate(lab.signature, INT64_C(1) << 40), 0);
}
static void byte_changed(void) {
  struct bytes bytes = read_bytes(lab.bundle);
  const unsigned char *const at =
      memmem(bytes.data, bytes.size, (char *)lab.kernels[0].image + 100, 64);
  ck_assert_ptr_nonnull(at);
  change_file(lab.bundle, (size_t)(at - bytes.data), 1);
  free(bytes.data);
}
static void cut_short(void) {
  struct bytes bytes = read_bytes(lab.bundle);
  ck_assert_int_eq(truncate(lab.bundle, (off_t)bytes.size - 8192), 0);
  free(bytes.data);
}
static void made_longer(void) {
  struct bytes bytes = read_bytes(lab.bundle);
  ck_assert_int_eq(truncate(lab.bundle, (off_t)bytes.size + 8192), 0);
  free(bytes.data);
}
static void rows_more(void) {
  run_sql(lab.bundle, "UPDATE kernels SET used = 1");
}
static int first_row(void) {
  char query[256], key[FT_DIGEST_HEX];
  ft_digest_hex(&lab.kernels[0].key, key);
  snprintf(query, sizeof query, "SELECT id FROM kernels WHERE key = x'%s'", key);
  return (int)number_of(lab.bundle, query);
}
/* Sound in itself: the image is another one, and all digests are renewed. */
static void image_forged(void) {
  char old[FT_DIGEST_HEX], new[FT_DIGEST_HEX], sql[160];
  unsigned char zeros[20000] = {0};
  const struct ft_digest digest = ft_digest_of(zeros, sizeof zeros);
  ft_digest_hex(&lab.kernels[0].image_digest, old);
  ft_digest_hex(&digest, new);
  const int row = first_row();
  snprintf(sql, sizeof sql, "UPDATE kernels SET image = zeroblob(20000) WHERE id = %d", row);
  run_sql(lab.bundle, sql);
  trust_lab_forge_text(lab.bundle, row, old, new);
}
static void signature_of_another(void) {
  const struct bytes good = read_bytes(lab.bundle);
  rows_more();
  trust_lab_sign(&lab, &lab.trusted);
  write_bytes(lab.bundle, good.data, good.size);
  free(good.data);
}

/* -- of the place --------------------------------------------------------------------------- */

static void file_of_the_group(void) {
  ck_assert_int_eq(chmod(lab.bundle, 0664), 0);
}
static void file_of_everybody(void) {
  ck_assert_int_eq(chmod(lab.bundle, 0646), 0);
}
static void folder_of_the_group(void) {
  ck_assert_int_eq(chmod(lab.layers, 0775), 0);
}
static void folder_of_everybody_above(void) {
  ck_assert_int_eq(chmod(lab.fixture.root, 0707), 0);
}
static void file_of_another(void) {
  ck_assert_int_eq(chown(lab.bundle, 12345, 12345), 0);
}
static void folder_of_another(void) {
  ck_assert_int_eq(chown(lab.layers, 12345, 12345), 0);
}
static void make_link(char target[160]) {
  snprintf(target, 160, "%s/aside", lab.fixture.root);
  ck_assert_int_eq(mkdir(target, 0755), 0);
  strcat(target, "/real.fatune");
  ck_assert_int_eq(rename(lab.bundle, target), 0);
  ck_assert_int_eq(symlink(target, lab.bundle), 0);
}
static void link_of_another(void) {
  char target[160];
  make_link(target);
  ck_assert_int_eq(lchown(lab.bundle, 12345, 12345), 0);
}
static void link_to_a_folder_of_everybody(void) {
  char target[160];
  make_link(target);
  *strrchr(target, '/') = '\0';
  ck_assert_int_eq(chmod(target, 0777), 0);
}
static void pipe_in_its_place(void) {
  ck_assert_int_eq(unlink(lab.bundle), 0);
  ck_assert_int_eq(mkfifo(lab.bundle, 0600), 0);
}

/* -- of the content: read by whoever reads every file --------------------------------------- */

static void sql(const char *text) {
  run_sql(lab.bundle, text);
}
static void right_source_wrong_key(void) {
  const struct ft_digest other = dice_digest(&lab.fixture.dice);
  char key[FT_DIGEST_HEX], forged[FT_DIGEST_HEX], text[256];
  ft_digest_hex(&lab.kernels[0].key, key);
  ft_digest_hex(&other, forged);
  trust_lab_forge_text(lab.bundle, first_row(), key, forged);
  snprintf(text, sizeof text, "UPDATE kernels SET key = x'%s' WHERE key = x'%s'", forged, key);
  lab.kernels[0].key = other; /* asked for by this key, too, it is not served */
  sql(text);
}
static void right_key_wrong_compiler(void) {
  trust_lab_forge_text(lab.bundle, first_row(), "nvrtc=13", "nvrtc=12");
}
static void key_of_another_row(void) {
  char text[256], keys[2][FT_DIGEST_HEX];
  for (int i = 0; i < 2; i++) ft_digest_hex(&lab.kernels[i].key, keys[i]);
  snprintf(text, sizeof text,
           "DELETE FROM kernels WHERE key = x'%s'; UPDATE kernels SET key = x'%s'", keys[0],
           keys[0]);
  sql(text);
}
static void image_of_another_row(void) {
  sql("UPDATE kernels SET image = (SELECT image FROM kernels ORDER BY id DESC LIMIT 1)"
      "WHERE id = (SELECT min(id) FROM kernels);"
      "UPDATE kernels SET image = zeroblob(20000) WHERE id = (SELECT max(id) FROM kernels)");
}
static void image_too_long(void) {
  sql("UPDATE kernels SET image = zeroblob(67108865)");
}
static void image_empty(void) {
  sql("UPDATE kernels SET image = x''");
}
static void negative_size(void) {
  trust_lab_forge_text(lab.bundle, first_row(), "size=", "size=-");
}
static void huge_size(void) {
  trust_lab_forge_text(lab.bundle, first_row(), "size=", "size=99999999999999");
}
static void with_a_trigger(void) {
  sql("CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM kernels; END");
}
static void with_a_view(void) {
  sql("CREATE VIEW seen AS SELECT load_extension('evil')");
}
static void view_for_a_table(void) {
  sql("ALTER TABLE kernels RENAME TO k; CREATE VIEW kernels AS SELECT * FROM k");
}
#define SLOW "(length(replace(hex(zeroblob(30000000)), '0', 'ab')))"
static void generated_column(void) {
  sql("ALTER TABLE kernels ADD COLUMN more INTEGER AS (id + 1) VIRTUAL");
}
static void generated_log(void) {
  sql("ALTER TABLE kernels RENAME COLUMN log TO old; ALTER TABLE kernels ADD COLUMN log TEXT "
      "AS " SLOW " VIRTUAL");
}
static void index_of_an_expression(void) {
  sql("CREATE INDEX slow ON kernels (lower(hex(key)))");
}
static void partial_index(void) {
  sql("CREATE INDEX some ON kernels (key) WHERE id > 0");
}
static void table_more(void) {
  sql("CREATE TABLE more (x)");
}
static void no_tables(void) {
  sql("DROP TABLE trials; DROP TABLE kernels; DROP TABLE recipes");
}
static void tables_without_end(void) {
  for (int i = 0; i < 200; i++) {
    char text[64];
    snprintf(text, sizeof text, "CREATE TABLE t%d (x)", i);
    sql(text);
  }
}
static void column_more(void) {
  sql("ALTER TABLE trials ADD COLUMN later TEXT DEFAULT 'x'");
}
static void index_gone(void) {
  sql("DROP INDEX trials_by_class");
}
static void rows_twice(void) {
  sql("CREATE TABLE k (id INTEGER PRIMARY KEY, key BLOB NOT NULL, source BLOB NOT NULL, target "
      "TEXT "
      "NOT NULL, used INTEGER NOT NULL, identity BLOB NOT NULL, text TEXT NOT NULL, log TEXT, "
      "image "
      "BLOB NOT NULL); INSERT INTO k SELECT * FROM kernels; INSERT INTO k SELECT id + 9, key, "
      "source, target, used, identity, text, log, image FROM kernels; DROP TABLE kernels;"
      "ALTER TABLE k RENAME TO kernels; CREATE INDEX kernels_by_source ON kernels (source)");
}
static void newer_schema(void) {
  sql("PRAGMA user_version = 9");
}
static void another_application(void) {
  sql("PRAGMA application_id = 9");
}

enum { FIRST = 1, BOTH = 3 }; /* which of the kernels must not be served */
enum note {
  TOLD,
  SILENT,
  ROOT
}; /* SILENT: the row passes for one of another version, no fault. ROOT: told, and
      only root can do it */

static const struct forgery {
  void (*forge)(void);
  const char *name, *policy; /* FATUNE_TRUST of who is to be deceived */
  int must_not;
  enum note note;
} forgeries[] = {
#define FORGERY(forge, policy, must_not, note)                                                     \
  { forge, #forge, policy, must_not, note }
    FORGERY(no_signature, "signed", BOTH, TOLD),
    FORGERY(untrusted_key, "signed", BOTH, TOLD),
    FORGERY(key_id_of_another, "signed", BOTH, TOLD),
    FORGERY(key_gone, "signed", BOTH, TOLD),
    FORGERY(key_that_others_can_change, "signed", BOTH, TOLD),
    FORGERY(signature_changed, "signed", BOTH, TOLD),
    FORGERY(key_id_changed, "signed", BOTH, TOLD),
    FORGERY(second_signature_changed, "signed", BOTH, TOLD),
    FORGERY(comment_changed, "signed", BOTH, TOLD),
    FORGERY(comment_gone, "signed", BOTH, TOLD),
    FORGERY(line_more, "signed", BOTH, TOLD),
    FORGERY(old_algorithm, "signed", BOTH, TOLD),
    FORGERY(endless_signature, "signed", BOTH, TOLD),
    FORGERY(byte_changed, "signed", BOTH, TOLD),
    FORGERY(cut_short, "signed", BOTH, TOLD),
    FORGERY(made_longer, "signed", BOTH, TOLD),
    FORGERY(rows_more, "signed", BOTH, TOLD),
    FORGERY(image_forged, "signed", BOTH, TOLD),
    FORGERY(signature_of_another, "signed", BOTH, TOLD),
    FORGERY(pipe_in_its_place, "signed", BOTH, TOLD),
    FORGERY(file_of_the_group, "owner", BOTH, TOLD),
    FORGERY(file_of_everybody, "owner", BOTH, TOLD),
    FORGERY(folder_of_the_group, "owner", BOTH, TOLD),
    FORGERY(folder_of_everybody_above, "owner", BOTH, TOLD),
    FORGERY(link_to_a_folder_of_everybody, "owner", BOTH, TOLD),
    FORGERY(pipe_in_its_place, "owner", BOTH, TOLD),
    FORGERY(file_of_another, "owner", BOTH, ROOT),
    FORGERY(folder_of_another, "owner", BOTH, ROOT),
    FORGERY(link_of_another, "owner", BOTH, ROOT),
    FORGERY(right_source_wrong_key, "any", FIRST, TOLD),
    FORGERY(right_key_wrong_compiler, "any", FIRST, TOLD),
    FORGERY(negative_size, "any", FIRST, SILENT),
    FORGERY(huge_size, "any", FIRST, SILENT),
    FORGERY(key_of_another_row, "any", BOTH, TOLD),
    FORGERY(image_of_another_row, "any", BOTH, TOLD),
    FORGERY(image_too_long, "any", BOTH, TOLD),
    FORGERY(image_empty, "any", BOTH, TOLD),
    FORGERY(with_a_trigger, "any", BOTH, TOLD),
    FORGERY(with_a_view, "any", BOTH, TOLD),
    FORGERY(view_for_a_table, "any", BOTH, TOLD),
    FORGERY(generated_column, "any", BOTH, TOLD),
    FORGERY(generated_log, "any", BOTH, TOLD),
    FORGERY(index_of_an_expression, "any", BOTH, TOLD),
    FORGERY(partial_index, "any", BOTH, TOLD),
    FORGERY(table_more, "any", BOTH, TOLD),
    FORGERY(no_tables, "any", BOTH, TOLD),
    FORGERY(tables_without_end, "any", BOTH, TOLD),
    FORGERY(column_more, "any", BOTH, TOLD),
    FORGERY(index_gone, "any", BOTH, TOLD),
    FORGERY(rows_twice, "any", BOTH, TOLD),
    FORGERY(newer_schema, "any", BOTH, TOLD),
    FORGERY(another_application, "any", BOTH, TOLD),
};

enum { FORGERIES = sizeof forgeries / sizeof *forgeries };

START_TEST(nothing_forged_is_served) {
  const struct forgery *const forgery = &forgeries[_i];
  if (forgery->note == ROOT && geteuid() != 0) return; /* only root can give files away */
  if (strcmp(forgery->policy, "owner") == 0) no_signature();
  ck_assert_msg(trust_lab_served(&lab, forgery->policy) == 3,
                "the good one is not served by %s: %s", forgery->policy, lab.fixture.warnings[0]);
  assert_warnings(&lab.fixture, 0);
  forgery->forge();
  const clock_t begin = clock();
  const int served = trust_lab_served(&lab, forgery->policy);
  ck_assert_msg((served & forgery->must_not) == 0, "%s: served %d", forgery->name, served);
  /* Where nothing bounded it, one look-up took 12 s. */
  ck_assert_msg(clock() - begin < CLOCKS_PER_SEC, "%s: takes too long", forgery->name);
  assert_warnings(&lab.fixture, forgery->note == SILENT ? 0 : 1);
  if (forgery->note == SILENT) return;
  ck_assert_msg(strstr(lab.fixture.warnings[0], "sm_90.fatune") != NULL ||
                    strstr(lab.fixture.warnings[0], lab.fixture.root) != NULL,
                "%s: %s", forgery->name, lab.fixture.warnings[0]);
}
END_TEST

START_TEST(a_foreign_schema_is_told) {
  static const char *const changes[][2] = {
      {"CREATE TABLE more (x)", "(near table|more|more|CREATE TABLE more (x))"},
      {"DROP INDEX trials_by_class", "(it lacks an entry)"},
      {"DROP TABLE trials; DROP TABLE kernels; DROP TABLE recipes", "(it lacks an entry)"}};
  struct ft_database database = {0};
  sql(changes[_i][0]);
  assert_status(ft_database_open(&database, lab.bundle, FT_DATABASE_FROZEN), FT_E_CACHE);
  ck_assert_msg(strstr(ft_detail(), changes[_i][1]) != NULL, "%s", ft_detail());
}
END_TEST

/* What was checked is what is read, whatever happens to the file afterwards. */
START_TEST(a_file_changed_after_its_check_is_not_read) {
  setenv("FATUNE_TRUST", "signed", 1);
  struct ft_store *const store =
      open_store_with(&lab.fixture, (struct ft_store_options){.folder = "/nowhere/at/all",
                                                              .system_path = lab.layers});
  struct bytes bytes = read_bytes(lab.bundle);
  memset(bytes.data + 8192, 0x55, bytes.size - 8192);
  write_bytes(lab.bundle, bytes.data, bytes.size);
  free(bytes.data);
  for (int i = 0; i < 2; i++) assert_has(&lab.fixture, store, &lab.kernels[i]);
  ft_store_close(store);
  assert_warnings(&lab.fixture, 0);
}
END_TEST

/* Whatever a file makes SQLite do, it ends: and the file is not asked again. */
START_TEST(a_file_that_takes_too_long_is_given_up) {
  static const char endless[] = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
                                "SELECT count(*) FROM n";
  struct ft_database database = {0};
  sqlite3_stmt *statement;
  assert_ok(ft_database_open(&database, lab.bundle, FT_DATABASE_FROZEN));
  assert_ok(ft_database_prepare(&database, endless, &statement));
  const clock_t begin = clock();
  ck_assert_int_eq(sqlite3_step(statement) & 0xff, SQLITE_INTERRUPT);
  ck_assert_int_lt(clock() - begin, 2 * CLOCKS_PER_SEC);
  ft_database_done(statement);
  assert_status(ft_database_prepare(&database, endless, &statement), FT_E_CACHE);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "takes too long"));
  ft_database_close(&database);
}
END_TEST

Suite *make_store_forged_suite(void) {
  Suite *const suite = suite_create("store_forged");
  TCase *const tests = tcase_create("forged");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, nothing_forged_is_served, 0, FORGERIES);
  tcase_add_loop_test(tests, a_foreign_schema_is_told, 0, 3);
  tcase_add_test(tests, a_file_that_takes_too_long_is_given_up);
  tcase_add_test(tests, a_file_changed_after_its_check_is_not_read);
  suite_add_tcase(suite, tests);
  return suite;
}
