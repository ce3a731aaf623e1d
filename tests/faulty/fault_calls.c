/* fault_calls.c: calls for memory and files that fail when a test says so.
 * in -> out: kind, n -> the n-th such call of the program, of SQLite or of Jansson fails, once or
 * from then on; or none fails, and the calls of each place are told. FATUNE_TEST_NETWORK: every
 * file system is NFS. FATUNE_TEST_LIBRARIES: the one folder that has libraries.
 *
 * The linker leads fatune's calls of NAME here as __wrap_NAME (tests/CMakeLists.txt has the list);
 * Lua allocates through fatune. */
#include "tests/faulty/fault_calls.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <jansson.h>
#include <locale.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tests/file_layer.h"

static struct {
  enum fault_kind kind;
  bool ever;
  long n;
  void (*act)(void);
  _Atomic(long) counts[FAULT_KINDS];
  _Atomic(bool) armed;
} fault;

/* ---- places ---- */

/* A place is a call by one chain of callers: its first call and its last one. */
static struct {
  int callers; /* so many of the program's own, the innermost, tell places apart; 0: none is noted
                */
  pthread_mutex_t lock;
  struct fault_place table[1 << 15];
} places = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { PLACES = sizeof places.table / sizeof *places.table, CALLERS = 64 };

/* Of the chain, alike in every run of a program. Where a library begins differs, but for the place
 * within a page. */
static uint64_t digest_of_callers(void) {
  extern const char __executable_start, etext;
  void *callers[CALLERS];
  uint64_t digest = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
  int left = places.callers;
  for (int i = 0, most = backtrace(callers, CALLERS); i < most && left > 0; i++) {
    const uintptr_t caller = (uintptr_t)callers[i], begin = (uintptr_t)&__executable_start;
    const bool own = caller >= begin && caller < (uintptr_t)&etext;
    if (!own && places.callers < FAULT_ALL_CALLERS) continue;
    left -= own;
    digest = (digest ^ (own ? caller - begin : caller & 0xFFF)) * UINT64_C(0x100000001b3);
  }
  return digest;
}

static void note_place(long count) {
  const uint64_t digest = digest_of_callers();
  pthread_mutex_lock(&places.lock);
  size_t i = digest % PLACES;
  while (places.table[i].first && places.table[i].callers != digest) i = (i + 1) % PLACES;
  if (!places.table[i].first) places.table[i] = (struct fault_place){digest, count, count};
  places.table[i].last = count;
  pthread_mutex_unlock(&places.lock);
}

bool fault_calls_fails(enum fault_kind kind) {
  if (!fault.armed) return false;
  const long count = ++fault.counts[kind];
  if (kind != fault.kind) return false;
  if (places.callers) note_place(count);
  if (count == fault.n && fault.act) {
    fault.armed = false;
    fault.act();
    return false;
  }
  return count == fault.n || (fault.ever && fault.n > 0 && count > fault.n);
}

/* ---- memory ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t most);
char *__real_realpath(const char *path, char *to);
locale_t __real_newlocale(int which, const char *name, locale_t base);
locale_t __wrap_newlocale(int which, const char *name, locale_t base);
int __real_vasprintf(char **to, const char *format, va_list arguments);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t most);
char *__wrap_realpath(const char *path, char *to);
int __wrap_asprintf(char **to, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define WITHOUT_MEMORY(call) (fault_calls_fails(FAULT_MEMORY) ? (errno = ENOMEM, NULL) : (call))

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

locale_t __wrap_newlocale(int which, const char *name, locale_t base) {
  return fault_calls_fails(FAULT_MEMORY) ? (locale_t)0 : __real_newlocale(which, name, base);
}

int __wrap_asprintf(char **to, const char *format, ...) {
  if (fault_calls_fails(FAULT_MEMORY)) return -1;
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

#define WITHOUT_FILE(call, code) (fault_calls_fails(FAULT_FILES) ? (errno = (code), -1) : (call))

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
int __real_fstatat(int folder, const char *name, struct stat *state, int flags);
int __real_chmod(const char *path, mode_t mode);
int __real_close(int file);
int __real_fchmod(int file, mode_t mode);
int __real_ftruncate(int file, off_t length);
off_t __real_lseek(int file, off_t to, int from);
DIR *__real_opendir(const char *path);
int __real_scandir(const char *path, struct dirent ***names, int (*wanted)(const struct dirent *),
                   int (*order)(const struct dirent **, const struct dirent **));
ssize_t __real_readlink(const char *path, char *to, size_t most);
FILE *__real_fopen(const char *path, const char *mode);
int __real_euidaccess(const char *path, int mode);
int __real_access(const char *path, int mode);
int __wrap_euidaccess(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __wrap_fstatat(int folder, const char *name, struct stat *state, int flags);
int __wrap_chmod(const char *path, mode_t mode);
int __wrap_close(int file);
int __wrap_fchmod(int file, mode_t mode);
int __wrap_ftruncate(int file, off_t length);
off_t __wrap_lseek(int file, off_t to, int from);
DIR *__wrap_opendir(const char *path);
int __wrap_scandir(const char *path, struct dirent ***names, int (*wanted)(const struct dirent *),
                   int (*order)(const struct dirent **, const struct dirent **));
ssize_t __wrap_readlink(const char *path, char *to, size_t most);
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

int __wrap_fstatat(int folder, const char *name, struct stat *state, int flags) {
  return WITHOUT_FILE(__real_fstatat(folder, name, state, flags), EIO);
}

int __wrap_chmod(const char *path, mode_t mode) {
  return WITHOUT_FILE(__real_chmod(path, mode), EPERM);
}

FILE *__wrap_fopen(const char *path, const char *mode) {
  return fault_calls_fails(FAULT_FILES) ? (errno = EIO, NULL) : __real_fopen(path, mode);
}

int __wrap_euidaccess(const char *path, int mode) {
  return WITHOUT_FILE(__real_euidaccess(path, mode), EIO);
}

int __wrap_access(const char *path, int mode) {
  return WITHOUT_FILE(__real_access(path, mode), EIO);
}

/* The file is closed all the same, as on Linux. */
int __wrap_close(int file) {
  const int status = __real_close(file);
  return fault_calls_fails(FAULT_FILES) ? (errno = EIO, -1) : status;
}

