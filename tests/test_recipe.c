/* test_recipe.c: recipes stand for texts, and no other text is ever served for one.
 * in -> out: changed requests, configs, GPUs, templates, scores -> other recipes; sessions on the
 * fake GPU -> texts emitted or not -> Check suite. */
#include <libgen.h>

#include "generator/made_digests.h"
#include "generator/recipe.h"
#include "runtime/session.h"
#include "tests/fake_lab.h"
#include "tests/generator_cases.h"
#include "tests/golden_list.h"
#include "tests/store_fixture.h"
#include "tests/suites.h"

#define PLAIN    "forward bf16 d128 nq1"
#define CONFIG   "mma_forward block_m=128 block_n=64 warps=4 stages=2 ctas_per_sm=1"
#define FUNCTION "score = s * %s"

static struct fixture fixture;
static char templates[96];

/* All templates as files of a folder that a test may change. */
static void write_template(const struct ft_template *file, const char *added) {
  char path[192], folder[192];
  snprintf(path, sizeof path, "%s/%s", templates, file->name);
  snprintf(folder, sizeof folder, "%s", path);
  mkdir(dirname(folder), 0700);
  FILE *const out = fopen(path, "wb");
  ck_assert_msg(out != NULL, "%s", path);
  ck_assert_uint_eq(fwrite(file->text, 1, file->length, out), file->length);
  fputs(added, out);
  ck_assert_int_eq(fclose(out), 0);
}

static void set_up(void) {
  struct ft_template_files files;
  fixture_open(&fixture);
  snprintf(templates, sizeof templates, "%s/templates", fixture.root);
  ck_assert_int_eq(mkdir(templates, 0700), 0);
  assert_ok(ft_template_files_open(&files, NULL));
  for (size_t i = 0; i < files.count; i++) write_template(&files.rows[i], "");
  ft_template_files_close(&files);
}

static void tear_down(void) {
  fixture_close(&fixture);
}

/* ---- the digest ---- */

static struct ft_digest recipe_in(struct ft_lua *lua, const char *request, const char *gpu,
                                  const char *config) {
  const struct ft_request wanted = known_request(request);
  const struct ft_config knobs = known_config(config);
  struct ft_source source;
  struct ft_arch arch;
  struct ft_digest recipe;
  assert_ok(ft_lua_gpu(lua, gpu, &arch));
  const int status = ft_recipe(&source, lua, &wanted, &arch, &knobs, &recipe);
  ck_assert_msg(status == FT_OK, "%s on %s: %s", request, gpu, ft_detail());
  ck_assert_ptr_null(source.text);
  return recipe;
}

static struct ft_digest recipe_of(const char *folder, const char *request, const char *gpu,
                                  const char *config) {
  struct ft_lua *lua;
  assert_ok(ft_lua_open(&lua, folder));
  const struct ft_digest recipe = recipe_in(lua, request, gpu, config);
  ft_lua_close(lua);
  return recipe;
}

START_TEST(made_digests_are_those_of_the_files) {
  struct ft_template_files files;
  assert_ok(ft_template_files_open(&files, NULL));
  const struct ft_digest computed = ft_template_files_digest(&files);
  ft_template_files_close(&files);
  ck_assert(ft_digest_equal(&computed, &ft_made_templates));
  ck_assert(!ft_digest_equal(&ft_made_generator, &ft_made_templates));
}
END_TEST

