/* trust.c: which files of others are read.
 * in -> out: FATUNE_TRUST, trusted keys, a file with its signature and its place -> taken or
 * refused. */
#include "cache/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/file_bytes.h"
#include "cache/place.h"
#include "cache/trust_keys.h"
#include "cache/unfinished.h"
#include "generator/status.h"

/* A signed file is held in memory as a whole. */
static const size_t SIGNED_MOST = (size_t)1 << 30;

/* How SQLite's files begin. */
#define DATABASE "SQLite format 3"
#define TRIALS   "bucket=\""

/* ORDER TRUST */
static const char *const names[] = {"any", "owner", "signed"};
enum { POLICIES = sizeof names / sizeof *names };

const char *ft_trust_name(enum ft_trust_policy policy) {
  return names[policy];
}

/* A policy that nobody knows must not let in what the one that was meant keeps out. */
struct ft_trust ft_trust_begin(void) {
  struct ft_trust trust = {.policy = FT_TRUST_OWNER};
  const char *const value = secure_getenv("FATUNE_TRUST");
  if (!value || !*value) return trust;
  for (int i = 0; i < POLICIES; i++)
    if (strcmp(value, names[i]) == 0) {
      trust.policy = (enum ft_trust_policy)i;
      return trust;
    }
  trust.policy = FT_TRUST_SIGNED;
  snprintf(trust.misnamed, sizeof trust.misnamed, "%s", value);
  return trust;
}

void ft_trust_end(struct ft_trust *trust) {
  free(trust->keys);
  *trust = (struct ft_trust){.policy = trust->policy};
}

void ft_admission_free(struct ft_admission *admission) {
  free(admission->path);
  sqlite3_free(admission->bytes);
  *admission = (struct ft_admission){.path = NULL};
}

/* -- signatures ----------------------------------------------------------------------------- */

static int find_keys(struct ft_trust *trust) {
  char reason[256];
  int refused;
  if (trust->has_keys) return FT_OK;
  FT_TRY(ft_trusted_keys(&trust->keys, &trust->key_count, &refused, reason));
  snprintf(trust->key_trouble, sizeof trust->key_trouble, "%s", reason);
  trust->has_keys = true;
  return FT_OK;
}

static int name_signature(const char *path, char **name) {
  if (asprintf(name, "%s.minisig", path) >= 0) return FT_OK;
  *name = NULL;
  return ft_fail(FT_E_MEMORY, "no memory for a path");
}

/* The comment is the signer's, but it goes to a terminal. */
static void describe(struct ft_admission *admission, const struct ft_public_key *key,
                     const struct ft_text *comment) {
  char id[FT_KEY_ID_HEX];
  ft_key_id_hex(key->id, id);
  snprintf(admission->how, sizeof admission->how, "signed by %s%s%s", id,
           comment->length ? ": " : "", comment->data ? comment->data : "");
  for (char *c = admission->how; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 0x7f) *c = ' ';
}

/* The bytes are read before the signature is looked at, and are those that are used. */
int ft_trust_check_signature(struct ft_trust *trust, const char *path,
                             struct ft_admission *admission) {
  struct ft_text comment = FT_TEXT_INIT;
  char *name = NULL;
  void *signature = NULL;
  size_t length;
  int index, status;
  *admission = (struct ft_admission){.path = NULL};
  FT_CHECK(name_signature(path, &name));
  status = ft_file_bytes(name, FT_SIGNATURE_TEXT_MOST, &signature, &length);
  if (status == FT_E_NOT_FOUND) FT_GIVE_UP(ft_fail(status, "there is no signature '%s'", name));
  FT_CHECK(status);
  FT_CHECK(ft_file_bytes(path, SIGNED_MOST, &admission->bytes, &admission->size));
  FT_CHECK(find_keys(trust));
  FT_CHECK(ft_signature_check(signature, admission->bytes, admission->size, trust->keys,
                              trust->key_count, &index, &comment));
  describe(admission, &trust->keys[index], &comment);
done:
  if (status == FT_E_NOT_FOUND && trust->key_trouble[0])
    ft_fail(status, "%s (a key is not used: %s)", ft_detail(), trust->key_trouble);
  if (status != FT_OK) ft_admission_free(admission);
  sqlite3_free(signature);
  ft_text_free(&comment);
  free(name);
  return status;
}

static int write_whole(const char *path, const struct ft_text *text) {
  struct ft_unfinished unfinished;
  FT_TRY(ft_unfinished_make(&unfinished, path));
  const int file = unfinished.file;
  bool made = write(file, text->data, text->length) == (ssize_t)text->length &&
              fchmod(file, 0644) == 0 && fsync(file) == 0;
  int why = errno;
  if (close(file) != 0) made = false;
  if (made && rename(unfinished.path, path) != 0) {
    why = errno;
    made = false;
  }
  ft_unfinished_end(&unfinished);
  return made ? FT_OK : ft_fail(FT_E_CACHE, "cannot write '%s': %s", path, strerror(why));
}

int ft_trust_sign(const char *path, const struct ft_secret_key *key, const char *comment) {
  struct ft_text text = FT_TEXT_INIT;
  char *name = NULL;
  void *bytes = NULL;
  size_t size;
  int status;
  FT_CHECK(name_signature(path, &name));
  FT_CHECK(ft_file_bytes(path, SIGNED_MOST, &bytes, &size));
  FT_CHECK(ft_signature_make(key, bytes, size, comment, &text));
  FT_CHECK(write_whole(name, &text));
done:
  sqlite3_free(bytes);
  ft_text_free(&text);
  free(name);
  return status;
}

