/* fault_files.c: SQLite's file layer with a counter: the n-th operation fails.
 * in -> out: operations of SQLite -> those of the layer below, or a failure. */
#include "tests/fault_files.h"

#include <sqlite3.h>

#include "tests/file_layer.h"

struct fault_files fault_files;

static int before(const struct file_call *call) {
  fault_files.count++;
  if (fault_files.fail_at == 0 || fault_files.count < fault_files.fail_at) return SQLITE_OK;
  if (!fault_files.sticky && fault_files.count > fault_files.fail_at) return SQLITE_OK;
  fault_files.failed++;
  return fault_files.code ? fault_files.code : file_operation_failure(call->operation);
}

void fault_files_begin(void) {
  file_layer_begin(&(struct file_layer){.name = "fault", .before = before});
  fault_files_arm(0, false, 0);
}

void fault_files_arm(long n, bool sticky, int code) {
  fault_files = (struct fault_files){.fail_at = n, .sticky = sticky, .code = code};
}
