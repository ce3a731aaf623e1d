/* fault_calls.c: part of the program `fatune_faulty`, whose calls for memory and files fail on
 * order. in -> out: FATUNE_TEST_FAULT=memory|files:N[:ever] -> the N-th such call of the program,
 * of SQLite or of Jansson fails, once or from then on; the file FATUNE_TEST_FAULT_SAYS: how many
 * there were.
 * FATUNE_TEST_NETWORK: every file system is NFS.
 *
 * The linker leads fatune's calls of NAME here as __wrap_NAME (tests/CMakeLists.txt has the list);
 * Lua allocates through fatune. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tests/file_layer.h"

enum kind { MEMORY, FILES };

static struct {
  pthread_mutex_t lock;
  enum kind kind;
  bool armed, ever;
  long n, count;
} fault = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool fails(enum kind kind) {
  bool now = false;
  pthread_mutex_lock(&fault.lock);
  if (fault.armed && fault.kind == kind) {
    fault.count++;
    now = fault.count == fault.n || (fault.ever && fault.count > fault.n);
  }
  pthread_mutex_unlock(&fault.lock);
  return now;
}

/* ---- memory ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t most);
char *__real_realpath(const char *path, char *to);
int __real_vasprintf(char **to, const char *format, va_list arguments);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t most);
char *__wrap_realpath(const char *path, char *to);
int __wrap_asprintf(char **to, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define WITHOUT_MEMORY(call) (fails(MEMORY) ? (errno = ENOMEM, NULL) : (call))

void *__wrap_malloc(size_t size) {
  return WITHOUT_MEMORY(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size) {
  return WITHOUT_MEMORY(__real_calloc(count, size));
}

void *__wrap_realloc(void *block, size_t size) {
  return WITHOUT_MEMORY(__real_realloc(block, size));
}

char *__wrap_strdup(const char *text) {
  return WITHOUT_MEMORY(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t most) {
  return WITHOUT_MEMORY(__real_strndup(text, most));
}

char *__wrap_realpath(const char *path, char *to) {
  return WITHOUT_MEMORY(__real_realpath(path, to));
}

int __wrap_asprintf(char **to, const char *format, ...) {
  if (fails(MEMORY)) return -1;
  va_list arguments;
  va_start(arguments, format);
  const int length = vasprintf(to, format, arguments);
  va_end(arguments);
  return length;
}

static sqlite3_mem_methods memory_below;

static void *sqlite_malloc(int bytes) {
  return WITHOUT_MEMORY(memory_below.xMalloc(bytes));
}

static void *sqlite_realloc(void *block, int bytes) {
  return WITHOUT_MEMORY(memory_below.xRealloc(block, bytes));
}

/* ---- files ---- */

#define WITHOUT_FILE(call, code) (fails(FILES) ? (errno = (code), -1) : (call))

