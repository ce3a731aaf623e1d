/* driver.c: the CUDA driver, opened at run time.
 * in -> out: libcuda.so.1 -> struct ft_driver; CUresult -> ft_status with the driver's own words.
 */
#include "runtime/driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"

enum {
  CU_OUT_OF_MEMORY = 2,
  CU_EARLY_LAUNCHES = 12030, /* the first version that captures early launches into graphs */
  CU_CAPTURE_FIRST = 900,    /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
  CU_CAPTURE_LAST = 908      /* CUDA_ERROR_CAPTURED_EVENT, the last about captures */
};

struct symbol {
  const char *name;
  size_t offset; /* of the pointer in struct ft_driver */
};

static const struct symbol symbols[] = {
#define CU(member, symbol, arguments) {symbol, offsetof(struct ft_driver, member)},
    FT_DRIVER_FUNCTIONS(CU)
#undef CU
};

static int look_at_version(struct ft_driver *driver) {
  int version = 0;
  FT_TRY(ft_driver_status(driver, driver->driver_version(&version), "cuDriverGetVersion"));
  driver->launches_early = version >= CU_EARLY_LAUNCHES;
  return FT_OK;
}

static int load_symbols(struct ft_driver *driver, const char *file) {
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *const address = dlsym(driver->library, symbols[i].name);
    if (!address)
      return ft_fail(FT_E_NO_DRIVER, "%s lacks %s: a driver for CUDA 12.0 or later is needed", file,
                     symbols[i].name);
    memcpy((char *)driver + symbols[i].offset, &address, sizeof address);
  }
  return FT_OK;
}

int ft_driver_open(struct ft_driver *driver) {
  memset(driver, 0, sizeof *driver);
  const char *const chosen = secure_getenv("FATUNE_LIBCUDA");
  const char *const file = chosen && *chosen ? chosen : "libcuda.so.1";

  /* NODELETE: the driver starts threads and exit handlers of its own; unmapping it under them ends
   * in a crash at exit. */
  driver->library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!driver->library)
    return ft_fail(FT_E_NO_DRIVER, "no CUDA driver: %s%s", dlerror(),
                   chosen && *chosen ? " (from FATUNE_LIBCUDA)" : "; FATUNE_LIBCUDA may name it");

  int status = load_symbols(driver, file);
  if (status == FT_OK) {
    const cu_result result = driver->init(0);
    if (result) {
      status = ft_driver_status(driver, result, "cuInit");
      if (status != FT_E_MEMORY) status = FT_E_NO_DRIVER;
    }
  }
  if (status == FT_OK) status = look_at_version(driver);
  if (status != FT_OK) ft_driver_close(driver);
  return status;
}

void ft_driver_close(struct ft_driver *driver) {
  if (driver->library) dlclose(driver->library);
  memset(driver, 0, sizeof *driver);
}

int ft_driver_status(const struct ft_driver *driver, cu_result result, const char *call) {
  if (!result) return FT_OK;
  const char *name = NULL, *text = NULL;
  if (driver->error_name(result, &name) || !name) name = "unknown error";
  if (driver->error_string(result, &text) || !text) text = "no description";

  int status = FT_E_DEVICE;
  if (result == CU_OUT_OF_MEMORY) status = FT_E_MEMORY;
  if (result >= CU_CAPTURE_FIRST && result <= CU_CAPTURE_LAST) status = FT_E_NOT_PREPARED;
  return ft_fail(status, "%s: %s (%d): %s", call, name, result, text);
}

bool ft_driver_is_capturing(const struct ft_driver *driver, cu_stream stream) {
  int capturing = 0;
  return driver->stream_capturing(stream, &capturing) != 0 || capturing != 0;
}

int ft_driver_fetch(const struct ft_driver *driver, void *to, cu_address from, size_t bytes,
                    cu_stream stream) {
  if (bytes == 0) return FT_OK;
  FT_TRY(
      ft_driver_status(driver, driver->copy_to_host(to, from, bytes, stream), "cuMemcpyDtoHAsync"));
  return ft_driver_status(driver, driver->stream_synchronize(stream), "cuStreamSynchronize");
}

int ft_driver_send(const struct ft_driver *driver, cu_address to, const void *from, size_t bytes,
                   cu_stream stream) {
  if (bytes == 0) return FT_OK;
  FT_TRY(ft_driver_status(driver, driver->copy_to_device(to, from, bytes, stream),
                          "cuMemcpyHtoDAsync"));
  return ft_driver_status(driver, driver->stream_synchronize(stream), "cuStreamSynchronize");
}
