/* store_fixture.h: what the store suites share: a folder of their own, random rows, warnings.
 * in -> out: a seed -> trials and kernels that are sound; a store's warnings -> a list to look at.
 * Functions are inline because every suite uses only some of them. */
#ifndef TESTS_STORE_FIXTURE_H
#define TESTS_STORE_FIXTURE_H

#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache/store.h"
#include "generator/families/mma_forward.h"
#include "generator/status.h"

#define CLASS_H200 "nvidia-h200/sm_90/132"
#define CLASS_H100 "nvidia-h100/sm_90/114"
#define CLASS_A100 "nvidia-a100/sm_80/108"

#define assert_ok(expression)                                                                      \
  do {                                                                                             \
    const int assert_status = (expression);                                                        \
    ck_assert_msg(assert_status == FT_OK, "%s: %d %s", #expression, assert_status, ft_detail());   \
  } while (0)

#define assert_status(expression, expected)                                                        \
  do {                                                                                             \
    const int got_status = (expression);                                                           \
    ck_assert_msg(got_status == (expected), "%s: %d, not %d; %s", #expression, got_status,         \
                  (expected), ft_detail());                                                        \
  } while (0)

/* -- random --------------------------------------------------------------------------------- */

struct dice {
  uint64_t state, seed;
};

/* FATUNE_TEST_SEED repeats a run; failures print the seed. */
static inline struct dice dice_new(void) {
  const char *const given = getenv("FATUNE_TEST_SEED");
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t seed =
      given ? strtoull(given, NULL, 10) : (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32;
  return (struct dice){seed, seed};
}

static inline uint64_t dice_bits(struct dice *dice) { /* splitmix64 */
  uint64_t z = dice->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static inline int dice_below(struct dice *dice, int limit) {
  return (int)(dice_bits(dice) % (uint64_t)limit);
}

static inline double dice_share(struct dice *dice) {
  return (double)(dice_bits(dice) >> 11) * 0x1p-53;
}

static inline struct ft_digest dice_digest(struct dice *dice) {
  const uint64_t bits = dice_bits(dice);
  return ft_digest_of(&bits, sizeof bits);
}

/* -- rows ----------------------------------------------------------------------------------- */

static inline struct ft_digest digest_of_text(const char *text) {
  return ft_digest_of(text, strlen(text));
}

static inline struct ft_kernel make_kernel(struct dice *dice, size_t size) {
  struct ft_kernel kernel = {.source = dice_digest(dice),
                             .target = "sm_90",
                             .nvrtc = "13.0.88",
                             .image = malloc(size),
                             .image_size = size,
                             .registers = dice_below(dice, 256),
                             .smem_bytes = dice_below(dice, 232448),
                             .threads = 128};
  ck_assert_ptr_nonnull(kernel.image);
  for (size_t i = 0; i < size; i++)
    ((unsigned char *)kernel.image)[i] = (unsigned char)dice_bits(dice);
  kernel.key = ft_kernel_key(&kernel.source, kernel.nvrtc);
  kernel.image_digest = ft_digest_of(kernel.image, size);
  if (dice_below(dice, 2)) kernel.log = strdup("ptxas info: 168 registers\n");
  return kernel;
}

static inline bool same_kernel(const struct ft_kernel *a, const struct ft_kernel *b) {
  struct ft_text left = FT_TEXT_INIT, right = FT_TEXT_INIT;
  ft_kernel_print(a, &left);
  ft_kernel_print(b, &right);
  const bool same = strcmp(left.data, right.data) == 0 && a->image_size == b->image_size &&
                    memcmp(a->image, b->image, a->image_size) == 0 && !a->log == !b->log &&
                    (!a->log || strcmp(a->log, b->log) == 0);
  ft_text_free(&left);
  ft_text_free(&right);
  return same;
}

static inline struct ft_request request_of(const char *text) {
  struct ft_request request;
  assert_ok(ft_request_parse(&request, text));
  return request;
}

static inline struct ft_config config_number(int number) {
  struct ft_config config = {.family = &ft_mma_forward_family};
  for (int i = 0; i < config.family->knob_count; i++) {
    const struct ft_knob *const knob = &config.family->knobs[i];
    config.knobs[i] = knob->searched[number % knob->searched_count];
    number /= knob->searched_count;
  }
  return config;
}

/* A measured trial: config number, one median, a spread of a thousandth of it. */
static inline struct ft_trial make_trial(const char *request, const char *device, int config,
                                         double median_us) {
  struct ft_trial trial = {.policy = "events-warm/2",
                           .nvrtc = "13.0.88",
                           .driver = "580.65",
                           .outcome = FT_OUTCOME_OK,
                           .median_us = median_us,
                           .spread_us = median_us / 1000,
                           .registers = 168,
                           .smem_bytes = 65536,
                           .at = 1700000000};
  trial.request = request_of(request);
  trial.bucket = ft_request_bucket(&trial.request);
  trial.config = config_number(config);
  snprintf(trial.device, sizeof trial.device, "%s", device);
  trial.templates = digest_of_text("templates 1");
  return trial;
}

static inline struct ft_trial make_screened(const char *request, const char *device, int config,
                                            double median_us) {
  struct ft_trial trial = make_trial(request, device, config, median_us);
  trial.outcome = FT_OUTCOME_SCREENED;
  return trial;
}

/* -- stores --------------------------------------------------------------------------------- */

enum { FIXTURE_WARNINGS = 32 };

struct fixture {
  char root[64];   /* removed at the end */
  char folder[96]; /* of the user files; not made */
  char warnings[FIXTURE_WARNINGS][512];
  int warning_count;
  struct dice dice;
};

static inline void note_warning(void *payload, const char *message) {
  struct fixture *const fixture = payload;
  ck_assert_int_lt(fixture->warning_count, FIXTURE_WARNINGS);
  snprintf(fixture->warnings[fixture->warning_count++], 512, "%s", message);
}

/* In memory where that can be had: a busy disk would make the suites slow, and they test nothing of
 * it. The suite about crashes is the exception. */
static inline void fixture_open_in(struct fixture *fixture, const char *parent) {
  memset(fixture, 0, sizeof *fixture);
  unsetenv("FATUNE_CACHE_DIR");
  unsetenv("FATUNE_SYSTEM_PATH");
  fixture->dice = dice_new();
  snprintf(fixture->root, sizeof fixture->root, "%s/fatune-test-XXXXXX", parent);
  ck_assert_ptr_nonnull(mkdtemp(fixture->root));
  snprintf(fixture->folder, sizeof fixture->folder, "%s/user", fixture->root);
}

static inline void fixture_open(struct fixture *fixture) {
  fixture_open_in(fixture, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
}

static inline int remove_one(const char *path, const struct stat *state, int kind,
                             struct FTW *where) {
  (void)state;
  (void)kind;
  (void)where;
  return remove(path);
}

static inline void fixture_close(struct fixture *fixture) {
  nftw(fixture->root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline struct ft_store *open_store_with(struct fixture *fixture,
                                               struct ft_store_options options) {
  struct ft_store *store = NULL;
  if (!options.folder) options.folder = fixture->folder;
  options.warn = note_warning;
  options.payload = fixture;
  assert_ok(ft_store_open(&store, &options));
  return store;
}

static inline struct ft_store *open_store(struct fixture *fixture) {
  return open_store_with(fixture, (struct ft_store_options){.folder = fixture->folder});
}

static inline void put_trial(struct ft_store *store, struct ft_trial trial) {
  assert_ok(ft_store_trial_put(store, &trial));
}

/* The choice for a request given as text; query has the rest. */
static inline struct ft_choice choose_for(struct ft_store *store, const char *request,
                                          struct ft_query query) {
  const struct ft_request asked = request_of(request);
  struct ft_choice choice;
  query.request = &asked;
  assert_ok(ft_store_choose(store, &query, &choice));
  return choice;
}

static inline void assert_choice(struct ft_choice choice, enum ft_hit hit, int config) {
  const struct ft_config expected = config_number(config);
  ck_assert_msg(choice.hit == hit, "hit %d, not %d: %s", choice.hit, hit, choice.note);
  ck_assert_msg(ft_config_compare(&choice.config, &expected) == 0, "not config %d: %s", config,
                choice.note);
}

static inline void assert_warnings(const struct fixture *fixture, int expected) {
  ck_assert_msg(fixture->warning_count == expected, "%d warnings, not %d; first: %s; last: %s",
                fixture->warning_count, expected,
                fixture->warning_count ? fixture->warnings[0] : "-",
                fixture->warning_count ? fixture->warnings[fixture->warning_count - 1] : "-");
}

static inline int export_store(struct ft_store *store, const char *target, const char *device,
                               const char *file, int64_t *trials, int64_t *kernels) {
  struct ft_export export = {.may_be_empty = true};
  const int status = ft_store_export(store, target, device, file, &export);
  if (trials) *trials = export.trials;
  if (kernels) *kernels = export.kernels;
  return status;
}

static inline int verify_store(struct ft_store *store, bool repair, int64_t *checked,
                               int64_t *damaged) {
  struct ft_store_verdict verdict;
  const int status = ft_store_verify(store, repair, &verdict);
  *checked = verdict.checked;
  *damaged = verdict.damaged;
  ft_store_verdict_free(&verdict);
  return status;
}

/* The very same kernel. */
static inline void assert_has(const struct fixture *fixture, struct ft_store *store,
                              const struct ft_kernel *kernel) {
  struct ft_kernel back;
  assert_ok(ft_store_kernel_get(store, &kernel->key, &back));
  ck_assert_msg(same_kernel(kernel, &back), "seed %llu", (unsigned long long)fixture->dice.seed);
  ft_kernel_free(&back);
}

/* -- files ---------------------------------------------------------------------------------- */

struct bytes {
  unsigned char *data;
  size_t size;
};

static inline struct bytes read_bytes(const char *path) {
  FILE *const file = fopen(path, "rb");
  ck_assert_msg(file != NULL, "%s", path);
  ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
  struct bytes bytes = {NULL, (size_t)ftell(file)};
  rewind(file);
  bytes.data = malloc(bytes.size + 1);
  ck_assert_uint_eq(fread(bytes.data, 1, bytes.size, file), bytes.size);
  fclose(file);
  return bytes;
}

static inline void write_bytes(const char *path, const void *data, size_t size) {
  FILE *const file = fopen(path, "wb");
  ck_assert_msg(file != NULL, "%s", path);
  ck_assert_uint_eq(fwrite(data, 1, size, file), size);
  ck_assert_int_eq(fclose(file), 0);
}

/* Runs SQL on a file behind the store's back. */
static inline void run_sql(const char *path, const char *sql) {
  sqlite3 *handle = NULL;
  char *message = NULL;
  ck_assert_int_eq(sqlite3_open(path, &handle), SQLITE_OK);
  sqlite3_exec(handle, sql, NULL, NULL, &message);
  ck_assert_msg(message == NULL, "%s: %s", sql, message);
  sqlite3_close(handle);
}

/* The same, with columns of trials that may be NULL: as a file has them that damage has spoilt. */
static inline void run_sql_loosely(const char *path, const char *sql) {
  run_sql(path, "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(replace(sql, "
                "'TEXT NOT NULL', 'TEXT_NOT_NULL'), 'BLOB NOT NULL', 'BLOB_NOT_NULL') "
                "WHERE name = 'trials'");
  run_sql(path, sql);
  run_sql(path, "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(replace(sql, "
                "'TEXT_NOT_NULL', 'TEXT NOT NULL'), 'BLOB_NOT_NULL', 'BLOB NOT NULL') "
                "WHERE name = 'trials'");
}

/* A sound trial of another version, of the device 'd'. templates: as SQL has it. */
static inline void add_strange_trial(const char *path, const char *flavour, const char *templates) {
  struct ft_hasher hasher;
  char text[128], hex[FT_DIGEST_HEX], sql[600];
  snprintf(text, sizeof text, "bucket=\"forward bf16 d64 nq128\" flavour=%s", flavour);
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "trial", text, strlen(text));
  const struct ft_digest identity = ft_hasher_final(&hasher);
  ft_digest_hex(&identity, hex);
  snprintf(sql, sizeof sql,
           "INSERT INTO trials (identity, bucket, class, device, target, policy, outcome, at, "
           "templates, text) VALUES (x'%s', 'forward bf16 d64 nq128', 'c', 'd', 't', 'p', 'ok', 1, "
           "%s, '%s')",
           hex, templates, text);
  run_sql_loosely(path, sql);
}

static inline int64_t number_of(const char *path, const char *sql) {
  sqlite3 *handle = NULL;
  sqlite3_stmt *statement = NULL;
  ck_assert_int_eq(sqlite3_open(path, &handle), SQLITE_OK);
  ck_assert_msg(sqlite3_prepare_v2(handle, sql, -1, &statement, NULL) == SQLITE_OK, "%s: %s", sql,
                sqlite3_errmsg(handle));
  ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
  const int64_t number = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  sqlite3_close(handle);
  return number;
}

#endif
