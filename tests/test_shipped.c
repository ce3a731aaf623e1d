/* test_shipped.c: winners that ship inside the library: the lowest layer, what becomes of text, the
 * list of models.
 * in -> out: trials of a made layer, files of the repository -> Check suite. */
#include "tests/suites.h"

#include <glob.h>

#include "cache/shipped.h"
#include "generator/lua_host.h"
#include "generator/rules.h"
#include "generator/space.h"
#include "tests/run_program.h"
#include "tests/store_fixture.h"

#define PROBLEM       "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal"
#define NEARBY        "forward bf16 d128 hq16 hkv16 b2 nq8192 nk8192 causal" /* 2 octaves away */
#define IN_ITS_BUCKET "forward bf16 d128 hq16 hkv16 b2 nq8000 nk8000 causal"
#define FAR_OFF       "forward bf16 d128 hq16 hkv16 b2 nq32768 nk32768 causal" /* 6 octaves away */
#define BETWEEN       "forward bf16 d128 hq16 hkv16 b2 nq16384 nk16384 causal" /* 4; of FAR_OFF 2 */
#define BESIDE        "forward bf16 d128 hq16 hkv16 b2 nq4096 nk8192 causal"   /* 1; of NEARBY 1 */
#define DECODE        "forward bf16 d128 hq16 hkv16 b2 nq1"                    /* then its keys */

static struct fixture fixture;
static struct bytes layer; /* with a trial of PROBLEM: config 1 */

static void export_trial(const struct ft_trial *trial, const char *path) {
  struct ft_store *const store = open_store(&fixture);
  struct ft_export export = {.may_be_empty = false};
  assert_ok(ft_store_trial_put(store, trial));
  assert_ok(ft_store_export(store, "sm_90", NULL, path, &export));
  ck_assert_int_eq(export.trials, 1);
  ft_store_close(store);
}

static void set_up(void) {
  char path[128];
  begin_program_test();
  unsetenv("FATUNE_CACHE_DIR");
  fixture_open(&fixture);
  setenv("FATUNE_SHIPPED", "on", 1);
  const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, 100);
  snprintf(path, sizeof path, "%s/made.fatune", fixture.root);
  export_trial(&trial, path);
  layer = read_bytes(path);
  snprintf(fixture.folder, sizeof fixture.folder, "%s/another", fixture.root);
}

static void tear_down(void) {
  free(layer.data);
  fixture_close(&fixture);
  end_program_test();
}

static struct ft_store *open_with_layer(void) {
  return open_store_with(
      &fixture, (struct ft_store_options){.shipped = layer.data, .shipped_size = layer.size});
}

static struct ft_choice choose_by(struct ft_store *store, const char *request,
                                  const char *templates) {
  const struct ft_digest digest = digest_of_text(templates);
  return choose_for(store, request, (struct ft_query){.device = CLASS_H200, .templates = &digest});
}

static struct ft_choice choose(struct ft_store *store, const char *request) {
  return choose_by(store, request, "templates 1");
}

static void assert_chosen(struct ft_choice choice, enum ft_hit hit, int config) {
  const struct ft_config expected = config_number(config);
  ck_assert_msg(choice.hit == hit, "hit %d, not %d: %s", choice.hit, hit, choice.note);
  if (hit != FT_HIT_DEFAULT) ck_assert_int_eq(ft_config_compare(&choice.config, &expected), 0);
}

static void put(struct ft_store *store, const char *request, int config) {
  put_trial(store, make_trial(request, CLASS_H200, config, 50));
}

