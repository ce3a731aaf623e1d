/* test_emulator_driver.c: the emulated GPU as a driver, and sessions on it.
 * in -> out: driver calls -> what they do and refuse; options -> an emulated session, its plans,
 * its errors. What kernels compute on it is for other suites. */
#include <string.h>

#include "generator/lua_host.h"
#include "generator/status.h"
#include "runtime/device.h"
#include "runtime/session.h"
#include "tests/driver_lab.h"
#include "tests/emulator_kernel.h"
#include "tests/suites.h"

/* ---- the GPU ---- */

START_TEST(every_function_is_there) {
#define CU(member, symbol, arguments) ck_assert_msg(driver.member != NULL, symbol);
  FT_DRIVER_FUNCTIONS(CU)
#undef CU
  ck_assert(driver.emulated);
  ck_assert_ptr_null(driver.library);
}
END_TEST

START_TEST(attributes_are_the_tables) {
  static const char *const names[] = {"t4", "a100", "rtx4090", "h200", "b200"};
  struct ft_lua *lua;
  ck_assert_status(ft_lua_open(&lua, NULL), FT_OK);
  for (int i = 0; i < 5; i++) {
    const struct ft_arch arch = known_gpu(names[i]);
    struct ft_device device;
    char class[96];
    ck_assert_status(ft_emulator_open(&driver, &arch, &ordinal), FT_OK);
    ck_assert_status(ft_device_read(&device, &driver, lua, ordinal), FT_OK);
    ck_assert_str_eq(device.arch.name, arch.name);
    ck_assert_int_eq(device.arch.sm, arch.sm);
    ck_assert_int_eq(device.arch.sm_count, arch.sm_count);
    ck_assert_int_eq(device.arch.smem_per_block, arch.smem_per_block);
    ck_assert_int_eq(device.arch.smem_per_sm, arch.smem_per_sm);
    ck_assert_int_eq(device.arch.smem_reserved, arch.smem_reserved);
    ck_assert_int_eq(device.arch.regs_per_sm, arch.regs_per_sm);
    ck_assert_int_eq(device.arch.threads_per_sm, arch.threads_per_sm);
    ck_assert_int_eq(device.arch.blocks_per_sm, arch.blocks_per_sm);
    ck_assert_int_eq(device.arch.l2_bytes, arch.l2_bytes);
    ck_assert_double_eq_tol(device.arch.clock_ghz, arch.clock_ghz, 1e-5);
    ck_assert_double_eq_tol(device.arch.dram_gbs, arch.dram_gbs, 0.01);
    ck_assert_str_eq(device.driver, "emulator");
    ck_assert_int_gt(device.memory_bytes, 0);
    ft_device_class(&arch, class);
    ck_assert_str_eq(device.id, class);
  }
  ft_lua_close(lua);
}
END_TEST

START_TEST(one_gpu_has_one_number) {
  struct ft_arch other = a100;
  int again, count;
  ck_assert_status(ft_emulator_open(&driver, &a100, &again), FT_OK);
  ck_assert_int_eq(again, ordinal);
  other.smem_per_block -= 1024;
  ck_assert_status(ft_emulator_open(&driver, &other, &again), FT_OK);
  ck_assert_int_ne(again, ordinal);
  ck_assert_int_eq(driver.device_count(&count), 0);
  ck_assert_int_eq(count, 2);
  for (int i = 2; i < 64; i++) {
    other.sm_count++;
    ck_assert_status(ft_emulator_open(&driver, &other, &again), FT_OK);
  }
  other.sm_count++;
  ck_assert_status(ft_emulator_open(&driver, &other, &again), FT_E_UNSUPPORTED);
  ck_assert_detail("64 GPUs");
  ck_assert_status(ft_emulator_open(&driver, &a100, &again), FT_OK);
  cu_device device;
  ck_assert_refused(driver.device_get(&device, 64), 101, "no such GPU");
}
END_TEST

