/* child.c: a program run to its end.
 * in -> out: arguments -> what it wrote, what it exited with. Any number of threads at once; the
 * host's signals, its ignored SIGCHLD or its closed descriptors are no hindrance. */
#include "runtime/emulator/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generator/status.h"

enum { OUTPUT_MOST = 256 * 1024 };

/* The host may ignore SIGCHLD, which a compiler driver that waits for its parts would inherit. */
static int set_signals(posix_spawnattr_t *attributes) {
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGCHLD);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGXFSZ);
  int error = posix_spawnattr_setsigmask(attributes, &none);
  if (!error) error = posix_spawnattr_setsigdefault(attributes, &defaults);
  const short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  return error ? error : posix_spawnattr_setflags(attributes, flags);
}

/* The pipe first: where the host has closed its own, its number may be one of the three. */
static int set_files(posix_spawn_file_actions_t *actions, int write_end, const char *folder) {
  int error = posix_spawn_file_actions_adddup2(actions, write_end, STDOUT_FILENO);
  if (!error) error = posix_spawn_file_actions_adddup2(actions, write_end, STDERR_FILENO);
  if (!error)
    error = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (!error && folder) error = posix_spawn_file_actions_addchdir_np(actions, folder);
  return error;
}

static int spawn(pid_t *child, const char *const *arguments, const char *folder, int write_end) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int error = posix_spawn_file_actions_init(&actions);
  if (error) return error;
  error = posix_spawnattr_init(&attributes);
  if (!error) {
    error = set_signals(&attributes);
    if (!error) error = set_files(&actions, write_end, folder);
    if (!error)
      error = posix_spawnp(child, arguments[0], &actions, &attributes,
                           (char *const *)(uintptr_t)arguments, environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/* To the end, even of what is too much to keep: a program must not block on a full pipe. */
static void drain(int read_end, struct ft_text *output) {
  char bytes[4096];
  for (;;) {
    const ssize_t count = read(read_end, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    if (output->length < OUTPUT_MOST) ft_text_append(output, bytes, (size_t)count);
  }
}

/* 0 where somebody else has reaped it (SIGCHLD ignored, a wait for any child): the caller sees by
 * what it has made whether it succeeded. */
static int exit_code(pid_t child) {
  int status = 0;
  pid_t reaped;
  do {
    reaped = waitpid(child, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  if (reaped != child) return 0;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int ft_child_run(const char *const *arguments, const char *folder, struct ft_text *output,
                 int *code) {
  int ends[2];
  pid_t child;
  if (pipe2(ends, O_CLOEXEC) != 0) return ft_fail(FT_E_IO, "no pipe: %s", strerror(errno));
  const int error = spawn(&child, arguments, folder, ends[1]);
  close(ends[1]);
  if (!error) {
    drain(ends[0], output);
    *code = exit_code(child);
  }
  close(ends[0]);
  if (error) return ft_fail(FT_E_IO, "%s cannot be run: %s", arguments[0], strerror(error));
  return ft_text_status(output);
}
