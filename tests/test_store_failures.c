/* test_store_failures.c: the n-th call for memory or files fails, once or from then on, of fatune
 * or of SQLite, or fatune's n-th call of SQLite: a status, nothing wrong stored or handed out,
 * nothing lost. in -> out: n -> every use of a store -> Check suite. The first call by each place,
 * and some; with FATUNE_TEST_SLOW=1 every n; FATUNE_TEST_CASE=n: the n-th use alone. */
#include "tests/suites.h"

#include "cache/claims.h"
#include "cache/trust.h"
#include "tests/faulty/fault_calls.h"
#include "tests/folder_states.h"
#include "tests/slow_tests.h"
#include "tests/trust_lab.h"

#define PROBLEM "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"
#define NEARBY  "forward bf16 d128 hq16 hkv16 b4 nq4096 nk4096 causal"

static struct trust_lab lab;
static struct ft_kernel kernel, pair[2]; /* of no store yet */
static struct ft_trial trial;            /* that names it */
static struct ft_request request, near;
static char tuning[128], kernels[128], theirs[2][160];
static struct bytes saved[2], bundle, other[2]; /* user files; the layer; with a strange row */
static int64_t roots[2], table; /* the page of an index in each; that of the trials */
static char current[48];        /* what fails */
static int answer;              /* of SQLite, where that fails */

/* -- the files to begin with ---------------------------------------------------------------- */

enum begin { EMPTY, FULL, REFUSED, DAMAGED_KERNEL, DAMAGED_ROW, DAMAGED_SCHEMA, DAMAGED_INDEX };
enum { PAGE = 8192 };

static void write_spoilt(const char *path, const struct bytes *sound, int64_t page) {
  const size_t first = (size_t)(page - 1) * PAGE + (page == 1 ? 100 : 0);
  for (size_t i = first; i < first + PAGE / 2; i++) sound->data[i] ^= 0x55;
  write_bytes(path, sound->data, sound->size);
  for (size_t i = first; i < first + PAGE / 2; i++) sound->data[i] ^= 0x55;
}

