/* cli_cache_files.c: the actions of `fatune cache` that move rows between files.
 * in -> out: files of others -> rows here; winners here -> a file to ship. */
#include "tuner/cli/cli_cache_files.h"

#include <string.h>

#include "cache/store.h"
#include "generator/status.h"
#include "runtime/session.h"

/* merge and import differ in the function alone. Files before a bad one stay taken in. */
static int take_files(struct cli *cli, fatune_session *session, char **words, int count,
                      int (*take)(struct ft_store *, const char *, int64_t *, int64_t *)) {
  json_t *const files = json_array();
  int status = FT_OK;
  for (int i = 0; i < count && status == FT_OK; ++i) {
    int64_t trials = 0, kernels = 0;
    status = take(session->store, words[i], &trials, &kernels);
    if (status != FT_OK) break; /* the detail names the file */
    cli_print(cli, "%s: %lld trials, %lld kernels added\n", words[i], (long long)trials,
              (long long)kernels);
    json_t *const file = json_object();
    cli_json_set(file, "file", cli_json_text(words[i]));
    cli_json_set(file, "trials", json_integer(trials));
    cli_json_set(file, "kernels", json_integer(kernels));
    json_array_append_new(files, file);
  }
  cli_json(cli, "files", files);
  return status;
}

int cli_cache_merge(struct cli *cli, fatune_session *session, char **words, int count) {
  return take_files(cli, session, words, count, ft_store_merge);
}

int cli_cache_import(struct cli *cli, fatune_session *session, char **words, int count) {
  return take_files(cli, session, words, count, ft_store_import);
}

int cli_cache_export(struct cli *cli, fatune_session *session, char **words, int count) {
  (void)words, (void)count;
  const char *const file = cli->options.output;
  struct cli_target target;
  int64_t trials = 0, kernels = 0;
  if (file == NULL || strcmp(file, "-") == 0) {
    return ft_fail(FT_E_ARGUMENT, "export needs -o FILE, as -o sm_90.fatune");
  }
  FT_TRY(cli_target_find(cli, session, &target));
  /* "sm_90" is every GPU of the target, a name one class of them. */
  const char *const gpu = cli->options.emulate != NULL ? cli->options.emulate : cli->options.gpu;
  const bool whole = gpu != NULL && strncasecmp(gpu, "sm", 2) == 0;
  FT_TRY(ft_store_export(session->store, target.name, whole ? NULL : target.id, file, &trials,
                         &kernels));
  if (trials == 0) {
    cli_warning(cli, "nothing is known for %s%s%s%s", whole ? target.name : target.id,
                whole ? "" : "; --gpu ", whole ? "" : target.name,
                whole ? "" : " takes every GPU of the target");
  }
  cli_print(cli, "%s: %lld trials, %lld kernels\n", file, (long long)trials, (long long)kernels);
  cli_json(cli, "file", cli_json_text(file));
  cli_json(cli, "target", cli_json_text(target.name));
  cli_json(cli, "trials", json_integer(trials));
  cli_json(cli, "kernels", json_integer(kernels));
  return FT_OK;
}
