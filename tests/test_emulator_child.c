/* test_emulator_child.c: what emulated code does to itself it does in a child process: the host
 * learns of it and lives on. in -> out: kernels that crash, hang, exit, call the operating system
 * -> the launch's error; hosts with threads, with children ignored, killed. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "generator/clock.h"
#include "generator/status.h"
#include "runtime/emulator/driver_module.h"
#include "runtime/session.h"
#include "tests/emulator_kernel.h"
#include "tests/suites.h"

#if defined(__SANITIZE_ADDRESS__)
enum { UNDER_ASAN = 1 };
#else
enum { UNDER_ASAN = 0 };
#endif

static char marker[64]; /* a file that no kernel may make */

static void set_up(void) {
  unsetenv("FATUNE_EMULATOR_SECONDS");
  snprintf(marker, sizeof marker, "/tmp/fatune-child-%ld", (long)getpid());
  unlink(marker);
}

static int launch(struct small_kernel *kernel, uint32_t first) {
  uint32_t in[64] = {first}, out[64];
  const int status = small_kernel_launch(kernel, 1, 32, in, 64, out, 64);
  if (status == FT_OK) ck_assert_uint_eq(out[0], 7);
  return status;
}

/* What a kernel does that was launched with its number, from 1 on, in in[0]. words_of_asan NULL:
 * not under AddressSanitizer, which has no limit of memory. */
struct bad {
  const char *body, *words, *words_of_asan;
};

static const struct bad bad[] = {
    {"void *fill(void *, int, unsigned long) asm(\"memset\"); fill((void *)(in[0] + 15ul), 1, 64);",
     "signal 11 (", "AddressSanitizer"},
    {"int (*const nowhere)() = (int (*)())(in[0] + 15ul); nowhere();", "signal 11 (",
     "AddressSanitizer"},
    {"void stop() asm(\"abort\"); stop();", "signal 6 (", "signal 6 ("},
    {"void end(int) asm(\"exit\"); end(0);", "calls exit", "calls exit"},
    {"void end_now(int) asm(\"_exit\"); end_now(3);", "exit status 3", "exit status 3"},
    {"int wait() asm(\"pause\"); wait();", "system call", "system call"},
    {"int sleep_on(unsigned) asm(\"sleep\"); for (;;) sleep_on(1);",
     "has taken 1 s (FATUNE_EMULATOR_SECONDS)", "has taken 1 s (FATUNE_EMULATOR_SECONDS)"},
    {"int shut(int) asm(\"close\"); int sleep_on(unsigned) asm(\"sleep\"); shut(3); for (;;) "
     "sleep_on(1);",
     "has taken 1 s", "has taken 1 s"},
    {"int shell(const char *) asm(\"system\"); shell(\"touch MARKER\");", "system call",
     "system call"},
    {"int make_new(const char *, unsigned) asm(\"creat\"); make_new(\"MARKER\", 0600);",
     "system call", "system call"},
    {"int make(const char *, int, ...) asm(\"open\"); make(\"MARKER\", 0101, 0600);", "system call",
     "system call"},
    {"int end_other(int, int) asm(\"kill\"); int parent() asm(\"getppid\"); end_other(parent(), "
     "9);",
     "system call", "system call"},
    {"int talk(int, int, int) asm(\"socket\"); talk(1, 1, 0);", "system call", "system call"},
    {"void *room(unsigned long) asm(\"malloc\"); void *fill(void *, int, unsigned long) "
     "asm(\"memset\"); for (;;) fill(room(1ul << 28), 0, 1);",
     "signal 11 (", NULL},
    {"int say(const char *) asm(\"puts\"); for (;;) "
     "say(\"many words many words many words many words many words many words many words\");",
     "writes more than", NULL}, /* under the sanitizer it is ended by time alone, not known why */
};
#ifdef FATUNE_COVERAGE
static const char *const unlimited[] = {"system call", "writes more"}; /* gcov writes files */
#else
static const char *const unlimited[] = {"\n", "\n"};
#endif
enum { BAD = sizeof bad / sizeof *bad };

static void open_body(struct small_kernel *kernel, const char *body) {
  struct ft_text text = FT_TEXT_INIT;
  ft_text_add(&text, "%sout[lane] = 7;\n", body);
  ck_assert_int_eq(ft_text_status(&text), FT_OK);
  small_kernel_open(kernel, "a100", FT_BF16, text.data);
  ft_text_free(&text);
}

