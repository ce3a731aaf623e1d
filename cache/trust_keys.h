/* trust_keys.h: the public keys that are trusted here.
 * in -> out: $XDG_CONFIG_HOME/fatune/trusted and /etc/fatune/trusted, their files *.pub -> keys. */
#ifndef CACHE_TRUST_KEYS_H
#define CACHE_TRUST_KEYS_H

#include "cache/minisign.h"

/* A file that somebody else could have written, or that holds no key, is passed over; how many
 * were, and the first reason: *refused, reason. *keys to be freed. FT_E_MEMORY. */
int ft_trusted_keys(struct ft_public_key **keys, int *count, int *refused, char reason[256]);

#endif