START_TEST(the_layer_answers_where_nothing_else_is_known) {
  struct ft_store *const store = open_with_layer();
  const struct ft_choice choice = choose(store, PROBLEM);
  assert_chosen(choice, FT_HIT_SHIPPED, 1);
  ck_assert_ptr_nonnull(strstr(choice.note, "shipped with the library"));
  ck_assert_str_eq(choice.device, CLASS_H200);
  ck_assert_str_eq(choice.driver, "580.65");
  ck_assert_str_eq(choice.nvrtc, "13.0.88");
  ck_assert_int_eq(choice.at, 1700000000);
  assert_chosen(choose_by(store, PROBLEM, "templates 2"), FT_HIT_SHIPPED, 1);
  assert_chosen(choose(store, BESIDE), FT_HIT_SHIPPED, 1);
  assert_chosen(choose(store, NEARBY), FT_HIT_DEFAULT, 0);
  assert_chosen(choose(store, FAR_OFF), FT_HIT_DEFAULT, 0);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

/* As near as the other, in a bucket whose name comes later. */
START_TEST(own_measurements_go_first_wherever_they_are) {
  unsetenv("FATUNE_SHIPPED"); /* as `on` */
  struct ft_store *const store = open_with_layer();
  assert_chosen(choose(store, BESIDE), FT_HIT_SHIPPED, 1);
  put(store, NEARBY, 2);
  assert_chosen(choose(store, BESIDE), FT_HIT_NEAR, 2);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

START_TEST(own_measurements_go_first) {
  struct ft_store *const store = open_with_layer();
  put(store, FAR_OFF, 2);
  assert_chosen(choose(store, FAR_OFF), FT_HIT_EXACT, 2);
  assert_chosen(choose(store, BETWEEN), FT_HIT_DEFAULT,
                0); /* own ones are not taken from afar, either */
  assert_chosen(choose(store, BESIDE), FT_HIT_SHIPPED, 1); /* the nearer one */
  put(store, PROBLEM, 3);
  assert_chosen(choose(store, PROBLEM), FT_HIT_EXACT, 3);
  assert_chosen(choose(store, BESIDE), FT_HIT_NEAR, 3); /* as near as the shipped one */
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

/* Where nothing can be compiled: winners that ship come without kernels. */
START_TEST(what_ships_is_not_asked_for_its_kernel) {
  struct ft_store *const store = open_with_layer();
  static const char *const words[] = {PROBLEM, BESIDE}; /* its own bucket, and one near it */
  const struct ft_digest templates = digest_of_text("templates 1");
  for (int i = 0; i < 4; i++) {
    const struct ft_request asked = request_of(words[i % 2]);
    const struct ft_query query = {
        .request = &asked, .device = CLASS_H200, .templates = &templates, .from_anywhere = true};
    struct ft_choice choice;
    if (i == 2) put(store, FAR_OFF, 2);
    assert_ok(ft_store_choose(store, &query, &choice));
    assert_chosen(choice, i < 2 ? FT_HIT_DEFAULT : FT_HIT_NEAR, i < 2 ? 0 : 2);
  }
  ft_store_close(store);
}
END_TEST

/* A store whose layer holds this trial alone. */
static struct ft_store *open_with_trial(const struct ft_trial *trial) {
  char path[128];
  snprintf(path, sizeof path, "%s/alone.fatune", fixture.root);
  snprintf(fixture.folder, sizeof fixture.folder, "%s/a_third", fixture.root);
  export_trial(trial, path);
  free(layer.data);
  layer = read_bytes(path);
  snprintf(fixture.folder, sizeof fixture.folder, "%s/a_fourth", fixture.root);
  return open_with_layer();
}

/* One octave away as BESIDE is. */
START_TEST(a_decode_takes_the_winner_of_its_own_bucket_alone) {
  const struct ft_trial trial = make_trial(DECODE " nk4096", CLASS_H200, 2, 100);
  struct ft_store *const store = open_with_trial(&trial);
  assert_chosen(choose(store, DECODE " nk4000"), FT_HIT_SHIPPED, 2);
  assert_chosen(choose(store, DECODE " nk8192"), FT_HIT_DEFAULT, 0);
  ft_store_close(store);
}
END_TEST

/* A default that won says that the default is good, and not that a copy of it is for other sizes,
 * or after the default has become another. */
START_TEST(a_default_that_won_is_told_from_other_winners) {
  struct ft_trial trial = make_trial(NEARBY, CLASS_H200, 2, 100);
  trial.is_default = 1;
  struct ft_store *const store = open_with_trial(&trial);
  assert_chosen(choose(store, NEARBY), FT_HIT_SHIPPED, 2);
  ck_assert(choose(store, NEARBY).default_won);
  assert_chosen(choose(store, BESIDE), FT_HIT_SHIPPED, 2);
  ck_assert(choose(store, BESIDE).default_won);
  ck_assert(choose(store, IN_ITS_BUCKET).default_won);
  put(store, NEARBY, 3);
  assert_chosen(choose(store, IN_ITS_BUCKET), FT_HIT_EXACT, 3);
  ck_assert(!choose(store, IN_ITS_BUCKET).default_won);
  ft_store_close(store);
}
END_TEST

static bool count_trial(void *payload, const struct ft_trial *trial) {
  (void)trial;
  *(int *)payload += 1;
  return true;
}

/* What others measured spares no candidate its trial here, and is not shipped again. */
START_TEST(the_layer_is_in_no_list_of_trials) {
  struct ft_store *const store = open_with_layer();
  const struct ft_request request = request_of(PROBLEM);
  char path[128];
  int count = 0;
  assert_ok(ft_store_trials(store, NULL, NULL, count_trial, &count));
  assert_ok(ft_store_trials(store, &request, CLASS_H200, count_trial, &count));
  ck_assert_int_eq(count, 0);
  put(store, PROBLEM, 3);
  assert_ok(ft_store_trials(store, &request, CLASS_H200, count_trial, &count));
  ck_assert_int_eq(count, 1);
  struct ft_export export = {.may_be_empty = false};
  snprintf(path, sizeof path, "%s/again.fatune", fixture.root);
  assert_ok(ft_store_export(store, "sm_90", NULL, path, &export));
  ck_assert_int_eq(export.trials, 1);
  count = 0;
  assert_ok(ft_store_shipped(store, count_trial, &count));
  ck_assert_int_eq(count, 1);
  ft_store_close(store);
  struct ft_store *const without = open_store(&fixture);
  assert_ok(ft_store_shipped(without, count_trial, &count));
  ck_assert_int_eq(count, 1);
  ft_store_close(without);
}
END_TEST

static const struct {
  const char *name, *value;
  int memory_only, warnings;
  enum ft_hit hit;
} modes[] = {{"FATUNE_SHIPPED", "on", 0, 0, FT_HIT_SHIPPED},
             {"FATUNE_SHIPPED", "", 0, 0, FT_HIT_SHIPPED},
             {"FATUNE_SHIPPED", "off", 0, 0, FT_HIT_DEFAULT},
             {"FATUNE_SHIPPED", "no", 0, 1, FT_HIT_SHIPPED},
             {"FATUNE_SHIPPED", "on", 1, 0, FT_HIT_SHIPPED},
             {"FATUNE_SHIPPED", "off", 1, 0, FT_HIT_DEFAULT},
             {"FATUNE_CACHE", "memory", 0, 0, FT_HIT_SHIPPED},
             {"FATUNE_CACHE", "ro", 0, 0, FT_HIT_SHIPPED},
             {"FATUNE_CACHE", "off", 0, 0, FT_HIT_DEFAULT}};

START_TEST(whether_it_is_looked_at) {
  setenv(modes[_i].name, modes[_i].value, 1);
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.shipped = layer.data,
                                                          .shipped_size = layer.size,
                                                          .memory_only = modes[_i].memory_only});
  assert_chosen(choose(store, PROBLEM), modes[_i].hit, 1);
  ft_store_close(store);
  assert_warnings(&fixture, modes[_i].warnings);
  if (modes[_i].warnings) ck_assert_ptr_nonnull(strstr(fixture.warnings[0], "allowed: on, off"));
  unsetenv("FATUNE_CACHE");
}
END_TEST

START_TEST(a_damaged_layer_is_a_miss_and_a_warning) {
  memset(layer.data, 'x', 100);
  struct ft_store *const store = open_with_layer();
  assert_chosen(choose(store, PROBLEM), FT_HIT_DEFAULT, 0);
  int count = 0;
  const struct ft_store_layer *const found = ft_store_layers(store, &count);
  ck_assert_int_eq(count, 1);
  ck_assert(!found[0].used);
  ft_store_close(store);
  assert_warnings(&fixture, 1);
}
END_TEST

/* -- text ----------------------------------------------------------------------------------- */

START_TEST(an_export_as_text_reads_back) {
  char path[128];
  struct ft_text expected = FT_TEXT_INIT;
  const struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, 100);
  snprintf(path, sizeof path, "%s/gpu.trials", fixture.root);
  export_trial(&trial, path);
  struct bytes text = read_bytes(path);
  text.data[text.size] = '\0';
  ft_trial_print(&trial, &expected);
  ft_text_add(&expected, "\n");
  ck_assert_str_eq((const char *)text.data, expected.data);
  free(text.data);
  ft_text_free(&expected);
}
END_TEST

