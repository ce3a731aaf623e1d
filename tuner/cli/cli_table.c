/* cli_table.c: tables of text with aligned columns.
 * in -> out: heads, cells row by row -> lines on stdout. Cells are ASCII: a byte is a column. */
#include "tuner/cli/cli_table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MOST = 16 };

static void add_cell(struct cli_table *table, const char *cell, size_t length) {
  ft_text_append(&table->cells, cell, length);
  ft_text_append(&table->cells, "", 1);
  ++table->count;
}

void cli_table_begin(struct cli_table *table, const char *heads) {
  *table = (struct cli_table){0};
  while (table->columns < COLUMNS_MOST) {
    const size_t length = strcspn(heads, "|");
    add_cell(table, heads, length);
    ++table->columns;
    if (heads[length] == '\0') break;
    heads += length + 1;
  }
}

void cli_table_add(struct cli_table *table, const char *format, ...) {
  char *cell = NULL;
  va_list arguments;
  va_start(arguments, format);
  const int length = vasprintf(&cell, format, arguments);
  va_end(arguments);
  if (length < 0) cli_no_memory();
  add_cell(table, cell, (size_t)length);
  free(cell);
}

void cli_table_end(struct cli *cli, struct cli_table *table) {
  int width[COLUMNS_MOST] = {0};
  bool right[COLUMNS_MOST] = {false};
  const int columns = table->columns;
  if (table->cells.failed) cli_no_memory();
  if (cli->options.json || table->count <= columns) goto done;

  const char *cell = table->cells.data;
  for (int i = 0; i < table->count; ++i, cell += strlen(cell) + 1) {
    const bool aligned_right = i < columns && cell[0] == '>';
    if (aligned_right) right[i] = true;
    const int length = (int)strlen(cell) - aligned_right;
    if (length > width[i % columns]) width[i % columns] = length;
  }
  int blanks = 0; /* owed; a line does not end in blanks */
  cell = table->cells.data;
  for (int i = 0; i < table->count; ++i, cell += strlen(cell) + 1) {
    const int column = i % columns;
    const char *const text = cell + (i < columns && right[column]);
    const int gap = width[column] - (int)strlen(text);
    blanks += right[column] ? gap : 0;
    if (text[0] != '\0') {
      printf("%*s", blanks, "");
      cli_styled(cli, i < columns ? CLI_BOLD : CLI_PLAIN, text);
      blanks = 0;
    }
    blanks += (right[column] ? 0 : gap) + 2;
    if (column < columns - 1) continue;
    putchar('\n');
    blanks = 0;
  }
done:
  ft_text_free(&table->cells);
}