/* Two GPUs that differ in one figure are two. */
START_TEST(any_other_figure_makes_another_gpu) {
  int again, number = ordinal;
  for (int figure = 0; figure < 11; figure++) {
    struct ft_arch other = a100;
    if (figure == 0) other.sm++;
    if (figure == 1) other.sm_count++;
    if (figure == 2) other.smem_per_block++;
    if (figure == 3) other.smem_per_sm++;
    if (figure == 4) other.smem_reserved++;
    if (figure == 5) other.regs_per_sm++;
    if (figure == 6) other.threads_per_sm++;
    if (figure == 7) other.blocks_per_sm++;
    if (figure == 8) other.l2_bytes++;
    if (figure == 9) other.clock_ghz += 1;
    if (figure == 10) other.dram_gbs += 1;
    ck_assert_status(ft_emulator_open(&driver, &other, &again), FT_OK);
    ck_assert_int_eq(again, ++number);
  }
}
END_TEST

START_TEST(another_gpu_than_there_are_is_refused) {
  enum { NONE = 1, NO_SUCH = 101 };
  static const int wrong[] = {-1, NONE, 64};
  int value;
  size_t bytes;
  char name[32];
  unsigned char uuid[16];
  cu_device device;
  cu_context context;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_refused(driver.device_get(&device, wrong[i]), NO_SUCH, "no such GPU");
    ck_assert_refused(driver.device_name(name, 32, wrong[i]), NO_SUCH, "no such GPU");
    ck_assert_refused(driver.device_uuid(uuid, wrong[i]), NO_SUCH, "no such GPU");
    ck_assert_refused(driver.device_attribute(&value, 16, wrong[i]), NO_SUCH, "no such GPU");
    ck_assert_refused(driver.device_memory(&bytes, wrong[i]), NO_SUCH, "no such GPU");
    ck_assert_refused(driver.primary_retain(&context, wrong[i]), NO_SUCH, "no such GPU");
    ck_assert_refused(driver.primary_release(wrong[i]), NO_SUCH, "no such GPU");
  }
  ck_assert_refused(driver.device_attribute(&value, 3, ordinal), 1, "attribute 3 is not emulated");
  ck_assert_int_eq(driver.init(1), 1);
  ck_assert_int_eq(driver.init(0), 0);
  ck_assert_int_eq(driver.context_push(NULL), 201);
}
END_TEST

START_TEST(events_are_refused_that_are_none) {
  ck_assert_int_eq(driver.event_record(NULL, NULL), 1);
  ck_assert_int_eq(driver.event_query(NULL), 1);
  ck_assert_int_eq(driver.event_synchronize(NULL), 1);
  cu_event event;
  ck_assert_int_eq(driver.event_create(&event, 0), 0);
  ck_assert_int_eq(driver.event_record(event, NULL), 0);
  ck_assert_int_eq(driver.event_query(event), 0);
  ck_assert_int_eq(driver.event_synchronize(event), 0);
  ck_assert_int_eq(driver.event_destroy(event), 0);
}
END_TEST

START_TEST(nothing_is_copied_where_there_is_nothing) {
  char byte = 0;
  ck_assert_int_eq(driver.copy_to_device(0, &byte, 0, NULL), 0);
  ck_assert_int_eq(driver.copy_to_host(&byte, 0, 0, NULL), 0);
  ck_assert_int_eq(driver.set_bytes(0, 1, 0, NULL), 0);
  ck_assert_int_eq(driver.set_words(0, 1, 0, NULL), 0);
  ck_assert_int_eq(driver.set_words((cu_address)(uintptr_t)&byte | 1, 1, 1, NULL), 1);
  ck_assert_int_eq(driver.set_words(0, 1, SIZE_MAX / 2, NULL), 1);
}
END_TEST

