/* store_parts.h: what the store_*.c files share; nobody else includes this.
 * in -> out: struct ft_store -> the databases to look into, in order; faults -> warnings.
 * Every function here is called with the store's lock held (ft_store_enter). */
#ifndef CACHE_STORE_PARTS_H
#define CACHE_STORE_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/database.h"
#include "cache/store.h"
#include "cache/trust.h"
#include "cache/winner.h"

enum ft_kind { FT_KIND_TUNING = FT_STORE_TUNING, FT_KIND_KERNELS = FT_STORE_KERNELS, FT_KINDS };

enum ft_fault {
  FT_FAULT_OPEN,
  FT_FAULT_READ,
  FT_FAULT_WRITE,
  FT_FAULT_ROW,
  FT_REMARK_VERSION /* no fault: rows of another version are skipped */
};

/* Of layers: those of files, and the one that is shipped inside. */
enum { FT_LAYERS_MAX = 64, FT_SOURCES_MAX = FT_LAYERS_MAX + 3, FT_WARNINGS_MAX = 16 };

struct ft_user_file {
  char *folder, *path; /* NULL: there is no place for it */
  struct ft_database database;
  double retry_at; /* by ft_seconds_now: a file that could not be opened is left alone until then */
  double stuck_until; /* likewise: until then nobody waits for the one who writes to it */
};

struct ft_store {
  pthread_mutex_t lock;
  struct ft_user_file user[FT_KINDS];
  struct ft_database memory; /* what could not be written to the user files */
  struct ft_database layers[FT_LAYERS_MAX + 1];
  int layer_count;
  int shipped_layer; /* the number, from 1, of the one that is shipped inside; 0: there is none */
  struct ft_trust trust;
  int (*derive)(void *deriver, const struct ft_trial *trial, const char *target,
                struct ft_digest *recipe, struct ft_digest *source); /* NULL: nothing is derived */
  void *deriver;
  struct ft_store_layer *found; /* the layers' files, refused ones too; owned */
  int found_count;
  struct ft_digest *forgotten; /* kernels of layers that the driver refused */
  size_t forgotten_count;
  int64_t cap;
  bool memory_only;   /* no user file is read or written */
  const char *unkept; /* the value of FATUNE_CACHE that says so; NULL: the options do, or none */
  bool read_only;     /* user files are read alone */
  void (*warn)(void *payload, const char *message);
  void *payload;
  char *warnings[FT_WARNINGS_MAX]; /* given once the lock is released */
  int warning_count;
  int faults;       /* of all that was warned of since it was opened */
  int64_t troubles; /* all faults, warned of or not; the last one: */
  char trouble[512];
  int64_t hits, misses;
  atomic_uint taken_in; /* trials, or files of them: ft_store_state */
};

/* One place to look into. The user's file and the memory beside it are layer 0 together. */
struct ft_source_of_rows {
  struct ft_database *database;
  int layer;
};

struct ft_sources {
  struct ft_source_of_rows at[FT_SOURCES_MAX];
  int count;
};

void ft_store_enter(struct ft_store *store);
/* Releases the lock, then gives the warnings: a callback may use the store. */
void ft_store_leave(struct ft_store *store);

/* Makes a warning of ft_detail(), once per database and kind of fault. */
void ft_store_report(struct ft_store *store, struct ft_database *database, enum ft_fault fault);

/* A fault that is of no open database: always told. */
void ft_store_fault(struct ft_store *store, const char *message);

/* store_layers.c */
int ft_store_add_layers(struct ft_store *store, const struct ft_store_options *options);
void ft_store_add_shipped(struct ft_store *store, const struct ft_store_options *options);
bool ft_store_is_shipped(const struct ft_store *store, int layer);
void ft_store_close_layers(struct ft_store *store);

/* Warns of an environment variable whose value is none that is allowed, and says what it is taken
 * as. The stores are sound all the same. */
void ft_store_misnamed(struct ft_store *store, const char *variable, const char *value,
                       const char *allowed);

/* Warns of what is no fault, once per database. */
void ft_store_remark(struct ft_store *store, struct ft_database *database, const char *message);

/* store_skipped.c: ft_store_skip notes a trial that ft_row_read_trial could not read
 * (FT_E_NOT_FOUND); ft_detail() says why. At the end of a look-up or command ft_store_tell_skipped
 * makes a remark a file of what was noted. */
void ft_store_skip(struct ft_database *database, const struct ft_digest *identity);
void ft_store_tell_skipped(struct ft_store *store);
void ft_store_tell_skipped_in(struct ft_store *store, struct ft_database *database);

/* The user's file, opened when it is there; for writing it is made. NULL: not to be had; what was
 * wrong is reported (nothing is wrong when it is merely not there yet). */
