/* cli_bundle.c: signing and looking through files to ship.
 * in -> out: key file, passphrase -> key; files -> verdicts. */
#include "tuner/cli/cli_bundle.h"

#include <string.h>
#include <unistd.h>

#include "cache/file_bytes.h"
#include "cache/store.h"
#include "generator/status.h"
#include "runtime/session.h"

enum { KEY_MOST = 4096, PASSPHRASE_MOST = 1024 };

/* The file's first line. */
static int read_passphrase(const char *path, char passphrase[PASSPHRASE_MOST]) {
  void *bytes;
  size_t size;
  FT_TRY(ft_file_bytes(path, PASSPHRASE_MOST - 1, &bytes, &size));
  const size_t length = strcspn(bytes, "\r\n");
  memcpy(passphrase, bytes, length);
  passphrase[length] = '\0';
  explicit_bzero(bytes, size);
  ft_file_bytes_free(bytes);
  return FT_OK;
}

/* Reads the passphrase from the terminal, which does not show it, or without a terminal from
 * standard input. */
static int ask_passphrase(const char *key, char passphrase[PASSPHRASE_MOST]) {
  char prompt[320];
  snprintf(prompt, sizeof prompt, "Passphrase of %.256s: ", key);
  char *const typed = getpass(prompt);
  if (!typed || !typed[0] || strlen(typed) >= PASSPHRASE_MOST)
    return ft_fail(FT_E_ARGUMENT, "no passphrase was given; --passphrase-file FILE may hold it");
  strcpy(passphrase, typed);
  explicit_bzero(typed, strlen(typed));
  return FT_OK;
}

static int parse_key(const struct cli *cli, const char *text, struct ft_secret_key *key) {
  char passphrase[PASSPHRASE_MOST];
  int status = ft_secret_key_parse(key, text, NULL);
  if (status != FT_E_NOT_FOUND) return status; /* it has no passphrase */
  const char *const file = cli->options.passphrase_file;
  FT_TRY(file ? read_passphrase(file, passphrase) : ask_passphrase(cli->options.sign, passphrase));
  status = ft_secret_key_parse(key, text, passphrase);
  explicit_bzero(passphrase, sizeof passphrase);
  return status;
}

int cli_bundle_key(const struct cli *cli, struct ft_secret_key *key) {
  const char *const path = cli->options.sign;
  void *text;
  size_t size;
  const int found = ft_file_bytes(path, KEY_MOST, &text, &size);
  if (found != FT_OK) return ft_fail(FT_E_ARGUMENT, "--sign: %s", ft_detail());
  const int status = parse_key(cli, text, key);
  explicit_bzero(text, size);
  ft_file_bytes_free(text);
  return status == FT_OK ? FT_OK : ft_fail_within(FT_E_ARGUMENT, "--sign '%s'", path);
}

int cli_bundle_verify(struct cli *cli, fatune_session *session, char **words, int count) {
  json_t *const files = json_array();
  int worst = FT_OK;
  for (int i = 0; i < count; ++i) {
    struct ft_bundle_verdict verdict;
    const int status = ft_store_verify_bundle(session->store, words[i], &verdict);
    const bool sound = status == FT_OK;
    if (verdict.how[0])
      cli_print(cli, "%s: %lld trial%s, %lld kernel%s, %s; %s\n", words[i],
                (long long)verdict.trials, verdict.trials == 1 ? "" : "s",
                (long long)verdict.kernels, verdict.kernels == 1 ? "" : "s",
                sound ? "sound" : "not sound", verdict.how);
    else
      cli_print(cli, "%s: no file of fatune that can be read\n", words[i]);
    json_t *const file = json_object();
    cli_json_set(file, "file", cli_json_text(words[i]));
    cli_json_set(file, "sound", json_boolean(sound));
    cli_json_set(file, "signed", json_boolean(verdict.is_signed));
    cli_json_set(file, "signature", cli_json_text(verdict.how));
    cli_json_set(file, "trials", json_integer(verdict.trials));
    cli_json_set(file, "kernels", json_integer(verdict.kernels));
    cli_json_set(file, "recipes", json_integer(verdict.recipes));
    cli_json_set(file, "damaged", json_integer(verdict.damaged));
    json_array_append_new(files, file);
    if (!sound) {
      cli_warning(cli, "%s", ft_detail());
      if (worst == FT_OK || status == FT_E_CACHE) worst = status;
    }
  }
  cli_json(cli, "files", files);
  return worst == FT_OK ? FT_OK : ft_fail(worst, "not every file is sound: see the warnings");
}
