/* filter.c: which system calls code may make that is not ours.
 * in -> out: a list of system calls -> a seccomp program in the kernel of the operating system. */
#include "runtime/emulator/filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#ifdef ARCHITECTURE

/* What malloc, the loader, backtrace and the sanitizers' reports need. No other process can be
 * made, signalled or looked into, no program run, no file made or changed, no socket opened. */
static const uint16_t allowed[] = {
    /* memory */
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_brk,
    SYS_futex,
    /* what is open, or may be read */
    SYS_read,
    SYS_pread64,
    SYS_write,
    SYS_writev,
    SYS_close,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_readlinkat,
    SYS_getdents64,
    /* this process */
    SYS_exit,
    SYS_exit_group,
    SYS_rt_sigprocmask,
    SYS_rt_sigaction,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_getpid,
    SYS_gettid,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_clock_gettime,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_getrandom,
    SYS_restart_syscall,
#ifdef SYS_stat
    SYS_stat,
    SYS_lstat,
    SYS_readlink,
    SYS_access,
#endif
};

enum { COUNT = sizeof allowed / sizeof *allowed, RULE = 5, RULES = 3 };
enum { LENGTH = 4 + 2 * COUNT + RULES * RULE + 1 };

#define NUMBER                 offsetof(struct seccomp_data, nr)
#define ARGUMENT(n)            (offsetof(struct seccomp_data, args) + 8 * (n)) /* its low half */
#define LOAD(offset)           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offset))
#define RETURN(what)           BPF_STMT(BPF_RET | BPF_K, what)
#define IF(value, skip)        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), 0, skip)
#define IF_NONE_OF(bits, skip) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)(bits), skip, 0)

static void add(struct sock_filter *program, int *count, const struct sock_filter rule[RULE]) {
  for (int n = 0; n < RULE; n++) program[(*count)++] = rule[n];
}

/* An opening for reading alone; the argument that has the flags. */
static void add_opening(struct sock_filter *program, int *count, long call, size_t flags) {
  const int other = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND;
  add(program, count,
      (const struct sock_filter[RULE]){LOAD(NUMBER), IF(call, 3), LOAD(ARGUMENT(flags)),
                                       IF_NONE_OF(other, 1), RETURN(SECCOMP_RET_ALLOW)});
}

static int write_program(struct sock_filter program[LENGTH]) {
  int count = 0;
  program[count++] = (struct sock_filter)LOAD(offsetof(struct seccomp_data, arch));
  program[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
  program[count++] = (struct sock_filter)RETURN(SECCOMP_RET_TRAP);
  program[count++] = (struct sock_filter)LOAD(NUMBER);
  for (int n = 0; n < COUNT; n++) {
    program[count++] = (struct sock_filter)IF(allowed[n], 1);
    program[count++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
  }
  add_opening(program, &count, SYS_openat, 2);
#ifdef SYS_open
  add_opening(program, &count, SYS_open, 1);
#endif
  /* abort: a signal to a thread of this process */
  add(program, &count,
      (const struct sock_filter[RULE]){LOAD(NUMBER), IF(SYS_tgkill, 3), LOAD(ARGUMENT(0UL)),
                                       IF(getpid(), 1), RETURN(SECCOMP_RET_ALLOW)});
  program[count++] = (struct sock_filter)RETURN(SECCOMP_RET_TRAP);
  return count;
}

int ft_filter_system_calls(void) {
  struct sock_filter instructions[LENGTH];
  const struct sock_fprog program = {(unsigned short)write_program(instructions), instructions};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

#else

int ft_filter_system_calls(void) {
  return -1;
}

#endif
