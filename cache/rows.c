/* rows.c: trials, kernels and recipes as rows of a database, each with a digest of its own.
 * in -> out: struct -> row; row -> struct, checked. */
#include "cache/rows.h"

#include <stdlib.h>
#include <string.h>

#include "cache/fields.h"
#include "generator/status.h"

enum { TEXT_LIMIT = 64 << 10 };

/* -- small things --------------------------------------------------------------------------- */

int ft_bind_digest(sqlite3_stmt *statement, int index, const struct ft_digest *digest) {
  return sqlite3_bind_blob(statement, index, digest->bytes, FT_DIGEST_BYTES, SQLITE_TRANSIENT);
}

int ft_bind_text(sqlite3_stmt *statement, int index, const char *text) {
  return sqlite3_bind_text(statement, index, text, -1, SQLITE_TRANSIENT);
}

static int request_text(const struct ft_request *request, char **text) {
  struct ft_locale locale = ft_locale_plain();
  struct ft_text buffer = FT_TEXT_INIT;
  ft_request_print(request, &buffer);
  ft_locale_restore(&locale);
  *text = buffer.data;
  if (ft_text_status(&buffer) == FT_OK) return FT_OK;
  ft_text_free(&buffer);
  *text = NULL;
  return ft_fail(FT_E_MEMORY, "no memory for the text of a request");
}

int ft_row_request_text(const struct ft_request *request, char **text) {
  return request_text(request, text);
}

int ft_row_class_text(const struct ft_request *request, char **text) {
  const struct ft_request class = ft_request_kernel_class(request);
  return request_text(&class, text);
}

/* From the end: a device name may hold a slash, target and count do not. */
static const char *target_of(const char *device, const char **last) {
  *last = strrchr(device, '/');
  if (!*last) return NULL;
  const char *begin = *last;
  while (begin > device && begin[-1] != '/') begin--;
  return begin > device ? begin : NULL;
}

void ft_device_target(const char *device, char target[16]) {
  const char *last = NULL;
  const char *const begin = target_of(device, &last);
  const size_t length = begin ? (size_t)(last - begin) : 0;
  target[0] = '\0';
  if (length == 0 || length >= 16) return;
  memcpy(target, begin, length);
  target[length] = '\0';
}

int ft_device_multiprocessors(const char *device) {
  const char *const last = strrchr(device, '/');
  const long count = last ? strtol(last + 1, NULL, 10) : 0;
  return count > 0 && count < 100000 ? (int)count : 0;
}

/* The bytes of a column, or NULL when it has another length than it must have. */
static const void *column_bytes(sqlite3_stmt *row, int column, size_t least, size_t most,
                                size_t *length) {
  const void *const bytes = sqlite3_column_blob(row, column);
  *length = (size_t)sqlite3_column_bytes(row, column);
  return bytes && *length >= least && *length <= most ? bytes : NULL;
}

static bool column_is_digest(sqlite3_stmt *row, int column, const struct ft_digest *expected) {
  size_t length = 0;
  const void *const bytes = column_bytes(row, column, FT_DIGEST_BYTES, FT_DIGEST_BYTES, &length);
  return bytes && memcmp(bytes, expected->bytes, FT_DIGEST_BYTES) == 0;
}

/* A text column without an embedded NUL, which would end it early for us but not for its digest. */
static const char *column_line(sqlite3_stmt *row, int column, size_t most, size_t *length) {
  const char *const text = (const char *)sqlite3_column_text(row, column);
  *length = (size_t)sqlite3_column_bytes(row, column);
  return text && *length <= most && strlen(text) == *length ? text : NULL;
}

/* A column is also NULL when memory ran out: that must not count as damage, which deletes rows. */
static int unsound(sqlite3_stmt *row, const char *what) {
  if (sqlite3_errcode(sqlite3_db_handle(row)) == SQLITE_NOMEM)
    return ft_fail(FT_E_MEMORY, "no memory to read a row");
  return ft_fail(FT_E_CACHE, "a row is damaged: %s", what);
}

static bool column_is_text(sqlite3_stmt *row, int column, const char *expected) {
  size_t length = 0;
  const char *const text = column_line(row, column, TEXT_LIMIT, &length);
  return text && strcmp(text, expected) == 0;
}

