/* cli_emulator.h: what the program says of an emulated GPU, and what it asks of one.
 * in -> out: target, request -> words, JSON; a request that a CPU gets through. */
#ifndef TUNER_CLI_EMULATOR_H
#define TUNER_CLI_EMULATOR_H

#include "tuner/cli/cli_session.h"

/* FT_E_NO_CXX if there is no C++ compiler: to be asked before work is done for a kernel that could
 * not run. */
int cli_emulator_ready(const struct cli_target *target);

/* "h200 on this CPU (g++ 12.2.0)". */
void cli_emulator_words(const struct cli_target *target, char words[192]);

/* "emulated" into the document; with an emulated GPU the compiler, too, and a line of text. */
void cli_emulator_tell(struct cli *cli, const struct cli_target *target);

/* The request unchanged if all problems made of it take the CPU some ten seconds at most. Otherwise
 * batch, heads and lengths are cut and all features kept. True when it was cut. */
bool cli_emulator_cut(const struct ft_request *asked, struct ft_request *cut);

#endif
