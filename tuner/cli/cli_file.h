/* cli_file.h: the files of a command, in and out.
 * in -> out: bytes -> a whole file or none; "-" is stdout. A file -> as many bytes as are wanted;
 * "-" is stdin. Messages begin with the option that named the file. */
#ifndef TUNER_CLI_FILE_H
#define TUNER_CLI_FILE_H

#include "tuner/cli/cli_output.h"

/* Whether a file may be written there, as far as that can be told before there is anything to
 * write: FT_E_IO naming the file. With --json "-" is refused, as stdout is the document's. */
int cli_file_check(const struct cli *cli, const char *option, const char *path);

/* Whether both paths lead to one file, by whatever names and links, or would make one. Not so of
 * "-", devices, pipes and folders. */
bool cli_file_same(const char *one, const char *other);

/* FT_E_IO naming the file; else as cli_file_check. */
int cli_file_write(struct cli *cli, const char *option, const char *path, const void *bytes,
                   size_t length);

/* What a command writes to a file that an option names. */
struct cli_result {
  const char *option, *path;
  const void *bytes;
  size_t length;
};

enum { CLI_RESULTS_MOST = 2 };

/* All results or, where one cannot be written, none: files get their names when all bytes are
 * written. If the second rename fails, the first file stays. Fails as cli_file_write. */
int cli_files_write(struct cli *cli, const struct cli_result results[], int count);

/* FT_E_ARGUMENT, telling both lengths, where the file has another one. The caller frees *bytes. */
int cli_file_read(const char *option, const char *path, size_t length, void **bytes);

#endif
