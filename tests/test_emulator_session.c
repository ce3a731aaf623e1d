/* test_emulator_session.c: sessions, plans, modules and launches on an emulated GPU.
 * in -> out: options -> session, plans, errors; images -> modules; launches -> checks, faults. What
 * kernels compute is for other suites. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "generator/lua_host.h"
#include "generator/space.h"
#include "generator/status.h"
#include "runtime/emulator/cxx_search.h"
#include "runtime/emulator/object.h"
#include "runtime/kernel_source.h"
#include "runtime/launch.h"
#include "runtime/module.h"
#include "runtime/session.h"
#include "tests/driver_lab.h"
#include "tests/suites.h"

/* ---- sessions ---- */

static fatune_session *emulated(const char *gpu) {
  fatune_session_options options = memory_only_options();
  fatune_session *session;
  options.emulate = gpu;
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_OK);
  return session;
}

START_TEST(an_emulated_session_needs_no_gpu) {
  const struct fake_controls cuda = use_fake_cuda();
  fatune_session *const session = emulated("A100");
  char class[96];
  ck_assert_status(ft_session_needs_device(session), FT_OK);
  ck_assert(session->driver.emulated);
  ck_assert_int_eq(memcmp(&session->device.arch.clock_ghz, &a100.clock_ghz, sizeof(double)), 0);
  ck_assert_int_eq(session->device.arch.smem_per_block, a100.smem_per_block);
  ft_device_class(&a100, class);
  ck_assert_str_eq(session->device.id, class);
  ck_assert_status(ft_session_enter(session), FT_OK);
  ft_session_leave(session);
  fatune_session_close(session);
  ck_assert_int_eq(cuda.calls(NULL), 0);
}
END_TEST

START_TEST(bad_emulate_options_are_named) {
  fatune_session_options options = memory_only_options();
  fatune_session *session;
  static const char *const bad[] = {"x100", "", "a1000"};
  for (int i = 0; i < 3; i++) {
    char part[64];
    options.emulate = bad[i];
    session = (fatune_session *)(uintptr_t)1;
    ck_assert_status(fatune_session_open(&session, &options), FATUNE_E_ARGUMENT);
    snprintf(part, sizeof part, "options.emulate is \"%s\"; allowed: t4, ", bad[i]);
    ck_assert_detail(part);
    ck_assert_detail("h200");
    ck_assert_ptr_null(session);
  }
  options.emulate = "a100";
  options.device = 1;
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_E_ARGUMENT);
  ck_assert_detail("options.device is 1 and options.emulate \"a100\"");
}
END_TEST

static fatune_plan *plan_of(fatune_session *session, const char *words) {
  fatune_request request = FATUNE_REQUEST_INIT;
  fatune_plan *plan;
  ck_assert_status(fatune_request_parse(&request, words), FATUNE_OK);
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_OK);
  return plan;
}