/* A request, a GPU and a config that differ in one thing each. */
START_TEST(each_input_makes_another_recipe) {
  static const char *const others[][3] = {
      {"backward bf16 d128 nq1", "a100",
       "mma_backward block_m=64 block_n=128 warps=8 stages=2 column_warps=1 query_parts=2 "
       "ctas_per_sm=1"},
      {"fp16 d128 nq1", "a100", CONFIG},
      {"d64 nq1", "a100", CONFIG},
      {"d128 dv64 nq1", "a100", CONFIG},
      {"d128 nq1 causal", "a100", CONFIG},
      {"d128 nq1 causal=top-left", "a100", CONFIG},
      {"d128 nq1 window", "a100", CONFIG},
      {"d128 nq1 window=top-left", "a100", CONFIG},
      {"d128 nq1 dropout", "a100", CONFIG},
      {"d128 nq1 mask=128x128", "a100", CONFIG},
      {"d128 nq1 mask=256x128", "a100", CONFIG},
      {PLAIN, "rtx3090", CONFIG},
      {PLAIN, "h200", CONFIG},
      {PLAIN, "a100", "mma_forward block_m=64 block_n=64 warps=4 stages=2 ctas_per_sm=1"},
      {PLAIN, "a100", "mma_forward block_m=128 block_n=32 warps=4 stages=2 ctas_per_sm=1"},
      {PLAIN, "a100", "mma_forward block_m=128 block_n=64 warps=8 stages=2 ctas_per_sm=1"},
      {PLAIN, "a100", "mma_forward block_m=128 block_n=64 warps=4 stages=1 ctas_per_sm=1"},
      {PLAIN, "h200", "wgmma_forward block_m=128 block_n=128 stages=2 q_stages=2 overlap_tiles=1"}};
  enum { OTHERS = sizeof others / sizeof *others };
  struct ft_digest recipes[OTHERS + 1];
  recipes[OTHERS] = recipe_of(NULL, PLAIN, "a100", CONFIG);
  for (int i = 0; i < OTHERS; i++)
    recipes[i] = recipe_of(NULL, others[i][0], others[i][1], others[i][2]);
  for (int i = 0; i <= OTHERS; i++)
    for (int k = 0; k < i; k++)
      ck_assert_msg(!ft_digest_equal(&recipes[i], &recipes[k]), "%d and %d are the same", i, k);
}
END_TEST

/* What a text does not depend on. */
START_TEST(sizes_of_a_run_are_no_part_of_it) {
  const struct ft_digest plain = recipe_of(NULL, PLAIN, "a100", CONFIG);
  const struct ft_digest large = recipe_of(NULL, "d128 hq32 hkv8 b7 nq4096 nk512", "a100", CONFIG);
  const struct ft_digest from_folder = recipe_of(templates, PLAIN, "a100", CONFIG);
  ck_assert(ft_digest_equal(&plain, &large));
  ck_assert(ft_digest_equal(&plain, &from_folder));
}
END_TEST

START_TEST(each_template_makes_another_recipe) {
  const struct ft_digest plain = recipe_of(templates, PLAIN, "a100", CONFIG);
  struct ft_template_files files;
  assert_ok(ft_template_files_open(&files, NULL));
  ck_assert_uint_gt(files.count, 20);
  for (size_t i = 0; i < files.count; i++) {
    write_template(&files.rows[i], "\n");
    const struct ft_digest changed = recipe_of(templates, PLAIN, "a100", CONFIG);
    ck_assert_msg(!ft_digest_equal(&plain, &changed), "%s may change", files.rows[i].name);
    write_template(&files.rows[i], "");
  }
  ft_template_files_close(&files);
  const struct ft_digest back = recipe_of(templates, PLAIN, "a100", CONFIG);
  ck_assert(ft_digest_equal(&plain, &back));
}
END_TEST

