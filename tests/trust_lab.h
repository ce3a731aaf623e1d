/* trust_lab.h: what the suites about trust share: keys, signatures, a good bundle in a folder of
 * layers. in -> out: a fixture -> trusted and untrusted keys; a signed bundle with two kernels and
 * recipes -> what of it is served. */
#ifndef TESTS_TRUST_LAB_H
#define TESTS_TRUST_LAB_H

#include "cache/minisign.h"
#include "tests/store_fixture.h"

struct trust_lab {
  struct fixture fixture;
  struct ft_secret_key trusted,
      stranger;                     /* the first one's public key lies in the user's key folder */
  char layers[96];                  /* a folder of layers */
  char bundle[128], signature[160]; /* in it: sm_90.fatune */
  char key_file[192];
  struct ft_kernel kernels[2];
};

void trust_lab_open(struct trust_lab *lab);
void trust_lab_close(struct trust_lab *lab);

/* A random key pair, and the file of its public half. */
struct ft_secret_key trust_lab_key(const char *public_file);

/* The key as minisign writes it with a passphrase, but for less work: 16 MiB. memory: what the file
 * says that it takes. */
void trust_lab_hide(const struct ft_secret_key *key, const char *passphrase, uint64_t memory,
                    char text[512]);

/* Writes the bundle's signature. */
void trust_lab_sign(struct trust_lab *lab, const struct ft_secret_key *key);

/* By FATUNE_TRUST=policy: which of the two kernels a store above the folder serves, as bits. What
 * is served is the very kernel. */
int trust_lab_served(struct trust_lab *lab, const char *policy);

/* The user's files and the layers. As if the text of a trial were that of the kernel which it
 * names, recipes of both are derived; it takes memory. */
struct ft_store_options trust_lab_options(struct trust_lab *lab);

/* The first kernel by its recipe: of the layer, as long as the user has it not. */
int trust_lab_take_by_recipe(const struct trust_lab *lab, struct ft_store *store);

/* Replaces the text of a kernel's row and makes its digest fit again. */
void trust_lab_forge_text(const char *file, int row, const char *what, const char *by);

#endif
