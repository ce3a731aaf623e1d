/* nvml.c: NVML, opened at run time: clocks, power, the driver's version.
 * in -> out: libnvidia-ml.so.1 + a CUDA device -> numbers; 0 wherever one is not to be had. */
#include "runtime/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/driver.h"

enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2 };

typedef struct nvmlDevice_st *nvml_device;

/* ML(member, exported symbol, arguments); every function gives 0 for success. */
#define NVML_FUNCTIONS(ML)                                                                         \
  ML(init, "nvmlInit_v2", (void))                                                                  \
  ML(shutdown, "nvmlShutdown", (void))                                                             \
  ML(driver_version, "nvmlSystemGetDriverVersion", (char *version, unsigned length))               \
  ML(by_uuid, "nvmlDeviceGetHandleByUUID", (const char *uuid, nvml_device *device))                \
  ML(clock, "nvmlDeviceGetClockInfo", (nvml_device device, int type, unsigned *mhz))               \
  ML(power, "nvmlDeviceGetPowerUsage", (nvml_device device, unsigned *milliwatts))

struct ft_nvml {
  void *library; /* NULL: there is no NVML, or it did not start */
  nvml_device device;
#define ML(member, symbol, arguments) int(*member) arguments;
  NVML_FUNCTIONS(ML)
#undef ML
};

static bool load_symbols(struct ft_nvml *nvml) {
  static const struct {
    const char *name;
    size_t offset;
  } symbols[] = {
#define ML(member, symbol, arguments) {symbol, offsetof(struct ft_nvml, member)},
      NVML_FUNCTIONS(ML)
#undef ML
  };
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *const address = dlsym(nvml->library, symbols[i].name);
    if (!address) return false;
    memcpy((char *)nvml + symbols[i].offset, &address, sizeof address);
  }
  return true;
}

/* NVML numbers GPUs in its own order, so the CUDA device is found by its UUID; a MIG slice has its
 * own. */
static bool find_device(struct ft_nvml *nvml, const struct ft_driver *driver, cu_device device) {
  unsigned char id[16];
  if (driver->device_uuid(id, device)) return false;
  char hex[40];
  snprintf(hex, sizeof hex, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
           id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9], id[10], id[11],
           id[12], id[13], id[14], id[15]);

  static const char *const kinds[] = {"GPU", "MIG"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    char name[48];
    snprintf(name, sizeof name, "%s-%s", kinds[i], hex);
    if (nvml->by_uuid(name, &nvml->device) == 0) return true;
  }
  return false;
}

int ft_nvml_open(struct ft_nvml **out, const struct ft_driver *driver, cu_device device) {
  *out = NULL;
  struct ft_nvml *const nvml = calloc(1, sizeof *nvml);
  if (!nvml) return ft_fail(FT_E_MEMORY, "no memory for NVML");
  *out = nvml;

  const char *const chosen = secure_getenv("FATUNE_LIBNVML");
  nvml->library = dlopen(chosen && *chosen ? chosen : "libnvidia-ml.so.1",
                         RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!nvml->library) return FT_OK;
  if (!load_symbols(nvml) || nvml->init()) {
    dlclose(nvml->library);
    nvml->library = NULL;
    return FT_OK;
  }
  if (!find_device(nvml, driver, device)) nvml->device = NULL;
  return FT_OK;
}

void ft_nvml_close(struct ft_nvml *nvml) {
  if (!nvml) return;
  if (nvml->library) {
    nvml->shutdown();
    dlclose(nvml->library);
  }
  free(nvml);
}

bool ft_nvml_driver_version(struct ft_nvml *nvml, char version[32]) {
  return nvml && nvml->library && nvml->driver_version(version, 32) == 0;
}

static int clock_of(struct ft_nvml *nvml, int type) {
  unsigned mhz = 0;
  if (!nvml || !nvml->device || nvml->clock(nvml->device, type, &mhz)) return 0;
  return (int)mhz;
}

int ft_nvml_sm_clock(struct ft_nvml *nvml) {
  return clock_of(nvml, NVML_CLOCK_SM);
}

int ft_nvml_memory_clock(struct ft_nvml *nvml) {
  return clock_of(nvml, NVML_CLOCK_MEMORY);
}

int ft_nvml_power(struct ft_nvml *nvml) {
  unsigned milliwatts = 0;
  if (!nvml || !nvml->device || nvml->power(nvml->device, &milliwatts)) return 0;
  return (int)((milliwatts + 500) / 1000);
}
