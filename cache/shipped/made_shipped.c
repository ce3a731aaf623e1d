/* made_shipped.c: a program of the build: trials as text become the layer that every build has
 * inside. in -> out: OUTPUT.fatune and files of trials, one a line -> that file; its bytes as C
 * text on stdout. A line that cannot be read ends the build: it is named. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/rows.h"
#include "cache/shipped.h"
#include "generator/status.h"

static int put_line(struct ft_database *file, char *line) {
  struct ft_trial trial;
  bool inserted;
  line[strcspn(line, "\r\n")] = '\0';
  if (line[0] == '\0' || line[0] == '#') return FT_OK;
  FT_TRY(ft_trial_parse(&trial, line));
  return ft_row_put_trial(file, &trial, &inserted);
}

static int put_lines(struct ft_database *file, const char *path) {
  FILE *const from = fopen(path, "re");
  if (!from) return ft_fail(FT_E_IO, "%s: %s", path, strerror(errno));
  char *line = NULL;
  size_t room = 0;
  int status = FT_OK;
  for (int number = 1; status == FT_OK && getline(&line, &room, from) >= 0; number++) {
    status = put_line(file, line);
    if (status != FT_OK) ft_fail_within(status, "%s:%d", path, number);
  }
  if (status == FT_OK && ferror(from)) status = ft_fail(FT_E_IO, "%s: %s", path, strerror(errno));
  free(line);
  fclose(from);
  return status;
}

static int make_layer(const char *output, char **paths, int count) {
  struct ft_database file = {0};
  FILE *const empty = fopen(output, "we");
  if (!empty || fclose(empty) != 0) return ft_fail(FT_E_IO, "%s: %s", output, strerror(errno));
  FT_TRY(ft_database_open(&file, output, FT_DATABASE_FRESH_LAYER));
  int status = ft_database_begin(&file, 0);
  for (int i = 0; status == FT_OK && i < count; i++) status = put_lines(&file, paths[i]);
  if (status == FT_OK) status = ft_database_commit(&file);
  ft_database_close(&file);
  return status;
}

static int print_bytes(const char *path) {
  FILE *const file = fopen(path, "re");
  if (!file) return ft_fail(FT_E_IO, "%s: %s", path, strerror(errno));
  puts("/* Made by cache/shipped/made_shipped.c; do not edit. */\n#include \"cache/shipped.h\"\n\n"
       "const unsigned char ft_shipped_layer[] = {");
  size_t count = 0;
  for (int byte = getc(file); byte != EOF; byte = getc(file))
    printf("%d,%s", byte, ++count % 32 == 0 ? "\n" : "");
  printf("};\nconst size_t ft_shipped_layer_size = %zu;\n", count);
  const bool failed = ferror(file) || fflush(stdout) != 0;
  fclose(file);
  return failed ? ft_fail(FT_E_IO, "%s cannot be copied", path) : FT_OK;
}

int main(int count, char **words) {
  if (count < 2) return 2;
  int status = make_layer(words[1], words + 2, count - 2);
  if (status == FT_OK) status = print_bytes(words[1]);
  if (status != FT_OK) fprintf(stderr, "%s\n", ft_detail());
  return status == FT_OK ? 0 : 1;
}
