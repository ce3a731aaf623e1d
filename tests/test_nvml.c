/* test_nvml.c: clocks, power, the driver's version, as NVML tells them.
 * in -> out: the fake NVML, one of its calls failing -> numbers, 0 for what cannot be had. */
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/nvml.h"
#include "tests/fake/use_fake.h"
#include "tests/suites.h"

struct readings {
  int sm_clock, memory_clock, power;
  char version[32];
};

static const struct readings all = {1980, 2619, 413, "580.65.06"};

static struct ft_driver driver;
static struct fake_controls nvml_fake;

static void set_up(void) {
  use_fake_cuda();
  setenv("FATUNE_LIBNVML", FATUNE_FAKE_DIR "/libfake_nvml.so", 1);
  nvml_fake = open_fake(FATUNE_FAKE_DIR "/libfake_nvml.so");
  *(void **)&nvml_fake.reset = fake_symbol(nvml_fake.library, "fake_nvml_reset");
  *(void **)&nvml_fake.calls = fake_symbol(nvml_fake.library, "fake_nvml_calls");
  *(void **)&nvml_fake.live = fake_symbol(nvml_fake.library, "fake_nvml_live");
  nvml_fake.reset(NULL);
  ck_assert_status(ft_driver_open(&driver), FT_OK);
}

static void tear_down(void) {
  ft_driver_close(&driver);
}

static void assert_read(cu_device device, const struct readings *wanted) {
  struct ft_nvml *nvml;
  char version[32] = "";
  ck_assert_status(ft_nvml_open(&nvml, &driver, device), FT_OK);
  ck_assert_int_eq(ft_nvml_sm_clock(nvml), wanted->sm_clock);
  ck_assert_int_eq(ft_nvml_memory_clock(nvml), wanted->memory_clock);
  ck_assert_int_eq(ft_nvml_power(nvml), wanted->power);
  ck_assert_int_eq(ft_nvml_driver_version(nvml, version), wanted->version[0] != '\0');
  ck_assert_str_eq(version, wanted->version);
  ft_nvml_close(nvml);
  ck_assert_int_eq(nvml_fake.live(), 0);
}

START_TEST(a_gpu_is_found_by_its_uuid) {
  assert_read(0, &all);
  setenv("FATUNE_FAKE_MIG", "1", 1);
  assert_read(0, &all);
}
END_TEST

/* Of another GPU nothing is said; the driver's version is of no GPU. */
START_TEST(numbers_are_of_that_gpu_alone) {
  assert_read(1, &(struct readings){.version = "580.65.06"});
  ck_assert_int_eq(nvml_fake.calls("nvmlDeviceGetHandleByUUID"), 2); /* as a GPU, as a slice */
  ck_assert_int_eq(nvml_fake.calls("nvmlDeviceGetClockInfo"), 0);
}
END_TEST

START_TEST(what_fails_is_unknown) {
  static const struct {
    const char *failure;
    struct readings left;
  } cases[] = {
      {"nvmlInit_v2:1:9", {0}},
      {"nvmlDeviceGetHandleByUUID:1:15:ever", {.version = "580.65.06"}},
      {"nvmlSystemGetDriverVersion:1:999", {1980, 2619, 413, ""}},
      {"nvmlDeviceGetClockInfo:1:15", {0, 2619, 413, "580.65.06"}},
      {"nvmlDeviceGetClockInfo:2:15", {1980, 0, 413, "580.65.06"}},
      {"nvmlDeviceGetPowerUsage:1:3", {1980, 2619, 0, "580.65.06"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    nvml_fake.reset(cases[i].failure);
    assert_read(0, &cases[i].left);
  }
}
END_TEST

START_TEST(a_driver_without_uuids_names_no_gpu) {
  const struct fake_controls cuda = use_fake_cuda();
  setenv("FATUNE_LIBNVML", FATUNE_FAKE_DIR "/libfake_nvml.so", 1);
  cuda.reset("cuDeviceGetUuid_v2:1:1");
  assert_read(0, &(struct readings){.version = "580.65.06"});
}
END_TEST

START_TEST(a_library_that_is_none_tells_nothing) {
  setenv("FATUNE_LIBNVML", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  assert_read(0, &(struct readings){0});
  setenv("FATUNE_LIBNVML", "/nowhere/libnvidia-ml.so.1", 1);
  assert_read(0, &(struct readings){0});
}
END_TEST

Suite *make_nvml_suite(void) {
  Suite *const suite = suite_create("nvml");
  TCase *const tests = tcase_create("nvml");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, a_gpu_is_found_by_its_uuid);
  tcase_add_test(tests, numbers_are_of_that_gpu_alone);
  tcase_add_test(tests, what_fails_is_unknown);
  tcase_add_test(tests, a_driver_without_uuids_names_no_gpu);
  tcase_add_test(tests, a_library_that_is_none_tells_nothing);
  suite_add_tcase(suite, tests);
  return suite;
}
