/* fault_files.h: SQLite's file layer with a counter: the n-th operation fails, once or from then
 * on. in -> out: n and a code -> every database of this process meets that fault. */
#ifndef TESTS_FAULT_FILES_H
#define TESTS_FAULT_FILES_H

#include <stdbool.h>

struct fault_files {
  long count;   /* operations so far */
  long fail_at; /* 0: none fails; counted from 1 */
  bool sticky;  /* later ones fail, too */
  int code;     /* SQLITE_IOERR_READ ...; 0: the one that fits the operation */
  long failed;  /* operations that were made to fail */
};

extern struct fault_files fault_files;

/* Makes it the file layer of this process, over the one that is there. */
void fault_files_begin(void);

/* From now on the n-th operation fails; 0: none does. */
void fault_files_arm(long n, bool sticky, int code);

#endif