/* All golden kernels on all GPUs of the table: as many texts as recipes, or more recipes. */
START_TEST(equal_recipes_give_equal_texts) {
  enum { MOST = 4096 };
  static struct ft_digest recipes[MOST], digests[MOST];
  struct golden_entry entries[GOLDEN_ENTRIES_MOST];
  const int count = golden_entries(entries);
  struct ft_lua *lua;
  struct ft_arch arch;
  int known = 0, met = 0;
  assert_ok(ft_lua_open(&lua, NULL));
  for (int e = 0; e < count; e++) {
    for (int g = 0; ft_lua_gpu_at(lua, g, &arch) == FT_OK; g++) {
      struct ft_source source, outline;
      struct ft_digest recipe;
      if (ft_emit(&source, lua, &entries[e].request, &arch, &entries[e].config) != FT_OK) continue;
      assert_ok(ft_recipe(&outline, lua, &entries[e].request, &arch, &entries[e].config, &recipe));
      ck_assert_str_eq(outline.target, source.target);
      ck_assert_mem_eq(&outline.budget, &source.budget, sizeof source.budget);
      int i = 0;
      while (i < known && !ft_digest_equal(&recipes[i], &recipe)) i++;
      if (i < known) {
        met++;
        ck_assert_msg(ft_digest_equal(&digests[i], &source.digest), "%s on %s", entries[e].name,
                      arch.name);
      } else {
        ck_assert_int_lt(known, MOST);
        recipes[known] = recipe;
        digests[known++] = source.digest;
      }
      ft_source_free(&source);
    }
  }
  ck_assert_int_gt(known, count);
  ck_assert_int_gt(met, count);
  ft_lua_close(lua);
}
END_TEST

/* ---- sessions ---- */

static fatune_session *open_session(const char *folder) {
  fatune_session *session;
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  options.cache_dir = fixture.folder;
  options.system_path = "";
  options.template_dir = folder;
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_OK);
  return session;
}

/* How many texts the plan of a new session takes; *text: the plan's. */
static int emitted_for(const char *folder, const char *words, const char *function, char **text) {
  fatune_session *const session = open_session(folder);
  fatune_request request = fake_request(words);
  fatune_plan *plan;
  if (function)
    ck_assert_status(fatune_score_add(&request.score, session, "mine", function), FATUNE_OK);
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  const int emitted = atomic_load(&session->emitted);
  if (text) ck_assert_ptr_nonnull(*text = strdup(fatune_plan_source(plan)));
  fatune_plan_free(plan);
  fatune_session_close(session);
  return emitted;
}

static void set_up_session(void) {
  set_up();
  use_fake_cuda();
  use_fake_nvrtc();
}

START_TEST(a_warm_plan_emits_nothing_and_has_its_text) {
  char *cold, *warm;
  ck_assert_int_eq(emitted_for(NULL, "d64 nq128 causal", NULL, &cold), 1);
  ck_assert_int_eq(emitted_for(NULL, "d64 nq128 causal", NULL, NULL), 0);
  ck_assert_int_eq(emitted_for(NULL, "d64 nq128 causal", NULL, &warm), 0);
  ck_assert_int_eq(emitted_for(NULL, "d64 nq128", NULL, NULL), 1);
  ck_assert_str_ne(cold, "");
  ck_assert_str_eq(cold, warm);
  free(cold);
  free(warm);
}
END_TEST

START_TEST(what_changes_a_text_makes_a_miss) {
  const struct ft_template part = {"mma_forward.cu.in", NULL, 0};
  const struct ft_template *file;
  struct ft_template_files files;
  char one[96], two[96];
  snprintf(one, sizeof one, FUNCTION, "0.5");
  snprintf(two, sizeof two, FUNCTION, "0.25");
  ck_assert_int_eq(emitted_for(templates, "d64 nq128", one, NULL), 1);
  ck_assert_int_eq(emitted_for(templates, "d64 nq128", one, NULL), 0);
  ck_assert_int_eq(emitted_for(templates, "d64 nq128", two, NULL), 1);
  ck_assert_int_eq(emitted_for(templates, "d64 nq128", one, NULL), 0);
  assert_ok(ft_template_files_open(&files, NULL));
  ck_assert_ptr_nonnull(file = ft_template_files_find(&files, part.name));
  write_template(file, "// changed\n");
  ck_assert_int_eq(emitted_for(templates, "d64 nq128", one, NULL), 1);
  ck_assert_ptr_nonnull(file = ft_template_files_find(&files, "gpus.lua"));
  write_template(file, "-- changed\n");
  ck_assert_int_eq(emitted_for(templates, "d64 nq128", one, NULL), 1);
  ft_template_files_close(&files);
}
END_TEST

