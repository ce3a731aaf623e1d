/* device.c: a GPU as the driver describes it.
 * in -> out: ordinal -> struct ft_device: limits, rates, device class.
 * Attribute numbers are CUdevice_attribute of the CUDA driver API. */
#include "runtime/device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/lua_host.h"
#include "generator/status.h"
#include "runtime/nvml.h"

enum {
  ATTRIBUTE_CLOCK_KHZ = 13,
  ATTRIBUTE_MEMORY_KHZ = 36,
  ATTRIBUTE_BUS_BITS = 37,
  ATTRIBUTE_L2_BYTES = 38,
  ATTRIBUTE_MAJOR = 75,
  ATTRIBUTE_MINOR = 76
};

static int attribute(const struct ft_driver *driver, cu_device device, int which, int *value) {
  return ft_driver_status(driver, driver->device_attribute(value, which, device),
                          "cuDeviceGetAttribute");
}

static int read_limits(struct ft_arch *arch, const struct ft_driver *driver, cu_device device) {
  static const struct {
    int attribute;
    size_t offset;
  } limits[] = {
      {16, offsetof(struct ft_arch, sm_count)},        /* MULTIPROCESSOR_COUNT */
      {97, offsetof(struct ft_arch, smem_per_block)},  /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
      {81, offsetof(struct ft_arch, smem_per_sm)},     /* MAX_SHARED_MEMORY_PER_MULTIPROCESSOR */
      {111, offsetof(struct ft_arch, smem_reserved)},  /* RESERVED_SHARED_MEMORY_PER_BLOCK */
      {82, offsetof(struct ft_arch, regs_per_sm)},     /* MAX_REGISTERS_PER_MULTIPROCESSOR */
      {39, offsetof(struct ft_arch, threads_per_sm)},  /* MAX_THREADS_PER_MULTIPROCESSOR */
      {106, offsetof(struct ft_arch, blocks_per_sm)}}; /* MAX_BLOCKS_PER_MULTIPROCESSOR */
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    int value = 0;
    FT_TRY(attribute(driver, device, limits[i].attribute, &value));
    memcpy((char *)arch + limits[i].offset, &value, sizeof value);
  }
  int major = 0, minor = 0, l2 = 0;
  FT_TRY(attribute(driver, device, ATTRIBUTE_MAJOR, &major));
  FT_TRY(attribute(driver, device, ATTRIBUTE_MINOR, &minor));
  FT_TRY(attribute(driver, device, ATTRIBUTE_L2_BYTES, &l2));
  arch->sm = 10 * major + minor;
  arch->l2_bytes = l2;
  return FT_OK;
}

/* The row of the GPU table that is most like this GPU: the same target first, then the nearest SM
 * count. */
static bool nearest_row(struct ft_lua *lua, const struct ft_arch *arch, struct ft_arch *best) {
  bool found = false;
  long best_distance = 0;
  struct ft_arch row;
  for (int i = 0; ft_lua_gpu_at(lua, i, &row) == FT_OK; i++) {
    const long distance =
        labs((long)row.sm - arch->sm) * 100000 + labs((long)row.sm_count - arch->sm_count);
    if (found && distance >= best_distance) continue;
    *best = row;
    best_distance = distance;
    found = true;
  }
  return found;
}

/* 0 for an attribute that the driver does not know. */
static int rate(const struct ft_driver *driver, cu_device device, int which, int *value) {
  enum { INVALID_VALUE = 1 };
  const int code = driver->device_attribute(value, which, device);
  if (code == INVALID_VALUE) *value = 0;
  return code == INVALID_VALUE ? FT_OK : ft_driver_status(driver, code, "cuDeviceGetAttribute");
}

/* Rates are for the cost model alone; no rule reads them. A rate that the driver does not report is
 * taken from a similar GPU of the table. No driver reports the rate of the tensor cores. */
