/* bundle_lab.h: what the suites about recipes of files to ship share.
 * in -> out: two kernels of the fake GPU -> a file with both, which lies in a folder of layers. The
 * file, as it is or changed, and a user whose own store is empty -> which source the user is
 * served, and how many texts were emitted for it.
 */
#ifndef TESTS_BUNDLE_LAB_H
#define TESTS_BUNDLE_LAB_H

#include "runtime/session.h"
#include "tests/fake/use_fake.h"
#include "tests/store_fixture.h"

/* Untuned, both come with their defaults. */
#define ASKED   "d64 nq256 causal"
#define ANOTHER "d96 nq128"

struct bundle_lab {
  struct fixture fixture;
  char layers[96], kernels_db[128]; /* a folder of layers; the user's file */
  char bundle[128], other[128];     /* in that folder: a good file; one that is not there yet */
  struct ft_trial trials[2];        /* of ASKED, ANOTHER */
  struct ft_digest sources[2];      /* of their texts */
  struct ft_digest recipes[2];      /* as the good file has them */
  const char *template_dir;         /* of the sessions to come; NULL */
};

void bundle_lab_open(struct bundle_lab *lab);
void bundle_lab_close(struct bundle_lab *lab);
void bundle_lab_forget_user(struct bundle_lab *lab);
fatune_session *bundle_lab_session(struct bundle_lab *lab, const char *system_path, int compile);

struct bundle_served {
  int status, emitted; /* texts of the session so far */
  bool compiled;
  struct ft_digest source; /* of the kernel */
};

/* Finds the kernel of the request in these words, as a plan does. Where a trial names a kernel,
 * that one is looked for. */
struct bundle_served bundle_lab_serve_in(fatune_session *session, const char *words);
/* ASKED, in a new session above the layers. */
struct bundle_served bundle_lab_serve(struct bundle_lab *lab, int compile);

/* The kernel of ASKED, after so many texts; nothing may be compiled. */
void bundle_lab_assert_served(struct bundle_lab *lab, int emitted);

struct ft_export bundle_lab_export(fatune_session *session, const char *file);
int bundle_lab_verify(struct bundle_lab *lab, const char *file, struct ft_bundle_verdict *verdict);
int bundle_lab_import(struct bundle_lab *lab, const char *file);

/* A row that is sound in itself. */
void bundle_lab_put_recipe(const char *file, const struct ft_digest *recipe,
                           const struct ft_digest *source);

static inline int64_t recipes_in(const char *file) {
  return number_of(file, "SELECT count(*) FROM recipes");
}

#endif