/* Rows that were damaged, or put under another recipe: misses, mended by what is emitted. */
START_TEST(a_damaged_recipe_is_a_miss) {
  static const char *const damage[] = {
      "UPDATE recipes SET source = randomblob(32)", "UPDATE recipes SET identity = zeroblob(32)",
      "UPDATE recipes SET source = x'00'", "UPDATE recipes SET recipe = randomblob(32)",
      ("UPDATE recipes SET (source, identity) = "
       "(SELECT r.source, r.identity FROM recipes r WHERE r.id <> recipes.id)")};
  char path[192], *text, *again;
  snprintf(path, sizeof path, "%s/kernels.db", fixture.folder);
  emitted_for(NULL, "d64 nq128", NULL, &text);
  emitted_for(NULL, "d64 nq128 causal", NULL, NULL);
  ck_assert_int_eq(number_of(path, "SELECT count(*) FROM recipes"), 2);
  run_sql(path, damage[_i]);
  ck_assert_int_eq(emitted_for(NULL, "d64 nq128", NULL, &again), 1);
  ck_assert_str_eq(text, again);
  ck_assert_int_eq(emitted_for(NULL, "d64 nq128", NULL, NULL), 0);
  free(text);
  free(again);
}
END_TEST

START_TEST(the_newest_recipes_are_kept) {
  enum { MOST = 4096 };
  char path[192];
  struct ft_store *const store = open_store(&fixture);
  struct ft_kernel kernel = make_kernel(&fixture.dice, 100);
  assert_ok(ft_store_kernel_put(store, &kernel));
  ft_kernel_free(&kernel);
  for (int i = 0; i < MOST + 100; i++) {
    const struct ft_digest digest = ft_digest_of(&i, sizeof i);
    ft_store_recipe_put(store, &digest, &digest);
  }
  snprintf(path, sizeof path, "%s/kernels.db", fixture.folder);
  ck_assert_int_eq(number_of(path, "SELECT count(*) FROM recipes"), MOST);
  struct ft_digest found;
  for (int i = 0; i < MOST + 100; i += 99) {
    const struct ft_digest digest = ft_digest_of(&i, sizeof i);
    const int status = ft_store_recipe_get(store, &digest, &found);
    ck_assert_int_eq(status, i < 100 ? FT_E_NOT_FOUND : FT_OK);
    ck_assert(status != FT_OK || ft_digest_equal(&found, &digest));
  }
  ft_store_close(store);
}
END_TEST

Suite *make_recipe_suite(void) {
  Suite *const suite = suite_create("recipe");
  TCase *const digests = tcase_create("digest");
  tcase_add_checked_fixture(digests, set_up, tear_down);
  tcase_set_timeout(digests, 120);
  tcase_add_test(digests, made_digests_are_those_of_the_files);
  tcase_add_test(digests, each_input_makes_another_recipe);
  tcase_add_test(digests, sizes_of_a_run_are_no_part_of_it);
  tcase_add_test(digests, each_template_makes_another_recipe);
  tcase_add_test(digests, equal_recipes_give_equal_texts);
  suite_add_tcase(suite, digests);
  TCase *const sessions = tcase_create("session");
  tcase_add_checked_fixture(sessions, set_up_session, tear_down);
  tcase_set_timeout(sessions, 60);
  tcase_add_test(sessions, a_warm_plan_emits_nothing_and_has_its_text);
  tcase_add_test(sessions, what_changes_a_text_makes_a_miss);
  tcase_add_loop_test(sessions, a_damaged_recipe_is_a_miss, 0, 5);
  tcase_add_test(sessions, the_newest_recipes_are_kept);
  suite_add_tcase(suite, sessions);
  return suite;
}