static int make_layer(const char *lines, char *said, size_t room) {
  char path[128], command[512];
  const char *const build = getenv("FATUNE_BUILD_DIR");
  snprintf(path, sizeof path, "%s/some.trials", fixture.root);
  write_bytes(path, lines, strlen(lines));
  snprintf(command, sizeof command, "%s/made_shipped %s/layer.fatune %s 2>&1 >%s/layer.c",
           build ? build : ".", fixture.root, path, fixture.root);
  FILE *const pipe = popen(command, "re");
  ck_assert_ptr_nonnull(pipe);
  said[fread(said, 1, room - 1, pipe)] = '\0';
  return pclose(pipe);
}

START_TEST(the_build_makes_a_layer_of_text) {
  struct ft_text lines = FT_TEXT_INIT;
  const struct ft_trial trial = make_trial(NEARBY, CLASS_H200, 5, 100);
  char said[4096], path[128];
  ft_text_add(&lines, "# a comment, and an empty line\n\n");
  ft_trial_print(&trial, &lines);
  ft_text_add(&lines, "\n");
  ck_assert_msg(make_layer(lines.data, said, sizeof said) == 0, "%s", said);
  free(layer.data);
  snprintf(path, sizeof path, "%s/layer.fatune", fixture.root);
  layer = read_bytes(path);
  struct ft_store *const store = open_with_layer();
  assert_chosen(choose(store, NEARBY), FT_HIT_SHIPPED, 5);
  ft_store_close(store);

  ft_text_add(&lines, "bucket=nonsense\n");
  ck_assert_int_ne(make_layer(lines.data, said, sizeof said), 0);
  ck_assert_msg(strstr(said, "some.trials:4") != NULL, "%s", said);
  ft_text_free(&lines);
}
END_TEST

