/* store.h: the two user stores and the read-only layers below them.
 * in -> out: trials and kernels -> rows; a request on a device -> the winner and how it was hit.
 *
 * tuning.db (never deleted by us) and kernels.db (evictable, capped, least recently used first) lie
 * in $XDG_STATE_HOME/fatune and $XDG_CACHE_HOME/fatune, or both under FATUNE_CACHE_DIR. System
 * layers are single files "<target>.fatune" found in the folders given; they are opened read-only
 * and immutable. User first, then the layers in order.
 *
 * A row of another version, whose request or config this one cannot read, is skipped and kept; one
 * warning a file says how many were met.
 *
 * A fault of any store is a miss and one warning, never a failed look-up: ft_store_open succeeds
 * with whatever could be opened, if need be with nothing but memory. Functions that exist to write
 * (put, import, export, gc) report FT_E_CACHE. One ft_store may be used from many threads; it must
 * not be carried over fork(). */
#ifndef CACHE_STORE_H
#define CACHE_STORE_H

#include "cache/kernel.h"
#include "cache/trial.h"
#include "generator/arch.h"

struct ft_store;

struct ft_store_options {
  const char *folder;      /* both user files here; NULL: FATUNE_CACHE_DIR, else the XDG folders */
  const char *system_path; /* ':'-separated folders of system layers; NULL: FATUNE_SYSTEM_PATH */
  const char *library_folder; /* one more folder of system layers, searched last; may be NULL */
  int64_t kernel_bytes_cap;   /* of kernels.db; 0: 2 GiB */
  int memory_only;            /* nothing on disk is read or written, whatever FATUNE_CACHE says */
  const void *shipped; /* one more layer, below all others, as the bytes of its file; may be NULL */
  size_t shipped_size;
  /* What this library emits for a trial's request and config on its device's target: the recipe,
   * and unless source is NULL the digest of the source, which takes milliseconds. FT_E_MEMORY, or
   * another failure where there is no such text. Called with the store's lock held. NULL: not known
   * here. */
  int (*derive)(void *deriver, const struct ft_trial *trial, const char *target,
                struct ft_digest *recipe, struct ft_digest *source);
  void *deriver;
  void (*warn)(void *payload, const char *message); /* at most once per fault; may be NULL */
  void *payload;
};

int ft_store_open(struct ft_store **store, const struct ft_store_options *options);
void ft_store_close(struct ft_store *store);

/* -- kernels -------------------------------------------------------------------------------- */

/* By exact key; FT_E_NOT_FOUND is a miss. The image's digest has been checked, and that the key is
 * that of the kernel's source and compiler. There is no look-up by less than the key. Caller frees.
 */
int ft_store_kernel_get(struct ft_store *store, const struct ft_digest *key,
                        struct ft_kernel *kernel);

int ft_store_kernel_put(struct ft_store *store, const struct ft_kernel *kernel);

/* The driver refused an image that passed its digest: forget it, so that it is compiled anew. */
int ft_store_kernel_forget(struct ft_store *store, const struct ft_digest *key);

/* The kernel of that key where it lies in a layer that says itself that the recipe gives the
 * kernel's source. The key is that which a trial of the recipe's request and config names: of a
 * layer no other is believed. FT_E_NOT_FOUND: there is none such, or the user's files have it,
 * whose own recipes go first. Caller frees. */
int ft_store_kernel_by_recipe(struct ft_store *store, const struct ft_digest *recipe,
                              const struct ft_digest *key, struct ft_kernel *kernel);

/* Which source a recipe (generator/recipe.h) gives, so that a source whose kernel is here need not
 * be emitted to learn its digest. These are the user's own, which this library has emitted; none is
 * read from a layer. FT_E_NOT_FOUND: it is not known, or cannot be read. */
int ft_store_recipe_get(struct ft_store *store, const struct ft_digest *recipe,
                        struct ft_digest *source);

/* Never waits and never warns: what cannot be written at once is emitted again next time. */
void ft_store_recipe_put(struct ft_store *store, const struct ft_digest *recipe,
                         const struct ft_digest *source);