START_TEST(a_plan_tells_who_compiled_it_and_is_not_kept) {
  char name[64], path[512], end[128];
  fatune_session *const session = emulated("h200");
  ck_assert_status(ft_emulator_compiler(name, path), FT_OK);
  fatune_plan *const plan = plan_of(session, "forward bf16 d64 nq100 causal");
  snprintf(end, sizeof end, "; emulated on the CPU, compiled by %s", name);
  const char *const origin = fatune_plan_origin(plan);
  ck_assert_uint_gt(strlen(origin), strlen(end));
  ck_assert_str_eq(origin + strlen(origin) - strlen(end), end);
  ck_assert_ptr_null(strstr(origin, "NVRTC"));

  struct ft_request request;
  struct ft_config config;
  struct ft_source source;
  ck_assert_status(ft_request_parse(&request, "forward bf16 d64 nq100 causal"), FT_OK);
  ck_assert_status(ft_config_parse(&config, fatune_plan_config(plan)), FT_OK);
  ck_assert_status(ft_session_emit(session, &request, &session->device.arch, &config, &source),
                   FT_OK);
  ck_assert_str_eq(source.text, fatune_plan_source(plan));
  struct ft_store_stats stats;
  ck_assert_status(ft_store_stats(session->store, &stats), FT_OK);
  ck_assert_int_eq(stats.kernels, 0);
  ft_source_free(&source);
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

START_TEST(a_plan_without_a_compiler_says_so) {
  fatune_session_options options = memory_only_options();
  fatune_session *session;
  fatune_request request = FATUNE_REQUEST_INIT;
  fatune_plan *plan;
  ck_assert_status(fatune_request_parse(&request, "forward bf16 d64 nq100"), FATUNE_OK);
  options.emulate = "a100";
  options.compile = -1;
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_OK);
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_E_NO_CXX);
  ck_assert_detail("options.compile is -1: nothing is compiled in this session");
  fatune_session_close(session);
  setenv("FATUNE_CXX", "/nowhere/g++", 1);
  options.compile = 0;
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_OK);
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_E_NO_CXX);
  ck_assert_detail("/nowhere/g++");
  ck_assert_ptr_null(plan);
  char *text;
  ck_assert_status(fatune_emit(&text, session, &request, NULL, NULL), FATUNE_OK);
  fatune_text_free(text);
  fatune_session_close(session);
}
END_TEST

/* ---- modules and launches ---- */

static int count_mapped(const char *name) {
  char line[4096];
  int count = 0;
  FILE *const maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) count += strstr(line, name) != NULL;
  fclose(maps);
  return count;
}

static int next_descriptor(void) {
  const int next = dup(0);
  close(next);
  return next;
}

/* A module is a descriptor in the host and nothing else: its code is loaded by children alone. */
START_TEST(modules_are_loaded_apart_and_leave_nothing) {
  const int before = next_descriptor();
  fatune_session *const session = emulated("a100");
  const int descriptor = next_descriptor();
  fatune_plan *const one = plan_of(session, "forward bf16 d16 nq10");
  fatune_plan *const two = plan_of(session, "forward fp16 d32 nq10");
  ck_assert_int_eq(next_descriptor(), descriptor + 2);
  ck_assert_int_eq(count_mapped("fatune-kernel"), 0);
  fatune_plan_free(one);
  ck_assert_ptr_eq(plan_of(session, "forward bf16 d16 nq10"), one); /* the session has kept it */
  ck_assert_int_eq(next_descriptor(), descriptor + 2);
  fatune_plan_free(two);
  fatune_plan_free(one);
  fatune_session_close(session);
  ck_assert_int_eq(next_descriptor(), before);
  ck_assert_int_eq(count_mapped("fatune-"), 0);
  ck_assert_int_eq(next_descriptor(), descriptor);
}
END_TEST

START_TEST(what_is_no_image_is_refused) {
  cu_module module;
  cu_context context;
  struct {
    struct ft_emulator_image head;
    char object[64];
  } image = {.head = {.bytes = sizeof image.object}, .object = "not an object"};
  ck_assert_refused(driver.module_load(&module, &image), 201, "no context");
  ck_assert_int_eq(driver.primary_retain(&context, ordinal), 0);
  ck_assert_int_eq(driver.context_push(context), 0);
  ck_assert_refused(driver.module_load(&module, "\177ELF and more of it"), 200, "no image");
  const int descriptor = next_descriptor();
  memcpy(image.head.magic, FT_EMULATOR_MAGIC, sizeof image.head.magic);
  ck_assert_refused(driver.module_load(&module, &image), 304, "/proc/self/fd/");
  ck_assert_ptr_null(module);
  ck_assert_int_eq(next_descriptor(), descriptor);
}
END_TEST

/* A plan's kernel, loaded by hand, and a launch of it on memory of the test's own. */
struct lab {
  fatune_session *session;
  struct ft_source source;
  struct ft_kernel kernel;
  struct ft_module module;
  struct ft_request request;
  struct ft_launch_plan plan;
  struct ft_launch launch; /* points to the plan: a lab stays where it was opened */
};

static uint16_t memory[4][40 * 64]; /* Q, K, V, O, zeros are numbers too */

