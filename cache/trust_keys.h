/* trust_keys.h: the public keys that are trusted here.
 * in -> out: $XDG_CONFIG_HOME/fatune/trusted and /etc/fatune/trusted, their files *.pub -> keys. */
#ifndef CACHE_TRUST_KEYS_H
#define CACHE_TRUST_KEYS_H

#include "cache/minisign.h"

/* Reads the public keys that are trusted here. The caller frees *keys. A file that somebody else
 * could have written, or that holds no key, is passed over: *refused counts such files, and reason
 * tells why the first of them was. Fails with FT_E_MEMORY alone. */
int ft_trusted_keys(struct ft_public_key **keys, int *count, int *refused, char reason[256]);

#endif
