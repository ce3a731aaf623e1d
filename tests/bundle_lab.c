/* bundle_lab.c: two kernels in a file to ship, and what is served of it.
 * in -> out: bundle_lab.h. */
#include "tests/bundle_lab.h"

#include "generator/recipe.h"
#include "runtime/choice.h"
#include "runtime/kernel_source.h"
#include "tests/fake_lab.h"

fatune_session *bundle_lab_session(struct bundle_lab *lab, const char *system_path, int compile) {
  fatune_session *session;
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  options.cache_dir = lab->fixture.folder;
  options.system_path = system_path;
  options.template_dir = lab->template_dir;
  options.compile = compile;
  options.log = note_warning;
  options.payload = &lab->fixture;
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_OK);
  return session;
}

void bundle_lab_forget_user(struct bundle_lab *lab) {
  nftw(lab->fixture.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

struct ft_export bundle_lab_export(fatune_session *session, const char *file) {
  struct ft_export export = {.may_be_empty = false};
  assert_ok(ft_store_export(session->store, "sm_90", NULL, file, &export));
  return export;
}

void bundle_lab_open(struct bundle_lab *lab) {
  use_fake_cuda();
  use_fake_nvrtc();
  lab->template_dir = NULL;
  fixture_open(&lab->fixture);
  snprintf(lab->layers, sizeof lab->layers, "%s/layers", lab->fixture.root);
  snprintf(lab->bundle, sizeof lab->bundle, "%s/sm_90.fatune", lab->layers);
  snprintf(lab->other, sizeof lab->other, "%s/sm_90-other.fatune", lab->layers);
  snprintf(lab->kernels_db, sizeof lab->kernels_db, "%s/kernels.db", lab->fixture.folder);
  ck_assert_int_eq(mkdir(lab->layers, 0700), 0);
  fatune_session *const session = bundle_lab_session(lab, "", 0);
  for (int i = 0; i < 2; i++) {
    struct ft_source outline;
    lab->sources[i] = fake_measured(session, i ? ANOTHER : ASKED, &lab->trials[i]);
    assert_ok(ft_recipe(&outline, session->lua, &lab->trials[i].request, &session->device.arch,
                        &lab->trials[i].config, &lab->recipes[i]));
  }
  const struct ft_export export = bundle_lab_export(session, lab->bundle);
  ck_assert_int_eq(export.kernels, 2);
  ck_assert_int_eq(export.recipes, 2);
  fatune_session_close(session);
  bundle_lab_forget_user(lab);
}

void bundle_lab_close(struct bundle_lab *lab) {
  fixture_close(&lab->fixture);
}

struct bundle_served bundle_lab_serve_in(fatune_session *session, const char *words) {
  const struct ft_request request = request_of(words);
  const struct ft_digest nothing = {{0}};
  struct bundle_served served;
  struct ft_choice choice;
  struct ft_source source = {0};
  struct ft_kernel kernel = {0};
  struct ft_module module = {0};
  assert_ok(
      ft_session_choose(session, &request, &session->device.arch, session->device.id, &choice));
  const bool named = !ft_digest_equal(&choice.kernel, &nothing);
  served.status =
      ft_session_prepare(session, &request, &choice.config, named ? &choice.kernel : NULL, &source,
                         &kernel, &module, &served.compiled);
  served.emitted = atomic_load(&session->emitted);
  served.source = kernel.source;
  if (served.status == FT_OK) {
    ck_assert(ft_digest_equal(&source.digest, &kernel.source));
    ft_module_unload(&module, session);
    ft_kernel_free(&kernel);
  }
  ft_source_free(&source);
  return served;
}

struct bundle_served bundle_lab_serve(struct bundle_lab *lab, int compile) {
  fatune_session *const session = bundle_lab_session(lab, lab->layers, compile);
  const struct bundle_served served = bundle_lab_serve_in(session, ASKED);
  fatune_session_close(session);
  return served;
}

void bundle_lab_assert_served(struct bundle_lab *lab, int emitted) {
  const struct bundle_served served = bundle_lab_serve(lab, -1);
  ck_assert_msg(served.status == FT_OK, "%s", ft_detail());
  ck_assert_int_eq(served.emitted, emitted);
  ck_assert(ft_digest_equal(&served.source, &lab->sources[0]));
}

int bundle_lab_verify(struct bundle_lab *lab, const char *file, struct ft_bundle_verdict *verdict) {
  fatune_session *const session = bundle_lab_session(lab, "", 0);
  const int status = ft_store_verify_bundle(session->store, file, verdict);
  fatune_session_close(session);
  return status;
}

int bundle_lab_import(struct bundle_lab *lab, const char *file) {
  int64_t taken[2];
  fatune_session *const session = bundle_lab_session(lab, "", 0);
  const int status = ft_store_import(session->store, file, &taken[0], &taken[1]);
  fatune_session_close(session);
  return status;
}

void bundle_lab_put_recipe(const char *file, const struct ft_digest *recipe,
                           const struct ft_digest *source) {
  struct ft_hasher hasher;
  char hex[3][FT_DIGEST_HEX], sql[512];
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "recipe", recipe->bytes, sizeof recipe->bytes);
  ft_hasher_section(&hasher, "source", source->bytes, sizeof source->bytes);
  const struct ft_digest identity = ft_hasher_final(&hasher);
  ft_digest_hex(recipe, hex[0]);
  ft_digest_hex(source, hex[1]);
  ft_digest_hex(&identity, hex[2]);
  snprintf(sql, sizeof sql,
           "INSERT OR REPLACE INTO recipes (recipe, source, identity) VALUES (x'%s', x'%s', x'%s')",
           hex[0], hex[1], hex[2]);
  run_sql(file, sql);
}
