/* session.h: the inside of a session, for the layers above (tuner, tests).
 * in -> out: options -> templates, stores, compiler, driver, device; source -> kernel -> module. */
#ifndef RUNTIME_SESSION_H
#define RUNTIME_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cache/store.h"
#include "runtime/compiler.h"
#include "runtime/driver.h"
#include "runtime/fatune.h"
#include "runtime/params.h"

struct fatune_session {
  pthread_mutex_t lua_lock; /* guards lua */
  struct ft_lua *lua;
  struct ft_digest templates;
  struct ft_store *store;
  pthread_mutex_t compiler_lock; /* guards the opening of compiler */
  struct ft_compiler *compiler;  /* NULL until first needed; use ft_session_compiler */
  bool may_compile;
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
};

/* One line to the session's log, if it has one. */
void ft_session_warn(const fatune_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* FT_OK when the session has a GPU, else why not. */
int ft_session_needs_device(const fatune_session *session);

/* Opens NVRTC on first use. */
int ft_session_compiler(fatune_session *session, struct ft_compiler **compiler);

/* ft_emit under the session's lock. */
int ft_session_emit(fatune_session *session, const struct ft_request *request,
                    const struct ft_arch *arch, const struct ft_config *config,
                    struct ft_source *source);

/* The kernel of a source: from the store (preferred key first, any compiler's otherwise), else
 * compiled and stored. *compiled says which. Thread-safe; compiles run in parallel. */
int ft_session_kernel(fatune_session *session, const struct ft_source *source,
                      const struct ft_digest *preferred, struct ft_kernel *kernel, bool *compiled);

/* What the caches say about a request on an arch; the default config where they say nothing or
 * what they say is no longer legal. device_class as in ft_device.id, or NULL for a GPU that is
 * not here. */
int ft_session_choose(fatune_session *session, const struct ft_request *request,
                      const struct ft_arch *arch, const char *device_class,
                      struct ft_choice *choice);

/* Device class of a GPU of the table that is not in this machine, as it would be if it were. */
void ft_device_class(const struct ft_arch *arch, char id[96]);

/* Public request -> internal, defaults filled in, validated. */
int ft_request_from_public(struct ft_request *to, const fatune_request *from);

/* A loaded kernel, or the three of a backward. */
struct ft_module {
  cu_module handle;
  cu_function function;                                 /* the kernel, in a backward the main one */
  cu_function prepare, convert;                         /* of a backward */
  int registers, spill_bytes, static_smem, max_threads; /* as the driver tells */
};

/* Loads the image and grants it its shared memory. */
int ft_module_load(struct ft_module *module, fatune_session *session,
                   const struct ft_kernel *kernel, enum ft_pass pass);
/* The same; *refused is true when the driver found fault with the image itself, so that another
 * image of the same source may do. */
int ft_module_try_load(struct ft_module *module, fatune_session *session,
                       const struct ft_kernel *kernel, enum ft_pass pass, bool *refused);
void ft_module_unload(struct ft_module *module, fatune_session *session);

/* Makes the session's context current for the calling thread until the matching leave. */
int ft_session_enter(fatune_session *session);
void ft_session_leave(fatune_session *session);

/* ft_session_kernel and ft_module_load together. An image from the store that the driver refuses is
 * forgotten and compiled anew, once. For an emulated GPU the kernel is compiled for the CPU,
 * always, and not kept. Caller frees kernel and unloads module. */
int ft_session_load(fatune_session *session, const struct ft_source *source,
                    const struct ft_digest *preferred, struct ft_kernel *kernel,
                    struct ft_module *module, bool *compiled);

/* The index lists of a block-sparse mask on the device; the inside of a fatune_mask. */
struct fatune_mask {
  fatune_session *session;
  cu_address memory; /* one allocation for all of it */
  cu_address lists;  /* struct ft_mask_list [batch][heads][row_blocks], longest first */
  cu_address blocks; /* int32_t, ascending within a list */
  /* The transposed: kept row blocks of each column block, struct ft_mask_list
   * [batch][heads][col_blocks], in order. */
  cu_address column_lists, column_blocks;
  int rows, cols; /* of one block */
  int64_t batch;  /* 1: broadcast */
  int heads;      /* 1: broadcast */
  int64_t seqlen_q, seqlen_k;
  int64_t row_blocks, col_blocks;
  double density;
};

/* Bitmap [heads][row_blocks][col_blocks] in host memory -> lists in host memory, the pure part of
 * fatune_mask_make; heads counts (batch, head) pairs. lists has heads * row_blocks entries; blocks
 * may be NULL to count only. Returns the number of kept blocks. */
int64_t ft_mask_lists(const uint8_t *bitmap, int64_t heads, int64_t row_blocks, int64_t col_blocks,
                      struct ft_mask_list *lists, int32_t *blocks);
/* The same of the columns: heads * col_blocks lists. */
int64_t ft_mask_columns(const uint8_t *bitmap, int64_t heads, int64_t row_blocks,
                        int64_t col_blocks, struct ft_mask_list *lists, int32_t *blocks);

/* What a plan launches, in this order. */
enum ft_step { FT_STEP_PREPARE, FT_STEP_MAIN, FT_STEP_CONVERT };

/* arguments -> device struct and grid, every check of fatune_plan_run done. */
struct ft_launch {
  struct ft_tiled_forward_params tiled; /* mma kernels take `rest` of it alone */
  struct ft_backward_params backward;
  enum ft_pass pass;
  enum ft_family family;
  unsigned grid;
  unsigned tiles_grid; /* of prepare and convert in a backward: tiles of queries */
  /* Words of a tile in the workspace. */
  int64_t sum_of_tile, stats_of_tile, counters_of_tile;
  int head_dim, head_dim_v; /* what params leave open of the tensors */
  enum ft_dtype dtype;
  struct ft_map_cache *maps; /* where tensor maps are looked for and kept; NULL: nowhere */
};
int ft_launch_prepare(struct ft_launch *launch, const struct ft_request *request,
                      const struct ft_config *config, const struct ft_arch *arch,
                      const fatune_arguments *arguments);

/* tensor_maps.c: for families that load by TMA, the maps of a prepared launch; nothing for others.
 * FT_E_ARGUMENT where a tensor lies as TMA cannot take it. */
int ft_launch_map_tensors(struct ft_launch *launch, const struct ft_config *config,
                          const struct ft_driver *driver);

/* Bytes of device memory that the arguments' run needs; 0 in a forward. arguments NULL: those of
 * the request. */
int ft_launch_workspace(const struct ft_request *request, const struct ft_config *config,
                        const struct ft_arch *arch, const fatune_arguments *arguments,
                        size_t *bytes);

/* launch_tensors.c: tells the emulator which memory the next launch, a step of it, may use. */
void ft_launch_describe(const struct ft_launch *launch, enum ft_step step);

/* Enqueues all of it; the context must be current. */
int ft_launch_enqueue(const struct ft_launch *launch, const struct ft_driver *driver,
                      const struct ft_module *module, const struct ft_budget *budget,
                      cu_stream stream);

#endif
