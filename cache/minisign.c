/* minisign.c: keys and signatures in the format of minisign.
 * in -> out: texts <-> keys and signatures; bytes -> signed, checked. All of the mathematics is
 * libsodium's. */
#include "cache/minisign.h"

#include <sodium.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "generator/status.h"

enum {
  ALGORITHM = 2,
  ID = FT_KEY_ID_BYTES,
  PUBLIC = crypto_sign_PUBLICKEYBYTES,
  SECRET = crypto_sign_SECRETKEYBYTES,
  SIGNATURE = crypto_sign_BYTES,
  CHECKSUM = crypto_generichash_BYTES,
  SALT = crypto_pwhash_scryptsalsa208sha256_SALTBYTES,
  HASH = crypto_generichash_BYTES_MAX,
  COMMENT_MOST = 4096
};

/* What the second line of each file holds, in base64. */
struct public_blob {
  unsigned char algorithm[ALGORITHM], id[ID], key[PUBLIC];
};

struct hidden { /* in the file XORed with what scrypt makes of the passphrase */
  unsigned char id[ID], key[SECRET], checksum[CHECKSUM];
};

struct secret_blob {
  unsigned char algorithm[ALGORITHM], derivation[ALGORITHM], hash[ALGORITHM];
  unsigned char salt[SALT], operations[8], memory[8];
  struct hidden hidden;
};

struct signature_blob {
  unsigned char algorithm[ALGORITHM], id[ID], signature[SIGNATURE];
};

_Static_assert(sizeof(struct public_blob) == 42, "as minisign writes it");
_Static_assert(sizeof(struct secret_blob) == 158, "as minisign writes it");
_Static_assert(sizeof(struct signature_blob) == 74, "as minisign writes it");

static const char TRUSTED[] = "trusted comment: ";

void ft_key_id_hex(const unsigned char id[FT_KEY_ID_BYTES], char hex[FT_KEY_ID_HEX]) {
  for (int i = 0; i < ID; i++) snprintf(hex + 2 * i, 3, "%02X", id[ID - 1 - i]);
}

/* -- lines ---------------------------------------------------------------------------------- */

struct line {
  const char *begin;
  size_t length;
};

/* The next line without its end; false when there is none. */
static bool next_line(const char **text, struct line *line) {
  if (!**text) return false;
  line->begin = *text;
  line->length = strcspn(*text, "\n");
  *text += line->length + ((*text)[line->length] == '\n');
  if (line->length > 0 && line->begin[line->length - 1] == '\r') line->length--;
  return true;
}

static bool begins_with(const struct line *line, const char *head) {
  const size_t length = strlen(head);
  return line->length >= length && memcmp(line->begin, head, length) == 0;
}

/* False: the line is not exactly these bytes in base64. */
static bool decode(const struct line *line, void *bytes, size_t size) {
  size_t length = 0;
  const char *end = NULL;
  return sodium_base642bin(bytes, size, line->begin, line->length, NULL, &length, &end,
                           sodium_base64_VARIANT_ORIGINAL) == 0 &&
         length == size && end == line->begin + line->length;
}

static void add_encoded(struct ft_text *text, const void *bytes, size_t size) {
  char encoded[256];
  sodium_bin2base64(encoded, sizeof encoded, bytes, size, sodium_base64_VARIANT_ORIGINAL);
  ft_text_add(text, "%s\n", encoded);
  sodium_memzero(encoded, sizeof encoded);
}

/* -- keys ----------------------------------------------------------------------------------- */

int ft_public_key_parse(struct ft_public_key *key, const char *text) {
  struct public_blob blob;
  struct line line;
  if (!next_line(&text, &line) || !begins_with(&line, "untrusted comment:") ||
      !next_line(&text, &line) || !decode(&line, &blob, sizeof blob))
    return ft_fail(FT_E_ARGUMENT, "it is not a public key of minisign");
  if (memcmp(blob.algorithm, "Ed", ALGORITHM) != 0)
    return ft_fail(FT_E_ARGUMENT, "its key is of algorithm '%.2s'; known is Ed",
                   (const char *)blob.algorithm);
  memcpy(key->id, blob.id, ID);
  memcpy(key->key, blob.key, PUBLIC);
  return FT_OK;
}

