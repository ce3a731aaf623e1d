/* trust_lab.c: what the suites about trust share.
 * in -> out: keys, signatures, a bundle; a policy -> what is served of it. */
#include "tests/trust_lab.h"

#include <sodium.h>

#include "cache/trust.h"
#include "generator/status.h"

static const char PROBLEM[] = "forward bf16 d128 hq16 hkv16 b2 nq4096 nk4096 causal";
static const char SMALLER[] = "forward bf16 d64 hq16 hkv16 b2 nq1024 nk1024";

struct ft_secret_key trust_lab_key(const char *public_file) {
  struct ft_secret_key key;
  unsigned char blob[42] = "Ed", *const public = blob + 10;
  char encoded[64], text[128];
  randombytes_buf(key.id, sizeof key.id);
  crypto_sign_keypair(public, key.key);
  memcpy(blob + 2, key.id, sizeof key.id);
  sodium_bin2base64(encoded, sizeof encoded, blob, sizeof blob, sodium_base64_VARIANT_ORIGINAL);
  snprintf(text, sizeof text, "untrusted comment: minisign public key\n%s\n", encoded);
  if (public_file) write_bytes(public_file, text, strlen(text));
  return key;
}

static void make_folders(struct trust_lab *lab) {
  static const char *const parts[] = {"config", "config/fatune", "config/fatune/trusted", "layers"};
  char path[160];
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    snprintf(path, sizeof path, "%s/%s", lab->fixture.root, parts[i]);
    ck_assert_int_eq(mkdir(path, 0755), 0);
  }
  snprintf(path, sizeof path, "%s/config", lab->fixture.root);
  setenv("XDG_CONFIG_HOME", path, 1);
  snprintf(lab->key_file, sizeof lab->key_file, "%s/fatune/trusted/test.pub", path);
  snprintf(lab->layers, sizeof lab->layers, "%s/layers", lab->fixture.root);
  snprintf(lab->bundle, sizeof lab->bundle, "%s/sm_90.fatune", lab->layers);
  snprintf(lab->signature, sizeof lab->signature, "%s.minisig", lab->bundle);
}

static struct ft_digest recipe_of(const struct ft_kernel *kernel) {
  return ft_digest_of(kernel->key.bytes, sizeof kernel->key.bytes);
}

int trust_lab_take_by_recipe(const struct trust_lab *lab, struct ft_store *store) {
  const struct ft_kernel *const wanted = &lab->kernels[0];
  const struct ft_digest recipe = recipe_of(wanted);
  struct ft_kernel back;
  FT_TRY(ft_store_kernel_by_recipe(store, &recipe, &wanted->key, &back));
  const bool right = ft_digest_equal(&back.source, &wanted->source) &&
                     ft_digest_equal(&back.image_digest, &wanted->image_digest);
  ft_kernel_free(&back);
  if (!right) abort();
  return FT_OK;
}

static int derive(void *deriver, const struct ft_trial *trial, const char *target,
                  struct ft_digest *recipe, struct ft_digest *source) {
  const struct trust_lab *const lab = deriver;
  const struct ft_kernel *kernel = NULL;
  void *const text = malloc(100);
  if (!text) return ft_fail(FT_E_MEMORY, "no memory for a text");
  free(text);
  for (int i = 0; i < 2; i++)
    if (ft_digest_equal(&trial->kernel, &lab->kernels[i].key)) kernel = &lab->kernels[i];
  if (!kernel || strcmp(target, "sm_90") != 0) return ft_fail(FT_E_ARGUMENT, "no such text");
  *recipe = recipe_of(kernel);
  if (source) *source = kernel->source;
  return FT_OK;
}

struct ft_store_options trust_lab_options(struct trust_lab *lab) {
  return (struct ft_store_options){
      .folder = lab->fixture.folder, .system_path = lab->layers, .derive = derive, .deriver = lab};
}

static void export_bundle(struct trust_lab *lab) {
  struct ft_trial trials[2] = {make_trial(PROBLEM, CLASS_H200, 2, 100),
                               make_trial(SMALLER, CLASS_H200, 3, 10)};
  struct ft_store *const store = open_store_with(&lab->fixture, trust_lab_options(lab));
  int64_t count = 0, kernels = 0;
  for (int i = 0; i < 2; i++) {
    lab->kernels[i] = make_kernel(&lab->fixture.dice, 20000);
    trials[i].kernel = lab->kernels[i].key;
    assert_ok(ft_store_kernel_put(store, &lab->kernels[i]));
    assert_ok(ft_store_trial_put(store, &trials[i]));
  }
  assert_ok(export_store(store, "sm_90", NULL, lab->bundle, &count, &kernels));
  ck_assert_int_eq(count + kernels, 4);
  ft_store_close(store);
}