static int read_rates(struct ft_arch *arch, const struct ft_driver *driver, struct ft_lua *lua,
                      cu_device device) {
  struct ft_arch row;
  if (!lua || !nearest_row(lua, arch, &row))
    row = (struct ft_arch){.clock_ghz = 1.5, .dram_gbs = 1000, .mma_flops_per_clk = 1024};

  int khz = 0, memory_khz = 0, bus_bits = 0;
  FT_TRY(rate(driver, device, ATTRIBUTE_CLOCK_KHZ, &khz));
  FT_TRY(rate(driver, device, ATTRIBUTE_MEMORY_KHZ, &memory_khz));
  FT_TRY(rate(driver, device, ATTRIBUTE_BUS_BITS, &bus_bits));
  arch->clock_ghz = khz > 0 ? khz * 1e-6 : row.clock_ghz;
  arch->dram_gbs = memory_khz > 0 && bus_bits > 0 ? 2.0 * memory_khz * 1e3 * (bus_bits / 8.0) *
                                                        1e-9 /* two transfers a cycle */
                                                  : row.dram_gbs;
  arch->mma_flops_per_clk = row.mma_flops_per_clk;
  return FT_OK;
}

/* The kernel module's version stands in sysfs, which is far quicker to ask than NVML. */
static int read_driver_version(struct ft_device *device, const struct ft_driver *driver) {
  if (driver->emulated) {
    strcpy(device->driver, "emulator");
    return FT_OK;
  }
  FILE *const file = fopen("/sys/module/nvidia/version", "re");
  const bool found = file && fgets(device->driver, (int)sizeof device->driver, file);
  if (file) (void)fclose(file); /* only read */
  device->driver[strcspn(device->driver, "\n")] = '\0';
  if (found && *device->driver) return FT_OK;

  struct ft_nvml *nvml = NULL;
  FT_TRY(ft_nvml_open(&nvml, driver, device->handle));
  const bool known = ft_nvml_driver_version(nvml, device->driver);
  ft_nvml_close(nvml);
  if (known) return FT_OK;

  int version = 0;
  FT_TRY(ft_driver_status(driver, driver->driver_version(&version), "cuDriverGetVersion"));
  snprintf(device->driver, sizeof device->driver, "%d.%d", version / 1000, version % 1000 / 10);
  return FT_OK;
}

int ft_device_read(struct ft_device *device, const struct ft_driver *driver, struct ft_lua *lua,
                   int ordinal) {
  memset(device, 0, sizeof *device);
  device->ordinal = ordinal;
  FT_TRY(ft_driver_status(driver, driver->device_get(&device->handle, ordinal), "cuDeviceGet"));

  struct ft_arch *const arch = &device->arch;
  FT_TRY(ft_driver_status(driver,
                          driver->device_name(arch->name, (int)sizeof arch->name, device->handle),
                          "cuDeviceGetName"));
  arch->name[sizeof arch->name - 1] = '\0';
  FT_TRY(read_limits(arch, driver, device->handle));
  FT_TRY(read_rates(arch, driver, lua, device->handle));
  FT_TRY(read_driver_version(device, driver));

  size_t bytes = 0;
  FT_TRY(
      ft_driver_status(driver, driver->device_memory(&bytes, device->handle), "cuDeviceTotalMem"));
  device->memory_bytes = (int64_t)bytes;
  ft_device_class(arch, device->id);
  return FT_OK;
}

void ft_device_class(const struct ft_arch *arch, char id[96]) {
  char slug[64];
  size_t length = 0;
  for (const char *from = arch->name; *from && length + 1 < sizeof slug; from++) {
    const unsigned char c = (unsigned char)*from;
    if (isalnum(c))
      slug[length++] = (char)tolower(c);
    else if (length > 0 && slug[length - 1] != '-')
      slug[length++] = '-';
  }
  while (length > 0 && slug[length - 1] == '-') length--;
  slug[length] = '\0';

  /* The table says "h200", the driver "NVIDIA H200": both are one class. */
  char target[16];
  ft_arch_target(arch, target);
  snprintf(id, 96, "%s%s/%s/%d", strncmp(slug, "nvidia-", 7) == 0 ? "" : "nvidia-", slug, target,
           arch->sm_count);
}
