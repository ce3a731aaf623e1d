/* cli_file.h: writing a command's output file.
 * in -> out: bytes -> a whole file or none; "-" is stdout. */
#ifndef TUNER_CLI_FILE_H
#define TUNER_CLI_FILE_H

#include "tuner/cli/cli_output.h"

/* FT_E_IO naming the file. With --json "-" is refused: stdout is the document's. */
int cli_file_write(struct cli *cli, const char *path, const void *bytes, size_t length);

#endif