int __real_open(const char *path, int flags, ...);
ssize_t __real_read(int file, void *to, size_t most);
ssize_t __real_pread(int file, void *to, size_t most, off_t at);
ssize_t __real_write(int file, const void *from, size_t length);
ssize_t __real_pwrite(int file, const void *from, size_t length, off_t at);
int __real_fsync(int file);
int __real_rename(const char *from, const char *to);
int __real_link(const char *from, const char *to);
int __real_mkdir(const char *path, mode_t mode);
int __real_mkstemp(char *pattern);
int __real_stat(const char *path, struct stat *state);
int __real_lstat(const char *path, struct stat *state);
int __real_fstat(int file, struct stat *state);
FILE *__real_fopen(const char *path, const char *mode);
int __wrap_open(const char *path, int flags, ...);
ssize_t __wrap_read(int file, void *to, size_t most);
ssize_t __wrap_pread(int file, void *to, size_t most, off_t at);
ssize_t __wrap_write(int file, const void *from, size_t length);
ssize_t __wrap_pwrite(int file, const void *from, size_t length, off_t at);
int __wrap_fsync(int file);
int __wrap_rename(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkstemp(char *pattern);
int __wrap_stat(const char *path, struct stat *state);
int __wrap_lstat(const char *path, struct stat *state);
int __wrap_fstat(int file, struct stat *state);
FILE *__wrap_fopen(const char *path, const char *mode);

int __wrap_open(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? (mode_t)va_arg(arguments, int) : 0;
  va_end(arguments);
  return WITHOUT_FILE(__real_open(path, flags, mode), EIO);
}

ssize_t __wrap_read(int file, void *to, size_t most) {
  return WITHOUT_FILE(__real_read(file, to, most), EIO);
}

ssize_t __wrap_pread(int file, void *to, size_t most, off_t at) {
  return WITHOUT_FILE(__real_pread(file, to, most, at), EIO);
}

ssize_t __wrap_write(int file, const void *from, size_t length) {
  return WITHOUT_FILE(__real_write(file, from, length), ENOSPC);
}

ssize_t __wrap_pwrite(int file, const void *from, size_t length, off_t at) {
  return WITHOUT_FILE(__real_pwrite(file, from, length, at), ENOSPC);
}

int __wrap_fsync(int file) {
  return WITHOUT_FILE(__real_fsync(file), EIO);
}

int __wrap_rename(const char *from, const char *to) {
  return WITHOUT_FILE(__real_rename(from, to), EIO);
}

int __wrap_link(const char *from, const char *to) {
  return WITHOUT_FILE(__real_link(from, to), EIO);
}

int __wrap_mkdir(const char *path, mode_t mode) {
  return WITHOUT_FILE(__real_mkdir(path, mode), ENOSPC);
}

int __wrap_mkstemp(char *pattern) {
  return WITHOUT_FILE(__real_mkstemp(pattern), ENOSPC);
}

int __wrap_stat(const char *path, struct stat *state) {
  return WITHOUT_FILE(__real_stat(path, state), EIO);
}

int __wrap_lstat(const char *path, struct stat *state) {
  return WITHOUT_FILE(__real_lstat(path, state), EIO);
}

int __wrap_fstat(int file, struct stat *state) {
  return WITHOUT_FILE(__real_fstat(file, state), EIO);
}

FILE *__wrap_fopen(const char *path, const char *mode) {
  return fails(FILES) ? (errno = EIO, NULL) : __real_fopen(path, mode);
}

static int before(const struct file_call *call) {
  return fails(FILES) ? file_operation_failure(call->operation) : SQLITE_OK;
}

/* ---- a network ---- */

int __real_statfs(const char *path, struct statfs *state);
int __wrap_statfs(const char *path, struct statfs *state);

int __wrap_statfs(const char *path, struct statfs *state) {
  const int status = __real_statfs(path, state);
  if (getenv("FATUNE_TEST_NETWORK")) state->f_type = 0x6969; /* NFS */
  return status;
}

/* ---- the order ---- */

__attribute__((constructor)) static void take_order(void) {
  const char *const order = getenv("FATUNE_TEST_FAULT");
  if (!order) return;
  const char *const number = strchr(order, ':');
  if (!number) abort();
  char *rest;
  fault.n = strtol(number + 1, &rest, 10);
  fault.kind = strncmp(order, "memory:", 7) == 0 ? MEMORY : FILES;
  fault.ever = strcmp(rest, ":ever") == 0;
  if (rest == number + 1 || (rest[0] && !fault.ever)) abort();
  if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &memory_below) != SQLITE_OK) abort();
  sqlite3_mem_methods failing = memory_below;
  failing.xMalloc = sqlite_malloc;
  failing.xRealloc = sqlite_realloc;
  if (sqlite3_config(SQLITE_CONFIG_MALLOC, &failing) != SQLITE_OK) abort();
  json_set_alloc_funcs(__wrap_malloc, free);
  file_layer_begin(&(struct file_layer){.name = "fault", .before = before});
  fault.armed = true;
}

__attribute__((destructor)) static void tell(void) {
  const char *const says = getenv("FATUNE_TEST_FAULT_SAYS");
  fault.armed = false;
  if (!says) return;
  FILE *const file = __real_fopen(says, "w");
  if (!file) return;
  fprintf(file, "%ld\n", fault.count);
  fclose(file);
}
