/* test_kernel_text.c: kernels print, parse, copy and free.
 * in -> out: random kernels and broken texts -> Check suite. */
#include "tests/suites.h"

#include "tests/faulty/fault_calls.h"
#include "tests/store_fixture.h"

static char *text_of(const struct ft_kernel *kernel) {
  struct ft_text text = FT_TEXT_INIT;
  ft_kernel_print(kernel, &text);
  assert_ok(ft_text_status(&text));
  return text.data;
}

START_TEST(example_of_the_header) {
  struct ft_kernel kernel = {.target = "sm_90",
                             .nvrtc = "13.0.88",
                             .registers = 168,
                             .smem_bytes = 101376,
                             .threads = 128,
                             .image_size = 52144};
  kernel.key.bytes[0] = 0xab;
  char *const text = text_of(&kernel);
  ck_assert_str_eq(
      text, "kernel sm_90 nvrtc=13.0.88 registers=168 spills=0 smem=101376 threads=128 size=52144 "
            "key=ab00000000000000000000000000000000000000000000000000000000000000 source=\"\" "
            "image=\"\"");
  free(text);
}
END_TEST

START_TEST(random_kernels_survive_the_round_trip) {
  struct dice dice = dice_new();
  for (int i = 0; i < 300; i++) {
    struct ft_kernel kernel = make_kernel(&dice, 1 + (size_t)dice_below(&dice, 100)), back;
    if (i % 3 == 0) snprintf(kernel.nvrtc, sizeof kernel.nvrtc, "13.0 \"%d\"\n\\", i);
    kernel.spill_bytes = dice_below(&dice, 3) * 16;
    char *const text = text_of(&kernel);
    assert_ok(ft_kernel_parse(&back, text));
    char *const again = text_of(&back);
    ck_assert_msg(strcmp(text, again) == 0, "seed %llu: %s / %s", (unsigned long long)dice.seed,
                  text, again);
    ck_assert_str_eq(back.nvrtc, kernel.nvrtc);
    ck_assert_str_eq(back.target, kernel.target);
    ck_assert_int_eq(back.registers, kernel.registers);
    ck_assert_int_eq(back.spill_bytes, kernel.spill_bytes);
    ck_assert_int_eq(back.smem_bytes, kernel.smem_bytes);
    ck_assert_int_eq(back.threads, kernel.threads);
    ck_assert_uint_eq(back.image_size, kernel.image_size);
    ck_assert(ft_digest_equal(&back.key, &kernel.key));
    ck_assert(ft_digest_equal(&back.source, &kernel.source));
    ck_assert(ft_digest_equal(&back.image_digest, &kernel.image_digest));
    ck_assert_ptr_null(back.image);
    free(text);
    free(again);
    ft_kernel_free(&kernel);
  }
}
END_TEST

#define HEX  "0000000000000000000000000000000000000000000000000000000000000001"
#define REST " spills=0 smem=0 threads=128 size=1 key=" HEX " source=" HEX " image=" HEX

static const struct {
  const char *text, *names; /* the detail must name this */
} broken[] = {
    {"", "kernel"},
    {"kernels sm_90", "kernel"},
    {"kernel nvrtc=1", "target"},
    {"kernel SM_90 nvrtc=1 registers=1" REST, "target"},
    {"kernel sm_90_much_too_long nvrtc=1 registers=1" REST, "target"},
    {"kernel sm_90 registers=1" REST, "nvrtc"},
    {"kernel sm_90 nvrtc=1 registers=x" REST, "registers"},
    {"kernel sm_90 nvrtc=1 registers=-1" REST, "registers"},
    {"kernel sm_90 nvrtc=1 registers=99999999999" REST, "registers"},
    {"kernel sm_90 nvrtc=1 registers=1 registers=1" REST, "registers"},
    {"kernel sm_90 nvrtc=1 registers=1 colour=red" REST, "colour"},
    {"kernel sm_90 nvrtc=\"1 registers=1" REST, "nvrtc"},
    {"kernel sm_90 nvrtc=\"1\"2 registers=1" REST, "nvrtc"},
    {"kernel sm_90 nvrtc=\"\\q\" registers=1" REST, "nvrtc"},
    {"kernel sm_90 nvrtc=\"\\x00\" registers=1" REST, "nvrtc"},
    {"kernel sm_90 nvrtc=1 registers" REST, "registers"},
    {"kernel sm_90 nvrtc=1 registers=1 spills=0 smem=0 threads=1 size=1 key=ab source= image=",
     "key"},
};

START_TEST(broken_texts_are_refused_by_name) {
  struct ft_kernel kernel;
  assert_ok(ft_kernel_parse(&kernel, "kernel sm_90 nvrtc=1 registers=1" REST));
  assert_status(ft_kernel_parse(&kernel, broken[_i].text), FT_E_ARGUMENT);
  ck_assert_msg(strstr(ft_detail(), broken[_i].names) != NULL, "%s: %s", broken[_i].text,
                ft_detail());
}
END_TEST

/* Printed or parsed without memory, a kernel is whole or not at all. */
START_TEST(without_memory_there_is_no_half_kernel) {
  struct dice dice = dice_new();
  struct ft_kernel kernel = make_kernel(&dice, 10), back;
  snprintf(kernel.nvrtc, sizeof kernel.nvrtc, "13.0 a version that needs quotes");
  char *const right = text_of(&kernel);
  int failures = 0;
  bool fired = true;
  for (long n = 1; fired; n++) {
    struct ft_text text = FT_TEXT_INIT;
    fault_calls_arm(FAULT_MEMORY, n, false);
    ft_kernel_print(&kernel, &text);
    const int printed = ft_text_status(&text), parsed = ft_kernel_parse(&back, right);
    fired = fault_calls_disarm() >= n;
    ck_assert_msg(printed == FT_E_MEMORY || strcmp(text.data, right) == 0, "call %ld: %s", n,
                  text.data);
    ck_assert(parsed == FT_E_MEMORY || strcmp(back.nvrtc, kernel.nvrtc) == 0);
    failures += printed != FT_OK || parsed != FT_OK;
    ft_text_free(&text);
  }
  ck_assert_int_gt(failures, 1);
  free(right);
  ft_kernel_free(&kernel);
}
END_TEST

START_TEST(copies_are_deep) {
  struct dice dice = dice_new();
  struct ft_kernel kernel = make_kernel(&dice, 1000), copy, empty = {.target = "sm_90"}, nothing;
  assert_ok(ft_kernel_copy(&copy, &kernel));
  ck_assert(same_kernel(&kernel, &copy));
  ck_assert_ptr_ne(kernel.image, copy.image);
  ft_kernel_free(&kernel);
  ft_kernel_free(&kernel); /* harmless */
  ck_assert_uint_eq(copy.image_size, 1000);
  ft_kernel_free(&copy);
  assert_ok(ft_kernel_copy(&nothing, &empty));
  ck_assert_ptr_null(nothing.image);
  ft_kernel_free(NULL);
}
END_TEST

Suite *make_kernel_text_suite(void) {
  Suite *const suite = suite_create("kernel_text");
  TCase *const tests = tcase_create("text");
  tcase_add_test(tests, example_of_the_header);
  tcase_add_test(tests, random_kernels_survive_the_round_trip);
  tcase_add_loop_test(tests, broken_texts_are_refused_by_name, 0,
                      (int)(sizeof broken / sizeof broken[0]));
  tcase_add_test(tests, without_memory_there_is_no_half_kernel);
  tcase_add_test(tests, copies_are_deep);
  suite_add_tcase(suite, tests);
  return suite;
}
