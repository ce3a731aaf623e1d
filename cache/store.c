/* store.c: opening and closing of a store, its files and layers, and its warnings.
 * in -> out: options and environment -> whatever of the stores can be had. */
#include "cache/store.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/folders.h"
#include "cache/store_parts.h"
#include "cache/unfinished.h"
#include "generator/clock.h"
#include "generator/status.h"

enum { RETRY_SECONDS = 60 };

static const int64_t LEAST_CAP = INT64_C(256) << 10, DEFAULT_CAP = INT64_C(2) << 30;
static const char *const user_names[FT_KINDS] = {"tuning.db", "kernels.db"};

/* -- lock and warnings ---------------------------------------------------------------------- */

/* Stands in for a warning that there is no memory for. */
static char no_memory[] = "a cache failed, and there is no memory to say how";

void ft_store_enter(struct ft_store *store) {
  pthread_mutex_lock(&store->lock);
}

void ft_store_leave(struct ft_store *store) {
  char *warnings[FT_WARNINGS_MAX];
  const int count = store->warning_count;
  memcpy(warnings, store->warnings, sizeof warnings);
  store->warning_count = 0;
  pthread_mutex_unlock(&store->lock);
  for (int i = 0; i < count; i++) {
    store->warn(store->payload, warnings[i]);
    if (warnings[i] != no_memory) free(warnings[i]);
  }
}

static void queue_warning(struct ft_store *store, const char *message) {
  if (!store->warn || store->warning_count == FT_WARNINGS_MAX) return;
  char **const next = &store->warnings[store->warning_count++];
  *next = strdup(message);
  if (!*next) *next = no_memory;
}

void ft_store_fault(struct ft_store *store, const char *message) {
  store->faults += 1;
  queue_warning(store, message);
}

void ft_store_misnamed(struct ft_store *store, const char *variable, const char *value,
                       const char *allowed) {
  char message[192];
  snprintf(message, sizeof message, "%s is '%.40s'; allowed: %s", variable, value, allowed);
  queue_warning(store, message);
}

/* False: there was one of this kind about the file before. */
static bool is_first(struct ft_database *database, enum ft_fault fault) {
  const unsigned bit = 1U << fault;
  const bool first = (database->reported & bit) == 0;
  database->reported |= bit;
  return first;
}

void ft_store_report(struct ft_store *store, struct ft_database *database, enum ft_fault fault) {
  store->troubles++;
  snprintf(store->trouble, sizeof store->trouble, "%s", ft_detail());
  if (is_first(database, fault)) ft_store_fault(store, ft_detail());
}

void ft_store_remark(struct ft_store *store, struct ft_database *database, const char *message) {
  database->reported |= 1U << FT_REMARK_VERSION;
  queue_warning(store, message);
}

int ft_store_faults(struct ft_store *store) {
  ft_store_enter(store);
  const int faults = store->faults;
  ft_store_leave(store);
  return faults;
}

/* -- user files ----------------------------------------------------------------------------- */

/* Whole, under a name of its own, and only then where others look: whoever comes upon the file, in
 * a race or after a crash or with the disk full, finds all of the schema or no file at all. */
static int fill_new_file(const char *temporary, const char *path) {
  struct ft_database fresh = {0};
  const int status = ft_database_open(&fresh, temporary, FT_DATABASE_FRESH_USER);
  ft_database_close(&fresh);
  FT_TRY(status);
  if (link(temporary, path) == 0 || errno == EEXIST) return FT_OK;
  /* Not every file system has links; a race lost here costs what the loser has written so far. */
  if (rename(temporary, path) == 0) return FT_OK;
  return ft_fail(FT_E_CACHE, "cannot make '%s': %s", path, strerror(errno));
}

static int make_file(const char *path) {
  struct ft_unfinished unfinished;
  FT_TRY(ft_unfinished_make(&unfinished, path));
  close(unfinished.file); /* later that would drop locks of SQLite */
  const int status = fill_new_file(unfinished.path, path);
  ft_unfinished_end(&unfinished);
  return status;
}

