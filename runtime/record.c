/* record.c: counts and times of requests, and the file they go to.
 * in -> out: plans made and run -> lines "runs=N us=T REQUEST". */
#include "runtime/record.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator/clock.h"
#include "generator/status.h"
#include "generator/text.h"

enum { FIRST_TIMED = 8, EACH_TIMED = 32 }; /* runs 2 to 8, then each 32nd is timed */

static const double WRITE_SECONDS = 10; /* making plans writes no more often than this */

struct ft_record {
  char *text; /* of the request, owned */
  atomic_ullong runs;
  atomic_flag taken; /* by the thread that times a run; meanwhile others run untimed */
  bool has_events, pending;
  cu_event begin, end;
  _Atomic double timed_us;
  atomic_uint timed;                              /* runs */
  unsigned long long runs_written, runs_in_lines; /* under the recorder's lock */
};

struct ft_recorder {
  pthread_mutex_t lock; /* of adding and writing */
  char *path;
  pid_t process; /* a forked child writes nothing: its counts began with its parent's */
  struct ft_record *records[2 * FT_RECORDS_MOST];
  int count;
  double written_at;
  char trouble[512]; /* the first one */
  atomic_bool told;
  void (*warn)(void *payload, const char *message);
  void *payload;
  struct ft_recorder *next; /* of those that are open */
};

/* ---- a run ---- */

/* Adds the time of the last timed run. False: that run has not ended. The caller has set `taken`.
 */
static bool take_time(struct ft_record *record, const struct ft_driver *driver) {
  enum { NOT_READY = 600 }; /* CUDA_ERROR_NOT_READY */
  float milliseconds = 0;
  const cu_result ended = driver->event_query(record->end);
  if (ended == NOT_READY) return false;
  record->pending = false;
  if (ended != 0 || driver->event_elapsed(&milliseconds, record->begin, record->end) != 0)
    return true;
  atomic_store(&record->timed_us, atomic_load(&record->timed_us) + 1e3 * (double)milliseconds);
  atomic_fetch_add(&record->timed, 1);
  return true;
}

bool ft_record_begin(struct ft_record *record, const struct ft_driver *driver, cu_stream stream) {
  const unsigned long long run = atomic_fetch_add(&record->runs, 1);
  if (!record->has_events || run == 0 || (run >= FIRST_TIMED && run % EACH_TIMED != 0))
    return false;
  if (atomic_flag_test_and_set(&record->taken)) return false;
  /* An event of a captured stream has no time. */
  if ((!record->pending || take_time(record, driver)) && !ft_driver_is_capturing(driver, stream) &&
      driver->event_record(record->begin, stream) == 0)
    return true;
  atomic_flag_clear(&record->taken);
  return false;
}

void ft_record_end(struct ft_record *record, const struct ft_driver *driver, cu_stream stream,
                   bool launched) {
  record->pending = launched && driver->event_record(record->end, stream) == 0;
  atomic_flag_clear(&record->taken);
}

/* ---- the file ---- */

static const char HEADER[] =
    "# Requests recorded by fatune, for `fatune tune --shapes`. The lines of a request add up.\n";

static void add_line(struct ft_text *lines, struct ft_record *record) {
  const unsigned timed = atomic_load(&record->timed);
  record->runs_in_lines = atomic_load(&record->runs);
  const unsigned long long fresh = record->runs_in_lines - record->runs_written;
  if (fresh == 0) return;
  ft_text_add(lines, "runs=%llu ", fresh);
  if (timed > 0)
    ft_text_add(lines, "us=%.1f ", (double)fresh * atomic_load(&record->timed_us) / timed);
  ft_text_add(lines, "%s\n", record->text);
}

/* To be read, too, where that is allowed. A pipe, which may have no reader, is refused. */
static int open_file(const char *path) {
  enum { FLAGS = O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK };
  struct stat about;
  int file = open(path, O_RDWR | FLAGS, 0600);
  if (file < 0 && errno == EACCES) file = open(path, O_WRONLY | FLAGS, 0600);
  if (file < 0 || fstat(file, &about) != 0 || !S_ISFIFO(about.st_mode)) return file;
  close(file);
  errno = ESPIPE;
  return -1;
}

