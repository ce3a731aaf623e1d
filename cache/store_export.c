/* store_export.c: the winners of one target and their kernels as one file to ship.
 * in -> out: the user's rows -> a file that stores use as a system layer; or trials as lines of
 * text. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/rows.h"
#include "cache/store_parts.h"
#include "cache/unfinished.h"
#include "generator/status.h"

struct shipment {
  struct ft_store *store;
  struct ft_database *file;
  FILE *lines; /* of text; NULL: rows of file are written */
  struct ft_export *export;
};

/* -- rows ----------------------------------------------------------------------------------- */

/* The recipe of the kernel, where it is of the text that this library emits for the trial. It is
 * made anew, not copied from the user's: what is shipped then depends on the trials and kernels
 * alone, and is right. */
static int ship_recipe(struct shipment *shipment, const struct ft_trial *trial,
                       const struct ft_digest *kernel_source) {
  struct ft_store *const store = shipment->store;
  struct ft_digest recipe, source;
  int status = ft_store_derive(store, trial, &recipe, NULL);
  if (status == FT_OK) {
    status = ft_store_recipe_in(shipment->file, &recipe, &source);
    if (status != FT_E_NOT_FOUND) return status; /* of several trials of a config one is enough */
    status = ft_store_derive(store, trial, &recipe, &source);
  }
  if (status != FT_OK) return status == FT_E_MEMORY ? status : FT_OK;
  if (!ft_digest_equal(&source, kernel_source)) return FT_OK; /* of another version */
  shipment->export->recipes++;
  return ft_row_put_recipe(shipment->file, &recipe, &source);
}

/* A trial whose kernel is gone is still worth shipping: its config is the choice. `used` is 0, so
 * that equal data gives equal files. */
static int ship_kernel(struct shipment *shipment, const struct ft_trial *trial) {
  struct ft_kernel kernel;
  bool inserted = false;
  int status = ft_store_find_kernel(shipment->store, &trial->kernel, &kernel);
  if (status == FT_E_NOT_FOUND) shipment->export->missing++;
  if (status != FT_OK) return status == FT_E_NOT_FOUND ? FT_OK : status;
  status = ft_row_put_kernel(shipment->file, &kernel, 0, true, &inserted);
  if (inserted) shipment->export->kernels++;
  if (status == FT_OK) status = ship_recipe(shipment, trial, &kernel.source);
  ft_kernel_free(&kernel);
  return status;
}

static int ship_line(struct shipment *shipment, const struct ft_trial *trial) {
  struct ft_text line = FT_TEXT_INIT;
  ft_trial_print(trial, &line);
  const int status = ft_text_status(&line);
  if (status == FT_OK) fprintf(shipment->lines, "%s\n", line.data); /* ferror tells at the end */
  if (status == FT_OK) shipment->export->trials++;
  ft_text_free(&line);
  return status;
}

static int ship_row(struct shipment *shipment, const struct ft_trial *trial) {
  bool inserted = false;
  FT_TRY(ft_row_put_trial(shipment->file, trial, &inserted));
  shipment->export->trials += inserted;
  return ship_kernel(shipment, trial);
}

/* All trials of the best candidate that passes: together they are its samples. */
static int ship_best(struct shipment *shipment, const struct ft_filter *filter) {
  struct ft_entries entries;
  FT_TRY(ft_store_gather(shipment->store, filter, &entries));
  const size_t count = entries.standing_count > 0 ? entries.standings[0].count : 0;
  int status = FT_OK;
  for (size_t i = 0; status == FT_OK && i < count; i++) {
    const struct ft_trial *const trial = &entries.at[i]->trial;
    status = shipment->lines ? ship_line(shipment, trial) : ship_row(shipment, trial);
  }
  ft_entries_free(&entries);
  return status;
}

/* Is no later trial of the same policy among the entries? Its templates then are the current ones.
 */
static bool is_latest(const struct ft_entries *entries, size_t index) {
  const struct ft_trial *const trial = &entries->at[index]->trial;
  for (size_t i = 0; i < entries->count; i++) {
    const struct ft_trial *const other = &entries->at[i]->trial;
    if (strcmp(other->policy, trial->policy) != 0) continue;
    if (other->at > trial->at || (other->at == trial->at && i < index)) return false;
  }
  return true;
}

