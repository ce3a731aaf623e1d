/* driver.h: the CUDA driver, opened at run time; no CUDA header is needed.
 * in -> out: libcuda.so.1 -> a table of function pointers; CUresult -> status. The library works
 * without a driver; functions that need one return FT_E_NO_DRIVER. */
#ifndef RUNTIME_DRIVER_H
#define RUNTIME_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int cu_result;       /* CUresult */
typedef int cu_device;       /* CUdevice */
typedef uint64_t cu_address; /* CUdeviceptr */
typedef struct CUctx_st *cu_context;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUgraph_st *cu_graph;
typedef struct CUgraphExec_st *cu_graph_exec;

/* CUlaunchAttribute, CUlaunchConfig. */
struct cu_launch_attribute {
  int id, padding;
  union {
    int value;
    unsigned cluster[3];
    char room[64];
  };
};

struct cu_launch_config {
  unsigned grid[3], block[3], smem;
  cu_stream stream;
  struct cu_launch_attribute *attributes;
  unsigned count;
};

/* CU(member, exported symbol, arguments): every driver function used, in one list. */
#define FT_DRIVER_FUNCTIONS(CU)                                                                    \
  CU(init, "cuInit", (unsigned flags))                                                             \
  CU(driver_version, "cuDriverGetVersion", (int *version))                                         \
  CU(error_name, "cuGetErrorName", (cu_result error, const char **name))                           \
  CU(error_string, "cuGetErrorString", (cu_result error, const char **text))                       \
  CU(device_count, "cuDeviceGetCount", (int *count))                                               \
  CU(device_get, "cuDeviceGet", (cu_device * device, int ordinal))                                 \
  CU(device_name, "cuDeviceGetName", (char *name, int length, cu_device device))                   \
  CU(device_uuid, "cuDeviceGetUuid_v2", (unsigned char uuid[16], cu_device device))                \
  CU(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, cu_device device))      \
  CU(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, cu_device device))                     \
  CU(primary_retain, "cuDevicePrimaryCtxRetain", (cu_context * context, cu_device device))         \
  CU(primary_release, "cuDevicePrimaryCtxRelease_v2", (cu_device device))                          \
  CU(context_current, "cuCtxGetCurrent", (cu_context * context))                                   \
  CU(context_push, "cuCtxPushCurrent_v2", (cu_context context))                                    \
  CU(context_pop, "cuCtxPopCurrent_v2", (cu_context * context))                                    \
  CU(context_device, "cuCtxGetDevice", (cu_device * device))                                       \
  CU(context_synchronize, "cuCtxSynchronize", (void))                                              \
  CU(module_load, "cuModuleLoadData", (cu_module * module, const void *image))                     \
  CU(module_unload, "cuModuleUnload", (cu_module module))                                          \
  CU(module_function, "cuModuleGetFunction",                                                       \
     (cu_function * function, cu_module module, const char *name))                                 \
  CU(function_attribute, "cuFuncGetAttribute", (int *value, int attribute, cu_function function))  \
  CU(function_set, "cuFuncSetAttribute", (cu_function function, int attribute, int value))         \
  CU(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                                     \
     (int *blocks, cu_function function, int block_size, size_t smem))                             \
  CU(launch, "cuLaunchKernel",                                                                     \
     (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,   \
      unsigned block_y, unsigned block_z, unsigned smem, cu_stream stream, void **params,          \
      void **extra))                                                                               \
  CU(launch_with, "cuLaunchKernelEx",                                                              \
     (const struct cu_launch_config *config, cu_function function, void **params, void **extra))   \
  CU(memory_info, "cuMemGetInfo_v2", (size_t * available, size_t * total))                         \
  CU(memory_alloc, "cuMemAlloc_v2", (cu_address * address, size_t bytes))                          \
  CU(memory_free, "cuMemFree_v2", (cu_address address))                                            \
  CU(pointer_attribute, "cuPointerGetAttribute", (void *value, int attribute, cu_address address)) \
  CU(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                       \
     (cu_address to, const void *from, size_t bytes, cu_stream stream))                            \
  CU(copy_to_host, "cuMemcpyDtoHAsync_v2",                                                         \
     (void *to, cu_address from, size_t bytes, cu_stream stream))                                  \
  CU(set_bytes, "cuMemsetD8Async",                                                                 \
     (cu_address to, unsigned char value, size_t count, cu_stream stream))                         \
  CU(set_words, "cuMemsetD32Async",                                                                \
     (cu_address to, unsigned value, size_t count, cu_stream stream))                              \
  CU(stream_create, "cuStreamCreate", (cu_stream * stream, unsigned flags))                        \
  CU(stream_destroy, "cuStreamDestroy_v2", (cu_stream stream))                                     \
  CU(stream_synchronize, "cuStreamSynchronize", (cu_stream stream))                                \
  CU(stream_capturing, "cuStreamIsCapturing", (cu_stream stream, int *status))                     \
  CU(capture_begin, "cuStreamBeginCapture_v2", (cu_stream stream, int mode))                       \
  CU(capture_end, "cuStreamEndCapture", (cu_stream stream, cu_graph * graph))                      \
  CU(graph_instantiate, "cuGraphInstantiateWithFlags",                                             \
     (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))                             \
  CU(graph_launch, "cuGraphLaunch", (cu_graph_exec exec, cu_stream stream))                        \
  CU(graph_exec_destroy, "cuGraphExecDestroy", (cu_graph_exec exec))                               \
  CU(graph_destroy, "cuGraphDestroy", (cu_graph graph))                                            \
  CU(event_create, "cuEventCreate", (cu_event * event, unsigned flags))                            \
  CU(event_destroy, "cuEventDestroy_v2", (cu_event event))                                         \
  CU(event_record, "cuEventRecord", (cu_event event, cu_stream stream))                            \
  CU(event_query, "cuEventQuery", (cu_event event))                                                \
  CU(event_synchronize, "cuEventSynchronize", (cu_event event))                                    \
  CU(event_elapsed, "cuEventElapsedTime", (float *milliseconds, cu_event start, cu_event end))     \
  CU(tensor_map_encode, "cuTensorMapEncodeTiled",                                                  \
     (void *opaque, int type, unsigned rank, void *address, const uint64_t *extents,               \
      const uint64_t *strides, const unsigned *box, const unsigned *element_strides,               \
      int interleave, int swizzle, int l2_promotion, int fill))