/* Of a store that is only read, the file may be in use by others. */
static int open_user_file(struct ft_store *store, enum ft_kind kind, bool writing) {
  struct ft_user_file *const file = &store->user[kind];
  const char *const name = user_names[kind];
  char *real = NULL, *path = NULL;
  int status = ft_folder_check(file->folder, &real);
  if (status == FT_E_NOT_FOUND && writing) {
    FT_CHECK(ft_folder_make(file->folder));
    status = ft_folder_check(file->folder, &real);
  }
  FT_CHECK(status);
  if (asprintf(&path, "%s/%s", strcmp(real, "/") == 0 ? "" : real, name) < 0) {
    path = NULL;
    FT_GIVE_UP(ft_fail(FT_E_MEMORY, "no memory for a path"));
  }
  if (!store->read_only) ft_unfinished_sweep(path);
  status = ft_file_check(path);
  if (status == FT_E_NOT_FOUND && writing) {
    FT_CHECK(make_file(path));
    status = ft_file_check(path);
  }
  FT_CHECK(status);
  FT_CHECK(ft_database_open(&file->database, path,
                            store->read_only ? FT_DATABASE_FOREIGN : FT_DATABASE_USER));
  /* A trial cost time on a GPU; a kernel can be compiled again. */
  if (kind == FT_KIND_TUNING && ft_database_make_durable(&file->database) != FT_OK) {
    ft_database_close(&file->database);
    status = FT_E_CACHE;
  }
done:
  free(real);
  free(path);
  if (status == FT_E_IO) { /* nothing is known of the file, not that it is none of ours */
    file->database.code = SQLITE_IOERR;
    status = FT_E_CACHE;
  }
  return status;
}

int ft_store_try_user(struct ft_store *store, enum ft_kind kind, struct ft_database **database) {
  struct ft_user_file *const file = &store->user[kind];
  *database = &file->database;
  if (file->database.handle && ft_database_moved(&file->database))
    ft_database_close(&file->database);
  if (file->database.handle) return FT_OK;
  file->database.code = SQLITE_OK;
  const int status = open_user_file(store, kind, false);
  if (status == FT_OK) file->retry_at = 0;
  if (status != FT_OK && status != FT_E_NOT_FOUND)
    ft_store_report(store, &file->database, FT_FAULT_OPEN);
  return status;
}

struct ft_database *ft_store_user(struct ft_store *store, enum ft_kind kind, bool writing) {
  struct ft_user_file *const file = &store->user[kind];
  struct ft_database *const database = &file->database;
  if (!file->path) {
    if (writing) ft_fail(FT_E_CACHE, "there is no place for %s", user_names[kind]);
    return NULL;
  }
  if (writing && store->read_only) {
    ft_fail(FT_E_CACHE, "'%s' is only read: FATUNE_CACHE is ro", file->path);
    return NULL;
  }
  /* Somebody cleaned up: what is written to a file without a name is lost. */
  if (database->handle && ft_database_moved(database)) ft_database_close(database);
  if (!database->handle) {
    if (ft_seconds_now() < file->retry_at) {
      if (writing) ft_fail(FT_E_CACHE, "'%s' could not be opened a moment ago", file->path);
      return NULL;
    }
    const int status = open_user_file(store, kind, writing);
    if (status == FT_E_NOT_FOUND && !writing) return NULL;
    if (status != FT_OK) {
      ft_store_report(store, database, FT_FAULT_OPEN);
      file->retry_at = ft_seconds_now() + RETRY_SECONDS;
      return NULL;
    }
  }
  if (writing && !database->writable) {
    ft_fail(FT_E_CACHE, "'%s' is read-only; what is new stays in memory", file->path);
    ft_store_report(store, database, FT_FAULT_WRITE);
    return NULL;
  }
  return database;
}

struct ft_database *ft_store_memory(struct ft_store *store) {
  if (!store->memory.handle && ft_database_open(&store->memory, NULL, FT_DATABASE_MEMORY) != FT_OK)
    return NULL;
  return &store->memory;
}

void ft_store_sources(struct ft_store *store, enum ft_kind kind, struct ft_sources *sources) {
  struct ft_database *const user = ft_store_user(store, kind, false);
  sources->count = 0;
  if (user) sources->at[sources->count++] = (struct ft_source_of_rows){user, 0};
  if (store->memory.handle)
    sources->at[sources->count++] = (struct ft_source_of_rows){&store->memory, 0};
  for (int i = 0; i < store->layer_count; i++)
    sources->at[sources->count++] = (struct ft_source_of_rows){&store->layers[i], i + 1};
}

/* -- public --------------------------------------------------------------------------------- */