void trust_lab_open(struct trust_lab *lab) {
  umask(022);
  unsetenv("FATUNE_TRUST");
  fixture_open(&lab->fixture);
  make_folders(lab);
  lab->trusted = trust_lab_key(lab->key_file);
  lab->stranger = trust_lab_key(NULL);
  export_bundle(lab);
  trust_lab_sign(lab, &lab->trusted);
}

void trust_lab_close(struct trust_lab *lab) {
  for (int i = 0; i < 2; i++) ft_kernel_free(&lab->kernels[i]);
  fixture_close(&lab->fixture);
}

void trust_lab_sign(struct trust_lab *lab, const struct ft_secret_key *key) {
  assert_ok(ft_trust_sign(lab->bundle, key, "two kernels for sm_90"));
}

int trust_lab_served(struct trust_lab *lab, const char *policy) {
  int served = 0;
  setenv("FATUNE_TRUST", policy, 1);
  struct ft_store *const store =
      open_store_with(&lab->fixture, (struct ft_store_options){.folder = "/nowhere/at/all",
                                                               .system_path = lab->layers});
  for (int i = 0; i < 2; i++) {
    struct ft_kernel back;
    if (ft_store_kernel_get(store, &lab->kernels[i].key, &back) != FT_OK) continue;
    ck_assert(same_kernel(&lab->kernels[i], &back));
    ft_kernel_free(&back);
    served |= 1 << i;
  }
  ft_store_close(store);
  return served;
}

/* As cache/rows.c makes it. */
static struct ft_digest identity_of(const char *text, const char *log) {
  struct ft_hasher hasher;
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "kernel", text, strlen(text));
  if (log) ft_hasher_section(&hasher, "log", log, strlen(log));
  return ft_hasher_final(&hasher);
}

static void replace_once(const char *text, const char *what, const char *by, char forged[2048]) {
  const char *const at = strstr(text, what);
  ck_assert_msg(at != NULL, "'%s' is not in '%s'", what, text);
  snprintf(forged, 2048, "%.*s%s%s", (int)(at - text), text, by, at + strlen(what));
}

void trust_lab_forge_text(const char *file, int row, const char *what, const char *by) {
  sqlite3 *handle = NULL;
  sqlite3_stmt *read = NULL, *write = NULL;
  char forged[2048];
  ck_assert_int_eq(sqlite3_open(file, &handle), SQLITE_OK);
  sqlite3_prepare_v2(handle, "SELECT text, log FROM kernels WHERE id = ?1", -1, &read, NULL);
  sqlite3_bind_int(read, 1, row);
  ck_assert_int_eq(sqlite3_step(read), SQLITE_ROW);
  replace_once((const char *)sqlite3_column_text(read, 0), what, by, forged);
  const struct ft_digest identity = identity_of(forged, (const char *)sqlite3_column_text(read, 1));
  sqlite3_finalize(read);
  sqlite3_prepare_v2(handle, "UPDATE kernels SET text = ?2, identity = ?3 WHERE id = ?1", -1,
                     &write, NULL);
  sqlite3_bind_int(write, 1, row);
  sqlite3_bind_text(write, 2, forged, -1, SQLITE_STATIC);
  sqlite3_bind_blob(write, 3, identity.bytes, FT_DIGEST_BYTES, SQLITE_STATIC);
  ck_assert_int_eq(sqlite3_step(write), SQLITE_DONE);
  sqlite3_finalize(write);
  ck_assert_int_eq(sqlite3_close(handle), SQLITE_OK);
}

static void put_little_endian(unsigned char *bytes, uint64_t number) {
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(number >> (8 * i));
}

void trust_lab_hide(const struct ft_secret_key *key, const char *passphrase, uint64_t memory,
                    char text[512]) {
  unsigned char blob[158] = "EdScB2", *const hidden = blob + 54, stream[104];
  char encoded[256];
  randombytes_buf(blob + 6, 32);
  put_little_endian(blob + 38, 32768);
  put_little_endian(blob + 46, memory);
  memcpy(hidden, key->id, 8);
  memcpy(hidden + 8, key->key, 64);
  crypto_generichash_state state;
  crypto_generichash_init(&state, NULL, 0, 32);
  crypto_generichash_update(&state, blob, 2);
  crypto_generichash_update(&state, hidden, 72);
  crypto_generichash_final(&state, hidden + 72, 32);
  ck_assert_int_eq(crypto_pwhash_scryptsalsa208sha256(stream, sizeof stream, passphrase,
                                                      strlen(passphrase), blob + 6, 32768,
                                                      16 << 20),
                   0);
  for (size_t i = 0; i < sizeof stream; i++) hidden[i] ^= stream[i];
  sodium_bin2base64(encoded, sizeof encoded, blob, sizeof blob, sodium_base64_VARIANT_ORIGINAL);
  snprintf(text, 512, "untrusted comment: minisign encrypted secret key\n%s\n", encoded);
}
