/* fault_calls.h: calls for memory and files that fail when a test says so.
 * in -> out: kind, n -> the n-th such call of the program, of SQLite or of Jansson fails, once or
 * from then on; or of its calls of SQLite. */
#ifndef TESTS_FAULTY_FAULT_CALLS_H
#define TESTS_FAULTY_FAULT_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fault_kind { FAULT_MEMORY, FAULT_FILES, FAULT_DATABASE, FAULT_KINDS };

/* Before the first use of SQLite, or after sqlite3_shutdown. */
void fault_calls_begin(void);

/* From here on calls are counted, and the n-th fails; 0: none. */
void fault_calls_arm(enum fault_kind kind, long n, bool ever);

/* Instead, act is called once, just before the n-th: what another process may do at that moment. */
void fault_calls_act(enum fault_kind kind, long n, void (*act)(void));

/* What a call of SQLite answers that fails; SQLITE_NOMEM if nothing else was said. */
void fault_database_by(int answer);

/* For what leads calls here: one more call of that kind; whether it is to fail. */
bool fault_calls_fails(enum fault_kind kind);

/* From now on no call fails. Returns how many calls of the ordered kind there were. */
long fault_calls_disarm(void);

/* Since they were armed, of any kind. */
long fault_calls_count(enum fault_kind kind);

/* Of the calls by one chain of callers the first and the last, counted as n is. */
struct fault_place {
  uint64_t callers;
  long first, last;
};

/* From here on places are noted, in an empty table. A chain is told from another by that many
 * innermost callers in the program itself; by FAULT_ALL_CALLERS, callers in libraries count, too.
 * 0 ends the noting. */
enum { FAULT_ALL_CALLERS = 64 };
void fault_calls_note_places(int callers);

/* The place at *at or after it, which begins with 0; NULL: there are no more. */
const struct fault_place *fault_calls_place(size_t *at);

#endif
