/* minisign.h: keys and signatures in the format of minisign (https://jedisct1.github.io/minisign/).
 * in -> out: texts of key and signature files <-> keys, signatures; bytes + secret key ->
 * signature; bytes + signature + public keys -> whose it is, or why it is not good. Signatures are
 * those that minisign makes by default: Ed25519 over the BLAKE2b-512 of the bytes, and a second one
 * over the first and the trusted comment. */
#ifndef CACHE_MINISIGN_H
#define CACHE_MINISIGN_H

#include <stddef.h>

#include "generator/text.h"

enum { FT_KEY_ID_BYTES = 8, FT_KEY_ID_HEX = 17, FT_SIGNATURE_TEXT_MOST = 8192 };

struct ft_public_key {
  unsigned char id[FT_KEY_ID_BYTES];
  unsigned char key[32];
};

struct ft_secret_key {
  unsigned char id[FT_KEY_ID_BYTES];
  unsigned char key[64];
};

/* "FF7F39BAAA14DC56", as minisign prints it. */
void ft_key_id_hex(const unsigned char id[FT_KEY_ID_BYTES], char hex[FT_KEY_ID_HEX]);

/* A file as `minisign -G` writes it. */
int ft_public_key_parse(struct ft_public_key *key, const char *text);

/* Likewise; passphrase NULL: none is known, which is FT_E_NOT_FOUND for a key that has one. Wipe
 * the key when it is no longer needed. */
int ft_secret_key_parse(struct ft_secret_key *key, const char *text, const char *passphrase);
void ft_secret_key_wipe(struct ft_secret_key *key);

/* The signature file of the bytes. The trusted comment is one line. */
int ft_signature_make(const struct ft_secret_key *key, const void *bytes, size_t size,
                      const char *comment, struct ft_text *text);

/* FT_OK: the text signs these very bytes, by keys[*index]; comment (may be NULL) gets the trusted
 * comment. FT_E_NOT_FOUND: by none of these keys. FT_E_CACHE: it is no signature of the bytes, or
 * none that can be read. */
int ft_signature_check(const char *text, const void *bytes, size_t size,
                       const struct ft_public_key *keys, int count, int *index,
                       struct ft_text *comment);

#endif
