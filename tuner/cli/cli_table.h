/* cli_table.h: tables of text with aligned columns.
 * in -> out: heads, cells row by row -> lines on stdout. */
#ifndef TUNER_CLI_TABLE_H
#define TUNER_CLI_TABLE_H

#include "generator/text.h"
#include "tuner/cli/cli_output.h"

struct cli_table {
  int columns;
  struct ft_text cells; /* NUL after each cell, row by row, the heads first */
  int count;
};

/* heads: the columns' names separated by '|'; a name that begins with '>' aligns right. */
void cli_table_begin(struct cli_table *table, const char *heads);
void cli_table_add(struct cli_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints (nothing with --json or without rows) and frees. */
void cli_table_end(struct cli *cli, struct cli_table *table);

#endif
