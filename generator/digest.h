/* digest.h: content digests (BLAKE2b-256) over tagged sections.
 * in -> out: (tag, bytes) sections -> 32-byte digest, hex text.
 * Each section is framed by its tag and length, so "a","bc" and "ab","c" can never collide. */
#ifndef GENERATOR_DIGEST_H
#define GENERATOR_DIGEST_H

#include <stddef.h>
#include <stdbool.h>

enum { FT_DIGEST_BYTES = 32, FT_DIGEST_HEX = 2 * FT_DIGEST_BYTES + 1 };

struct ft_digest {
  unsigned char bytes[FT_DIGEST_BYTES];
};

struct ft_hasher {
  _Alignas(64) unsigned char state[384]; /* crypto_generichash_state of libsodium */
};

void ft_hasher_init(struct ft_hasher *hasher);
void ft_hasher_section(struct ft_hasher *hasher, const char *tag, const void *data, size_t length);
struct ft_digest ft_hasher_final(struct ft_hasher *hasher);

/* Digest of one run of bytes. */
struct ft_digest ft_digest_of(const void *data, size_t length);

void ft_digest_hex(const struct ft_digest *digest, char hex[FT_DIGEST_HEX]);
bool ft_digest_equal(const struct ft_digest *a, const struct ft_digest *b);

#endif