struct ft_driver {
  void *library;       /* NULL for the emulator */
  bool launches_early; /* launch_with may ask for programmatic stream serialization */
  bool emulated;       /* runtime/emulator/driver.h filled the table */
#define CU(member, symbol, arguments) cu_result(*member) arguments;
  FT_DRIVER_FUNCTIONS(CU)
#undef CU
};

/* Opens libcuda.so.1 (or FATUNE_LIBCUDA) and calls cuInit; FT_E_NO_DRIVER says what was tried. */
int ft_driver_open(struct ft_driver *driver);
void ft_driver_close(struct ft_driver *driver);

/* FT_OK for 0, else FT_E_DEVICE with the call, the name and the text of the error. Out of memory is
 * FT_E_MEMORY, and what a stream capture forbids is FT_E_NOT_PREPARED. */
int ft_driver_status(const struct ft_driver *driver, cu_result result, const char *call);

/* Whether the stream is being captured. A stream that cannot say so counts as captured. */
bool ft_driver_is_capturing(const struct ft_driver *driver, cu_stream stream);

/* Copies from the device to host memory, or the other way, and waits; of 0 bytes nothing. The
 * context is current. */
int ft_driver_fetch(const struct ft_driver *driver, void *to, cu_address from, size_t bytes,
                    cu_stream stream);
int ft_driver_send(const struct ft_driver *driver, cu_address to, const void *from, size_t bytes,
                   cu_stream stream);

#endif
