/* cli_target.h: the GPU a command works for.
 * in -> out: --gpu + session -> struct cli_target. */
#ifndef TUNER_CLI_TARGET_H
#define TUNER_CLI_TARGET_H

#include "generator/arch.h"
#include "runtime/fatune.h"
#include "tuner/cli/cli_output.h"

struct cli_target {
  struct ft_arch arch;
  char id[96];   /* device class */
  char name[16]; /* "sm_90" */
  bool here;     /* it is in this machine: it runs kernels and has a clock */
  bool emulated; /* the CPU runs its kernels: results can be checked, nothing can be timed */
};

/* By --gpu; "auto" and no --gpu mean the session's. FT_E_NO_DRIVER tells what works without;
 * FT_E_ARGUMENT for an unknown name suggests one. */
int cli_target_find(struct cli *cli, fatune_session *session, struct cli_target *target);

/* The same for what runs kernels: FT_E_NO_DRIVER when the GPU is neither here nor emulated. */
int cli_target_run(struct cli *cli, fatune_session *session, struct cli_target *target);
/* The same for what times kernels: FT_E_NO_DRIVER when the GPU is not here. */
int cli_target_time(struct cli *cli, fatune_session *session, struct cli_target *target);

/* FT_E_ARGUMENT: the GPU asked for is in no table; the detail suggests one and lists them. */
int cli_target_unknown(fatune_session *session, const char *name, bool emulated);

/* target into the document, as "gpu". */
void cli_json_target(struct cli *cli, const struct cli_target *target);

#endif