/* What a GPU may take and no kernel of ours asks for. */
START_TEST(launches_of_other_shapes_are_refused) {
  static const struct {
    unsigned grid[3], block[3], smem;
    const char *words;
  } wrong[] = {{{0, 1, 1}, {32, 1, 1}, 0, "the grid is 0 x 1 x 1"},
               {{1u << 31, 1, 1}, {32, 1, 1}, 0, "the grid is 2147483648"},
               {{1, 2, 1}, {32, 1, 1}, 0, "the grid is 1 x 2 x 1"},
               {{1, 1, 2}, {32, 1, 1}, 0, "the grid is 1 x 1 x 2"},
               {{1, 1, 1}, {0, 1, 1}, 0, "the block is 0 x 1 x 1"},
               {{1, 1, 1}, {2048, 1, 1}, 0, "the block is 2048"},
               {{1, 1, 1}, {33, 1, 1}, 0, "the block is 33"},
               {{1, 1, 1}, {32, 2, 1}, 0, "the block is 32 x 2 x 1"},
               {{1, 1, 1}, {32, 1, 2}, 0, "the block is 32 x 1 x 2"},
               {{1, 1, 1}, {32, 1, 1}, 1u << 20, "1048576 bytes of shared memory"}};
  enum { INVALID = 1 };
  struct small_kernel kernel;
  unsigned words[2] = {0, 0}, *both[2] = {words, words + 1};
  void *parameters[1] = {both}, *none[1] = {NULL};
  small_kernel_open(&kernel, "a100", FT_BF16, "if (lane == 0) out[0] = 7;");
  driver = kernel.session->driver;
  const cu_function function = kernel.module.main;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ck_assert_refused(driver.launch(function, wrong[i].grid[0], wrong[i].grid[1], wrong[i].grid[2],
                                    wrong[i].block[0], wrong[i].block[1], wrong[i].block[2],
                                    wrong[i].smem, NULL, parameters, NULL),
                      INVALID, wrong[i].words);
  ck_assert_int_eq(driver.launch(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL), INVALID);
  ck_assert_int_eq(driver.launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), INVALID);
  ck_assert_int_eq(driver.launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, none, NULL), INVALID);
  ck_assert_int_eq(driver.launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, parameters),
                   INVALID);
  ck_assert_int_eq(words[1], 0);
  small_kernel_close(&kernel);
}
END_TEST

/* ---- memory ---- */

START_TEST(bytes_go_to_and_fro) {
  unsigned char there[5000], back[5000];
  cu_address memory;
  for (size_t i = 0; i < sizeof there; i++) there[i] = (unsigned char)random_bits();
  ck_assert_int_eq(driver.memory_alloc(&memory, sizeof there), 0);
  ck_assert_int_eq((int)(memory % 256), 0);
  ck_assert_int_eq(driver.copy_to_device(memory, there, sizeof there, NULL), 0);
  ck_assert_int_eq(driver.copy_to_host(back, memory, sizeof back, NULL), 0);
  ck_assert_mem_eq(there, back, sizeof there);
  const size_t begin = (size_t)random_int(0, 1000) * 4;
  ck_assert_int_eq(driver.set_bytes(memory + begin, 0x5A, 37, NULL), 0);
  ck_assert_int_eq(driver.set_words(memory + begin + 40, 0x01020304, 9, NULL), 0);
  memset(there + begin, 0x5A, 37);
  for (size_t i = 0; i < 9; i++) memcpy(there + begin + 40 + 4 * i, &(int){0x01020304}, 4);
  ck_assert_int_eq(driver.copy_to_host(back, memory, sizeof back, NULL), 0);
  ck_assert_mem_eq(there, back, sizeof there);
  int type = 0;
  ck_assert_int_eq(driver.pointer_attribute(&type, 2, memory + 7), 0);
  ck_assert_int_eq(type, 2);
  ck_assert_int_ne(driver.pointer_attribute(&type, 2, (uintptr_t)there), 0);

  /* The process's own memory is as good. */
  unsigned words[4] = {1, 2, 3, 4};
  ck_assert_int_eq(driver.copy_to_device((uintptr_t)back, there, sizeof back, NULL), 0);
  ck_assert_mem_eq(there, back, sizeof there);
  ck_assert_int_eq(driver.set_words((uintptr_t)words, 7, 3, NULL), 0);
  ck_assert_uint_eq(words[2], 7);
  ck_assert_uint_eq(words[3], 4);
  ck_assert_int_eq(driver.memory_free(memory), 0);
}
END_TEST