static void open_lab(struct lab *lab) {
  *lab = (struct lab){.session = emulated("a100")};
  const struct ft_arch *const arch = &lab->session->device.arch;
  struct ft_config config;
  bool compiled;
  ck_assert_status(ft_request_parse(&lab->request, "forward bf16 d64 nq40"), FT_OK);
  ck_assert_status(ft_default_config(&lab->request, arch, &config), FT_OK);
  ck_assert_status(ft_session_emit(lab->session, &lab->request, arch, &config, &lab->source),
                   FT_OK);
  ck_assert_status(
      ft_session_load(lab->session, &lab->source, NULL, &lab->kernel, &lab->module, &compiled),
      FT_OK);
  ck_assert(compiled);
  lab->plan = (struct ft_launch_plan){.request = &lab->request,
                                      .config = &lab->source.config,
                                      .arch = arch,
                                      .budget = &lab->source.budget};
  fatune_arguments a = FATUNE_ARGUMENTS_INIT;
  fatune_tensor *const tensors[] = {&a.q, &a.k, &a.v, &a.o};
  for (int i = 0; i < 4; i++) *tensors[i] = (fatune_tensor){memory[i], 40 * 64, 64, 64};
  ck_assert_status(ft_launch_prepare(&lab->launch, &lab->plan, &a), FT_OK);
}

static void close_lab(struct lab *lab) {
  ft_module_unload(&lab->module, lab->session);
  ft_kernel_free(&lab->kernel);
  ft_source_free(&lab->source);
  fatune_session_close(lab->session);
}

static int enqueue(const struct lab *lab) {
  return ft_launch_enqueue(&lab->launch, &driver, &lab->module, NULL);
}

static void poison_and_check(const struct lab *lab) {
  for (int i = 0; i < 40 * 64; i++) memory[3][i] = 0x1234;
  for (int i = 0; i < 40 * 64; i++) memory[2][i] = 0x3F80; /* V is 1: so is O */
  ck_assert_status(enqueue(lab), FT_OK);
  for (int i = 0; i < 40 * 64; i++) ck_assert_uint_eq(memory[3][i], 0x3F80);
}

START_TEST(launches_are_checked) {
  struct lab lab;
  open_lab(&lab);
  void *params[] = {&lab.launch.argument};
  const cu_function f = lab.module.main;
  const unsigned threads = (unsigned)lab.source.budget.threads;
  ck_assert_refused(driver.launch(f, 1, 2, 1, threads, 1, 1, 0, NULL, params, NULL), 1,
                    "the grid is 1 x 2 x 1");
  ck_assert_refused(driver.launch(f, 0, 1, 1, threads, 1, 1, 0, NULL, params, NULL), 1, "grid");
  ck_assert_refused(driver.launch(f, 1, 1, 1, 1056, 1, 1, 0, NULL, params, NULL), 1,
                    "the block is 1056 x 1 x 1");
  ck_assert_refused(driver.launch(f, 1, 1, 1, 33, 1, 1, 0, NULL, params, NULL), 1, "32");
  const unsigned most = (unsigned)a100.smem_per_block;
  ck_assert_refused(driver.launch(f, 1, 1, 1, threads, 1, 1, 167000, NULL, params, NULL), 1,
                    "167000 bytes of shared memory");
  ck_assert_refused(driver.function_set(f, 8, (int)most + 1), 1, "a100");
  ck_assert_int_eq(driver.function_set(f, 8, (int)most), 0);
  int blocks = 0;
  ck_assert_int_eq(driver.occupancy(&blocks, f, 1024, 0), 0);
  ck_assert_int_eq(blocks, a100.threads_per_sm / 1024);
  ck_assert_int_eq(driver.occupancy(&blocks, f, 32, most), 0);
  ck_assert_int_eq(blocks, 1);
  cu_function none;
  ck_assert_refused(driver.module_function(&none, lab.module.handle, "other"), 500, "other");
  poison_and_check(&lab);
  close_lab(&lab);
}
END_TEST