static uint64_t little_endian(const unsigned char bytes[8]) {
  uint64_t number = 0;
  for (int i = 7; i >= 0; i--) number = number << 8 | bytes[i];
  return number;
}

/* The limits are bounded: minisign's own are 2^25 operations and 1 GiB. */
static int reveal(struct secret_blob *blob, const char *passphrase) {
  static const uint64_t operations_most = UINT64_C(1) << 28, memory_most = UINT64_C(2) << 30;
  unsigned char stream[sizeof blob->hidden];
  unsigned char *const hidden = (unsigned char *)&blob->hidden;
  const uint64_t operations = little_endian(blob->operations), memory = little_endian(blob->memory);
  if (!passphrase) return ft_fail(FT_E_NOT_FOUND, "it has a passphrase");
  if (operations > operations_most || memory > memory_most)
    return ft_fail(FT_E_ARGUMENT,
                   "its passphrase asks for more than 2 GiB of memory or 2^28 operations");
  if (crypto_pwhash_scryptsalsa208sha256(stream, sizeof stream, passphrase, strlen(passphrase),
                                         blob->salt, operations, (size_t)memory) != 0)
    return ft_fail(FT_E_MEMORY, "no memory for its passphrase: it takes %llu MiB",
                   (unsigned long long)(memory >> 20));
  for (size_t i = 0; i < sizeof stream; i++) hidden[i] ^= stream[i];
  sodium_memzero(stream, sizeof stream);
  return FT_OK;
}

static bool checksum_fits(const struct secret_blob *blob) {
  unsigned char checksum[CHECKSUM];
  crypto_generichash_state state;
  crypto_generichash_init(&state, NULL, 0, CHECKSUM);
  crypto_generichash_update(&state, blob->algorithm, ALGORITHM);
  crypto_generichash_update(&state, blob->hidden.id, ID);
  crypto_generichash_update(&state, blob->hidden.key, SECRET);
  crypto_generichash_final(&state, checksum, CHECKSUM);
  return sodium_memcmp(checksum, blob->hidden.checksum, CHECKSUM) == 0;
}

/* A key without a passphrase has no checksum either. */
static int open_secret(struct secret_blob *blob, const char *passphrase) {
  if (memcmp(blob->algorithm, "Ed", ALGORITHM) != 0 || memcmp(blob->hash, "B2", ALGORITHM) != 0)
    return ft_fail(FT_E_ARGUMENT, "its key is of another kind than Ed with B2");
  if (memcmp(blob->derivation, "\0\0", ALGORITHM) == 0) return FT_OK;
  if (memcmp(blob->derivation, "Sc", ALGORITHM) != 0)
    return ft_fail(FT_E_ARGUMENT, "its passphrase is not of the kind Sc");
  FT_TRY(reveal(blob, passphrase));
  return checksum_fits(blob) ? FT_OK : ft_fail(FT_E_ARGUMENT, "the passphrase is not its own");
}

int ft_secret_key_parse(struct ft_secret_key *key, const char *text, const char *passphrase) {
  struct secret_blob blob;
  struct line line;
  if (!next_line(&text, &line) || !begins_with(&line, "untrusted comment:") ||
      !next_line(&text, &line) || !decode(&line, &blob, sizeof blob))
    return ft_fail(FT_E_ARGUMENT, "it is not a secret key of minisign");
  const int status = open_secret(&blob, passphrase);
  if (status == FT_OK) {
    memcpy(key->id, blob.hidden.id, ID);
    memcpy(key->key, blob.hidden.key, SECRET);
  }
  sodium_memzero(&blob, sizeof blob);
  return status;
}

void ft_secret_key_wipe(struct ft_secret_key *key) {
  sodium_memzero(key, sizeof *key);
}

/* -- signatures ----------------------------------------------------------------------------- */