/* -- trials --------------------------------------------------------------------------------- */

int ft_store_trial_put(struct ft_store *store, const struct ft_trial *trial);

/* ORDER HIT */
enum ft_hit {
  FT_HIT_DEFAULT, /* nothing known: the hand-written default */
  FT_HIT_MODEL,   /* predicted for this bucket and device class, or before the default by the
                     model that the session asks (generator/model/choice.h) */
  FT_HIT_SHIPPED, /* measured by the project, for this bucket or one near it: the built-in layer */
  FT_HIT_NEAR,    /* measured for the nearest bucket on this device class, or on a device of the
                     same target, or with other templates */
  FT_HIT_EXACT    /* measured for this bucket on this device class, with these templates */
};

struct ft_choice {
  enum ft_hit hit;
  struct ft_config config; /* unset when hit is FT_HIT_DEFAULT */
  struct ft_digest kernel; /* key of the kernel that was measured */
  bool default_won;        /* shipped or near: it was its request's default when it was measured */
  double octaves;   /* ft_request_distance to the bucket it was measured for; where nothing is near
                       enough (FT_HIT_DEFAULT), to the nearest there is, or 0 */
  double median_us; /* measured or predicted; 0 when unknown */
  int64_t at;       /* when, in seconds since 1970; where, and by what: */
  char device[96], driver[32], nvrtc[64];
  char note[256]; /* which bucket, device, layer; for people */
};

struct ft_query {
  const struct ft_request *request;
  const char *device; /* device class */
  const char *target; /* "sm_90" */
  const char *policy; /* NULL: any */
  const struct ft_digest *templates;
  bool from_anywhere; /* a winner may be of any distance, but is none that ships without a kernel:
                         where nothing can be compiled */
};

/* The winner. Always FT_OK; a fault is a worse hit. Inside the noise-sized tie set (medians within
 * ft_tie_limit of winner.h, at most 1 %) the order is: default config, less shared memory, fewer
 * registers, ft_config_compare; so equal data gives equal choices everywhere. Samples of one config
 * measured several times (same key) are pooled. */
int ft_store_choose(struct ft_store *store, const struct ft_query *query, struct ft_choice *choice);

/* The key of the kernel that a trial of this config measured or compiled, for the request's kernel
 * class on the target: how a machine without NVRTC finds the kernel of a config that is given. The
 * request's own bucket goes first. FT_E_NOT_FOUND: there is none. */
int ft_store_kernel_of_config(struct ft_store *store, const struct ft_query *query,
                              const struct ft_config *config, struct ft_digest *key);

/* All trials of a bucket on a device class (NULL: all of them), winner's order; return false to
 * stop. Those that are shipped inside the library are left out: they were measured elsewhere. */
int ft_store_trials(struct ft_store *store, const struct ft_request *bucket, const char *device,
                    bool (*visit)(void *payload, const struct ft_trial *trial), void *payload);

/* These alone; return false to stop. */
int ft_store_shipped(struct ft_store *store,
                     bool (*visit)(void *payload, const struct ft_trial *trial), void *payload);

/* How often this store has taken in trials. No lock is taken. */
unsigned ft_store_taken_in(struct ft_store *store);

/* Another number when other trials may be there: the upper half is ft_store_taken_in, the lower one
 * of tuning.db and its log as they lie on the disk. No lock is taken. */
uint64_t ft_store_state(struct ft_store *store);

/* -- files ---------------------------------------------------------------------------------- */

/* Where the user files are (or would be); NULL for memory-only. Valid until close. */
const char *ft_store_tuning_path(const struct ft_store *store);
const char *ft_store_kernels_path(const struct ft_store *store);

/* Faults that were warned of since the store was opened. */
int ft_store_faults(struct ft_store *store);

struct ft_store_layer {
  char *path;
  bool used;
  char *why; /* what it is trusted for, as "owner", "signed by FF7F39BAAA14DC56: ..."; or why it is
                not used */
};