static int name_user_files(struct ft_store *store, const char *folder) {
  for (int kind = 0; kind < FT_KINDS; kind++) {
    struct ft_user_file *const file = &store->user[kind];
    const enum ft_folder place = kind == FT_KIND_TUNING ? FT_FOLDER_TUNING : FT_FOLDER_KERNELS;
    const int status = ft_folder_name(place, folder, &file->folder);
    if (status == FT_E_MEMORY) return status;
    if (status != FT_OK) {
      /* One cause for both files, one warning. */
      if (store->warning_count == 0) ft_store_fault(store, ft_detail());
      continue;
    }
    if (asprintf(&file->path, "%s/%s", file->folder, user_names[kind]) < 0) {
      file->path = NULL;
      return ft_fail(FT_E_MEMORY, "no memory for a path");
    }
  }
  return FT_OK;
}

/* FATUNE_CACHE. *layers: whether system layers are read; *shipped: that of the library itself. */
static void choose_use(struct ft_store *store, const struct ft_store_options *options, bool *layers,
                       bool *shipped) {
  const char *const use = secure_getenv("FATUNE_CACHE");
  store->memory_only = options->memory_only != 0;
  *layers = !store->memory_only;
  *shipped = !use || strcmp(use, "off") != 0;
  if (store->memory_only || !use || !use[0] || strcmp(use, "rw") == 0) return;
  if (strcmp(use, "ro") == 0) {
    store->read_only = true;
  } else if (strcmp(use, "memory") == 0 || strcmp(use, "off") == 0) {
    *layers = use[0] == 'm';
    store->memory_only = true;
    store->unkept = *layers ? "memory" : "off";
  } else {
    ft_store_misnamed(store, "FATUNE_CACHE", use, "off, ro, rw, memory; taken as rw");
  }
}

/* FATUNE_CACHE_CAP: bytes, or with a unit, as 512M. A file without a kernel takes 88 KiB. */
static void choose_cap(struct ft_store *store, const struct ft_store_options *options) {
  const char *const given = secure_getenv("FATUNE_CACHE_CAP");
  store->cap = options->kernel_bytes_cap > 0 ? options->kernel_bytes_cap : DEFAULT_CAP;
  if (options->kernel_bytes_cap > 0 || !given || !given[0]) return;
  static const char units[] = "KMGT";
  char *rest;
  const long long bytes = strtoll(given, &rest, 10); /* what is too large is LLONG_MAX */
  const char *const unit = rest[0] ? strchr(units, rest[0]) : NULL;
  const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
  const bool ended = !rest[unit ? 1 : 0];
  const bool is_size = ended && bytes > 0 && bytes < LLONG_MAX && bytes <= INT64_MAX >> shift;
  if (is_size && bytes << shift >= LEAST_CAP) {
    store->cap = (int64_t)bytes << shift;
    return;
  }
  if (is_size) store->cap = LEAST_CAP;
  ft_store_misnamed(store, "FATUNE_CACHE_CAP", given,
                    is_size ? "bytes from 256K on, or with a unit: 64M, 2G; taken as 256K"
                            : "bytes from 256K on, or with a unit: 64M, 2G; taken as 2G");
}

int ft_store_open(struct ft_store **store, const struct ft_store_options *options) {
  struct ft_store *const made = calloc(1, sizeof *made);
  *store = NULL;
  if (!made) return ft_fail(FT_E_MEMORY, "no memory for a store");
  pthread_mutex_init(&made->lock, NULL);
  made->warn = options->warn;
  made->payload = options->payload;
  made->derive = options->derive;
  made->deriver = options->deriver;
  made->trust = ft_trust_begin();

  ft_store_enter(made);
  int status = FT_OK;
  bool layers = true, shipped = true;
  choose_use(made, options, &layers, &shipped);
  choose_cap(made, options);
  if (!made->memory_only) status = name_user_files(made, options->folder);
  if (status == FT_OK && layers) status = ft_store_add_layers(made, options);
  if (status == FT_OK && shipped) ft_store_add_shipped(made, options);
  ft_store_leave(made);
  if (status != FT_OK) {
    ft_store_close(made);
    return status;
  }
  *store = made;
  return FT_OK;
}

void ft_store_close(struct ft_store *store) {
  if (!store) return;
  for (int kind = 0; kind < FT_KINDS; kind++) {
    ft_database_close(&store->user[kind].database);
    free(store->user[kind].folder);
    free(store->user[kind].path);
  }
  ft_store_close_layers(store);
  ft_database_close(&store->memory);
  free(store->forgotten);
  pthread_mutex_destroy(&store->lock);
  free(store);
}

const char *ft_store_tuning_path(const struct ft_store *store) {
  return store->user[FT_KIND_TUNING].path;
}

const char *ft_store_kernels_path(const struct ft_store *store) {
  return store->user[FT_KIND_KERNELS].path;
}