START_TEST(misuse_of_memory_is_refused) {
  char host[64] = {0};
  cu_address memory;
  ck_assert_refused(driver.memory_alloc(&memory, 0), 1, "0 bytes");
  ck_assert_refused(driver.memory_alloc(&memory, (size_t)1 << 60), 2, "out of memory");
  ck_assert_int_eq(driver.memory_alloc(&memory, 100), 0);
  ck_assert_refused(driver.copy_to_device(memory + 60, host, 41, NULL), 1, "copies 41 bytes");
  ck_assert_refused(driver.copy_to_host(host, memory + 99, 2, NULL), 1, "past the end");
  ck_assert_refused(driver.set_bytes(memory, 1, 101, NULL), 1, "sets 101 bytes");
  ck_assert_refused(driver.set_words(memory, 1, 26, NULL), 1, "sets 104 bytes");
  ck_assert_refused(driver.set_words(memory + 2, 1, 1, NULL), 1, "range");
  ck_assert_refused(driver.copy_to_device(0, host, 1, NULL), 1, "0x0");
  ck_assert_int_eq(driver.copy_to_device(memory + 100, host, 0, NULL), 0);
  ck_assert_refused(driver.memory_free(memory + 1), 1, "no allocation");
  ck_assert_int_eq(driver.memory_free(memory), 0);
  ck_assert_refused(driver.memory_free(memory), 1, "freed already");
  ck_assert_int_eq(driver.memory_free(0), 0);
}
END_TEST

/* ---- contexts, streams, events ---- */

START_TEST(contexts_nest) {
  struct ft_arch h200 = known_gpu("h200");
  int other;
  cu_context first, second, found;
  cu_device device;
  ck_assert_status(ft_emulator_open(&driver, &h200, &other), FT_OK);
  ck_assert_refused(driver.context_device(&device), 201, "no context");
  ck_assert_int_eq(driver.primary_retain(&first, ordinal), 0);
  ck_assert_int_eq(driver.primary_retain(&second, other), 0);
  ck_assert_int_eq(driver.context_push(first), 0);
  ck_assert_int_eq(driver.context_push(second), 0);
  ck_assert_int_eq(driver.context_device(&device), 0);
  ck_assert_int_eq(device, other);
  ck_assert_int_eq(driver.context_pop(&found), 0);
  ck_assert_ptr_eq(found, second);
  ck_assert_int_eq(driver.context_current(&found), 0);
  ck_assert_ptr_eq(found, first);
  ck_assert_int_eq(driver.context_pop(&found), 0);
  ck_assert_refused(driver.context_pop(&found), 201, "no context");
  ck_assert_refused(driver.context_push(NULL), 201, "no context");
}
END_TEST

START_TEST(nothing_is_ever_timed) {
  cu_event start, end;
  cu_stream stream;
  float milliseconds = 1;
  int capturing = 1;
  ck_assert_int_eq(driver.stream_create(&stream, 1), 0);
  ck_assert_int_eq(driver.event_create(&start, 0), 0);
  ck_assert_int_eq(driver.event_create(&end, 0), 0);
  ck_assert_int_eq(driver.event_record(start, stream), 0);
  ck_assert_int_eq(driver.event_record(end, NULL), 0);
  ck_assert_int_eq(driver.event_query(end), 0);
  ck_assert_int_eq(driver.event_synchronize(end), 0);
  ck_assert_int_eq(driver.stream_synchronize(stream), 0);
  ck_assert_int_eq(driver.stream_capturing(stream, &capturing), 0);
  ck_assert_int_eq(capturing, 0);
  ck_assert_refused(driver.event_elapsed(&milliseconds, start, end), 801,
                    "the emulator has no clock: nothing it does can be timed");
  ck_assert_float_eq(milliseconds, 0);
  ck_assert_int_eq(driver.event_destroy(start), 0);
  ck_assert_int_eq(driver.event_destroy(end), 0);
  ck_assert_int_eq(driver.stream_destroy(stream), 0);
}
END_TEST

Suite *make_emulator_driver_suite(void) {
  Suite *const suite = suite_create("emulator_driver");
  TCase *const tests = tcase_create("all");
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_add_test(tests, every_function_is_there);
  tcase_add_test(tests, attributes_are_the_tables);
  tcase_add_test(tests, one_gpu_has_one_number);
  tcase_add_test(tests, any_other_figure_makes_another_gpu);
  tcase_add_test(tests, another_gpu_than_there_are_is_refused);
  tcase_add_test(tests, launches_of_other_shapes_are_refused);
  tcase_add_test(tests, events_are_refused_that_are_none);
  tcase_add_test(tests, nothing_is_copied_where_there_is_nothing);
  tcase_add_test(tests, bytes_go_to_and_fro);
  tcase_add_test(tests, misuse_of_memory_is_refused);
  tcase_add_test(tests, contexts_nest);
  tcase_add_test(tests, nothing_is_ever_timed);
  suite_add_tcase(suite, tests);
  return suite;
}