/* All of them in one kernel. */
static void open_bad(struct small_kernel *kernel) {
  struct ft_text text = FT_TEXT_INIT;
  for (int n = 0; n < BAD; n++) {
    const char *const body = bad[n].body, *const name = strstr(body, "MARKER");
    ft_text_add(&text, "if (in[0] == %d) { ", n + 1);
    if (name)
      ft_text_add(&text, "%.*s%s%s }\n", (int)(name - body), body, marker, name + 6);
    else
      ft_text_add(&text, "%s }\n", body);
  }
  ck_assert_int_eq(ft_text_status(&text), FT_OK);
  open_body(kernel, text.data);
  ft_text_free(&text);
}

START_TEST(the_host_outlives_what_a_kernel_does) {
  struct small_kernel kernel;
  open_bad(&kernel);
  for (int n = 0; n < BAD; n++) {
    const char *const words = UNDER_ASAN ? bad[n].words_of_asan : bad[n].words;
    if (!words || strstr(words, unlimited[0]) || strstr(words, unlimited[1])) continue;
    setenv("FATUNE_EMULATOR_SECONDS", strstr(words, "has taken 1 s") ? "1" : "100", 1);
    ck_assert_msg(launch(&kernel, (uint32_t)n + 1) == FT_E_DEVICE, "not seen: %s", bad[n].body);
    ck_assert_msg(strstr(ft_detail(), words), "%s: no \"%s\" in: %s", bad[n].body, words,
                  ft_detail());
    ck_assert_msg(strstr(ft_detail(), "fatune_kernel"), "%s", ft_detail());
    ck_assert_msg(launch(&kernel, 0) == FT_OK, "%s", ft_detail());
  }
  ck_assert_int_eq(access(marker, F_OK), -1);
  small_kernel_close(&kernel);
}
END_TEST

START_TEST(a_crash_has_a_place) {
  if (UNDER_ASAN) return; /* whose report has it in its own form */
  struct small_kernel kernel;
  open_body(&kernel, "void *fill(void *, int, unsigned long) asm(\"memset\");\n"
                     "if (in[0] == 1 && lane == 5) fill((void *)16ul, 1, 64);\n");
  ck_assert_int_eq(launch(&kernel, 1), FT_E_DEVICE);
  ck_assert_msg(strstr(ft_detail(), "mma_forward.cu.in:10), block 0, warp 0, lane 5: was ended"),
                "%s", ft_detail());
  small_kernel_close(&kernel);
}
END_TEST

START_TEST(limits_that_are_no_numbers_are_named) {
  static const char *const wrong[] = {"0", "-1", "1s", "1e9", "99999999999999999999"};
  struct small_kernel kernel;
  open_body(&kernel, "");
  for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
    setenv("FATUNE_EMULATOR_SECONDS", wrong[n], 1);
    ck_assert_int_eq(launch(&kernel, 0), FT_E_DEVICE);
    ck_assert_msg(strstr(ft_detail(), "FATUNE_EMULATOR_SECONDS is"), "%s", ft_detail());
  }
  unsetenv("FATUNE_EMULATOR_SECONDS");
  ck_assert_int_eq(launch(&kernel, 0), FT_OK);
  small_kernel_close(&kernel);
}
END_TEST

/* ---- memory of the host's own ---- */

START_TEST(tensors_may_lie_in_the_hosts_memory) {
  struct small_kernel kernel;
  enum { COUNT = 32 };
  uint32_t *const in = malloc(COUNT * sizeof *in), *const out = calloc(2 * COUNT, sizeof *out);
  for (int n = 0; n < COUNT; n++) in[n] = (uint32_t)n;
  open_body(&kernel, "out[lane] = 0;\n");
  struct ft_emulated_tensor tensors[2] = {
      {.name = "in", .address = (uint64_t)(uintptr_t)in, .element_bytes = 4},
      {.name = "out", .address = (uint64_t)(uintptr_t)out, .element_bytes = 4, .writable = true}};
  for (int n = 0; n < 2; n++)
    for (int dim = 0; dim < FT_TENSOR_DIMS; dim++) {
      tensors[n].extents[dim] = dim == FT_TENSOR_DIMS - 1 ? COUNT : 1;
      tensors[n].strides[dim] = dim == FT_TENSOR_DIMS - 1 ? 1 : COUNT;
    }
  struct {
    const void *in;
    void *out;
  } words = {in, out};
  void *arguments[] = {&words};
  const struct ft_driver *const driver = &kernel.session->driver;
  ft_emulator_expect(tensors, 2);
  const cu_result result =
      driver->launch(kernel.module.main, 1, 1, 1, 32, 1, 1, (unsigned)kernel.kernel.smem_bytes,
                     NULL, arguments, NULL);
  ck_assert_msg(ft_driver_status(driver, result, "launch") == FT_OK, "%s", ft_detail());
  for (int n = 0; n < 2 * COUNT; n++) ck_assert_uint_eq(out[n], n < COUNT ? 7 : 0);
  small_kernel_close(&kernel);
  free(in);
  free(out);
}
END_TEST