/* One winner per policy, by the templates that were measured last. */
static int ship_policies(struct shipment *shipment, struct ft_filter *filter, bool *any) {
  struct ft_entries entries;
  FT_TRY(ft_store_gather(shipment->store, filter, &entries));
  int status = FT_OK;
  *any = entries.count > 0;
  for (size_t i = 0; status == FT_OK && i < entries.count; i++) {
    if (!is_latest(&entries, i)) continue;
    filter->policy = entries.at[i]->trial.policy;
    filter->templates = &entries.at[i]->trial.templates;
    status = ship_best(shipment, filter);
  }
  filter->policy = NULL;
  filter->templates = NULL;
  ft_entries_free(&entries);
  return status;
}

/* What a search that was cut short measured is shipped where nothing better is, predictions where
 * nothing was measured. */
static int ship_spot(struct shipment *shipment, const struct ft_spot *spot) {
  struct ft_filter filter = {.bucket = spot->bucket, .device = spot->device};
  bool any = false;
  for (int outcome = FT_OUTCOME_OK; outcome <= FT_OUTCOME_PREDICTED && !any; outcome++) {
    filter.outcome = ft_outcome_name((enum ft_outcome)outcome);
    FT_TRY(ship_policies(shipment, &filter, &any));
  }
  return FT_OK;
}

/* Look-ups take a fault of a store for a miss; what is shipped must not lack rows for one. */
static int check_readable(struct ft_store *store) {
  for (int kind = 0; kind < FT_KINDS; kind++) {
    struct ft_database *database = NULL;
    if (!store->user[kind].path) continue;
    const int status = ft_store_try_user(store, (enum ft_kind)kind, &database);
    if (status != FT_OK && status != FT_E_NOT_FOUND) return status;
  }
  return FT_OK;
}

static int ship_all(struct shipment *shipment, const char *target, const char *device) {
  static const char sql[] = "SELECT DISTINCT bucket, device FROM trials WHERE target = ?1 AND "
                            "(?2 IS NULL OR device = ?2)";
  const char *const texts[3] = {target, device, NULL};
  struct ft_spots spots;
  FT_TRY(ft_store_spots(shipment->store, sql, texts, 0, &spots));
  int status = FT_OK;
  for (size_t i = 0; status == FT_OK && i < spots.count; i++) {
    const struct ft_spot *const before = i > 0 ? &spots.at[i - 1] : NULL;
    const bool seen = before && strcmp(before->bucket, spots.at[i].bucket) == 0 &&
                      strcmp(before->device, spots.at[i].device) == 0;
    if (!seen) status = ship_spot(shipment, &spots.at[i]);
  }
  ft_spots_free(&spots);
  return status;
}

/* -- file ----------------------------------------------------------------------------------- */

/* The header's last number is the version of the SQLite that wrote it. Nobody reads it, and equal
 * data is to give equal files on machines that have not the same. */
static int forget_version(const char *path) {
  static const char nothing[4];
  const int descriptor = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return ft_fail(FT_E_CACHE, "cannot write '%s': %s", path, strerror(errno));
  const bool written = pwrite(descriptor, nothing, sizeof nothing, 96) == sizeof nothing;
  const int why = errno;
  if (close(descriptor) == 0 && written) return FT_OK;
  return ft_fail(FT_E_CACHE, "cannot write '%s': %s", path, strerror(written ? errno : why));
}

static int ship_checked(struct shipment *shipment, const char *target, const char *device) {
  const int64_t troubles = shipment->store->troubles;
  FT_TRY(ship_all(shipment, target, device));
  if (shipment->store->troubles > troubles)
    return ft_fail(FT_E_CACHE, "not all could be read, nothing is written: %s",
                   shipment->store->trouble);
  if (shipment->export->trials == 0 && !shipment->export->may_be_empty)
    return ft_fail(FT_E_NOT_FOUND, "nothing is known for %s%s%s", target, device ? " on " : "",
                   device ? device : "");
  return FT_OK;
}