int __wrap_fchmod(int file, mode_t mode) {
  return WITHOUT_FILE(__real_fchmod(file, mode), EPERM);
}

int __wrap_ftruncate(int file, off_t length) {
  return WITHOUT_FILE(__real_ftruncate(file, length), ENOSPC);
}

off_t __wrap_lseek(int file, off_t to, int from) {
  return WITHOUT_FILE(__real_lseek(file, to, from), EIO);
}

DIR *__wrap_opendir(const char *path) {
  return fault_calls_fails(FAULT_FILES) ? (errno = EIO, NULL) : __real_opendir(path);
}

int __wrap_scandir(const char *path, struct dirent ***names, int (*wanted)(const struct dirent *),
                   int (*order)(const struct dirent **, const struct dirent **)) {
  return WITHOUT_FILE(__real_scandir(path, names, wanted, order), EIO);
}

ssize_t __wrap_readlink(const char *path, char *to, size_t most) {
  return WITHOUT_FILE(__real_readlink(path, to, most), EIO);
}

static int before(const struct file_call *call) {
  return fault_calls_fails(FAULT_FILES) ? file_operation_failure(call->operation) : SQLITE_OK;
}

/* ---- libraries ---- */

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);

/* FATUNE_TEST_LIBRARIES: what does not lie in that folder is not there. */
void *__wrap_dlopen(const char *name, int flags) {
  const char *const folder = getenv("FATUNE_TEST_LIBRARIES");
  const bool hidden = folder && name && strncmp(name, folder, strlen(folder)) != 0;
  return __real_dlopen(hidden ? "/nowhere/library.so" : name, flags);
}

/* ---- coverage ---- */

#ifdef FATUNE_COVERAGE
_Noreturn void __real__exit(int code);
_Noreturn void __wrap__exit(int code);
void __real___gcov_dump(void);
void __wrap___gcov_dump(void);

/* Counting takes memory. Without it, it would end the process while it holds its own lock, and the
 * end, which counts, too, would wait for that lock for ever. */
void __wrap___gcov_dump(void) {
  fault.armed = false;
  __real___gcov_dump();
}

/* What runs without memory ends so, and is counted like the rest. */
void __wrap__exit(int code) {
  __wrap___gcov_dump();
  __real__exit(code);
}
#endif

/* ---- a network ---- */

int __real_statfs(const char *path, struct statfs *state);
int __wrap_statfs(const char *path, struct statfs *state);

int __wrap_statfs(const char *path, struct statfs *state) {
  const int status = __real_statfs(path, state);
  if (getenv("FATUNE_TEST_NETWORK")) state->f_type = 0x6969; /* NFS */
  return status;
}

/* ---- orders ---- */

/* In one process with all tests (CK_FORK=no) it is called again, and SQLite has ours already. */
void fault_calls_begin(void) {
  if (!memory_below.xMalloc && sqlite3_config(SQLITE_CONFIG_GETMALLOC, &memory_below) != SQLITE_OK)
    abort();
  sqlite3_mem_methods failing = memory_below;
  failing.xMalloc = sqlite_malloc;
  failing.xRealloc = sqlite_realloc;
  if (sqlite3_config(SQLITE_CONFIG_MALLOC, &failing) != SQLITE_OK) abort();
  json_set_alloc_funcs(__wrap_malloc, free);
  file_layer_begin(&(struct file_layer){.name = "fault", .before = before});
}

void fault_calls_arm(enum fault_kind kind, long n, bool ever) {
  fault.armed = false;
  fault.kind = kind;
  fault.n = n;
  fault.ever = ever;
  fault.act = NULL;
  for (int i = 0; i < FAULT_KINDS; i++) fault.counts[i] = 0;
  fault.armed = true;
}

void fault_calls_act(enum fault_kind kind, long n, void (*act)(void)) {
  fault_calls_arm(kind, n, false);
  fault.act = act;
}

void fault_calls_note_places(int callers) {
  if (callers > 0) memset(places.table, 0, sizeof places.table);
  places.callers = callers;
}

const struct fault_place *fault_calls_place(size_t *at) {
  while (*at < PLACES && !places.table[*at].first) ++*at;
  return *at < PLACES ? &places.table[(*at)++] : NULL;
}

long fault_calls_disarm(void) {
  fault.armed = false;
  return fault.counts[fault.kind];
}

long fault_calls_count(enum fault_kind kind) {
  return fault.counts[kind];
}