/* Every file of a layer that was found, in order. Valid until close. */
const struct ft_store_layer *ft_store_layers(const struct ft_store *store, int *count);

/* "any", "owner" or "signed": FATUNE_TRUST */
const char *ft_store_trust(const struct ft_store *store);

struct ft_bundle_verdict {
  char how[128];                    /* "signed by ..."; "not signed, ..." */
  bool is_signed;                   /* well, by a trusted key */
  int64_t trials, kernels, recipes; /* rows */
  int64_t damaged;                  /* of these rows; recipes that are wrong count, too */
};

/* Looks a file to ship through: schema, pages, rows, signature; whether the recipes that its trials
 * can be found by give what this library emits for them. Changes nothing. FT_E_CACHE: it is
 * not sound, its signature is not good, or FATUNE_TRUST=signed asks for one. */
int ft_store_verify_bundle(struct ft_store *store, const char *file,
                           struct ft_bundle_verdict *verdict);

struct ft_store_stats {
  int64_t trials; /* all rows; skipped: those of another version, which this one cannot read */
  int64_t skipped, winners, kernels, kernel_bytes, tuning_file_bytes, kernels_file_bytes;
  int layers;
  int64_t hits, misses; /* of this process */
};
int ft_store_stats(struct ft_store *store, struct ft_store_stats *stats);

struct ft_store_verdict {
  int64_t checked; /* rows */
  int64_t damaged; /* rows, and whatever else of a file is not sound */
  int64_t left;    /* of these: still there */
  struct {
    int64_t saved; /* rows of the file that are in the mended one */
    char *kept;    /* where the file lies as it was; owned; NULL: no file had to be mended */
  } mended[2];     /* kernels.db is [FT_STORE_KERNELS] */
};
enum { FT_STORE_TUNING, FT_STORE_KERNELS };

/* Checks every row's digest, the schema and SQLite's integrity. With repair single damaged kernels
 * are deleted; any other damage of a user file is mended: its sound rows go into a new store that
 * takes its place, and the file as it was is kept beside. A file of somebody else is left alone and
 * counts as damage. What cannot be read (I/O, memory, locks) is no damage: nothing is changed then,
 * and the call fails with FT_E_IO or FT_E_MEMORY. Free the verdict in any case. */
int ft_store_verify(struct ft_store *store, bool repair, struct ft_store_verdict *verdict);
void ft_store_verdict_free(struct ft_store_verdict *verdict);

/* Deletes the least recently used kernels beyond `cap` bytes. */
int ft_store_gc(struct ft_store *store, int64_t cap, int64_t *deleted);

struct ft_export {
  bool may_be_empty;                /* else FT_E_NOT_FOUND when there is nothing to ship */
  int64_t trials, kernels, recipes; /* in the file */
  int64_t missing; /* trials whose kernel is in no store: they need NVRTC where they go */
};

/* Writes the winners of one target, the kernels they name and the recipes of these that this
 * library emits into one read-only-friendly file (whole or not at all: a temporary beside it, then
 * rename). A file NAME.trials becomes text, one trial a line, without kernels: what the library
 * ships is kept in that form. What cannot be read of the user's stores fails the export. device
 * NULL: every device class of the target. */
int ft_store_export(struct ft_store *store, const char *target, const char *device,
                    const char *file, struct ft_export *export);

/* Takes trials, kernels and recipes of such a file in; all or nothing; rows already here are
 * skipped. The file is not trusted: schema, digests and sizes are checked, nothing in it is
 * executed, and of the recipes those are taken that this library has found right by emitting.
 * FT_E_CACHE where FATUNE_CACHE is memory or off, as nothing would be kept. */
int ft_store_import(struct ft_store *store, const char *file, int64_t *trials, int64_t *kernels);

/* Takes in another user's tuning.db or kernels.db (the kind is recognised). */
int ft_store_merge(struct ft_store *store, const char *file, int64_t *trials, int64_t *kernels);

#endif