/* -- trials --------------------------------------------------------------------------------- */

static struct ft_digest trial_identity(const char *text, size_t length) {
  struct ft_hasher hasher;
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "trial", text, length);
  return ft_hasher_final(&hasher);
}

/* What the columns to search by have that the trial has not in so many words. */
struct copies {
  char *bucket, *class;
  char target[16];
};

/* To be freed after a failure, too. */
static int make_copies(struct copies *copies, const struct ft_trial *trial) {
  copies->bucket = copies->class = NULL;
  ft_device_target(trial->device, copies->target);
  FT_TRY(ft_row_request_text(&trial->bucket, &copies->bucket));
  return ft_row_class_text(&trial->bucket, &copies->class);
}

static void free_copies(struct copies *copies) {
  free(copies->bucket);
  free(copies->class);
}

static int bind_trial(struct ft_database *database, sqlite3_stmt *statement,
                      const struct ft_trial *trial, const struct ft_text *text) {
  const struct ft_digest identity = trial_identity(text->data, text->length);
  struct copies copies;
  int status = make_copies(&copies, trial);
  if (status == FT_OK) {
    int failed = ft_bind_digest(statement, 1, &identity);
    failed |= ft_bind_text(statement, 2, copies.bucket);
    failed |= ft_bind_text(statement, 3, copies.class);
    failed |= ft_bind_text(statement, 4, trial->device);
    failed |= ft_bind_text(statement, 5, copies.target);
    failed |= ft_bind_text(statement, 6, trial->policy);
    failed |= ft_bind_text(statement, 7, ft_outcome_name(trial->outcome));
    failed |= sqlite3_bind_int64(statement, 8, trial->at);
    failed |= ft_bind_digest(statement, 9, &trial->templates);
    failed |= ft_bind_text(statement, 10, text->data);
    status = ft_database_bound(database, failed);
  }
  free_copies(&copies);
  return status;
}

int ft_row_put_trial(struct ft_database *database, const struct ft_trial *trial, bool *inserted) {
  struct ft_text text = FT_TEXT_INIT;
  struct ft_trial back;
  sqlite3_stmt *statement = NULL;
  *inserted = false;
  ft_trial_print(trial, &text);
  int status = FT_OK;
  FT_CHECK(ft_text_status(&text));
  FT_CHECK(ft_trial_parse(&back, text.data));
  FT_CHECK(ft_database_prepare(database,
                               "INSERT INTO trials (identity, bucket, class, device, target, "
                               "policy, outcome, at, templates, text) VALUES (?1, ?2, ?3, ?4, ?5, "
                               "?6, ?7, ?8, ?9, ?10) ON CONFLICT (identity) DO NOTHING",
                               &statement));
  FT_CHECK(bind_trial(database, statement, trial, &text));
  FT_CHECK(ft_database_run(database, statement, "a trial cannot be written"));
  *inserted = sqlite3_changes(database->handle) > 0;
done:
  ft_database_done(statement);
  ft_text_free(&text);
  return status;
}

int ft_row_read_trial(sqlite3_stmt *row, struct ft_trial *trial, struct ft_digest *identity) {
  size_t length = 0;
  const char *const text = column_line(row, 0, TEXT_LIMIT, &length);
  if (!text) return unsound(row, "a trial has no text, or one that is too long");
  *identity = trial_identity(text, length);
  if (!column_is_digest(row, 1, identity)) return unsound(row, "a trial does not match its digest");
  const int status = ft_trial_parse(trial, text);
  return status == FT_OK || status == FT_E_MEMORY ? status : FT_E_NOT_FOUND;
}

int ft_row_check_trial(sqlite3_stmt *row, const struct ft_trial *trial) {
  struct copies copies;
  int status = make_copies(&copies, trial);
  if (status == FT_OK) {
    const bool same =
        column_is_text(row, 2, copies.bucket) && column_is_text(row, 3, copies.class) &&
        column_is_text(row, 4, trial->device) && column_is_text(row, 5, copies.target) &&
        column_is_text(row, 6, trial->policy) &&
        column_is_text(row, 7, ft_outcome_name(trial->outcome)) &&
        sqlite3_column_int64(row, 8) == trial->at && column_is_digest(row, 9, &trial->templates);
    if (!same) status = unsound(row, "a trial is not found by what its text says");
  }
  free_copies(&copies);
  return status;
}

