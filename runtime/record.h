/* record.h: FATUNE_RECORD=FILE: which requests an application runs, how often and how long.
 * in -> out: plans made and run -> lines "runs=N us=T REQUEST" at the end of FILE.
 *
 * fatune_plan_run counts each run, and times some of them by two events on the run's stream. It
 * takes no lock for that, allocates and writes nothing, and does not wait. Lines are written when a
 * plan is made, when the session is closed and when the process exits. Several processes may write
 * to one file, since the lines of a request are added up when they are read (`fatune tune --shapes
 * FILE`). */
#ifndef RUNTIME_RECORD_H
#define RUNTIME_RECORD_H

#include <stdbool.h>

#include "generator/request.h"
#include "runtime/driver.h"

/* A recorder keeps so many requests as they are. Of those that come later it keeps the buckets, and
 * at most so many again. */
enum { FT_RECORDS_MOST = 4096 };

struct ft_recorder; /* of a session */
struct ft_record;   /* of a request; lives as long as the recorder */

/* NULL: FATUNE_RECORD is not set, or there is no memory. warn is called once if the file cannot be
 * written. */
struct ft_recorder *ft_recorder_open(void (*warn)(void *payload, const char *message),
                                     void *payload);
/* The driver's context must be current; driver NULL: there is none. recorder NULL is allowed. */
void ft_recorder_close(struct ft_recorder *recorder, const struct ft_driver *driver);

/* Finds or makes the record for a plan that is being made. The session's context must be current.
 * NULL: the plan's runs are not recorded. */
struct ft_record *ft_recorder_add(struct ft_recorder *recorder, const struct ft_driver *driver,
                                  const struct ft_request *request);

/* ft_record_begin is called before a run is enqueued. If it returns true, ft_record_end is called
 * afterwards; launched: whether the run was enqueued. */
bool ft_record_begin(struct ft_record *record, const struct ft_driver *driver, cu_stream stream);
void ft_record_end(struct ft_record *record, const struct ft_driver *driver, cu_stream stream,
                   bool launched);

#endif