/* -- the repository's own ------------------------------------------------------------------- */

static void each_line(const char *path, void (*look)(const char *path, int number, char *line)) {
  FILE *const file = fopen(path, "re");
  char *line = NULL;
  size_t room = 0;
  ck_assert_msg(file != NULL, "%s", path);
  for (int number = 1; getline(&line, &room, file) >= 0; number++) {
    line[strcspn(line, "#\n")] = '\0';
    if (line[strspn(line, " ")] != '\0') look(path, number, line);
  }
  free(line);
  fclose(file);
}

enum { LINES_MOST = 1000 };
static char *buckets[LINES_MOST];
static int bucket_count;
static struct ft_arch hopper;

static void open_hopper(void) {
  struct ft_lua *lua = NULL;
  assert_ok(ft_lua_open(&lua, NULL));
  assert_ok(ft_lua_gpu(lua, "h200", &hopper));
  ft_lua_close(lua);
}

static void look_at_request(const char *path, int number, char *line) {
  struct ft_request request;
  struct ft_text text = FT_TEXT_INIT;
  ck_assert_msg(ft_request_parse(&request, line) == FT_OK, "%s:%d: %s", path, number, ft_detail());
  ck_assert_msg(ft_rules_serves(&request, &hopper) == FT_OK, "%s:%d: %s", path, number,
                ft_detail());
  const struct ft_request bucket = ft_request_bucket(&request);
  ft_request_print(&bucket, &text);
  ck_assert_int_lt(bucket_count, LINES_MOST);
  for (int i = 0; i < bucket_count; i++)
    ck_assert_msg(strcmp(buckets[i], text.data) != 0, "%s:%d: its bucket stands there twice", path,
                  number);
  buckets[bucket_count++] = text.data;
}

