/* session.h: what a session owns.
 * in -> out: options, environment -> templates, stores, compiler, driver, device. */
#ifndef RUNTIME_SESSION_H
#define RUNTIME_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cache/store.h"
#include "generator/lua_host.h"
#include "runtime/compiler.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "runtime/shared_plans.h"
#include "runtime/single_flight.h"

/* Kernels beside those of plans (own_kernels.h). They are only ever added, and found without a
 * lock. */
struct ft_own_kernels {
  _Atomic(struct ft_own_kernel *) first;
  pthread_mutex_t lock;                    /* of who adds one */
  void (*unload)(fatune_session *session); /* all of them; NULL while there are none */
};

struct fatune_session {
  pthread_mutex_t lua_lock; /* guards lua */
  struct ft_lua *lua;
  struct ft_digest templates;
  struct ft_store *store;
  pthread_mutex_t compiler_lock; /* guards the opening of compiler */
  struct ft_compiler *compiler;  /* NULL until first needed; kernel_source.h opens it */
  struct ft_flights flights;     /* kernels that threads are compiling */
  struct ft_own_kernels own_kernels;
  struct ft_recorder *recorder; /* NULL: nothing is recorded */
  struct ft_shared_plans plans; /* that were made and are still here */
  bool may_compile;
  bool checks;             /* lengths on the device are checked in each run: FATUNE_CHECK=1 */
  struct ft_driver driver; /* valid when has_device; maybe the emulator */
  bool has_device;
  int no_device_status; /* why not, and the detail */
  char no_device_detail[256];
  struct ft_device device;
  cu_context context; /* current at open, or the retained primary context */
  bool owns_context;
  void (*log)(void *payload, const char *message);
  void *payload;
  atomic_bool warned_store, warned_image; /* each is said once */
  atomic_int emitted;                     /* texts so far */
};

/* One line to the session's log, if it has one. */
void ft_session_warn(const fatune_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* FT_OK when the session has a GPU, else why not. */
int ft_session_needs_device(const fatune_session *session);

/* FT_E_NOT_PREPARED with the advice while a stream is being captured. Loading a module during a
 * capture would invalidate the capture. Where the NULL stream would be drawn into a capture, the
 * query itself fails with a capture error, which ft_driver_status knows. */
int ft_session_refuse_capture(fatune_session *session, const char *advice);

/* Makes the session's context current for the calling thread until the matching leave. */
int ft_session_enter(fatune_session *session);
void ft_session_leave(fatune_session *session);

#endif