void ft_trust_unsign(const char *path) {
  char *name = NULL;
  if (name_signature(path, &name) == FT_OK) unlink(name);
  free(name);
}

/* -- the judgement of a file ---------------------------------------------------------------- */

static int check_plain(const char *path) {
  struct stat state;
  if (stat(path, &state) != 0)
    return ft_fail(FT_E_CACHE, "cannot use '%s': %s", path, strerror(errno));
  if (!S_ISREG(state.st_mode))
    return ft_fail(FT_E_CACHE, "cannot use '%s': it is not a plain file", path);
  return FT_OK;
}

static int admit_as(struct ft_admission *admission, const char *path, const char *how) {
  *admission = (struct ft_admission){.path = strdup(path)};
  if (!admission->path) return ft_fail(FT_E_MEMORY, "no memory for a path");
  snprintf(admission->how, sizeof admission->how, "%s", how);
  return FT_OK;
}

/* Not used, and why. */
static int refuse(const char *path, const char *reason) {
  return ft_fail(FT_E_CACHE, "'%s' is not used: %s", path, reason);
}

static int admit_by_owner(struct ft_trust *trust, const char *path,
                          struct ft_admission *admission) {
  char *real = NULL, reason[512];
  int status = ft_place_check(path, &real);
  if (status == FT_OK) status = admit_as(admission, real, "owner");
  free(real);
  if (status == FT_OK || status == FT_E_MEMORY) return status;
  snprintf(reason, sizeof reason, "%s", ft_detail());
  status = ft_trust_check_signature(trust, path, admission);
  if (status == FT_OK || status == FT_E_MEMORY) return status;
  return ft_fail(FT_E_CACHE, "'%s' is not used: %s; %s", path, reason, ft_detail());
}

static int admit_by_signature(struct ft_trust *trust, const char *path,
                              struct ft_admission *admission) {
  const int status = ft_trust_check_signature(trust, path, admission);
  if (status == FT_OK || status == FT_E_MEMORY) return status;
  char reason[512];
  snprintf(reason, sizeof reason, "%s", ft_detail());
  return refuse(path, reason);
}

int ft_trust_admit(struct ft_trust *trust, const char *path, struct ft_admission *admission) {
  *admission = (struct ft_admission){.path = NULL};
  FT_TRY(check_plain(path));
  switch (trust->policy) {
  case FT_TRUST_ANY: return admit_as(admission, path, "any");
  case FT_TRUST_OWNER: return admit_by_owner(trust, path, admission);
  default: return admit_by_signature(trust, path, admission);
  }
}

#define ALLOWED "allowed: what `fatune cache export` wrote, a tuning.db or a kernels.db"

static int judge_named(const char *path, const struct stat *state, const char *begin) {
  if (S_ISDIR(state->st_mode))
    return ft_fail(
        FT_E_ARGUMENT,
        "FILE is '%s', a folder; " ALLOWED " (--cache-dir names the folder of the caches)", path);
  if (!S_ISREG(state->st_mode))
    return ft_fail(FT_E_ARGUMENT, "FILE is '%s', a device, pipe or socket; " ALLOWED, path);
  if (state->st_size == 0) return ft_fail(FT_E_CACHE, "FILE '%s' is empty; " ALLOWED, path);
  if (strncmp(begin, TRIALS, sizeof TRIALS - 1) == 0)
    return ft_fail(FT_E_CACHE,
                   "FILE '%s' is an export of winners as text, for reading and for the build of "
                   "fatune; allowed: one whose name does not end in .trials, a tuning.db or a "
                   "kernels.db",
                   path);
  if (strcmp(begin, DATABASE) != 0)
    return ft_fail(FT_E_CACHE, "FILE '%s' does not begin as a file of fatune; " ALLOWED, path);
  return FT_OK;
}

/* O_NONBLOCK: the opening of a pipe does not wait. */
int ft_trust_check_named(const char *path) {
  struct stat state;
  char begin[sizeof DATABASE] = "";
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  bool known = file >= 0 && fstat(file, &state) == 0;
  if (known && S_ISREG(state.st_mode)) known = pread(file, begin, sizeof DATABASE, 0) >= 0;
  const int why = errno;
  if (file >= 0) close(file);
  if (!known) return ft_fail(FT_E_IO, "FILE '%s' cannot be read: %s", path, strerror(why));
  begin[sizeof DATABASE - 1] = '\0';
  return judge_named(path, &state, begin);
}

int ft_trust_admit_named(struct ft_trust *trust, const char *path, struct ft_admission *admission) {
  *admission = (struct ft_admission){.path = NULL};
  FT_TRY(ft_trust_check_named(path));
  if (trust->policy == FT_TRUST_ANY) return admit_as(admission, path, "any");
  const int status = ft_trust_check_signature(trust, path, admission);
  if (status == FT_OK || status == FT_E_MEMORY) return status;
  if (status == FT_E_NOT_FOUND && trust->policy == FT_TRUST_OWNER)
    return admit_as(admission, path, "named by the user");
  char reason[512];
  snprintf(reason, sizeof reason, "%s", ft_detail());
  return refuse(path, reason);
}