/* Whether the last line is without its end: written by hand, or cut short by a full disk. */
static bool is_within_a_line(int file, off_t size) {
  char last;
  return size > 0 && pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

/* One write for all lines, so that those of two processes do not mix. */
static int append(const char *path, const struct ft_text *lines) {
  const int file = open_file(path);
  if (file < 0) return FT_E_IO;
  struct ft_text whole = FT_TEXT_INIT;
  const off_t size = lseek(file, 0, SEEK_END);
  if (size == 0) ft_text_add(&whole, "%s", HEADER);
  if (is_within_a_line(file, size)) ft_text_add(&whole, "\n");
  ft_text_append(&whole, lines->data ? lines->data : "", lines->length);
  errno = ENOMEM;
  int status = ft_text_status(&whole);
  for (size_t done = 0; status == FT_OK && done < whole.length;) {
    const ssize_t written = write(file, whole.data + done, whole.length - done);
    if (written >= 0) done += (size_t)written;
    if (written < 0 && errno != EINTR) status = FT_E_IO;
  }
  const int why = errno;
  ft_text_free(&whole);
  close(file);
  errno = why;
  return status;
}

static const char *why_not_written(void) {
  return errno == ESPIPE ? "it is a pipe; allowed: a file" : strerror(errno);
}

static void note_trouble(struct ft_recorder *recorder, const char *what) {
  if (recorder->trouble[0] != '\0') return;
  (void)snprintf(recorder->trouble, sizeof recorder->trouble, "FATUNE_RECORD: '%.300s': %s",
                 recorder->path, what);
}

/* Calls `warn` once. The caller does not hold the lock, because the callback may make plans. */
static void tell_trouble(struct ft_recorder *recorder) {
  if (recorder->trouble[0] == '\0' || atomic_exchange(&recorder->told, true)) return;
  if (recorder->warn) recorder->warn(recorder->payload, recorder->trouble);
}

/* What could not be written is tried again with the next lines. */
static void write_lines(struct ft_recorder *recorder) {
  struct ft_text lines = FT_TEXT_INIT;
  if (recorder->process != getpid()) return;
  for (int i = 0; i < recorder->count; i++) add_line(&lines, recorder->records[i]);
  recorder->written_at = ft_seconds_now();
  const bool whole = ft_text_status(&lines) == FT_OK;
  if (whole && (lines.length == 0 || append(recorder->path, &lines) == FT_OK)) {
    for (int i = 0; i < recorder->count; i++)
      recorder->records[i]->runs_written = recorder->records[i]->runs_in_lines;
  } else {
    note_trouble(recorder, whole ? why_not_written() : "no memory to write it");
  }
  ft_text_free(&lines);
}

/* Adds the times of runs that have ended, without waiting for others. */
static void take_times(struct ft_recorder *recorder, const struct ft_driver *driver) {
  for (int i = 0; i < recorder->count; i++) {
    struct ft_record *const record = recorder->records[i];
    if (!record->has_events || atomic_flag_test_and_set(&record->taken)) continue;
    if (record->pending) take_time(record, driver);
    atomic_flag_clear(&record->taken);
  }
}

/* ---- the open recorders, for the end of the process ---- */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ft_recorder *open_recorders;
static bool has_exit_handler;

/* At exit the driver may be gone already, so times are not asked for. A thread that holds a lock
 * now may never release it, so locks are only tried. */
static void write_at_exit(void) {
  if (pthread_mutex_trylock(&open_lock) != 0) return;
  for (struct ft_recorder *it = open_recorders; it; it = it->next) {
    if (pthread_mutex_trylock(&it->lock) != 0) continue;
    write_lines(it);
    pthread_mutex_unlock(&it->lock);
  }
  pthread_mutex_unlock(&open_lock);
}

static void enlist(struct ft_recorder *recorder) {
  pthread_mutex_lock(&open_lock);
  if (!has_exit_handler) has_exit_handler = atexit(write_at_exit) == 0;
  recorder->next = open_recorders;
  open_recorders = recorder;
  pthread_mutex_unlock(&open_lock);
}

static void delist(struct ft_recorder *recorder) {
  pthread_mutex_lock(&open_lock);
  struct ft_recorder **at = &open_recorders;
  while (*at && *at != recorder) at = &(*at)->next;
  if (*at) *at = recorder->next;
  pthread_mutex_unlock(&open_lock);
}

/* ---- recorder ---- */

struct ft_recorder *ft_recorder_open(void (*warn)(void *payload, const char *message),
                                     void *payload) {
  const char *const path = secure_getenv("FATUNE_RECORD");
  if (!path || !path[0]) return NULL;
  struct ft_recorder *const recorder = calloc(1, sizeof *recorder);
  if (!recorder || !(recorder->path = strdup(path))) {
    free(recorder);
    if (warn) warn(payload, "FATUNE_RECORD: no memory");
    return NULL;
  }
  pthread_mutex_init(&recorder->lock, NULL); /* of the default kind it cannot fail on Linux */
  recorder->process = getpid();
  recorder->warn = warn;
  recorder->payload = payload;
  recorder->written_at = ft_seconds_now();
  const struct ft_text nothing = FT_TEXT_INIT;
  if (append(path, &nothing) != FT_OK) { /* told at once and not after hours */
    note_trouble(recorder, why_not_written());
    tell_trouble(recorder);
  }
  enlist(recorder);
  return recorder;
}

void ft_recorder_close(struct ft_recorder *recorder, const struct ft_driver *driver) {
  if (!recorder) return;
  delist(recorder);
  if (driver) take_times(recorder, driver);
  write_lines(recorder);
  tell_trouble(recorder);
  for (int i = 0; i < recorder->count; i++) {
    struct ft_record *const record = recorder->records[i];
    if (record->has_events && driver) driver->event_destroy(record->begin);
    if (record->has_events && driver) driver->event_destroy(record->end);
    free(record->text);
    free(record);
  }
  pthread_mutex_destroy(&recorder->lock);
  free(recorder->path);
  free(recorder);
}

static struct ft_record *find(const struct ft_recorder *recorder, const char *text) {
  for (int i = 0; i < recorder->count; i++)
    if (strcmp(recorder->records[i]->text, text) == 0) return recorder->records[i];
  return NULL;
}

/* Takes the text. */
static struct ft_record *append_record(struct ft_recorder *recorder, const struct ft_driver *driver,
                                       char *text) {
  struct ft_record *const record = calloc(1, sizeof *record);
  if (!record) {
    free(text);
    return NULL;
  }
  record->text = text;
  atomic_flag_clear(&record->taken);
  if (!driver->emulated && driver->event_create(&record->begin, 0) == 0) {
    record->has_events = driver->event_create(&record->end, 0) == 0;
    if (!record->has_events) driver->event_destroy(record->begin);
  }
  recorder->records[recorder->count++] = record;
  return record;
}

/* The record of a text, made if there is room for one more below `most`. */
static struct ft_record *record_of(struct ft_recorder *recorder, const struct ft_driver *driver,
                                   const struct ft_request *request, int most) {
  struct ft_text text = FT_TEXT_INIT;
  ft_request_print(request, &text);
  struct ft_record *const known = ft_text_status(&text) == FT_OK ? find(recorder, text.data) : NULL;
  if (!known && ft_text_status(&text) == FT_OK && recorder->count < most)
    return append_record(recorder, driver, text.data);
  ft_text_free(&text);
  return known;
}

struct ft_record *ft_recorder_add(struct ft_recorder *recorder, const struct ft_driver *driver,
                                  const struct ft_request *request) {
  pthread_mutex_lock(&recorder->lock);
  const struct ft_request bucket = ft_request_bucket(request);
  struct ft_record *record = record_of(recorder, driver, request, FT_RECORDS_MOST);
  if (!record) record = record_of(recorder, driver, &bucket, 2 * FT_RECORDS_MOST);
  if (!record) note_trouble(recorder, "not all requests are recorded: too many, or no memory");
  if (ft_seconds_now() - recorder->written_at > WRITE_SECONDS) {
    take_times(recorder, driver);
    write_lines(recorder);
  }
  pthread_mutex_unlock(&recorder->lock);
  tell_trouble(recorder);
  return record;
}
