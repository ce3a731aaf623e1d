/* digest.c: BLAKE2b-256 over tagged sections, by libsodium.
 * in -> out: (tag, bytes) sections -> 32-byte digest, hex text. */
#include "generator/digest.h"

#include <assert.h>
#include <sodium.h>
#include <stdint.h>
#include <string.h>

static_assert(sizeof(crypto_generichash_state) <= sizeof(((struct ft_hasher *)0)->state),
              "struct ft_hasher must hold libsodium's state");
static_assert(_Alignof(struct ft_hasher) >= _Alignof(crypto_generichash_state),
              "struct ft_hasher must be aligned like libsodium's state");

static crypto_generichash_state *state_of(struct ft_hasher *hasher) {
  return (crypto_generichash_state *)(void *)&hasher->state;
}

/* Lengths go in as eight little-endian bytes, so that every machine gets the same digest. */
static void update_framed(struct ft_hasher *hasher, const void *data, size_t length) {
  unsigned char frame[8];
  for (int i = 0; i < 8; ++i) frame[i] = (unsigned char)((uint64_t)length >> (8 * i));
  crypto_generichash_update(state_of(hasher), frame, sizeof frame);
  if (length > 0) crypto_generichash_update(state_of(hasher), data, length);
}

void ft_hasher_init(struct ft_hasher *hasher) {
  /* sodium_init is not needed: without it libsodium takes its portable BLAKE2b, the same function,
   * and what is hashed here is small. So nothing of the process is initialised behind its back. */
  crypto_generichash_init(state_of(hasher), NULL, 0, FT_DIGEST_BYTES);
}

void ft_hasher_section(struct ft_hasher *hasher, const char *tag, const void *data, size_t length) {
  update_framed(hasher, tag, strlen(tag));
  update_framed(hasher, data, length);
}

struct ft_digest ft_hasher_final(struct ft_hasher *hasher) {
  struct ft_digest digest;
  crypto_generichash_final(state_of(hasher), digest.bytes, sizeof digest.bytes);
  return digest;
}

struct ft_digest ft_digest_of(const void *data, size_t length) {
  struct ft_digest digest;
  crypto_generichash(digest.bytes, sizeof digest.bytes, data, length, NULL, 0);
  return digest;
}

void ft_digest_hex(const struct ft_digest *digest, char hex[FT_DIGEST_HEX]) {
  sodium_bin2hex(hex, FT_DIGEST_HEX, digest->bytes, sizeof digest->bytes);
}

bool ft_digest_equal(const struct ft_digest *a, const struct ft_digest *b) {
  return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
