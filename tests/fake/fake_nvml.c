/* fake_nvml.c: an NVML of one GPU, for tests.
 * in -> out: the UUID that the fake driver gives its first GPU -> fixed numbers; or the failure a
 * test asked for. FATUNE_FAKE_MIG: the GPU is a slice of one. */
#include "tests/fake/fake.h"
#include "tests/fake/fake_core.h"

#define EXPORT __attribute__((visibility("default")))
#define DEFINE(symbol, arguments)                                                                  \
  EXPORT int symbol arguments;                                                                     \
  int symbol arguments

enum { NOT_FOUND = 6, SM = 1, MEMORY = 2 };

struct device;

EXPORT fake_reset_function fake_nvml_reset;
EXPORT fake_calls_function fake_nvml_calls;
EXPORT fake_live_function fake_nvml_live;

void fake_nvml_reset(const char *failure) {
  fake_start_over(failure);
}

int fake_nvml_calls(const char *symbol) {
  return fake_count(symbol);
}

int fake_nvml_live(void) {
  return fake.live;
}

DEFINE(nvmlInit_v2, (void)) {
  FAKE_CALL("nvmlInit_v2");
  fake_count_live(1);
  return 0;
}

DEFINE(nvmlShutdown, (void)) {
  fake_count_live(-1);
  return 0;
}

DEFINE(nvmlSystemGetDriverVersion, (char *version, unsigned length)) {
  FAKE_CALL("nvmlSystemGetDriverVersion");
  snprintf(version, length, "580.65.06");
  return 0;
}

DEFINE(nvmlDeviceGetHandleByUUID, (const char *uuid, struct device **device)) {
  FAKE_CALL("nvmlDeviceGetHandleByUUID");
  const char *const known = getenv("FATUNE_FAKE_MIG") ? "MIG-00000000-0000-0000-0000-000000000000"
                                                      : "GPU-00000000-0000-0000-0000-000000000000";
  *device = strcmp(uuid, known) == 0 ? (struct device *)&fake : NULL;
  return *device ? 0 : NOT_FOUND;
}

DEFINE(nvmlDeviceGetClockInfo, (struct device * device, int type, unsigned *mhz)) {
  FAKE_CALL("nvmlDeviceGetClockInfo");
  if (device != (struct device *)&fake || (type != SM && type != MEMORY)) abort();
  *mhz = type == SM ? 1980 : 2619;
  return 0;
}

DEFINE(nvmlDeviceGetPowerUsage, (struct device * device, unsigned *milliwatts)) {
  FAKE_CALL("nvmlDeviceGetPowerUsage");
  if (device != (struct device *)&fake) abort();
  *milliwatts = 412500;
  return 0;
}