START_TEST(a_fault_is_its_launchs_and_leaves_the_emulator_whole) {
  struct lab lab;
  open_lab(&lab);
  poison_and_check(&lab);
  void *params[] = {&lab.launch.argument};
  const unsigned threads = (unsigned)lab.source.budget.threads;
  const unsigned bytes = (unsigned)lab.source.budget.smem_bytes;
  /* What was told of the memory was for the launch before. */
  ck_assert_refused(driver.launch(lab.module.main, lab.launch.kernels[lab.launch.family->main].grid,
                                  1, 1, threads, 1, 1, bytes, NULL, params, NULL),
                    719, "CUDA_ERROR_LAUNCH_FAILED (719): fatune_kernel, line ");
  ck_assert_detail("parts/copy_tile.cu.in:");
  poison_and_check(&lab);
  close_lab(&lab);
}
END_TEST

START_TEST(steps_are_limited) {
  struct lab lab;
  open_lab(&lab);
  setenv("FATUNE_EMULATOR_STEPS", "5", 1);
  ck_assert_status(enqueue(&lab), FT_E_DEVICE);
  ck_assert_detail("(719)");
  static const char *const bad[] = {"0", "-3", "many", "5x", "99999999999999999999"};
  for (int i = 0; i < 5; i++) {
    setenv("FATUNE_EMULATOR_STEPS", bad[i], 1);
    ck_assert_status(enqueue(&lab), FT_E_DEVICE);
    ck_assert_detail("FATUNE_EMULATOR_STEPS is");
    ck_assert_detail(bad[i]);
  }
  setenv("FATUNE_EMULATOR_STEPS", "10000000", 1);
  poison_and_check(&lab);
  close_lab(&lab);
}
END_TEST

START_TEST(masks_come_from_either_memory) {
  fatune_session *const session = emulated("a100");
  uint8_t blocks[12];
  int kept = 0;
  for (int i = 0; i < 12; i++) kept += blocks[i] = (uint8_t)random_int(0, 1);
  fatune_mask_options options = FATUNE_MASK_OPTIONS_INIT;
  options.mask_rows = options.mask_cols = 64;
  options.batch = options.heads = 1;
  options.seqlen_q = 3 * 64;
  options.seqlen_k = 4 * 64;
  cu_address copy;
  ck_assert_int_eq(driver.memory_alloc(&copy, sizeof blocks), 0);
  ck_assert_int_eq(driver.copy_to_device(copy, blocks, sizeof blocks, NULL), 0);
  const uint8_t *const places[] = {blocks, blocks, (const uint8_t *)(uintptr_t)copy};
  for (int i = 0; i < 3; i++) {
    fatune_mask *mask;
    options.on_device = i > 0;
    options.blocks = places[i];
    ck_assert_status(fatune_mask_make(&mask, session, &options, NULL), FATUNE_OK);
    ck_assert_double_eq(fatune_mask_density(mask), kept / 12.0);
    fatune_mask_free(mask);
  }
  ck_assert_int_eq(driver.memory_free(copy), 0);
  fatune_session_close(session);
}
END_TEST

Suite *make_emulator_session_suite(void) {
  Suite *const suite = suite_create("emulator_session");
  TCase *const tests = tcase_create("all");
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_add_test(tests, an_emulated_session_needs_no_gpu);
  tcase_add_test(tests, bad_emulate_options_are_named);
  tcase_add_test(tests, a_plan_tells_who_compiled_it_and_is_not_kept);
  tcase_add_test(tests, a_plan_without_a_compiler_says_so);
  tcase_add_test(tests, modules_are_loaded_apart_and_leave_nothing);
  tcase_add_test(tests, what_is_no_image_is_refused);
  tcase_add_test(tests, launches_are_checked);
  tcase_add_test(tests, a_fault_is_its_launchs_and_leaves_the_emulator_whole);
  tcase_add_test(tests, steps_are_limited);
  tcase_add_test(tests, masks_come_from_either_memory);
  suite_add_tcase(suite, tests);
  return suite;
}
