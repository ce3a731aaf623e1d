/* test_launch_score.c: what a score function captures, as a run gives it.
 * in -> out: score, captured things good and bad -> struct ft_arg_score, or errors by name. */
#include <check.h>
#include <string.h>

#include "generator/score/cuda.h"
#include "generator/status.h"
#include "runtime/launch_score.h"
#include "tests/suites.h"

static struct ft_score_registry registry;
static const struct ft_known_score *known;
static const struct ft_run run = {.batch = 2, .nq = 5, .nk = 7, .heads_q = 4, .heads_kv = 2};
static struct ft_request request;
static fatune_captured good[4];
static fatune_arguments arguments;

static void set_up(void) {
  static const char text[] = "local cap = scalar('cap') local n = scalar('n', 'int')\n"
                             "local bias = tensor('bias', 'bf16', heads, 2 * nk - 1)\n"
                             "local table = tensor('table', 'fp32', n)\n"
                             "score = s * cap + bias(h, i - j) + table(j % n)";
  struct ft_template_files files = {0};
  int64_t number;
  registry = (struct ft_score_registry){0};
  ck_assert_msg(ft_registry_add(&registry, &files, "mine", text, &number) == FT_OK, "%s",
                ft_detail());
  ck_assert_int_eq(ft_registry_find(&registry, &files, number, &known), FT_OK);
  /* Addresses are never followed here. */
  good[0] = (fatune_captured){.name = "n", .value = 3};
  good[1] = (fatune_captured){
      .name = "bias", .data = (void *)0x1002, .extents = {4, 13}, .strides = {0, 2}};
  good[2] =
      (fatune_captured){.name = "table", .data = (void *)0x2000, .extents = {3}, .strides = {1}};
  good[3] = (fatune_captured){.name = "cap", .value = 2.5};
  arguments = (fatune_arguments)FATUNE_ARGUMENTS_INIT;
  arguments.captured = good;
  arguments.captured_count = 4;
}

static void tear_down(void) {
  ft_registry_close(&registry);
}

static int read_captured(struct ft_arg_score *to) {
  struct ft_arg_softmax softmax = {.scale = 0.5f, .scale_log2 = 0.7f};
  const struct ft_launch_plan plan = {.request = &request, .score = known};
  return ft_score_arguments_read(to, &softmax, &plan, &run, &arguments, 0);
}

START_TEST(captured_things_go_to_their_places) {
  struct ft_arg_score score;
  struct ft_arg_softmax softmax = {.scale = 0.5f, .scale_log2 = 0.7f};
  const struct ft_launch_plan plan = {.request = &request, .score = known};
  ck_assert_msg(ft_score_arguments_read(&score, &softmax, &plan, &run, &arguments, 0) == FT_OK,
                "%s", ft_detail());
  struct {
    struct ft_arg_captured bias, table;
    float cap;
    int32_t n;
  } seen;
  memcpy(&seen, &score, sizeof seen);
  ck_assert_uint_eq(seen.bias.data, 0x1002);
  ck_assert_int_eq(seen.bias.stride[0], 0);
  ck_assert_int_eq(seen.bias.stride[1], 2);
  ck_assert_int_eq(seen.bias.last[0], 3);
  ck_assert_int_eq(seen.bias.last[1], 12);
  ck_assert_uint_eq(seen.table.data, 0x2000);
  ck_assert_int_eq(seen.table.last[0], 2);
  ck_assert_float_eq(seen.cap, 2.5f);
  ck_assert_int_eq(seen.n, 3);
  ck_assert_float_eq(softmax.scale, 0.5f); /* of q . k; the score is in natural units */
  ck_assert_float_eq_tol(softmax.scale_log2, 1.44269504f, 1e-6f);
}
END_TEST

/* As of a bias of 16384 queries and keys; the batch, of one entry, may have any stride. */
START_TEST(strides_may_be_long) {
  struct ft_arg_score score;
  struct ft_arg_captured bias;
  good[1].strides[0] = (int64_t)1 << 40;
  good[2].extents[0] = 1;
  good[0].value = 1;
  good[2].strides[0] = INT64_MAX;
  ck_assert_msg(read_captured(&score) == FT_OK, "%s", ft_detail());
  memcpy(&bias, &score, sizeof bias);
  ck_assert_int_eq(bias.stride[0], (int64_t)1 << 40);
}
END_TEST

