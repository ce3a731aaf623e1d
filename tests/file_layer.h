/* file_layer.h: a file layer of SQLite over the one that is there, with a word in every operation.
 * in -> out: a function -> every operation of every database of this process is shown to it first.
 */
#ifndef TESTS_FILE_LAYER_H
#define TESTS_FILE_LAYER_H

#include <stdbool.h>
#include <stdint.h>

enum file_operation {
  FILE_OPEN,
  FILE_DELETE,
  FILE_ACCESS,
  FILE_READ,
  FILE_WRITE,
  FILE_TRUNCATE,
  FILE_SYNC,
  FILE_SIZE,
  FILE_LOCK,
  FILE_CHECK_LOCK,
  FILE_SHARED_MEMORY
};

/* SQLite's code for a failure of the operation. */
int file_operation_failure(enum file_operation operation);

struct file_call {
  enum file_operation operation;
  const char *path; /* of open, delete, access; else of the file; NULL: a temporary one */
  int flags;        /* of open */
  const void *data; /* of write */
  int64_t at;       /* of write; the new size of truncate */
  int length;       /* of write */
};

struct file_layer {
  const char *name;
  /* SQLITE_OK: the layer below does it; else the operation fails with this code. */
  int (*before)(const struct file_call *call);
  bool promises_nothing; /* a disk that tears what it writes */
};

/* Makes it the file layer of this process. */
void file_layer_begin(const struct file_layer *layer);

#endif
