/* cli_bundle.h: signing and looking through files to ship.
 * in -> out: --sign SECRETKEY, an exported file -> FILE.minisig; files -> whose they are and
 * whether they are sound. */
#ifndef TUNER_CLI_BUNDLE_H
#define TUNER_CLI_BUNDLE_H

#include "cache/minisign.h"
#include "tuner/cli/cli_session.h"

/* The key of --sign; asks for its passphrase where it has one. Wipe it after use. */
int cli_bundle_key(const struct cli *cli, struct ft_secret_key *key);

/* The action `verify FILE...`. */
int cli_bundle_verify(struct cli *cli, fatune_session *session, char **words, int count);

#endif
