/* served_program.c: a program that is started once and runs many times.
 * in -> out: served_program.h. */
#include "tests/served_program.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void served_begin(struct served_program *served, const char *line, const char *folder) {
  int orders[2], ends[2];
  char command[8192];
  snprintf(command, sizeof command, "exec %s </dev/null", line);
  ck_assert_int_eq(pipe2(orders, O_CLOEXEC), 0);
  ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
  *served = (struct served_program){.server = fork(), .orders = orders[1], .ends = ends[0]};
  ck_assert_int_ge(served->server, 0);
  if (served->server == 0) {
    setenv("FATUNE_TEST_SERVE", folder, 1);
    if (dup2(orders[0], SERVED_ORDERS) >= 0 && dup2(ends[1], SERVED_ENDS) >= 0)
      execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  close(orders[0]);
  close(ends[1]);
}

int served_run(const struct served_program *served, const char *order) {
  char sent[SERVED_ORDER] = "";
  int status;
  ck_assert_int_lt(snprintf(sent, sizeof sent, "%s", order), (int)sizeof sent);
  ck_assert_int_eq(write(served->orders, sent, sizeof sent), sizeof sent);
  ck_assert_msg(read(served->ends, &status, sizeof status) == sizeof status,
                "by \"%s\": the program that was served ended", order);
  return status;
}

void served_end(struct served_program *served) {
  close(served->orders);
  close(served->ends);
  waitpid(served->server, NULL, 0);
}