/* -- kernels -------------------------------------------------------------------------------- */

static struct ft_digest kernel_identity(const char *text, const char *log) {
  struct ft_hasher hasher;
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "kernel", text, strlen(text));
  if (log) ft_hasher_section(&hasher, "log", log, strlen(log));
  return ft_hasher_final(&hasher);
}

/* Else a row could pose as what another compiler, or the compiler of another source, makes. */
static bool has_own_key(const struct ft_kernel *kernel) {
  const struct ft_digest key = ft_kernel_key(&kernel->source, kernel->nvrtc);
  return ft_digest_equal(&kernel->key, &key);
}

static int check_kernel(const struct ft_kernel *kernel) {
  if (!kernel->image || kernel->image_size == 0 || kernel->image_size > FT_IMAGE_LIMIT)
    return ft_fail(FT_E_ARGUMENT, "a kernel's image has %zu bytes; allowed are 1 .. %d",
                   kernel->image_size, FT_IMAGE_LIMIT);
  const struct ft_digest digest = ft_digest_of(kernel->image, kernel->image_size);
  if (!ft_digest_equal(&digest, &kernel->image_digest))
    return ft_fail(FT_E_ARGUMENT, "a kernel's image does not match its image_digest");
  if (!has_own_key(kernel))
    return ft_fail(FT_E_ARGUMENT, "a kernel's key is not that of its source and compiler");
  return FT_OK;
}

static int bind_kernel(sqlite3_stmt *statement, const struct ft_kernel *kernel, const char *text,
                       const char *log, int64_t now) {
  const struct ft_digest identity = kernel_identity(text, log);
  int failed = ft_bind_digest(statement, 1, &kernel->key);
  failed |= ft_bind_digest(statement, 2, &kernel->source);
  failed |= ft_bind_text(statement, 3, kernel->target);
  failed |= sqlite3_bind_int64(statement, 4, now);
  failed |= ft_bind_digest(statement, 5, &identity);
  failed |= ft_bind_text(statement, 6, text);
  failed |= ft_bind_text(statement, 7, log);
  /* The image outlives the statement's run: not copied. */
  failed |= sqlite3_bind_blob64(statement, 8, kernel->image, kernel->image_size, SQLITE_STATIC);
  return failed;
}

int ft_row_put_kernel(struct ft_database *database, const struct ft_kernel *kernel, int64_t now,
                      bool keep, bool *inserted) {
  static const char columns_keep[] =
      "INSERT INTO kernels (key, source, target, used, identity, text, log, image) "
      "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (key) DO NOTHING";
  static const char columns_replace[] =
      "INSERT INTO kernels (key, source, target, used, identity, text, log, image) "
      "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (key) DO UPDATE SET "
      "source = ?2, target = ?3, used = ?4, identity = ?5, text = ?6, log = ?7, image = ?8";
  struct ft_text text = FT_TEXT_INIT;
  struct ft_kernel back;
  sqlite3_stmt *statement = NULL;
  /* A log beyond the limit is for nobody to read: left out rather than cut in the middle. */
  const char *const log = kernel->log && strlen(kernel->log) > FT_LOG_LIMIT ? NULL : kernel->log;
  *inserted = false;
  ft_kernel_print(kernel, &text);
  int status = FT_OK;
  FT_CHECK(ft_text_status(&text));
  FT_CHECK(check_kernel(kernel));
  FT_CHECK(ft_kernel_parse(&back, text.data));
  FT_CHECK(ft_database_prepare(database, keep ? columns_keep : columns_replace, &statement));
  FT_CHECK(ft_database_bound(database, bind_kernel(statement, kernel, text.data, log, now)));
  FT_CHECK(ft_database_run(database, statement, "a kernel cannot be written"));
  *inserted = sqlite3_changes(database->handle) > 0;
done:
  ft_database_done(statement);
  ft_text_free(&text);
  return status;
}