START_TEST(every_model_is_served_and_measured_once) {
  open_hopper();
  each_line(FATUNE_SOURCE_DIR "/cache/shipped/models.shapes", look_at_request);
  ck_assert_int_gt(bucket_count, 70);
  for (int i = 0; i < bucket_count; i++) free(buckets[i]);
}
END_TEST

static int shipped_count;

/* Each winner that is shipped is found by its own bucket: with these templates or with others. */
static void look_at_trial(const char *path, int number, char *line) {
  struct ft_trial trial;
  struct ft_choice choice;
  ck_assert_msg(ft_trial_parse(&trial, line) == FT_OK, "%s:%d: %s", path, number, ft_detail());
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.shipped = ft_shipped_layer,
                                                          .shipped_size = ft_shipped_layer_size});
  const struct ft_query query = {.request = &trial.bucket, .device = trial.device};
  assert_ok(ft_store_choose(store, &query, &choice));
  ck_assert_msg(choice.hit == FT_HIT_SHIPPED, "%s:%d: %s", path, number, choice.note);
  ck_assert_msg(ft_config_compare(&choice.config, &trial.config) == 0, "%s:%d: %s", path, number,
                choice.note);
  ft_store_close(store);
  shipped_count++;
}

START_TEST(every_winner_that_ships_is_found) {
  glob_t files;
  const int found = glob(FATUNE_SOURCE_DIR "/cache/shipped/*.trials", 0, NULL, &files);
  ck_assert(found == 0 || found == GLOB_NOMATCH);
  for (size_t i = 0; found == 0 && i < files.gl_pathc; i++)
    each_line(files.gl_pathv[i], look_at_trial);
  if (found == 0) globfree(&files);
  struct ft_store *const store =
      open_store_with(&fixture, (struct ft_store_options){.memory_only = 1,
                                                          .shipped = ft_shipped_layer,
                                                          .shipped_size = ft_shipped_layer_size});
  int64_t checked = 0, damaged = 0;
  assert_ok(verify_store(store, false, &checked, &damaged));
  ck_assert_int_eq(checked, shipped_count);
  ck_assert_int_eq(damaged, 0);
  ft_store_close(store);
  assert_warnings(&fixture, 0);
}
END_TEST

/* -- the program ---------------------------------------------------------------------------- */

START_TEST(explain_tells_when_and_where_a_winner_was_measured) {
  setenv("FATUNE_CACHE_DIR", folder, 1);
  snprintf(fixture.folder, sizeof fixture.folder, "%s", folder);
  struct ft_trial trial = make_trial(PROBLEM, CLASS_H200, 1, 100);
  open_hopper();
  assert_ok(ft_default_config(&trial.request, &hopper, &trial.config));
  trial.at = time(NULL) - 3 * 24 * 60 * 60 - 100;
  struct ft_store *const store = open_store(&fixture);
  assert_ok(ft_store_trial_put(store, &trial));
  ft_store_close(store);
  expect("explain '" PROBLEM "' --gpu h200 --json", 0);
  json_t *const root = document("explain");
  const json_t *const measured = json_object_get(root, "measured");
  ck_assert_msg(measured != NULL, "%s", output);
  ck_assert_int_eq(json_integer_value(json_object_get(measured, "age_days")), 3);
  ck_assert_str_eq(text_at(measured, "device"), CLASS_H200);
  ck_assert_str_eq(text_at(measured, "driver"), "580.65");
  ck_assert_str_eq(text_at(measured, "nvrtc"), "13.0.88");
  json_decref(root);
  expect("explain '" PROBLEM "' --gpu h200", 0);
  expect_output("(3 days ago), " CLASS_H200 ", driver 580.65, NVRTC 13.0.88");
}
END_TEST