static int fill_lines(struct shipment *shipment, const char *path, const char *target,
                      const char *device) {
  FT_TRY(check_readable(shipment->store));
  shipment->lines = fopen(path, "we");
  if (!shipment->lines) return ft_fail(FT_E_CACHE, "cannot write '%s': %s", path, strerror(errno));
  const int status = ship_checked(shipment, target, device);
  const bool failed = ferror(shipment->lines) != 0;
  const bool closed = fclose(shipment->lines) == 0;
  shipment->lines = NULL;
  if (status != FT_OK || (closed && !failed)) return status;
  return ft_fail(FT_E_CACHE, "cannot write '%s': %s", path, strerror(errno));
}

static int fill(struct shipment *shipment, const char *path, const char *target,
                const char *device) {
  struct ft_database file = {0};
  FT_TRY(check_readable(shipment->store));
  FT_TRY(ft_database_open(&file, path, FT_DATABASE_FRESH_LAYER));
  shipment->file = &file;
  int status = ft_database_begin(&file, 0);
  if (status == FT_OK) status = ship_checked(shipment, target, device);
  if (status == FT_OK) status = ft_database_commit(&file);
  ft_database_close(&file);
  shipment->file = NULL;
  return status == FT_OK ? forget_version(path) : status;
}

static int sync_path(const char *path, int flags) {
  const int descriptor = open(path, flags | O_CLOEXEC);
  if (descriptor < 0) return -1;
  const int failed = fsync(descriptor);
  close(descriptor);
  return failed;
}

/* The name appears only once the bytes are on the disk. A folder that cannot be synced (some
 * network file systems) does not make the file any worse. */
static int publish(const char *temporary, const char *file) {
  if (chmod(temporary, 0644) != 0 || sync_path(temporary, O_RDONLY) != 0 ||
      rename(temporary, file) != 0)
    return ft_fail(FT_E_CACHE, "cannot write '%s': %s", file, strerror(errno));
  const char *const slash = strrchr(file, '/');
  char *folder = NULL;
  if (asprintf(&folder, "%.*s.", slash ? (int)(slash + 1 - file) : 0, file) < 0) return FT_OK;
  sync_path(folder, O_RDONLY | O_DIRECTORY);
  free(folder);
  return FT_OK;
}

static bool is_text(const char *file) {
  const char *const ending = strrchr(file, '.');
  return ending && strcmp(ending, ".trials") == 0;
}

/* What is exported has the winners alone: in the place of a store it would lose all else. */
static int check_not_own(const struct ft_store *store, const char *file) {
  struct stat named, own;
  if (stat(file, &named) != 0) return FT_OK;
  for (int kind = 0; kind < FT_KINDS; kind++) {
    const char *const path = store->user[kind].path;
    if (path && stat(path, &own) == 0 && named.st_dev == own.st_dev && named.st_ino == own.st_ino)
      return ft_fail(FT_E_ARGUMENT, "cannot write '%s': it is the cache that is exported", file);
  }
  return FT_OK;
}

static void forget_counts(struct ft_export *export) {
  export->trials = export->kernels = export->recipes = export->missing = 0;
}

int ft_store_export(struct ft_store *store, const char *target, const char *device,
                    const char *file, struct ft_export *export) {
  struct shipment shipment = {.store = store, .export = export};
  struct ft_unfinished unfinished;
  char *real = NULL;
  forget_counts(export);
  FT_TRY(check_not_own(store, file));
  /* Its own folder: SQLite's journal lies beside its file, and rename needs the same file system.
   */
  FT_TRY(ft_unfinished_make(&unfinished, file));
  close(unfinished.file);
  int status = FT_OK;
  if (!(real = realpath(unfinished.path, NULL)))
    status = ft_fail(FT_E_CACHE, "cannot write '%s': %s", file, strerror(errno));
  if (status == FT_OK) {
    ft_store_enter(store);
    status = (is_text(file) ? fill_lines : fill)(&shipment, real, target, device);
    ft_store_tell_skipped(store);
    ft_store_leave(store);
  }
  if (status == FT_OK) status = publish(unfinished.path, file);
  ft_unfinished_end(&unfinished);
  if (status != FT_OK) forget_counts(export);
  free(real);
  return status;
}