static int copy_image(struct ft_kernel *kernel, const void *image, size_t size, const char *log) {
  const struct ft_digest digest = ft_digest_of(image, size);
  if (size != kernel->image_size || !ft_digest_equal(&digest, &kernel->image_digest))
    return ft_fail(FT_E_CACHE, "a row is damaged: a kernel's image does not match its digest");
  kernel->image = malloc(size);
  kernel->log = log ? strdup(log) : NULL;
  if (!kernel->image || (log && !kernel->log)) {
    ft_kernel_free(kernel);
    return ft_fail(FT_E_MEMORY, "no memory for a kernel of %zu bytes", size);
  }
  memcpy(kernel->image, image, size);
  return FT_OK;
}

int ft_row_read_kernel(sqlite3_stmt *row, struct ft_kernel *kernel) {
  size_t text_length = 0, log_length = 0, size = 0;
  const char *const text = column_line(row, 0, TEXT_LIMIT, &text_length);
  const bool logged = sqlite3_column_type(row, 2) != SQLITE_NULL;
  const char *const log = logged ? column_line(row, 2, FT_LOG_LIMIT, &log_length) : NULL;
  memset(kernel, 0, sizeof *kernel);
  if (!text || (logged && !log))
    return unsound(row, "a kernel has no text, or one that is too long");
  const struct ft_digest identity = kernel_identity(text, log);
  if (!column_is_digest(row, 1, &identity))
    return unsound(row, "a kernel's text does not match its digest");
  const int parsed = ft_kernel_parse(kernel, text);
  if (parsed != FT_OK) return parsed == FT_E_MEMORY ? parsed : FT_E_NOT_FOUND;
  if (!has_own_key(kernel))
    return ft_fail(FT_E_CACHE, "a row is damaged: a kernel's key is not that of its source");
  const void *const image = column_bytes(row, 3, 1, FT_IMAGE_LIMIT, &size);
  if (!image) return unsound(row, "a kernel has no image, or one that is too large");
  return copy_image(kernel, image, size, log);
}

int ft_row_check_kernel(sqlite3_stmt *row, const struct ft_kernel *kernel) {
  const bool same = column_is_digest(row, 4, &kernel->key) &&
                    column_is_digest(row, 5, &kernel->source) &&
                    column_is_text(row, 6, kernel->target);
  return same ? FT_OK : unsound(row, "a kernel is not found by what its text says");
}

/* -- recipes -------------------------------------------------------------------------------- */

static struct ft_digest recipe_identity(const struct ft_digest *recipe,
                                        const struct ft_digest *source) {
  struct ft_hasher hasher;
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "recipe", recipe->bytes, sizeof recipe->bytes);
  ft_hasher_section(&hasher, "source", source->bytes, sizeof source->bytes);
  return ft_hasher_final(&hasher);
}

int ft_row_put_recipe(struct ft_database *database, const struct ft_digest *recipe,
                      const struct ft_digest *source) {
  const struct ft_digest identity = recipe_identity(recipe, source);
  sqlite3_stmt *statement = NULL;
  FT_TRY(ft_database_prepare(
      database, "INSERT OR REPLACE INTO recipes (recipe, source, identity) VALUES (?1, ?2, ?3)",
      &statement));
  int failed = ft_bind_digest(statement, 1, recipe);
  failed |= ft_bind_digest(statement, 2, source);
  failed |= ft_bind_digest(statement, 3, &identity);
  int status = ft_database_bound(database, failed);
  if (status == FT_OK) status = ft_database_run(database, statement, "a recipe cannot be written");
  ft_database_done(statement);
  return status;
}

int ft_row_read_recipe(sqlite3_stmt *row, struct ft_digest *recipe, struct ft_digest *source) {
  for (int i = 0; i < 2; i++) {
    struct ft_digest *const digest = i == 0 ? recipe : source;
    size_t length = 0;
    const void *const bytes = column_bytes(row, i, FT_DIGEST_BYTES, FT_DIGEST_BYTES, &length);
    if (!bytes) return unsound(row, "a recipe has no digest, or one of another length");
    memcpy(digest->bytes, bytes, FT_DIGEST_BYTES);
  }
  const struct ft_digest identity = recipe_identity(recipe, source);
  if (!column_is_digest(row, 2, &identity))
    return unsound(row, "a recipe does not match its digest");
  return FT_OK;
}