/* ---- hosts ---- */

struct user {
  pthread_t thread;
  struct small_kernel *kernel;
  int failures;
};

static void *use(void *payload) {
  struct user *const user = payload;
  for (int round = 0; round < 10; round++) user->failures += launch(user->kernel, 0) != FT_OK;
  return NULL;
}

static atomic_bool stop_churning;

/* Something for a fork to fall into: the locks of malloc, of streams, of the emulated memory. */
static void *churn(void *payload) {
  const struct small_kernel *const kernel = payload;
  while (!stop_churning) {
    cu_address address;
    char *text = NULL;
    ck_assert_int_eq(kernel->session->driver.memory_alloc(&address, 4096), 0);
    ck_assert_int_ge(asprintf(&text, "%d", 5), 0);
    free(text);
    ck_assert_int_eq(kernel->session->driver.memory_free(address), 0);
  }
  return NULL;
}

START_TEST(threads_launch_at_once) {
  struct small_kernel kernel;
  struct user users[4];
  pthread_t churner;
  open_body(&kernel, "");
  stop_churning = false;
  ck_assert_int_eq(pthread_create(&churner, NULL, churn, &kernel), 0);
  for (int n = 0; n < 4; n++) {
    users[n] = (struct user){.kernel = &kernel};
    ck_assert_int_eq(pthread_create(&users[n].thread, NULL, use, &users[n]), 0);
  }
  for (int n = 0; n < 4; n++) {
    pthread_join(users[n].thread, NULL);
    ck_assert_int_eq(users[n].failures, 0);
  }
  stop_churning = true;
  pthread_join(churner, NULL);
  small_kernel_close(&kernel);
}
END_TEST

static pid_t own_process;

static void at_the_end(void) {
  const int file = getpid() == own_process ? -1 : creat(marker, 0600);
  if (file >= 0) close(file);
}

/* Neither its handlers of signals nor those of its end run in the child, and it need not wait for
 * its children. */
START_TEST(a_host_keeps_its_handlers) {
  struct small_kernel kernel;
  open_body(&kernel, "void end(int) asm(\"exit\");\n"
                     "if (in[0] == 1) end(0);\n");
  own_process = getpid();
  ck_assert_int_eq(atexit(at_the_end), 0);
  signal(SIGCHLD, SIG_IGN);
  ck_assert_int_eq(launch(&kernel, 0), FT_OK);
  ck_assert_int_eq(launch(&kernel, 1), FT_E_DEVICE);
  ck_assert_int_eq(access(marker, F_OK), -1);
  signal(SIGCHLD, SIG_DFL);
  small_kernel_close(&kernel);
}
END_TEST

START_TEST(a_child_dies_with_its_host) {
  struct small_kernel kernel;
  open_body(&kernel, "int sleep_on(unsigned) asm(\"sleep\");\n"
                     "while (in[0] == 1) sleep_on(1);\n");
  const pid_t host = fork();
  ck_assert_int_ge(host, 0);
  if (host == 0) {
    setpgid(0, 0);
    launch(&kernel, 1);
    _exit(1);
  }
  usleep(400000);
  ck_assert_int_eq(kill(host, SIGKILL), 0);
  ck_assert_int_eq(waitpid(host, NULL, 0), host);
  const double deadline = ft_seconds_now() + 5;
  while (kill(-host, 0) == 0) {
    ck_assert_msg(ft_seconds_now() < deadline, "a child is left");
    usleep(10000);
  }
  small_kernel_close(&kernel);
}
END_TEST

Suite *make_emulator_child_suite(void) {
  Suite *const suite = suite_create("emulator_child");
  TCase *const tests = tcase_create("child");
  tcase_set_timeout(tests, 120);
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_add_test(tests, the_host_outlives_what_a_kernel_does);
  tcase_add_test(tests, a_crash_has_a_place);
  tcase_add_test(tests, limits_that_are_no_numbers_are_named);
  tcase_add_test(tests, tensors_may_lie_in_the_hosts_memory);
  tcase_add_test(tests, threads_launch_at_once);
  tcase_add_test(tests, a_host_keeps_its_handlers);
  tcase_add_test(tests, a_child_dies_with_its_host);
  suite_add_tcase(suite, tests);
  return suite;
}
