/* rows.h: trials, kernels and recipes as rows of a database, each with a digest of its own.
 * in -> out: struct -> row; row -> struct, checked: SQLite does not notice flipped bits, so nothing
 * is handed out whose digest differs. */
#ifndef CACHE_ROWS_H
#define CACHE_ROWS_H

#include "cache/database.h"
#include "cache/kernel.h"
#include "cache/trial.h"

/* The columns that the readers below take, in their order, first in a SELECT. */
#define FT_TRIAL_COLUMNS  "text, identity"
#define FT_KERNEL_COLUMNS "text, identity, log, image"
#define FT_RECIPE_COLUMNS "recipe, source, identity"

/* What a row is searched by: copies out of its text. In a SELECT they follow the columns above. */
#define FT_TRIAL_COPIES  ", bucket, class, device, target, policy, outcome, at, templates"
#define FT_KERNEL_COPIES ", key, source, target"

/* Canonical texts, to be freed by the caller (the request's also for its kernel class). */
int ft_row_request_text(const struct ft_request *request, char **text);
int ft_row_class_text(const struct ft_request *request, char **text);

/* "nvidia-h200/sm_90/132" -> "sm_90"; "" when it has not this form. */
void ft_device_target(const char *device, char target[16]);
/* -> 132; 0 when it has not this form. */
int ft_device_multiprocessors(const char *device);

/* Inside a transaction. *inserted: false when the very same trial is there already. A trial whose
 * text could not be read back is refused (FT_E_ARGUMENT). */
int ft_row_put_trial(struct ft_database *database, const struct ft_trial *trial, bool *inserted);

/* FT_E_CACHE: the row is damaged. FT_E_NOT_FOUND: it is sound, and *identity is set, but another
 * version wrote it (a knob came or went): to be skipped (ft_store_skip). */
int ft_row_read_trial(sqlite3_stmt *row, struct ft_trial *trial, struct ft_digest *identity);

/* Inside a transaction. A kernel of the same key is replaced, or with keep left as it is. */
int ft_row_put_kernel(struct ft_database *database, const struct ft_kernel *kernel, int64_t now,
                      bool keep, bool *inserted);

/* The same two failures. The kernel is the caller's to free on FT_OK only. */
int ft_row_read_kernel(sqlite3_stmt *row, struct ft_kernel *kernel);

/* FT_OK, or one of the two failures: a copy differs from the text, so the row is not found by it.
 */
int ft_row_check_trial(sqlite3_stmt *row, const struct ft_trial *trial);
int ft_row_check_kernel(sqlite3_stmt *row, const struct ft_kernel *kernel);

/* Which source a recipe gives (generator/recipe.h). The put is inside a transaction and replaces a
 * row of the same recipe. The read fails with FT_E_CACHE where the row is damaged. */
int ft_row_put_recipe(struct ft_database *database, const struct ft_digest *recipe,
                      const struct ft_digest *source);
int ft_row_read_recipe(sqlite3_stmt *row, struct ft_digest *recipe, struct ft_digest *source);

int ft_bind_digest(sqlite3_stmt *statement, int index, const struct ft_digest *digest);
int ft_bind_text(sqlite3_stmt *statement, int index, const char *text); /* NULL binds NULL */

#endif
