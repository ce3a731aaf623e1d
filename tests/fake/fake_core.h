/* fake_core.h: counting of calls and injection of one failure, for a fake library of one file.
 * in -> out: symbol name -> 0, or the error the test asked for. Static, so each fake has its own
 * state. */
#ifndef TESTS_FAKE_CORE_H
#define TESTS_FAKE_CORE_H

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAKE_SYMBOLS = 80 };

static struct {
  pthread_mutex_t lock;
  int ready;
  int total, live;
  int symbol_count;
  const char *symbols[FAKE_SYMBOLS];
  int calls[FAKE_SYMBOLS];
  char fail_symbol[64];
  int fail_call, fail_code; /* fail_call 0: nothing is to fail */
  int fail_ever;            /* 1: nor does any call after it succeed */
  const char *failed;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .failed = ""};

static void fake_take_failure(const char *failure) {
  fake.fail_call = 0;
  fake.failed = "";
  fake.fail_ever = 0;
  if (!failure) return;
  char *rest;
  const size_t length = strcspn(failure, ":");
  const long call = strtol(failure + length + (failure[length] == ':'), &rest, 10);
  const long code = *rest == ':' ? strtol(rest + 1, &rest, 10) : 0;
  fake.fail_ever = strcmp(rest, ":ever") == 0;
  if (length >= sizeof fake.fail_symbol || call < 1 || code == 0 || (*rest && !fake.fail_ever)) {
    fprintf(stderr, "fake library: failure \"%s\" is not SYMBOL:N:CODE[:ever]\n", failure);
    abort();
  }
  memcpy(fake.fail_symbol, failure, length);
  fake.fail_symbol[length] = '\0';
  fake.fail_call = (int)call;
  fake.fail_code = (int)code;
}

/* At the end of a program, how many calls there were: a line in the file FATUNE_FAKE_SAYS, with a
 * symbol by which to know the library. */
__attribute__((destructor)) static void fake_say(void) {
  const char *const says = getenv("FATUNE_FAKE_SAYS");
  FILE *const file = says ? fopen(says, "a") : NULL;
  if (!file) return;
  if (fake.total) fprintf(file, "%s %d\n", fake.symbols[0], fake.total);
  fclose(file);
}

static int fake_symbol_index(const char *symbol) {
  for (int i = 0; i < fake.symbol_count; i++)
    if (strcmp(fake.symbols[i], symbol) == 0) return i;
  if (fake.symbol_count == FAKE_SYMBOLS) abort();
  fake.symbols[fake.symbol_count] = symbol;
  return fake.symbol_count++;
}

/* FATUNE_FAKE_DIES=SYMBOL:N:crash or :hang: the N-th call of this process ends it, or never
 * returns; with FATUNE_FAKE_ONCE=FILE only where FILE is not there yet. */
static void fake_die(const char *symbol, int call) {
  const char *const dies = getenv("FATUNE_FAKE_DIES"), *const once = getenv("FATUNE_FAKE_ONCE");
  const size_t length = strlen(symbol);
  if (!dies || strncmp(dies, symbol, length) != 0 || dies[length] != ':') return;
  char *how;
  if (strtol(dies + length + 1, &how, 10) != call) return;
  FILE *const first = once ? fopen(once, "wx") : NULL;
  if (once && !first) return;
  if (first) fclose(first);
  if (strcmp(how, ":crash") == 0) {
    signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would end it by an exit code */
    raise(SIGSEGV);
  }
  while (strcmp(how, ":hang") == 0) pause();
}

/* Counts the call; the error it is to give. */
static int fake_call(const char *symbol) {
  pthread_mutex_lock(&fake.lock);
  if (!fake.ready) fake_take_failure(getenv("FATUNE_FAKE_FAIL"));
  fake.ready = 1;
  const int index = fake_symbol_index(symbol);
  fake.calls[index]++;
  fake.total++;
  const size_t begin = strcspn(fake.fail_symbol, "*");
  const int any = fake.fail_symbol[begin] == '*'; /* of this library, or of another */
  const int now = any ? fake.total : fake.calls[index];
  int code = 0;
  const int meant =
      any ? strncmp(fake.fail_symbol, symbol, begin) == 0 : strcmp(fake.fail_symbol, symbol) == 0;
  const int due = now == fake.fail_call || (fake.fail_ever && now > fake.fail_call);
  if (fake.fail_call && meant && due) {
    code = fake.fail_code;
    fake.failed = symbol;
  }
  const int call = fake.calls[index];
  pthread_mutex_unlock(&fake.lock);
  fake_die(symbol, call);
  return code;
}

static void fake_count_live(int change) {
  pthread_mutex_lock(&fake.lock);
  fake.live += change;
  pthread_mutex_unlock(&fake.lock);
}

static void fake_start_over(const char *failure) {
  fake.ready = 1;
  fake.total = 0;
  fake.live = 0;
  fake.symbol_count = 0;
  memset(fake.calls, 0, sizeof fake.calls);
  fake_take_failure(failure);
}

static int fake_count(const char *symbol) {
  if (!symbol) return fake.total;
  for (int i = 0; i < fake.symbol_count; i++)
    if (strcmp(fake.symbols[i], symbol) == 0) return fake.calls[i];
  return 0;
}

/* Returns from the calling function with the error the test asked for, if any. */
#define FAKE_CALL(symbol)                                                                          \
  do {                                                                                             \
    const int fake_code = fake_call(symbol);                                                       \
    if (fake_code) return fake_code;                                                               \
  } while (0)

#endif
