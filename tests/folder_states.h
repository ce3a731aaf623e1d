/* folder_states.h: states that a folder was in. in -> out: a folder -> the digest of its files'
 * names, modes and bytes; whether that was noted before; how many entries it has. */
#ifndef TESTS_FOLDER_STATES_H
#define TESTS_FOLDER_STATES_H

#include <stdbool.h>

#include "generator/digest.h"

/* Folders within are left out. Of another use the same files are another state. */
struct ft_digest folder_state(const char *folder, int use);

/* 0 when there is no such folder. */
int folder_entries(const char *folder);

/* Those that were noted; the oldest are forgotten. All zero: none. */
struct folder_states {
  struct ft_digest at[256];
  unsigned count;
};

void folder_states_note(struct folder_states *states, const struct ft_digest *state);
bool folder_states_has(const struct folder_states *states, const struct ft_digest *state);

#endif