/* What the second signature is over. */
struct commented {
  unsigned char bytes[SIGNATURE + COMMENT_MOST];
  size_t size;
};

static bool join_comment(struct commented *commented, const unsigned char signature[SIGNATURE],
                         const char *comment, size_t length) {
  if (length > COMMENT_MOST) return false;
  memcpy(commented->bytes, signature, SIGNATURE);
  memcpy(commented->bytes + SIGNATURE, comment, length);
  commented->size = SIGNATURE + length;
  return true;
}

int ft_signature_make(const struct ft_secret_key *key, const void *bytes, size_t size,
                      const char *comment, struct ft_text *text) {
  struct signature_blob blob = {.algorithm = "ED"};
  struct commented commented;
  unsigned char hash[HASH], second[SIGNATURE];
  char id[FT_KEY_ID_HEX];
  memcpy(blob.id, key->id, ID);
  crypto_generichash(hash, HASH, bytes, size, NULL, 0);
  crypto_sign_detached(blob.signature, NULL, hash, HASH, key->key);
  if (strchr(comment, '\n') || !join_comment(&commented, blob.signature, comment, strlen(comment)))
    return ft_fail(FT_E_ARGUMENT, "a trusted comment is one line of at most %d bytes",
                   (int)COMMENT_MOST);
  crypto_sign_detached(second, NULL, commented.bytes, commented.size, key->key);
  ft_key_id_hex(key->id, id);
  ft_text_add(text, "untrusted comment: signature by fatune, key %s\n", id);
  add_encoded(text, &blob, sizeof blob);
  ft_text_add(text, "%s%s\n", TRUSTED, comment);
  add_encoded(text, second, sizeof second);
  return ft_text_status(text);
}

struct signature_file {
  struct signature_blob blob;
  struct line comment;
  unsigned char second[SIGNATURE];
};

static int read_signature(const char *text, struct signature_file *file) {
  struct line line;
  if (!next_line(&text, &line) || !begins_with(&line, "untrusted comment:") ||
      !next_line(&text, &line) || !decode(&line, &file->blob, sizeof file->blob) ||
      !next_line(&text, &file->comment) || !begins_with(&file->comment, TRUSTED) ||
      !next_line(&text, &line) || !decode(&line, file->second, sizeof file->second) || *text)
    return ft_fail(FT_E_CACHE, "the signature is not one of minisign");
  if (memcmp(file->blob.algorithm, "ED", ALGORITHM) != 0)
    return ft_fail(FT_E_CACHE, "the signature is of algorithm '%.2s'; known is ED",
                   (const char *)file->blob.algorithm);
  file->comment.begin += sizeof TRUSTED - 1;
  file->comment.length -= sizeof TRUSTED - 1;
  return FT_OK;
}

int ft_signature_check(const char *text, const void *bytes, size_t size,
                       const struct ft_public_key *keys, int count, int *index,
                       struct ft_text *comment) {
  struct signature_file file;
  struct commented commented;
  unsigned char hash[HASH];
  char id[FT_KEY_ID_HEX];
  FT_TRY(read_signature(text, &file));
  ft_key_id_hex(file.blob.id, id);
  for (*index = 0; *index < count; ++*index)
    if (memcmp(keys[*index].id, file.blob.id, ID) == 0) break;
  if (*index == count)
    return ft_fail(FT_E_NOT_FOUND, "the signature is by the key %s, which is not trusted", id);
  crypto_generichash(hash, HASH, bytes, size, NULL, 0);
  const unsigned char *const key = keys[*index].key;
  if (crypto_sign_verify_detached(file.blob.signature, hash, HASH, key) != 0)
    return ft_fail(FT_E_CACHE, "the signature by the key %s is not one of this file", id);
  if (!join_comment(&commented, file.blob.signature, file.comment.begin, file.comment.length) ||
      crypto_sign_verify_detached(file.second, commented.bytes, commented.size, key) != 0)
    return ft_fail(FT_E_CACHE, "the trusted comment of the signature by the key %s was changed",
                   id);
  ft_text_append(comment, file.comment.begin, file.comment.length);
  return FT_OK;
}