static void begin_with(enum begin begin) {
  nftw(lab.fixture.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  lab.fixture.warning_count = 0;
  if (begin == EMPTY) return;
  ck_assert_int_eq(mkdir(lab.fixture.folder, 0700), 0);
  write_bytes(tuning, saved[0].data, saved[0].size);
  write_bytes(kernels, saved[1].data, saved[1].size);
  ck_assert_int_eq(chmod(tuning, 0600) | chmod(kernels, 0600), 0);
  if (begin == REFUSED) {
    ck_assert_int_eq(unlink(kernels), 0);
    run_sql(kernels, "PRAGMA application_id = 77; CREATE TABLE of_others (x)");
  }
  if (begin == DAMAGED_KERNEL || begin == DAMAGED_ROW)
    run_sql(kernels, "UPDATE kernels SET used = 0;"
                     "UPDATE kernels SET text = 'no kernel' WHERE id = 2");
  if (begin == DAMAGED_ROW) write_spoilt(tuning, &saved[0], table);
  if (begin == DAMAGED_SCHEMA) {
    struct bytes file = read_bytes(tuning);
    char log[160];
    write_spoilt(kernels, &saved[1], 1);
    file.data[16] = 0x10; /* pages of another size */
    file.data[18] = 0xFF;
    write_bytes(tuning, file.data, file.size);
    free(file.data);
    snprintf(log, sizeof log, "%s-wal", tuning);
    write_bytes(log, "no log of SQLite", 16);
  }
  if (begin != DAMAGED_INDEX) return;
  write_spoilt(tuning, &other[0], roots[0]);
  write_spoilt(kernels, &other[1], roots[1]);
}

static void count_warning(void *payload, const char *message) {
  (void)payload, (void)message;
  lab.fixture.warning_count++;
}

static struct ft_store_options options_now(void) {
  struct ft_store_options options = trust_lab_options(&lab);
  options.warn = count_warning;
  return options;
}

/* -- uses ----------------------------------------------------------------------------------- */

static char complaint[256]; /* Check itself needs memory, and so has to wait */

__attribute__((format(printf, 2, 3))) static void expect(bool right, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (!right && !complaint[0]) vsnprintf(complaint, sizeof complaint, format, arguments);
  va_end(arguments);
}

static int put(struct ft_store *store) {
  const int status = ft_store_kernel_put(store, &kernel);
  const int second = ft_store_trial_put(store, &trial);
  return status != FT_OK ? status : second;
}

static int take_in(struct ft_store *store) {
  int64_t trials = 0, taken = 0;
  return ft_store_import(store, lab.bundle, &trials, &taken);
}

static int merge(struct ft_store *store) {
  int64_t trials = 0, taken = 0;
  const int status = ft_store_merge(store, theirs[0], &trials, &taken);
  const int second = ft_store_merge(store, theirs[1], &trials, &taken);
  return status != FT_OK ? status : second;
}

static bool see(void *payload, const struct ft_trial *one) {
  (void)one, ++*(int *)payload;
  return true;
}

static int take(struct ft_store *store, const struct ft_kernel *wanted) {
  struct ft_kernel back;
  const int status = ft_store_kernel_get(store, &wanted->key, &back);
  if (status != FT_OK) return status;
  expect(back.image_size == wanted->image_size && back.registers == wanted->registers &&
             memcmp(back.image, wanted->image, back.image_size) == 0,
         "another kernel");
  ft_kernel_free(&back);
  return FT_OK;
}

/* Exact, near, of another device; the kernel; all trials; a config that is given. */
static int look_up(struct ft_store *store) {
  const struct ft_digest templates = digest_of_text("templates 1");
  struct ft_query query = {
      .request = &request, .device = CLASS_H200, .target = "sm_90", .templates = &templates};
  struct ft_choice choice;
  struct ft_digest key;
  int seen = 0, status = take(store, &lab.kernels[0]);
  expect(ft_store_choose(store, &query, &choice) == FT_OK, "a look-up fails");
  const bool exact = choice.hit == FT_HIT_EXACT;
  expect(exact || lab.fixture.warning_count > 0, "a look-up misses without a word");
  const struct ft_config config = choice.config;
  const int visited = ft_store_trials(store, &request, NULL, see, &seen);
  if (exact && ft_store_kernel_of_config(store, &query, &config, &key) != FT_OK)
    status = FT_E_NOT_FOUND;
  query.request = &near;
  expect(ft_store_choose(store, &query, &choice) == FT_OK, "a look-up fails");
  query.device = CLASS_H100;
  expect(ft_store_choose(store, &query, &choice) == FT_OK, "a look-up fails");
  if (status == FT_OK) status = visited;
  return exact ? status : FT_E_NOT_FOUND;
}

static int recall(struct ft_store *store) {
  const struct ft_digest recipe = digest_of_text("a recipe"), source = digest_of_text("a source");
  struct ft_digest back;
  ft_store_recipe_put(store, &recipe, &source);
  const int status = ft_store_recipe_get(store, &recipe, &back);
  expect(status != FT_OK || ft_digest_equal(&back, &source), "another source");
  return status;
}

static int take_by_recipe(struct ft_store *store) {
  return trust_lab_take_by_recipe(&lab, store);
}

static int count_rows(struct ft_store *store) {
  struct ft_store_stats stats;
  const int status = ft_store_stats(store, &stats);
  expect(status != FT_OK || lab.fixture.warning_count > 0 || stats.trials == 2,
         "%lld trials without a word", (long long)stats.trials);
  return status;
}

static int delete_some(struct ft_store *store) {
  int64_t deleted = 0;
  const int status = ft_store_kernel_forget(store, &lab.kernels[1].key);
  const int second = ft_store_gc(store, 1, &deleted);
  return status != FT_OK ? status : second;
}

/* Both rows are to be renewed, and one is damaged: the layer has it. */
static int heal(struct ft_store *store) {
  const int status = take(store, &lab.kernels[0]);
  const int second = take(store, &lab.kernels[1]);
  return status != FT_OK ? status : second;
}

static int export_lines(struct ft_store *store) {
  struct ft_export export = {.may_be_empty = false};
  char file[160];
  snprintf(file, sizeof file, "%s/again.trials", lab.fixture.root);
  const int status = ft_store_export(store, "sm_90", NULL, file, &export);
  expect(status != FT_OK || export.trials == 2, "an export lacks rows");
  return status;
}

static int export_it(struct ft_store *store) {
  struct ft_export export = {.may_be_empty = false};
  char file[160], left[200];
  snprintf(file, sizeof file, "%s/again.fatune", lab.fixture.root);
  snprintf(left, sizeof left, "%s.unfinished-a1B2c3", file);
  close(open(left, O_CREAT | O_WRONLY, 0600));
  const int status = ft_store_export(store, "sm_90", NULL, file, &export);
  expect(status != FT_OK || export.trials * export.kernels * export.recipes == 8, "rows are lost");
  ft_trust_unsign(file);
  return status != FT_OK ? status : ft_trust_sign(file, &lab.trusted, "again");
}

static int verify(struct ft_store *store) {
  struct ft_store_verdict verdict;
  const int status = ft_store_verify(store, true, &verdict);
  expect(!verdict.mended[0].kept && !verdict.mended[1].kept && verdict.damaged == 0,
         "a sound store was taken for a damaged one");
  ft_store_verdict_free(&verdict);
  return status;
}

static int repair(struct ft_store *store) {
  struct ft_store_verdict verdict;
  const int status = ft_store_verify(store, true, &verdict);
  expect(status != FT_OK || verdict.damaged > 0, "damage was not seen");
  const int64_t left = verdict.left;
  ft_store_verdict_free(&verdict);
  return status == FT_OK && left > 0 ? FT_E_CACHE : status;
}

/* Another application's file. */
static int repair_refused(struct ft_store *store) {
  struct ft_store_verdict verdict;
  const int status = ft_store_verify(store, true, &verdict);
  expect(status != FT_OK || (verdict.damaged == 1 && verdict.left == 1), "it was not refused");
  expect(!verdict.mended[FT_STORE_KERNELS].kept, "it was mended");
  ft_store_verdict_free(&verdict);
  return status;
}

static int look_through(struct ft_store *store) {
  struct ft_bundle_verdict seen;
  const int status = ft_store_verify_bundle(store, lab.bundle, &seen);
  expect(status != FT_OK || seen.trials * seen.kernels * seen.recipes == 8, "rows are missed");
  return status;
}

static int claim(struct ft_store *store) {
  struct ft_claim one;
  ft_claim_open(&one, store, &kernel.key);
  const int status = ft_claim_try(&one) && one.file >= 0 ? FT_OK : FT_E_CACHE;
  ft_claim_close(&one);
  return status;
}

/* A layer that is asked a signature of, by FATUNE_TRUST or for its place, or is not, and one inside
 * the library, are opened and closed. */
static int open_layers(struct ft_store *before) {
  static const char *const policies[] = {"signed", "owner", "owner"};
  static const mode_t modes[] = {0755, 0777, 0755};
  struct ft_store_options options = options_now();
  int count = 0, status = FT_OK;
  (void)before;
  options.library_folder = lab.fixture.root; /* without a layer */
  options.shipped = bundle.data;
  options.shipped_size = bundle.size;
  setenv("FATUNE_SHIPPED", "on", 1);
  for (int i = 0; i < 3 && status == FT_OK; i++) {
    struct ft_store *store = NULL;
    setenv("FATUNE_TRUST", policies[i], 1);
    (void)chmod(lab.layers, modes[i]);
    status = ft_store_open(&store, &options);
    const struct ft_store_layer *const found = store ? ft_store_layers(store, &count) : NULL;
    if (status == FT_OK && !(found && count == 2 && found[0].used && found[1].used))
      status = FT_E_NOT_FOUND;
    if (status == FT_OK) status = take(store, &lab.kernels[1]);
    ft_store_close(store);
  }
  unsetenv("FATUNE_TRUST");
  unsetenv("FATUNE_SHIPPED");
  return status;
}

static int take_in_to_memory(struct ft_store *before) {
  struct ft_store_options options = options_now();
  struct ft_store *store = NULL;
  (void)before;
  options.memory_only = true;
  int status = ft_store_open(&store, &options);
  if (status == FT_OK) status = take_in(store);
  ft_store_close(store);
  return status;
}

/* A store that writes no files keeps all in memory. */
static int keep_in_memory(struct ft_store *before) {
  const struct ft_store_options options = options_now();
  struct ft_store *store = NULL;
  (void)before;
  setenv("FATUNE_CACHE", "ro", 1);
  int status = ft_store_open(&store, &options);
  unsetenv("FATUNE_CACHE");
  if (status != FT_OK) return status;
  status = put(store);
  if (status == FT_OK) status = recall(store);
  if (status == FT_OK) status = take(store, &kernel);
  (void)ft_store_kernel_forget(store, &kernel.key); /* the file, which is only read, may have it */
  ft_store_close(store);
  return status;
}

/* There is no room for both: the older goes. */
static int put_beyond_the_cap(struct ft_store *store) {
  struct ft_store_options options = options_now();
  store = NULL; /* one of its own */
  options.kernel_bytes_cap = 350000;
  int status = ft_store_open(&store, &options);
  for (int i = 0; i < 2 && status == FT_OK; i++) status = ft_store_kernel_put(store, &pair[i]);
  if (status == FT_OK) status = take(store, &pair[1]);
  if (status == FT_OK) expect(take(store, &pair[0]) != FT_OK, "both are there");
  ft_store_close(store);
  return status;
}

static const struct {
  int (*use)(struct ft_store *store);
  enum begin begin;
} uses[] = {{put, EMPTY},
            {put, FULL},
            {take_in, EMPTY},
            {merge, EMPTY},
            {look_up, FULL},
            {recall, EMPTY},
            {recall, FULL},
            {take_by_recipe, EMPTY},
            {count_rows, FULL},
            {delete_some, FULL},
            {export_it, FULL},
            {export_lines, FULL},
            {verify, FULL},
            {repair_refused, REFUSED},
            {heal, DAMAGED_KERNEL},
            {repair, DAMAGED_ROW},
            {repair, DAMAGED_SCHEMA},
            {repair, DAMAGED_INDEX},
            {look_through, FULL},
            {claim, FULL},
            {open_layers, FULL},
            {keep_in_memory, FULL},
            {take_in_to_memory, EMPTY},
            {put_beyond_the_cap, EMPTY}};

enum { USES = sizeof uses / sizeof uses[0] };

/* -- the sweep ------------------------------------------------------------------------------ */

#define ROOT(index) "SELECT rootpage FROM sqlite_schema WHERE name = '" index "'"

static void set_up(void) {
  trust_lab_open(&lab);
  kernel = make_kernel(&lab.fixture.dice, 20000);
  for (int i = 0; i < 2; i++) pair[i] = make_kernel(&lab.fixture.dice, 200000);
  trial = make_trial(PROBLEM, CLASS_H200, 1, 90);
  trial.kernel = kernel.key;
  request = request_of(PROBLEM);
  near = request_of(NEARBY);
  snprintf(tuning, sizeof tuning, "%s/tuning.db", lab.fixture.folder);
  snprintf(kernels, sizeof kernels, "%s/kernels.db", lab.fixture.folder);
  roots[0] = number_of(tuning, ROOT("trials_by_bucket"));
  roots[1] = number_of(kernels, ROOT("kernels_by_source"));
  table = number_of(tuning, ROOT("trials"));
  bundle = read_bytes(lab.bundle);
  saved[0] = read_bytes(tuning);
  saved[1] = read_bytes(kernels);
  for (int i = 0; i < 2; i++) {
    snprintf(theirs[i], sizeof theirs[i], "%s/theirs%d.db", lab.fixture.root, i);
    write_bytes(theirs[i], saved[i].data, saved[i].size);
  }
  add_strange_trial(theirs[0], "strange", "x'00'");
  run_sql(theirs[1], "INSERT INTO kernels (key, source, target, used, identity, text, log, image) "
                     "SELECT x'00', source, target, used, identity, text, log, image FROM kernels "
                     "WHERE id = 1");
  trust_lab_forge_text(theirs[1], 3, "threads=", "strange=");
  for (int i = 0; i < 2; i++) other[i] = read_bytes(theirs[i]);
  ck_assert_int_eq(sqlite3_shutdown(), SQLITE_OK);
  fault_calls_begin();
}

static void tear_down(void) {
  for (int i = 0; i < 2; i++) free(saved[i].data), free(other[i].data), ft_kernel_free(&pair[i]);
  free(bundle.data);
  ft_kernel_free(&kernel);
  trust_lab_close(&lab);
}

/* What is stored is right, what was there before still is, and the next run works. All of that
 * follows from the files in the folder, so each state of these is looked at once. */
static void assert_sound(int which) {
  static struct folder_states passed;
  const struct ft_digest state = folder_state(lab.fixture.folder, which);
  if (folder_states_has(&passed, &state)) return;
  const enum begin begin = uses[which].begin;
  const bool deletes = uses[which].use == delete_some;
  int64_t checked, damaged;
  lab.fixture.warning_count = 0;
  if (begin == REFUSED) {
    ck_assert_msg(number_of(kernels, "PRAGMA application_id") == 77, "%s: it was changed", current);
    write_bytes(kernels, saved[1].data, saved[1].size);
  }
  struct ft_store *const store = open_store(&lab.fixture);
  assert_ok(verify_store(store, begin > REFUSED, &checked, &damaged));
  ck_assert_msg(begin > REFUSED || damaged == 0, "use %d, %s: %lld damaged", which, current,
                (long long)damaged);
  if (!deletes && begin != EMPTY) {
    const bool first = take(store, &lab.kernels[0]) == FT_OK;
    const bool second = take(store, &lab.kernels[1]) == FT_OK;
    ck_assert_msg(first && (second || begin == DAMAGED_KERNEL || begin == DAMAGED_ROW),
                  "use %d, %s: kernels are lost", which, current);
    if (begin != DAMAGED_ROW) /* there it is a table without a root */
      ck_assert_int_ge(number_of(tuning, "SELECT count(*) FROM trials"),
                       begin == DAMAGED_INDEX ? 3 : 2);
  }
  assert_ok(put(store));
  assert_ok(take(store, &kernel));
  ft_store_close(store);
  folder_states_note(&passed, &state);
}

/* What calls of SQLite answer that fail. Whoever is busy is waited for, so not for ever. */
static const int answers[] = {SQLITE_NOMEM, SQLITE_BUSY, SQLITE_IOERR};
enum { ANSWERS = sizeof answers / sizeof answers[0], SHORT_ANSWERS = 2 };

/* The n-th call fails under that use; returns whether there was one. */
static bool fail_under(int which, enum fault_kind kind, long n, bool ever) {
  static const char *const kinds[] = {"memory", "files", "SQLite"};
  const struct ft_store_options options = options_now();
  struct ft_store *store = NULL;
  const int open_before = folder_entries("/proc/self/fd");
  begin_with(uses[which].begin);
  assert_ok(ft_store_open(&store, &options));
  snprintf(current, sizeof current, "%s call %ld%s (%d)", kinds[kind], n, ever ? " and on" : "",
           answer);
  fault_calls_arm(kind, n, ever);
  const int status = uses[which].use(store);
  const bool fired = fault_calls_disarm() >= n && n > 0;
  fault_calls_note_places(0);
  ck_assert_msg(!complaint[0], "use %d, %s: %s", which, current, complaint);
  ck_assert_msg(fired || status == FT_OK, "use %d, %s: %d %s", which, current, status, ft_detail());
  ft_store_close(store);
  ck_assert_msg(folder_entries("/proc/self/fd") == open_before, "%s: a file is left open", current);
  if (fired) assert_sound(which);
  return fired;
}

/* Of the calls by the same two or three callers the first fails, and some others. */
static void sweep_places(int which, enum fault_kind kind) {
  enum { CALLERS = 8, MOST = 4096, MORE = 4 }; /* four of the callers are of fault_calls.c */
  static long firsts[MOST];
  size_t at = 0, count = 0;
  long last = 1;
  fault_calls_note_places(CALLERS);
  fail_under(which, kind, 0, false);
  for (const struct fault_place *place; (place = fault_calls_place(&at)) != NULL;) {
    ck_assert_uint_lt(count, MOST);
    firsts[count++] = place->first;
    if (place->last > last) last = place->last;
  }
  ck_assert_uint_gt(count, 0);
  for (size_t i = 0; i < count + MORE; i++) {
    const long n = i < count ? firsts[i] : 1 + dice_below(&lab.fixture.dice, (int)last);
    fail_under(which, kind, n, false);
    fail_under(which, kind, n, true);
  }
}

static void sweep(int which, enum fault_kind kind) {
  if (!tests_are_slow()) return sweep_places(which, kind);
  for (int ever = 0; ever < 2; ever++)
    for (long n = 1; fail_under(which, kind, n, ever); n++) continue;
}

static void sweep_database(int which) {
  for (int i = 0; i < (tests_are_slow() ? ANSWERS : SHORT_ANSWERS); i++) {
    fault_database_by(answer = answers[i]);
    for (long n = 1; fail_under(which, FAULT_DATABASE, n, false); n++) continue;
    if (!tests_are_slow() || answer != SQLITE_NOMEM) continue;
    for (long n = 1; fail_under(which, FAULT_DATABASE, n, true); n++) continue;
  }
}

START_TEST(a_failing_call_harms_nothing) {
  const char *const given = getenv("FATUNE_TEST_CASE");
  if (given && strtol(given, NULL, 10) != _i) return;
  for (int kind = FAULT_MEMORY; kind <= FAULT_FILES; kind++) sweep(_i, (enum fault_kind)kind);
  sweep_database(_i);
}
END_TEST

Suite *make_store_failures_suite(void) {
  Suite *const suite = suite_create("store_failures");
  TCase *const tests = tcase_create("failures");
  tcase_set_timeout(tests, tests_are_slow() ? 3600 : 120);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, a_failing_call_harms_nothing, 0, USES);
  suite_add_tcase(suite, tests);
  return suite;
}
