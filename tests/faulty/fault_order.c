/* fault_order.c: what a test says to a program whose calls are to fail.
 * in -> out: FATUNE_TEST_FAULT=KIND:N[:ever] -> the N-th call of the kind fails, once or from then
 * on: memory, files, or of SQLite for lack of memory (database), as others hold a lock (busy), by
 * an I/O error (broken). N = 0: none fails, and the file FATUNE_TEST_FAULT_SAYS tells how many
 * there were for memory, for files and of SQLite, and of each place that made calls of the kind:
 * its callers, its first call and its last one. A place is a chain of functions of the program,
 * each called by the next: with FATUNE_TEST_CALLERS=n the n innermost, else all of them.
 * FATUNE_TEST_SERVE=FOLDER: the program runs once for each order that comes
 * (tests/served_program.h), in a child whose output goes to FOLDER/out and FOLDER/err. */
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/faulty/fault_calls.h"
#include "tests/served_program.h"

static bool counts;
static enum fault_kind counted;

static void lead_to(int file, const char *folder, const char *name) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  const int opened = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (opened < 0 || dup2(opened, file) < 0 || close(opened) != 0) abort();
}

/* Returns in a child, once for each order. */
static void serve(const char *folder) {
  char order[SERVED_ORDER];
  int status;
  while (read(SERVED_ORDERS, order, sizeof order) == sizeof order) {
    const pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
      close(SERVED_ORDERS);
      close(SERVED_ENDS);
      lead_to(STDOUT_FILENO, folder, "out");
      lead_to(STDERR_FILENO, folder, "err");
      unsetenv("FATUNE_TEST_SERVE");
      if (order[0]) setenv(strchr(order, '*') ? "FATUNE_FAKE_FAIL" : "FATUNE_TEST_FAULT", order, 1);
      return;
    }
    if (waitpid(child, &status, 0) != child ||
        write(SERVED_ENDS, &status, sizeof status) != sizeof status)
      abort();
  }
  _exit(0);
}

static enum fault_kind kind_of(const char *order) {
  static const struct {
    const char *name;
    enum fault_kind kind;
    int answer;
  } kinds[] = {{"memory:", FAULT_MEMORY, 0},
               {"files:", FAULT_FILES, 0},
               {"database:", FAULT_DATABASE, SQLITE_NOMEM},
               {"busy:", FAULT_DATABASE, SQLITE_BUSY},
               {"broken:", FAULT_DATABASE, SQLITE_IOERR}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strncmp(order, kinds[i].name, strlen(kinds[i].name)) != 0) continue;
    if (kinds[i].answer) fault_database_by(kinds[i].answer);
    return kinds[i].kind;
  }
  abort();
}

/* Those of fault_calls.c, which are in each chain, come on top. */
static int callers(void) {
  enum { OF_FAULT_CALLS = 4 };
  const char *const given = getenv("FATUNE_TEST_CALLERS");
  return given ? (int)strtol(given, NULL, 10) + OF_FAULT_CALLS : FAULT_ALL_CALLERS;
}

__attribute__((constructor)) static void take_order(void) {
  const char *const folder = getenv("FATUNE_TEST_SERVE");
  if (folder) serve(folder);
  const char *const order = getenv("FATUNE_TEST_FAULT");
  if (!order) return;
  const char *const number = strchr(order, ':');
  if (!number) abort();
  char *rest;
  const long n = strtol(number + 1, &rest, 10);
  const bool ever = strcmp(rest, ":ever") == 0;
  if (rest == number + 1 || (rest[0] && !ever)) abort();
  fault_calls_begin();
  counts = n == 0;
  if (counts) fault_calls_note_places(callers());
  counted = kind_of(order);
  fault_calls_arm(counted, n, ever);
}

/* How many calls of the kind the file has already: two processes write it in turn, first a worker
 * and then its supervisor. That of the supervisor, which makes fewer calls, must not replace it. */
static long told(const char *says, enum fault_kind kind) {
  char numbers[FAULT_KINDS][24];
  FILE *const file = fopen(says, "r");
  const bool whole =
      file && fscanf(file, "%23s %23s %23s", numbers[0], numbers[1], numbers[2]) == 3;
  if (file) fclose(file);
  return whole ? strtol(numbers[kind], NULL, 10) : 0;
}

__attribute__((destructor)) static void tell(void) {
  const char *const says = getenv("FATUNE_TEST_FAULT_SAYS");
  (void)fault_calls_disarm(); /* what writes counts of branches afterwards takes memory */
  if (!says || !counts || told(says, counted) > fault_calls_count(counted)) return;
  FILE *const file = fopen(says, "w");
  if (!file) return;
  for (int kind = 0; kind < FAULT_KINDS; kind++)
    fprintf(file, "%ld ", fault_calls_count((enum fault_kind)kind));
  size_t at = 0;
  for (const struct fault_place *place; (place = fault_calls_place(&at)) != NULL;)
    fprintf(file, "%016" PRIx64 " %ld %ld\n", place->callers, place->first, place->last);
  fclose(file);
}
