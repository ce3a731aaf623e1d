/* golden_list.h: tests/golden/list.txt read.
 * in -> out: lines "name | target | request | config" -> entries. */
#ifndef TESTS_GOLDEN_LIST_H
#define TESTS_GOLDEN_LIST_H

#include <stdbool.h>

#include "generator/config.h"
#include "generator/request.h"

#define GOLDEN_FOLDER FATUNE_TESTS_DIR "/golden/"

enum { GOLDEN_ENTRIES_MOST = 128, GOLDEN_NAME_SIZE = 48 };

struct golden_entry {
  char name[GOLDEN_NAME_SIZE];
  char target[16];
  struct ft_request request;
  struct ft_config config;
  bool in_full; /* its text is golden, not its digest alone */
};

/* How many entries were read. */
int golden_entries(struct golden_entry entries[GOLDEN_ENTRIES_MOST]);

/* Loop tests are registered by number before the list is read; numbers past its end do nothing. */
bool golden_entry_at(int index, struct golden_entry *entry);

/* 0 where there is no such file. */
int golden_count(void);

#endif