START_TEST(doctor_tells_what_ships) {
  char *behind = NULL;
  setenv("FATUNE_CACHE_DIR", folder, 1);
  setenv("FATUNE_SHIPPED", "on", 1);
  expect("doctor", 0);
  const char *const told = strstr(output, "\nshipped ");
  const char *const number = told ? strstr(told, " ok ") : NULL;
  ck_assert_msg(number != NULL, "%s", output);
  ck_assert_int_gt(strtol(&number[strlen(" ok ")], &behind, 10), 70);
  ck_assert_msg(strstr(behind, " winners, measured from") == behind, "%s", output);
  ck_assert_ptr_nonnull(strstr(told, " ago), the last on nvidia-h200/sm_90/132, driver 580."));
  setenv("FATUNE_SHIPPED", "off", 1);
  expect("doctor", 0);
  ck_assert_ptr_null(strstr(output, "\nshipped "));
}
END_TEST

static char default_bucket[256]; /* of a default that ships, measured at other sizes */

static void look_for_default(const char *path, int number, char *line) {
  struct ft_trial trial;
  struct ft_text asked = FT_TEXT_INIT, measured = FT_TEXT_INIT;
  ck_assert_msg(ft_trial_parse(&trial, line) == FT_OK, "%s:%d", path, number);
  ft_request_print(&trial.bucket, &asked);
  ft_request_print(&trial.request, &measured);
  if (trial.is_default && strcmp(asked.data, measured.data) != 0)
    snprintf(default_bucket, sizeof default_bucket, "%s", asked.data);
  ft_text_free(&asked);
  ft_text_free(&measured);
}

START_TEST(where_the_default_won_the_default_of_the_request_is_taken) {
  char line[512];
  each_line(FATUNE_SOURCE_DIR "/cache/shipped/nvidia-h200.trials", look_for_default);
  ck_assert_str_ne(default_bucket, "");
  snprintf(line, sizeof line, "explain '%s' --gpu h200 --json", default_bucket);
  expect(line, 0);
  json_t *const root = document("explain");
  ck_assert_str_eq(text_at(root, "hit"), "shipped");
  ck_assert_str_eq(text_at(root, "config"), text_at(root, "default"));
  ck_assert_ptr_nonnull(strstr(text_at(root, "note"), "the default won there"));
  json_decref(root);
}
END_TEST

Suite *make_shipped_suite(void) {
  Suite *const suite = suite_create("shipped");
  TCase *const tests = tcase_create("shipped");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, the_layer_answers_where_nothing_else_is_known);
  tcase_add_test(tests, own_measurements_go_first);
  tcase_add_test(tests, own_measurements_go_first_wherever_they_are);
  tcase_add_test(tests, what_ships_is_not_asked_for_its_kernel);
  tcase_add_test(tests, a_decode_takes_the_winner_of_its_own_bucket_alone);
  tcase_add_test(tests, a_default_that_won_is_told_from_other_winners);
  tcase_add_test(tests, the_layer_is_in_no_list_of_trials);
  tcase_add_loop_test(tests, whether_it_is_looked_at, 0, sizeof modes / sizeof *modes);
  tcase_add_test(tests, a_damaged_layer_is_a_miss_and_a_warning);
  tcase_add_test(tests, an_export_as_text_reads_back);
  tcase_add_test(tests, the_build_makes_a_layer_of_text);
  tcase_add_test(tests, every_model_is_served_and_measured_once);
  tcase_add_test(tests, every_winner_that_ships_is_found);
  tcase_add_test(tests, explain_tells_when_and_where_a_winner_was_measured);
  tcase_add_test(tests, doctor_tells_what_ships);
  tcase_add_test(tests, where_the_default_won_the_default_of_the_request_is_taken);
  suite_add_tcase(suite, tests);
  return suite;
}
