/* record.h: FATUNE_RECORD=FILE: which requests an application runs, how often and how long.
 * in -> out: plans made and run -> lines "runs=N us=T REQUEST" at the end of FILE.
 *
 * A run counts itself, and some of them are timed by two events of their own on the stream: no lock
 * is taken there, nothing is allocated, written or waited for. Lines are added when plans are made,
 * when the session closes and when the process exits. Several processes may add to one file: what
 * counts is the sum of the lines of a request (`fatune tune --shapes FILE`). */
#ifndef RUNTIME_RECORD_H
#define RUNTIME_RECORD_H

#include <stdbool.h>

#include "generator/request.h"
#include "runtime/driver.h"

/* Of each kind: requests as they are, and then the buckets of those that came later. */
enum { FT_RECORDS_MOST = 4096 };

struct ft_recorder; /* of a session */
struct ft_record;   /* of a request; lives as long as the recorder */

/* NULL: FATUNE_RECORD is not set, or there is no memory. warn: what could not be written, once. */
struct ft_recorder *ft_recorder_open(void (*warn)(void *payload, const char *message),
                                     void *payload);
/* driver: its context is current; NULL: there is none. A recorder of NULL is allowed. */
void ft_recorder_close(struct ft_recorder *recorder, const struct ft_driver *driver);

/* The record of a plan that is being made, in the session's context; NULL: it is not recorded. */
struct ft_record *ft_recorder_add(struct ft_recorder *recorder, const struct ft_driver *driver,
                                  const struct ft_request *request);

/* Before a run is enqueued; and behind it, where begin says so. launched: whether it was. */
bool ft_record_begin(struct ft_record *record, const struct ft_driver *driver, cu_stream stream);
void ft_record_end(struct ft_record *record, const struct ft_driver *driver, cu_stream stream,
                   bool launched);

#endif