START_TEST(tensors_are_known_to_the_emulator) {
  struct ft_arg_score score;
  struct ft_launch_tensors all = {.count = 0};
  ck_assert_int_eq(read_captured(&score), FT_OK);
  ft_add_captured(&all, &score, known);
  ck_assert_int_eq(all.count, 2);
  ck_assert_str_eq(all.tensors[0].name, "bias");
  ck_assert_int_eq(all.tensors[0].element_bytes, 2);
  ck_assert_int_eq(all.tensors[0].extents[1], 13);
  ck_assert_int_eq(all.tensors[0].strides[0], 0);
  ck_assert(!all.tensors[0].writable);
}
END_TEST

/* One thing is another; what the detail says of it. */
static const struct {
  int index;
  fatune_captured other;
  const char *detail;
} faults[] = {
    {0, {.name = "m", .value = 3}, "arguments.captured[0] is 'm'; score mine captures no such"},
    {0, {.name = "cap", .value = 3}, "arguments.captured lacks scalar 'n' of score mine"},
    {2, {.name = "n", .value = 3}, "arguments.captured lacks tensor 'table' of score mine"},
    {0, {.name = NULL}, "arguments.captured[0].name is NULL"},
    {0, {.name = "n", .value = 2.5}, "'n' is 2.5; allowed: integers of 32 bits"},
    {0, {.name = "n", .value = 3e9}, "'n' is 3e+09; allowed: integers of 32 bits"},
    {0, {.name = "n", .value = 4}, "extent 1 of 'table' is 3; allowed: 4 to 2^31 - 1"},
    {1, {.name = "bias", .extents = {4, 13}}, "data of 'bias' is (nil); allowed: multiples of 2"},
    {1, {.name = "bias", .data = (void *)0x1001, .extents = {4, 13}}, "data of 'bias' is 0x1001"},
    {1, {.name = "bias", .data = (void *)0x1000, .extents = {3, 13}}, "extent 1 of 'bias' is 3"},
    {1, {.name = "bias", .data = (void *)0x1000, .extents = {4, 12}}, "'bias' is 12; allowed: 13"},
    {1, {.name = "bias", .value = 3}, "extent 1 of 'bias' is 0; allowed: 4 to 2^31 - 1"},
    {1,
     {.name = "bias", .data = (void *)0x1000, .extents = {4}},
     "'bias' has 1 dimension; score mine reads it by 2 indices"},
    {1,
     {.name = "bias", .data = (void *)0x1000, .extents = {4, 13, 1, 2}},
     "extent 4 of 'bias' is 2; allowed: 0 or 1, score mine reads it by 2 indices"},
    {3,
     {.name = "cap", .data = (void *)0x1000, .extents = {1}},
     "data of 'cap' is 0x1000; allowed: NULL, score mine has it as a scalar"},
    {1,
     {.name = "bias", .data = (void *)0x1000, .extents = {4, (int64_t)1 << 31}},
     "extent 2 of 'bias' is 2147483648"},
    {1,
     {.name = "bias", .data = (void *)0x1000, .extents = {4, 13}, .strides = {1, -1}},
     "stride 2 of 'bias' is -1; allowed: 0"},
    {1,
     {.name = "bias",
      .data = (void *)0x1000,
      .extents = {4, 13},
      .strides = {1, ((int64_t)1 << 58) / 12 + 1}},
     "allowed: 0 to 24019198012642645 with an extent of 13"},
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

START_TEST(faults_are_told_by_name) {
  struct ft_arg_score score;
  good[faults[_i].index] = faults[_i].other;
  ck_assert_int_eq(read_captured(&score), FT_E_ARGUMENT);
  ck_assert_msg(strstr(ft_detail(), faults[_i].detail) != NULL, "\"%s\" lacks \"%s\"", ft_detail(),
                faults[_i].detail);
}
END_TEST

START_TEST(lengths_have_a_limit) {
  struct ft_arg_score score;
  struct ft_arg_softmax softmax = {.scale = 0.5f, .scale_log2 = 0.7f};
  const struct ft_launch_plan plan = {.request = &request, .score = known};
  struct ft_run longest = run;
  longest.nq = 1 << 23;
  ck_assert_int_eq(ft_score_arguments_read(&score, &softmax, &plan, &longest, &arguments, 0),
                   FT_OK);
  longest.nq += 1;
  ck_assert_int_eq(ft_score_arguments_read(&score, &softmax, &plan, &longest, &arguments, 0),
                   FT_E_ARGUMENT);
  ck_assert_str_eq(ft_detail(),
                   "arguments.seqlen_q is 8388609; allowed: at most 2^23 with a score function");
  longest = run;
  longest.nk = 9000000;
  ck_assert_int_eq(ft_score_arguments_read(&score, &softmax, &plan, &longest, &arguments, 0),
                   FT_E_ARGUMENT);
  ck_assert_str_eq(ft_detail(),
                   "arguments.seqlen_k is 9000000; allowed: at most 2^23 with a score function");
}
END_TEST

/* ---- gradients ---- */

enum { OF_BIAS = 1, OF_TABLE = 2, OF_CAP = 1 << FT_SCORE_TENSORS };

static struct ft_arg_gradient gradient_at(const struct ft_arg_score *score, int n) {
  enum { BEFORE = 2 * sizeof(struct ft_arg_captured) + 2 * sizeof(uint32_t) };
  struct ft_arg_gradient gradient;
  memcpy(&gradient, (const char *)score + BEFORE + (size_t)n * sizeof gradient, sizeof gradient);
  return gradient;
}

START_TEST(gradients_go_to_their_places) {
  struct ft_arg_score score;
  struct ft_arg_softmax softmax = {.scale = 0.5f};
  request = (struct ft_request){.pass = FT_BACKWARD, .score_gradients = OF_BIAS | OF_CAP};
  const struct ft_launch_plan plan = {.request = &request, .score = known};
  good[1].gradient = (float *)0x5000;
  good[3].gradient = (float *)0x6000;
  ck_assert_msg(ft_score_arguments_read(&score, &softmax, &plan, &run, &arguments, 0) == FT_OK,
                "%s", ft_detail());
  const struct ft_arg_gradient bias = gradient_at(&score, 0), table = gradient_at(&score, 1);
  const struct ft_arg_gradient cap = gradient_at(&score, 2);
  ck_assert_uint_eq(bias.data, 0x5000);
  ck_assert_int_eq(bias.count, 13); /* heads share them */
  ck_assert_int_eq(bias.stride[0], 0);
  ck_assert_int_eq(bias.stride[1], 1);
  ck_assert_uint_eq(bias.words, 0);
  ck_assert_uint_eq(table.data, 0);
  ck_assert_uint_eq(cap.data, 0x6000);
  ck_assert_int_eq(cap.count, 1);

  int64_t bytes;
  ck_assert_int_eq(ft_score_workspace(&plan, &arguments, &bytes), FT_OK);
  ck_assert_int_eq(bytes, 0);
  request.deterministic = true;
  ck_assert_int_eq(ft_score_workspace(&plan, &arguments, &bytes), FT_OK);
  ck_assert_int_eq(bytes, 256 + 256); /* 14 and 2 times 16, in whole 256 */
  ck_assert_int_eq(ft_score_arguments_read(&score, &softmax, &plan, &run, &arguments, 0x7000),
                   FT_OK);
  ck_assert_uint_eq(gradient_at(&score, 0).words, 0x7000);
  ck_assert_uint_eq(gradient_at(&score, 2).words, 0x7100);
}
END_TEST

START_TEST(wrong_gradients_are_told_by_name) {
  struct ft_arg_score score;
  request = (struct ft_request){.pass = FT_BACKWARD, .score_gradients = OF_TABLE};
  ck_assert_int_eq(read_captured(&score), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "gradient of 'table' is (nil); the request wants one"));
  good[2].gradient = (float *)0x5002;
  ck_assert_int_eq(read_captured(&score), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "gradient of 'table' is 0x5002; allowed: multiples"));
  good[2].gradient = (float *)0x5004;
  good[0].gradient = (float *)0x6000;
  ck_assert_int_eq(read_captured(&score), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "gradient of 'n' is 0x6000; the request wants none"));
}
END_TEST

