/* golden_list.c: tests/golden/list.txt read.
 * in -> out: lines "name | target | request | config" -> entries. */
#include "tests/golden_list.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "generator/families/append.h"
#include "generator/families/block_mask.h"
#include "generator/families/merge.h"
#include "generator/families/quantise.h"
#include "generator/status.h"

#define IN_FULL "in full:"

enum { LINE_SIZE = 512 };

static void read_well(int status, const char *entry) {
  ck_assert_msg(status == FT_OK, "list.txt, %s: %s", entry, ft_detail());
}

/* Cuts `line` at '|' into exactly `count` fields without the blanks around them. */
static bool split(char *line, char **fields, int count) {
  for (int i = 0; i < count; i++) {
    char *bar = strchr(line, '|');
    if ((bar != NULL) != (i < count - 1)) return false;
    char *end = bar ? bar : line + strlen(line);
    while (end > line && strchr(" \t\r\n", end[-1])) end--;
    fields[i] = line + strspn(line, " \t");
    line = bar ? bar + 1 : line;
    *end = '\0';
  }
  return true;
}

/* "in full: NAME NAME ...": the entries whose text is golden. They stand above it. */
static void mark_in_full(struct golden_entry *entries, int count, char *names) {
  char *rest = names;
  for (char *name = strtok_r(names, " \t\r\n", &rest); name;
       name = strtok_r(NULL, " \t\r\n", &rest)) {
    int i = 0;
    while (i < count && strcmp(entries[i].name, name) != 0) i++;
    ck_assert_msg(i < count, "list.txt: '%s' is to be kept in full and is no entry above", name);
    entries[i].in_full = true;
  }
}

/* "merge", "block_mask", "quantise", "append": the one config of a family that serves no request.
 */
static int read_config(struct ft_config *config, const char *text) {
  static const struct ft_family *const alone[] = {&ft_merge_family, &ft_block_mask_family,
                                                  &ft_quantise_family, &ft_append_family};
  for (int i = 0; i < FT_COUNT(alone); i++)
    if (strcmp(text, alone[i]->name) == 0) {
      *config = ft_config_first(alone[i]);
      return FT_OK;
    }
  return ft_config_parse(config, text);
}

int golden_entries(struct golden_entry entries[GOLDEN_ENTRIES_MOST]) {
  FILE *file = fopen(GOLDEN_FOLDER "list.txt", "r");
  ck_assert_msg(file != NULL, GOLDEN_FOLDER "list.txt: %s", strerror(errno));
  char line[LINE_SIZE];
  int count = 0;
  while (fgets(line, sizeof line, file)) {
    char *fields[4];
    if (line[0] == '#' || line[0] == '\n') continue;
    if (strncmp(line, IN_FULL, strlen(IN_FULL)) == 0) {
      mark_in_full(entries, count, line + strlen(IN_FULL));
      continue;
    }
    ck_assert_msg(split(line, fields, 4), "list.txt, entry %d: not 4 fields", count + 1);
    ck_assert_int_lt(count, GOLDEN_ENTRIES_MOST);
    struct golden_entry *entry = &entries[count++];
    entry->in_full = false;
    snprintf(entry->name, sizeof entry->name, "%s", fields[0]);
    snprintf(entry->target, sizeof entry->target, "%s", fields[1]);
    read_well(ft_request_parse(&entry->request, fields[2]), fields[0]);
    read_well(read_config(&entry->config, fields[3]), fields[0]);
  }
  ck_assert_int_eq(fclose(file), 0);
  return count;
}

bool golden_entry_at(int index, struct golden_entry *entry) {
  struct golden_entry entries[GOLDEN_ENTRIES_MOST];
  const int count = golden_entries(entries);
  if (index < count) *entry = entries[index];
  return index < count;
}

int golden_count(void) {
  FILE *file = fopen(GOLDEN_FOLDER "list.txt", "r");
  char line[LINE_SIZE];
  int count = 0;
  while (file && fgets(line, sizeof line, file))
    count += line[0] != '#' && line[0] != '\n' && strncmp(line, IN_FULL, strlen(IN_FULL)) != 0;
  if (file) fclose(file);
  return count;
}
