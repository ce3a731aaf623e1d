/* trust.h: which files of others are read: the policy, the trusted keys, the judgement of one file.
 * in -> out: FATUNE_TRUST, key folders -> rules; rules + a bundle -> taken or refused, and why. */
#ifndef CACHE_TRUST_H
#define CACHE_TRUST_H

#include <stdbool.h>
#include <stddef.h>

#include "cache/minisign.h"

/* ORDER TRUST, strictest last */
enum ft_trust_policy {
  FT_TRUST_ANY,   /* every file */
  FT_TRUST_OWNER, /* those that root or the user alone could have written; others if well signed */
  FT_TRUST_SIGNED /* those with a good signature by a trusted key */
};

struct ft_trust {
  enum ft_trust_policy policy;
  char misnamed[41];          /* what FATUNE_TRUST is if that is none: the strictest holds */
  struct ft_public_key *keys; /* owned */
  int key_count;
  bool has_keys;         /* they were looked for */
  char key_trouble[256]; /* why a file in a key folder is passed over; "" if none is */
};

/* What a file was found to be. */
struct ft_admission {
  char *path;  /* to open, when there are no bytes; owned */
  void *bytes; /* the very bytes that are signed, from sqlite3_malloc64; owned until taken */
  size_t size;
  char how[128]; /* "owner", "signed by FF7F39BAAA14DC56: comment", "any", for people */
};

/* The value of FATUNE_TRUST; owner where it is not set. */
struct ft_trust ft_trust_begin(void);
void ft_trust_end(struct ft_trust *trust);

/* May a layer be read? FT_E_CACHE: no, and why. */
int ft_trust_admit(struct ft_trust *trust, const char *path, struct ft_admission *admission);

/* Can a file that the user named be read, and does it begin as one of ours? FT_E_ARGUMENT: it is a
 * folder, a device or a pipe. FT_E_IO: it cannot be read. FT_E_CACHE: it begins otherwise. */
int ft_trust_check_named(const char *path);

/* May a file that passes ft_trust_check_named be read? As of a layer, but owner asks nothing of its
 * place. A signature that lies beside it and is not good refuses it, except by any. */
int ft_trust_admit_named(struct ft_trust *trust, const char *path, struct ft_admission *admission);

void ft_admission_free(struct ft_admission *admission);

/* "any", "owner", "signed" */
const char *ft_trust_name(enum ft_trust_policy policy);

/* Is the file signed well by a trusted key? FT_OK: how says by which. FT_E_NOT_FOUND: there is no
 * signature, or its key is not trusted. FT_E_CACHE: it is not good. */
int ft_trust_check_signature(struct ft_trust *trust, const char *path,
                             struct ft_admission *admission);

/* Writes <path>.minisig; unsign removes one that is there, of a file that is replaced. */
int ft_trust_sign(const char *path, const struct ft_secret_key *key, const char *comment);
void ft_trust_unsign(const char *path);

#endif