struct ft_database *ft_store_user(struct ft_store *store, enum ft_kind kind, bool writing);

/* store_writers.c: begins a write transaction on the user's file, of which the caller puts an end.
 * Waits a bounded time for other writers, and releases the lock while it waits. FT_E_CACHE has been
 * reported. */
int ft_store_begin(struct ft_store *store, enum ft_kind kind, struct ft_database **database);

/* The same for reading, whatever was the matter a moment ago; the status says why it is not to be
 * had, FT_E_NOT_FOUND that it is not there. */
int ft_store_try_user(struct ft_store *store, enum ft_kind kind, struct ft_database **database);

/* store_mend.c: makes a damaged file sound; *saved: the rows it still has, *kept: where it lies as
 * it was, to be freed. On failure the file is as it was. */
int ft_store_mend(const char *path, int64_t *saved, char **kept);

/* store_salvage.c: the rows that are sound, into an open store. patience: reads that may fail, so
 * that a broken root ends. Adds to *saved; *whole: nothing was in the way. Fails only on what is no
 * damage. */
int ft_store_salvage(struct ft_database *from, struct ft_database *into, int64_t patience,
                     int64_t *saved, bool *whole);

/* The database in memory; NULL when there is no memory for it. */
struct ft_database *ft_store_memory(struct ft_store *store);

/* Everything open that may hold rows of the kind, user first. */
void ft_store_sources(struct ft_store *store, enum ft_kind kind, struct ft_sources *sources);

/* Inside a transaction: forgets the least recently used kernels beyond cap bytes of images. */
int ft_store_trim(struct ft_database *database, int64_t cap, int64_t *deleted);

/* Inside a transaction: while all that the file holds takes more than cap bytes, forgets the least
 * recently used kernels until it takes no more than rest. */
int ft_store_keep_to(struct ft_database *database, int64_t cap, int64_t rest);

/* ft_store_kernel_get without lock and statistics. */
int ft_store_find_kernel(struct ft_store *store, const struct ft_digest *key,
                         struct ft_kernel *kernel);

/* store_recipes.c: the source that the file has for the recipe. FT_E_NOT_FOUND; FT_E_CACHE: the row
 * is damaged, or cannot be read. The put is inside a transaction and keeps the newest alone. */
int ft_store_recipe_in(struct ft_database *database, const struct ft_digest *recipe,
                       struct ft_digest *source);
int ft_store_recipe_put_in(struct ft_database *database, const struct ft_digest *recipe,
                           const struct ft_digest *source);

/* store_proof.c: ft_store_options.derive. FT_E_NOT_FOUND: there is no such text, or none can be
 * made here. */
int ft_store_derive(struct ft_store *store, const struct ft_trial *trial, struct ft_digest *recipe,
                    struct ft_digest *source);

/* The recipes of a file that its trials lead to, each with the source that this
 * library emits for it. *wrong: those that the file has with another source. Other recipes, of
 * another version or of no trial of the file, are left out. Freed after a failure, too. */
struct ft_proof {
  struct ft_proved {
    struct ft_digest recipe, source;
  } * at;
  size_t count;
  int64_t wrong;
};
int ft_store_prove(struct ft_store *store, struct ft_database *file, struct ft_proof *proof);
bool ft_proof_has(const struct ft_proof *proof, const struct ft_digest *recipe);

/* -- trials: see store_gather.c ------------------------------------------------------------- */

struct ft_filter {             /* NULL: any */
  const char *bucket, *device; /* never NULL */
  const char *outcome, *policy;
  const struct ft_digest *templates;
  int layer; /* -1: all but what is shipped inside */
};

struct ft_entries { /* ranked: see winner.h */
  struct ft_entry **at;
  size_t count, capacity;
  struct ft_standing *standings;
  size_t standing_count;
};

/* The trials that pass, ranked. Faults are reported and count as no trials. */
int ft_store_gather(struct ft_store *store, const struct ft_filter *filter,
                    struct ft_entries *entries);
void ft_entries_free(struct ft_entries *entries);

struct ft_spot {         /* a bucket on a device class that has trials */
  char *bucket, *device; /* owned */
  int layer;
};

struct ft_spots {
  struct ft_spot *at;
  size_t count, capacity;
};

/* Runs a SELECT of bucket, device with the texts (NULL: SQL NULL) as ?1, ?2, ?3 on the sources up
 * to last_layer (-1: all). One that has ?4 and ?5 gives the first spot behind that bucket and
 * device and is run until there is none. Sorted by bucket, device, layer. */
int ft_store_spots(struct ft_store *store, const char *sql, const char *const texts[3],
                   int last_layer, struct ft_spots *spots);
void ft_spots_free(struct ft_spots *spots);

#endif
