/* fake_lab.h: what the suites on the fake GPU share: sessions, requests, runs.
 * in -> out: nothing -> driver's controls and session; words -> request, arguments of a run, all
 * that a program does until a failure ends it. */
#ifndef TESTS_FAKE_LAB_H
#define TESTS_FAKE_LAB_H

#include <check.h>
#include <string.h>

#include "cache/trial.h"
#include "generator/digest.h"
#include "tests/fake/use_fake.h"

struct fake_lab {
  struct fake_controls cuda;
  fatune_session *session; /* in memory only */
};

struct fake_lab fake_lab_open(void);
/* No object and no context may be left. */
void fake_lab_close(const struct fake_lab *lab);

fatune_request fake_request(const char *words);
/* Addresses 0x1000 (q), 0x2000 .. 0x9000 (lse), 0x10000 (workspace), never followed: the fake runs
 * no kernel. A forward has those of q, k, v, o. */
fatune_arguments fake_arguments(const fatune_request *request);

/* Everything a program does, from open to close, with a mask of 2 x 2 blocks; the first failure
 * ends it and is returned. The request has 256 queries and keys and mask=128x128. */
int fake_program(const char *words);

/* Compiles the default kernel of the request and puts it and a trial of it, *trial, into the
 * session's store, as a search would. Returns the digest of its source. */
struct ft_digest fake_measured(fatune_session *session, const char *words, struct ft_trial *trial);

#endif