START_TEST(gradients_have_bits) {
  int bit;
  ck_assert_int_eq(ft_known_gradient_bit(known, "table", &bit), FT_OK);
  ck_assert_int_eq(bit, 1);
  ck_assert_int_eq(ft_known_gradient_bit(known, "cap", &bit), FT_OK);
  ck_assert_int_eq(1 << bit, OF_CAP);
  ck_assert_int_eq(ft_known_gradient_bit(known, "n", &bit), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "scalar 'n' has type int; allowed for a gradient"));
  ck_assert_int_eq(ft_known_gradient_bit(known, "m", &bit), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "score mine captures no 'm'"));
  ck_assert_int_eq(ft_known_gradients_check(known, OF_BIAS | OF_CAP), FT_OK);
  ck_assert_int_eq(ft_known_gradients_check(known, 2 * OF_CAP), FT_E_ARGUMENT); /* n */
  ck_assert_int_eq(ft_known_gradients_check(known, 4), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "captures nothing of number 2"));
}
END_TEST

START_TEST(without_a_score_nothing_is_captured) {
  struct ft_arg_score score;
  known = NULL;
  ck_assert_int_eq(read_captured(&score), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "captured_count is 4; allowed: 0"));
  arguments.captured_count = 0;
  ck_assert_int_eq(read_captured(&score), FT_OK);
  arguments.captured_count = -1;
  ck_assert_int_eq(read_captured(&score), FT_E_ARGUMENT);
  arguments.captured_count = 1;
  arguments.captured = NULL;
  ck_assert_int_eq(read_captured(&score), FT_E_ARGUMENT);
}
END_TEST

