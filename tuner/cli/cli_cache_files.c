/* cli_cache_files.c: the actions of `fatune cache` that move rows between files.
 * in -> out: files of others -> rows here; winners here -> a file to ship. */
#include "tuner/cli/cli_cache_files.h"

#include <string.h>

#include "cache/store.h"
#include "cache/trust.h"
#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/cli/cli_bundle.h"

/* merge and import differ in the function alone. A bad file does not keep the others from being
 * taken in. */
static int take_files(struct cli *cli, fatune_session *session, char **words, int count,
                      int (*take)(struct ft_store *, const char *, int64_t *, int64_t *)) {
  json_t *const files = json_array();
  int failed = FT_OK, bad = 0;
  for (int i = 0; i < count; ++i) {
    int64_t trials = 0, kernels = 0;
    const int status = take(session->store, words[i], &trials, &kernels);
    if (status != FT_OK) { /* the detail names the file */
      if (count > 1) cli_warning(cli, "%s", ft_detail());
      if (failed == FT_OK) failed = status;
      bad += 1;
      if (status == FT_E_MEMORY) break;
      continue;
    }
    cli_print(cli, "%s: %lld trial%s, %lld kernel%s added\n", words[i], (long long)trials,
              trials == 1 ? "" : "s", (long long)kernels, kernels == 1 ? "" : "s");
    json_t *const file = json_object();
    cli_json_set(file, "file", cli_json_text(words[i]));
    cli_json_set(file, "trials", json_integer(trials));
    cli_json_set(file, "kernels", json_integer(kernels));
    cli_json_append(files, file);
  }
  cli_json(cli, "files", files);
  if (failed == FT_OK || count == 1) return failed;
  return ft_fail(failed, "%d of %d files were not taken in", bad, count);
}

int cli_cache_merge(struct cli *cli, fatune_session *session, char **words, int count) {
  return take_files(cli, session, words, count, ft_store_merge);
}

int cli_cache_import(struct cli *cli, fatune_session *session, char **words, int count) {
  return take_files(cli, session, words, count, ft_store_import);
}

static void tell_export(struct cli *cli, const char *file, const struct ft_export *export) {
  cli_print(cli, "%s: %lld trial%s, %lld kernel%s\n", file, (long long)export->trials,
            export->trials == 1 ? "" : "s", (long long)export->kernels,
            export->kernels == 1 ? "" : "s");
  if (export->missing > 0) {
    cli_warning(cli,
                "%lld of the trials have no kernel in the caches: where the file goes, NVRTC has "
                "to compile them; `fatune compile` of their requests, here, adds them",
                (long long)export->missing);
  }
  cli_json(cli, "file", cli_json_text(file));
  cli_json(cli, "trials", json_integer(export->trials));
  cli_json(cli, "kernels", json_integer(export->kernels));
  cli_json(cli, "recipes", json_integer(export->recipes));
  cli_json(cli, "missing", json_integer(export->missing));
}

static int sign(struct cli *cli, const char *file, const char *target,
                const struct ft_export *export, const struct ft_secret_key *key) {
  char comment[96], id[FT_KEY_ID_HEX];
  ft_key_id_hex(key->id, id);
  snprintf(comment, sizeof comment, "fatune %s: %lld trials, %lld kernels", target,
           (long long)export->trials, (long long)export->kernels);
  FT_TRY(ft_trust_sign(file, key, comment));
  cli_print(cli, "%s.minisig: signed by %s\n", file, id);
  cli_json(cli, "key", cli_json_text(id));
  return FT_OK;
}

/* key: NULL for a file that is not to be signed. */
static int export_signed(struct cli *cli, fatune_session *session,
                         const struct ft_secret_key *key) {
  const char *const file = cli->options.output;
  struct cli_target target;
  struct ft_export export = {.may_be_empty = cli->options.allow_empty};
  if (file == NULL || strcmp(file, "-") == 0) {
    return ft_fail(FT_E_ARGUMENT, "export needs -o FILE, as -o sm_90.fatune%s",
                   file == NULL ? "" : "; it does not write to stdout");
  }
  FT_TRY(cli_target_find(cli, session, &target));
  /* "sm_90" is every GPU of the target, a name one class of them. */
  const char *const gpu = cli->options.emulate != NULL ? cli->options.emulate : cli->options.gpu;
  const bool whole = gpu != NULL && strncasecmp(gpu, "sm", 2) == 0;
  const int status =
      ft_store_export(session->store, target.name, whole ? NULL : target.id, file, &export);
  if (status == FT_E_NOT_FOUND) {
    return ft_fail(status,
                   "nothing is known for %s%s%s%s; '%s' is not written (--allow-empty "
                   "writes it)",
                   whole ? target.name : target.id, whole ? "" : " (--gpu ",
                   whole ? "" : target.name, whole ? "" : " takes every GPU of the target)", file);
  }
  FT_TRY(status);
  ft_trust_unsign(file);
  tell_export(cli, file, &export);
  cli_json(cli, "target", cli_json_text(target.name));
  return key != NULL ? sign(cli, file, target.name, &export, key) : FT_OK;
}

/* The key is asked for first: nothing is written for a passphrase mistyped. */
int cli_cache_export(struct cli *cli, fatune_session *session, char **words, int count) {
  struct ft_secret_key key;
  (void)words, (void)count;
  if (cli->options.sign == NULL) return export_signed(cli, session, NULL);
  FT_TRY(cli_bundle_key(cli, &key));
  const int status = export_signed(cli, session, &key);
  ft_secret_key_wipe(&key);
  return status;
}
