/* test_driver.c: the driver table, error mapping, and what is read of a GPU.
 * in -> out: the fake driver -> ft_driver, ft_device; no driver -> a status that says what was
 * tried. */
#include <string.h>

#include "generator/lua_host.h"
#include "generator/status.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/nvml.h"
#include "tests/fake/use_fake.h"
#include "tests/suites.h"

START_TEST(a_missing_library_is_named) {
  struct ft_driver driver;
  setenv("FATUNE_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  ck_assert_status(ft_driver_open(&driver), FT_E_NO_DRIVER);
  ck_assert_detail("/nowhere/libcuda.so.1");
  ck_assert_detail("FATUNE_LIBCUDA");
  ck_assert_ptr_null(driver.library);
}
END_TEST

START_TEST(a_library_without_the_symbols_is_refused) {
  struct ft_driver driver;
  use_fake_nvrtc();
  setenv("FATUNE_LIBCUDA", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  ck_assert_status(ft_driver_open(&driver), FT_E_NO_DRIVER);
  ck_assert_detail("cuInit");
}
END_TEST

START_TEST(a_failing_cuInit_means_no_driver) {
  const struct fake_controls cuda = use_fake_cuda();
  struct ft_driver driver;
  cuda.reset("cuInit:1:100");
  ck_assert_status(ft_driver_open(&driver), FT_E_NO_DRIVER);
  ck_assert_detail("cuInit");
  ck_assert_detail("100");
  ck_assert_status(ft_driver_open(&driver), FT_OK);
  ft_driver_close(&driver);
}
END_TEST

START_TEST(errors_map_to_statuses) {
  use_fake_cuda();
  struct ft_driver driver;
  ck_assert_status(ft_driver_open(&driver), FT_OK);
  static const struct {
    cu_result result;
    int status;
  } cases[] = {
      {0, FT_OK},         {1, FT_E_DEVICE},   {2, FT_E_MEMORY},         {200, FT_E_DEVICE},
      {700, FT_E_DEVICE}, {899, FT_E_DEVICE}, {900, FT_E_NOT_PREPARED}, {906, FT_E_NOT_PREPARED},
      {909, FT_E_DEVICE}, {999, FT_E_DEVICE}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ck_assert_status(ft_driver_status(&driver, cases[i].result, "cuSomething"), cases[i].status);
    if (cases[i].status != FT_OK) ck_assert_detail("cuSomething: CUDA_ERROR");
  }
  ft_driver_close(&driver);
}
END_TEST

START_TEST(an_error_without_a_name_still_has_a_detail) {
  const struct fake_controls cuda = use_fake_cuda();
  struct ft_driver driver;
  ck_assert_status(ft_driver_open(&driver), FT_OK);
  cuda.reset("cuGetErrorName:1:1");
  ck_assert_status(ft_driver_status(&driver, 12345, "cuSomething"), FT_E_DEVICE);
  ck_assert_detail("12345");
  ft_driver_close(&driver);
}
END_TEST

START_TEST(a_gpu_is_read_as_the_driver_tells_it) {
  use_fake_cuda();
  struct ft_driver driver;
  struct ft_lua *lua;
  struct ft_device device;
  ck_assert_status(ft_driver_open(&driver), FT_OK);
  ck_assert_status(ft_lua_open(&lua, NULL), FT_OK);
  ck_assert_status(ft_device_read(&device, &driver, lua, 0), FT_OK);

  ck_assert_str_eq(device.id, "nvidia-h200/sm_90/132");
  ck_assert_str_eq(device.arch.name, "NVIDIA H200");
  ck_assert_int_eq(device.arch.sm, 90);
  ck_assert_int_eq(device.arch.sm_count, 132);
  ck_assert_int_eq(device.arch.smem_per_block, 227 * 1024);
  ck_assert_int_eq(device.arch.smem_per_sm, 228 * 1024);
  ck_assert_int_eq(device.arch.smem_reserved, 1024);
  ck_assert_int_eq(device.arch.regs_per_sm, 65536);
  ck_assert_int_eq(device.arch.threads_per_sm, 2048);
  ck_assert_int_eq(device.arch.blocks_per_sm, 32);
  ck_assert_int_eq(device.arch.l2_bytes, 50 << 20);
  ck_assert_double_eq_tol(device.arch.clock_ghz, 1.98, 1e-9);
  ck_assert_double_eq_tol(device.arch.dram_gbs, 4916.736, 1e-3); /* 2 x 3201 MHz x 768 bytes */
  ck_assert_double_gt(device.arch.mma_flops_per_clk, 0);
  ck_assert_int_eq(device.memory_bytes, (int64_t)139 << 30);
  ck_assert_str_ne(device.driver, "");

  struct ft_arch of_table;
  char id[96];
  ck_assert_status(ft_lua_gpu(lua, "h200", &of_table), FT_OK);
  ft_device_class(&of_table, id);
  ck_assert_str_eq(id, device.id);
  ck_assert_double_eq(device.arch.mma_flops_per_clk, of_table.mma_flops_per_clk);

  ck_assert_status(ft_device_read(&device, &driver, lua, 1), FT_E_DEVICE);
  ck_assert_detail("cuDeviceGet");
  ft_lua_close(lua);
  ft_driver_close(&driver);
}
END_TEST

START_TEST(device_classes_are_plain_words) {
  static const struct {
    const char *name, *id;
  } cases[] = {{"NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3/sm_90/132"},
               {"Tesla T4", "nvidia-tesla-t4/sm_90/132"},
               {"NVIDIA A100-SXM4-40GB", "nvidia-a100-sxm4-40gb/sm_90/132"},
               {"  NVIDIA  RTX (x) ", "nvidia-rtx-x/sm_90/132"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct ft_arch arch = {.sm = 90, .sm_count = 132};
    memcpy(arch.name, cases[i].name, strlen(cases[i].name) + 1);
    char id[96];
    ft_device_class(&arch, id);
    ck_assert_str_eq(id, cases[i].id);
  }
}
END_TEST

START_TEST(nvml_may_be_missing) {
  use_fake_cuda();
  struct ft_driver driver;
  struct ft_nvml *nvml;
  char version[32];
  ck_assert_status(ft_driver_open(&driver), FT_OK);
  ck_assert_status(ft_nvml_open(&nvml, &driver, 0), FT_OK);
  struct ft_nvml *const absent[] = {nvml, NULL};
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(ft_nvml_sm_clock(absent[i]), 0);
    ck_assert_int_eq(ft_nvml_memory_clock(absent[i]), 0);
    ck_assert_int_eq(ft_nvml_power(absent[i]), 0);
    ck_assert(!ft_nvml_driver_version(absent[i], version));
    ft_nvml_close(absent[i]);
  }
  ft_driver_close(&driver);
}
END_TEST

Suite *make_driver_suite(void) {
  Suite *const suite = suite_create("driver");
  TCase *const tests = tcase_create("driver");
  tcase_add_test(tests, a_missing_library_is_named);
  tcase_add_test(tests, a_library_without_the_symbols_is_refused);
  tcase_add_test(tests, a_failing_cuInit_means_no_driver);
  tcase_add_test(tests, errors_map_to_statuses);
  tcase_add_test(tests, an_error_without_a_name_still_has_a_detail);
  tcase_add_test(tests, a_gpu_is_read_as_the_driver_tells_it);
  tcase_add_test(tests, device_classes_are_plain_words);
  tcase_add_test(tests, nvml_may_be_missing);
  suite_add_tcase(suite, tests);
  return suite;
}