/* ---- the registry ---- */

START_TEST(equal_texts_have_one_number) {
  struct ft_template_files files;
  int64_t first, second, third, built_in;
  ck_assert_int_eq(ft_template_files_open(&files, NULL), FT_OK);
  ck_assert_int_eq(ft_registry_add(&registry, &files, "a", "score = s + i", &first), FT_OK);
  const int count = registry.count;
  ck_assert_int_eq(ft_registry_add(&registry, &files, "b", "score = i + s -- the same", &second),
                   FT_OK);
  ck_assert_int_eq(ft_registry_add(&registry, &files, "a", "score = s + j", &third), FT_OK);
  ck_assert_int_eq(first, second);
  ck_assert_int_ne(first, third); /* another text under the same name is another score */
  ck_assert_int_eq(registry.count, count + 1);
  ck_assert_int_eq(ft_registry_find(&registry, &files, 1, &known), FT_E_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "score 000000000001 is not known to this session"));
  ck_assert_int_eq(ft_registry_add(&registry, &files, "alibi", NULL, &built_in), FT_OK);
  struct ft_score_registry other = {0};
  ck_assert_int_eq(ft_registry_find(&other, &files, built_in, &known),
                   FT_OK); /* without being added */
  ck_assert_str_eq(known->score.name, "alibi.lua");
  ft_registry_close(&other);
  ft_template_files_close(&files);
}
END_TEST

Suite *make_launch_score_suite(void) {
  Suite *const suite = suite_create("launch_score");
  TCase *const tests = tcase_create("all");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, captured_things_go_to_their_places);
  tcase_add_test(tests, strides_may_be_long);
  tcase_add_test(tests, tensors_are_known_to_the_emulator);
  tcase_add_loop_test(tests, faults_are_told_by_name, 0, FAULTS);
  tcase_add_test(tests, lengths_have_a_limit);
  tcase_add_test(tests, gradients_go_to_their_places);
  tcase_add_test(tests, wrong_gradients_are_told_by_name);
  tcase_add_test(tests, gradients_have_bits);
  tcase_add_test(tests, without_a_score_nothing_is_captured);
  tcase_add_test(tests, equal_texts_have_one_number);
  suite_add_tcase(suite, tests);
  return suite;
}
