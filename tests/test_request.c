/* test_request.c: validation, text form, buckets, distance and FLOP count of requests.
 * in -> out: generator/request.h -> Check suite. */
#include <check.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/request_fields.h"
#include "generator/status.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

enum { ROUNDS = 3000 };

static const struct ft_request sound = {.pass = FT_FORWARD,
                                        .dtype = FT_BF16,
                                        .head_dim = 128,
                                        .head_dim_v = 128,
                                        .heads_q = 32,
                                        .heads_kv = 8,
                                        .batch = 2,
                                        .seqlen_q = 4096,
                                        .seqlen_k = 4096,
                                        .mask_density = 1,
                                        .mask_longest = 1};

static void assert_prints(const struct ft_request *request, const char *expected) {
  struct ft_text text = FT_TEXT_INIT;
  ft_request_print(request, &text);
  ck_assert_str_eq(text.data, expected);
  ft_text_free(&text);
}

START_TEST(text_survives_a_round_trip) {
  seed_cases();
  for (int round = 0; round < ROUNDS; ++round) {
    const struct ft_request request = random_request();
    struct ft_text first = FT_TEXT_INIT, second = FT_TEXT_INIT;
    ck_assert_msg(ft_request_validate(&request) == FT_OK, "seed %llu: %s",
                  (unsigned long long)cases_seed, ft_detail());
    ft_request_print(&request, &first);
    const struct ft_request again = known_request(first.data);
    ft_request_print(&again, &second);
    ck_assert_msg(strcmp(first.data, second.data) == 0, "seed %llu: '%s' became '%s'",
                  (unsigned long long)cases_seed, first.data, second.data);
    /* Texts could agree and both have lost something. */
    for (int i = 0; i < FT_REQUEST_FIELDS; ++i)
      ck_assert_msg(ft_request_same(&again, &request, i), "seed %llu: %s of '%s'",
                    (unsigned long long)cases_seed, ft_request_field(i)->name, first.data);
    ft_text_free(&first);
    ft_text_free(&second);
  }
}
END_TEST

START_TEST(canonical_text) {
  static const char *const canonical[][2] = {
      {"nq7 d64", "forward bf16 d64 nq7"},
      {"  causal\tbf16 nq4096 hkv8 b2 nk4096 d128 dv128 hq32 forward\n",
       "forward bf16 d128 hq32 hkv8 b2 nq4096 causal"},
      {"backward fp16 d64 dv32 nq1 nk9 causal=top-left dropout deterministic",
       "backward fp16 d64 dv32 nq1 nk9 causal=top-left dropout deterministic"},
      {"d64 nq9 hq8", "forward bf16 d64 hq8 nq9"},
      {"d64 nq9 hkv8", "forward bf16 d64 hq8 nq9"},
      {"d64 nq9 hq4 hkv1", "forward bf16 d64 hq4 hkv1 nq9"},
      {"d64 nq9 b1 hq1 hkv1", "forward bf16 d64 nq9"},
      {"d64 nq9 mask=128x64@0.250", "forward bf16 d64 nq9 mask=128x64@0.25"},
      {"d64 nq9 mask=128x64@1", "forward bf16 d64 nq9 mask=128x64"},
      {"d64 nq9 mask=128x64@0.50,1", "forward bf16 d64 nq9 mask=128x64@0.5"},
      {"d64 nq9 mask=128x64@1,25", "forward bf16 d64 nq9 mask=128x64@1,25"},
      {"d64 nq9 causal=bottom-right", "forward bf16 d64 nq9 causal"},
      {"d64 nq9 window", "forward bf16 d64 nq9 window"},
      {"d64 nq9 score=0b66b4ed2939", "forward bf16 d64 nq9 score=0b66b4ed2939"},
      {"d64 nq9 score=18d408ab1c4fe", "forward bf16 d64 nq9 score=18d408ab1c4fe"},
      {"d64 nq9 window@-1,-1 causal", "forward bf16 d64 nq9 causal window"},
      {"d64 nq9 window=top-left@0,-1 dropout", "forward bf16 d64 nq9 window=top-left@0,-1 dropout"},
  };
  for (size_t i = 0; i < sizeof canonical / sizeof canonical[0]; ++i) {
    const struct ft_request request = known_request(canonical[i][0]);
    assert_prints(&request, canonical[i][1]);
  }
}
END_TEST

START_TEST(text_ignores_the_locale) {
  static const char *const comma[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
  for (size_t i = 0; i < sizeof comma / sizeof comma[0]; ++i)
    if (setlocale(LC_ALL, comma[i]) != NULL) break;
  const struct ft_request request = known_request("d64 nq9 mask=128x64@0.25");
  ck_assert(request.mask_density == 0.25);
  assert_prints(&request, "forward bf16 d64 nq9 mask=128x64@0.25");
}
END_TEST

/* Text and a piece of the message that must name the culprit. */
static const char *const bad_texts[][2] = {
    {"", "d128"},
    {"nq4096", "head dim is missing"},
    {"d64", "query length is missing"},
    {"d64 nq4096 bf17", "'bf17'"},
    {"d64 nq1 score=00b66b4ed2939", "score=00b66b4ed2939"},
    {"d64 nq1 score=118d408ab1c4fe", "score=118d408ab1c4fe"},
    {"d64 d64 nq1", "'d64'"},
    {"d64 nq1 forward backward", "'backward'"},
    {"d64 nq1 fp16 bf16", "'bf16'"},
    {"d64 nq1 causal causal=top-left", "'causal=top-left'"},
    {"d64 nq1 causal=left", "'causal=left'"},
    {"d nq1", "'d'"},
    {"d64 nq", "'nq'"},
    {"d64 nq-1", "'nq-1'"},
    {"d64 nq+1", "'nq+1'"},
    {"d64 nq1k", "'nq1k'"},
    {"d64 nq99999999999999999999", "'nq99999999999999999999'"},
    {"d4294967360 nq1", "'d4294967360'"}, /* 2^32 + 64: must not wrap to d64 */
    {"d64 nq4294967297", "seqlen_q is 4294967297"},
    {"d64 nq0", "seqlen_q is 0"},
    {"d64 nq1 nk0", "seqlen_k is 0"},
    {"d64 nq1 b0", "batch is 0"},
    {"d64 nq1 hq0", "heads_q is 0"},
    {"d64 nq1 hq6 hkv4", "heads_q is 6"},
    {"d12 nq1", "head_dim is 12"},
    {"d264 nq1", "head_dim is 264"},
    {"d64 dv8 nq1", "head_dim_v is 8"},
    {"d64 nq1 deterministic", "deterministic"},
    {"d64 nq1 fast_exp", "fast_exp is true with dtype bf16; allowed: false, or dtype e4m3"},
    {"d64 nq1 e4m3 fast_exp descales=64", "fast_exp is true with descale_rows 64"},
    {"d64 nq1 e4m3 fast_exp score=18d408ab1c4fe", "fast_exp is true with a score function"},
    {"d64 nq1 e4m3 o", "'o' is not o=fp16|fp32"},
    {"d64 nq1 e4m3 o=bf16", "'o=bf16' is not o=fp16|fp32"},
    {"d64 nq1 fp16 o=fp16", "dtype_o is fp16 with dtype fp16; allowed: default, fp32"},
    {"d64 nq1 e4m3 o=fp32", "dtype_o is fp32 with dtype e4m3; allowed: default, fp16"},
    {"d64 nq1 tf32 o=fp32", "dtype_o is fp32 with dtype tf32; allowed: default"},
    {"d64 nq1 kv", "'kv' is not kv=e4m3"},
    {"d64 nq1 fp32 kv=e4m3",
     "dtype_kv is e4m3 with dtype fp32; allowed: default, or dtype fp16 or"},
    {"d64 nq1 e4m3 kv=e4m3", "dtype_kv is e4m3 with dtype e4m3"},
    {"d64 nq1 kv=e4m3 backward", "dtype_kv is e4m3 with pass backward; allowed: default"},
    {"d72 nq1 kv=e4m3", "head_dim is 72 with dtype_kv e4m3; allowed: multiples of 16"},
    {"d64 dv40 nq1 kv=e4m3", "head_dim_v is 40 with dtype_kv e4m3"},
    {"d64 nq1 kv=e4m3 o=fp32", "dtype_o is fp32 with dtype_kv e4m3; allowed: default"},
    {"d64 nq1 e4m3 descales", "'descales' is not descales=N"},
    {"d64 nq1 e4m3 descales=0", "descale_rows is 0; allowed: "},
    {"d64 nq1 e4m3 descales=32", "descale_rows is 32; allowed: "},
    {"d64 nq1 e4m3 descales=256", "descale_rows is 256; allowed: "},
    {"d64 nq1 descales=64", "descale_rows is 64 with dtype bf16; allowed: 0, or dtype e4m3"},
    {"d64 nq1 kv=e4m3 descales=64", "descale_rows is 64 with dtype bf16; allowed: 0, or dtype"},
    {"d64 nq1 e4m3 ragged descales=64", "descale_rows is 64 with ragged true; allowed: 0"},
    {"d64 nq1 e4m3 pages=16 descales=128", "descale_rows is 128 with pages; allowed: 0"},
    {"d64 nq1 window@1", "'window@1' is not window[=bottom-right|top-left][@LEFT,RIGHT]"},
    {"d64 nq1 window@1,", "'window@1,'"},
    {"d64 nq1 window@-2,0", "window_left is -2"},
    {"d64 nq1 window@0,2147483648", "window_right is 2147483648"},
    {"d64 nq1 window=left@0,0", "'window=left@0,0'"},
    {"d64 nq1 windw@0,0", "did you mean 'window'?"},
    {"d64 nq1 causl", "did you mean 'causal'?"},
    {"d64 nq1 casual=top-left", "did you mean 'causal'?"},
    {"d64 nq1 fp15", "did you mean 'fp16'?"},
    {"d64 nq1 backwards", "did you mean 'backward'?"},
    {"d64 nq1 deterministicc", "did you mean 'deterministic'?"},
    {"d64 nq1 msk=64x64", "did you mean 'mask'?"},
    {"d64 nq1 banana", "'banana' is no word of a request; allowed: forward|backward "
                       "fp16|bf16|e4m3|fp32|tf32 o=fp16|fp32 kv=e4m3 dN"},
    {"d64 nq1 banana",
     "window[=bottom-right|top-left][@LEFT,RIGHT] score=DIGEST[+GRADIENTS] sinks ragged pages=N"},
    {"d64 nq1 banana", "mask=ROWSxCOLS[@DENSITY[,LONGEST]]"},
    {"d64 nq1 mask=", "'mask='"},
    {"d64 nq1 mask=64", "'mask=64'"},
    {"d64 nq1 mask=64x", "'mask=64x'"},
    {"d64 nq1 mask=0x0", "'mask=0x0'"},
    {"d64 nq1 mask=64x64@", "'mask=64x64@'"},
    {"d64 nq1 mask=64x64@nan", "'mask=64x64@nan'"},
    {"d64 nq1 mask=64x64@0x1p-1", "'mask=64x64@0x1p-1'"},
    {"d64 nq1 mask=64x64@0.5x", "'mask=64x64@0.5x'"},
    {"d64 nq1 mask=64x64@0", "mask_density is 0"},
    {"d64 nq1 mask=64x64@1.5", "mask_density is 1.5"},
    {"d64 nq1 mask=64x64@0.5,", "mask=ROWSxCOLS[@DENSITY[,LONGEST]]"},
    {"d64 nq1 mask=64x64,4", "mask=ROWSxCOLS[@DENSITY[,LONGEST]]"},
    {"d64 nq1 mask=64x64@0.5,1.5", "mask=ROWSxCOLS[@DENSITY[,LONGEST]]"},
    {"d64 nq1 mask=64x64@0.5,0", "mask_longest is 0; allowed: 1 to "},
    {"d64 nq1 mask=24x64", "mask_rows is 24"},
    {"d64 nq1 mask=64x8", "mask_cols is 8"},
    {"d64 nq1 pages=", "'pages='"},
    {"d64 nq1 pages=0", "pages is 0"},
    {"d64 nq1 pages=24", "pages is 24; allowed: powers of two"},
    {"backward d64 nq1 pages=16", "pages is 16 with pass backward"},
    {"d64 nq1 pages=16 mask=64x64", "pages is 16 with a mask of 64x64"},
};

START_TEST(bad_text_is_named) {
  const char *const *const bad = bad_texts[_i];
  struct ft_request request = sound;
  ck_assert_msg(ft_request_parse(&request, bad[0]) == FT_E_ARGUMENT, "'%s' was taken", bad[0]);
  ck_assert_msg(strstr(ft_detail(), bad[1]) != NULL, "'%s': '%s' lacks %s", bad[0], ft_detail(),
                bad[1]);
  assert_prints(&request, "forward bf16 d128 hq32 hkv8 b2 nq4096"); /* untouched on failure */
}
END_TEST

static void assert_refused(const struct ft_request *request, const char *field, const char *value) {
  ck_assert_msg(ft_request_validate(request) == FT_E_ARGUMENT, "%s = %s was taken", field, value);
  ck_assert_msg(strstr(ft_detail(), field) && strstr(ft_detail(), value) &&
                    strstr(ft_detail(), "allowed: "),
                "'%s' must name %s, %s and what is allowed", ft_detail(), field, value);
}

START_TEST(a_message_has_no_more_of_a_word_than_tells_it) {
  char text[4096] = "d64 ";
  struct ft_request request;
  memset(text + 4, 'q', sizeof text - 5);
  for (int n = 0; n < 2; n++) {
    ck_assert_int_eq(ft_request_parse(&request, text), FT_E_ARGUMENT);
    ck_assert_uint_lt(strlen(ft_detail()), 600);
    ck_assert_ptr_nonnull(strstr(ft_detail(), n == 0 ? "a word of 4091 bytes begins with 'qqq"
                                                     : "is no word of a request"));
    text[4 + 128] = '\0';
  }
}
END_TEST

START_TEST(bad_field_is_named) {
  ck_assert_int_eq(ft_request_validate(&sound), FT_OK);
#define REFUSE(field, wrong, shown)                                                                \
  do {                                                                                             \
    struct ft_request request = sound;                                                             \
    request.field = wrong;                                                                         \
    assert_refused(&request, #field, shown);                                                       \
  } while (0)
  REFUSE(pass, (enum ft_pass)7, "7");
  REFUSE(dtype, (enum ft_dtype)9, "9");
  REFUSE(causal, (enum ft_causal)5, "5");
  REFUSE(deterministic, true, "true");
  REFUSE(head_dim, 0, "0");
  REFUSE(head_dim, 8, "8");
  REFUSE(head_dim, 100, "100");
  REFUSE(head_dim, -64, "-64");
  REFUSE(head_dim_v, 260, "260");
  REFUSE(head_dim_v, 512, "512");
  REFUSE(heads_q, 0, "0");
  REFUSE(heads_q, 33, "33");
  REFUSE(heads_kv, -8, "-8");
  REFUSE(batch, 0, "0");
  REFUSE(batch, INT64_MIN, "-9223372036854775808");
  REFUSE(seqlen_q, 0, "0");
  REFUSE(seqlen_k, (int64_t)1 << 31, "2147483648");
  REFUSE(score_gradients, 3, "3"); /* without a score function */
  REFUSE(mask_rows, 64, "0");      /* without mask_cols: those are what is wrong */
  REFUSE(mask_cols, 64, "0");
  REFUSE(mask_density, 0.5, "0.5");
  REFUSE(mask_density, NAN, "nan");
  REFUSE(mask_longest, 0, "0");
  REFUSE(mask_longest, 2, "2"); /* without a mask */
  REFUSE(window, (enum ft_window)3, "3");
  REFUSE(window_left, -2, "-2");
  REFUSE(window_left, 7, "7"); /* without a window */
  REFUSE(window_right, (int64_t)1 << 31, "2147483648");
#undef REFUSE
  struct ft_request request = sound;
  request.mask_rows = request.mask_cols = 64;
  ck_assert_int_eq(ft_request_validate(&request), FT_OK);
  request.mask_density = -0.5;
  assert_refused(&request, "mask_density", "-0.5");
  request.mask_density = NAN;
  assert_refused(&request, "mask_density", "nan");
  request.mask_density = 1;
  request.mask_cols = -16;
  assert_refused(&request, "mask_cols", "-16");
}
END_TEST

static bool is_power_of_two(int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

START_TEST(bucket_is_valid_near_and_final) {
  seed_cases();
  for (int round = 0; round < ROUNDS; ++round) {
    const struct ft_request request = random_request();
    const struct ft_request bucket = ft_request_bucket(&request);
    const struct ft_request again = ft_request_bucket(&bucket);
    ck_assert_msg(ft_request_validate(&bucket) == FT_OK, "seed %llu: %s",
                  (unsigned long long)cases_seed, ft_detail());
    struct ft_text once = FT_TEXT_INIT;
    ft_request_print(&bucket, &once);
    assert_prints(&again, once.data);
    ft_text_free(&once);
    ck_assert(is_power_of_two(bucket.batch) && bucket.heads_kv == 1);
    ck_assert(is_power_of_two(bucket.heads_q) && is_power_of_two(bucket.seqlen_q));
    /* Of a ragged request each kv head is so many sequences more. */
    const double keys = (double)request.seqlen_k * (request.ragged ? request.heads_kv : 1);
    const double off = log2(keys) - log2((double)bucket.seqlen_k);
    ck_assert_msg(fabs(off) <= 0.5 + 1e-12 || keys > 0x1p30, "seed %llu",
                  (unsigned long long)cases_seed);
    ck_assert(ft_request_distance(&request, &bucket) == 0);
    struct ft_text a = FT_TEXT_INIT, b = FT_TEXT_INIT;
    const struct ft_request class_a = ft_request_kernel_class(&request);
    const struct ft_request class_b = ft_request_kernel_class(&bucket);
    ft_request_print(&class_a, &a);
    ft_request_print(&class_b, &b);
    ck_assert_str_eq(a.data, b.data);
    ft_text_free(&a);
    ft_text_free(&b);
  }
}
END_TEST

START_TEST(bucket_and_class_by_example) {
  const struct ft_request request =
      known_request("d128 hq32 hkv8 b3 nq3000 nk5000 causal dropout mask=128x64@0.3");
  const struct ft_request bucket = ft_request_bucket(&request);
  /* 24 heads -> 32 (log2 24 = 4.58), 3000 -> 4096 (11.55), 5000 -> 4096 (12.29), 0.3 -> 0.25 */
  assert_prints(&bucket, "forward bf16 d128 hq4 hkv1 b32 nq4096 causal dropout mask=128x64@0.25");
  const struct ft_request class = ft_request_kernel_class(&request);
  assert_prints(&class, "forward bf16 d128 causal dropout mask=128x64");
}
END_TEST

START_TEST(hints_of_a_window_are_rounded) {
  const struct ft_request request = known_request("d64 nq4096 window=top-left@1000,-1");
  const struct ft_request bucket = ft_request_bucket(&request);
  assert_prints(&bucket, "forward bf16 d64 nq4096 window=top-left@1024,-1");
  const struct ft_request class = ft_request_kernel_class(&request);
  assert_prints(&class, "forward bf16 d64 window=top-left");
  const struct ft_request causal = known_request("d64 nq4096 causal window@0,77");
  const struct ft_request of_causal = ft_request_bucket(&causal);
  assert_prints(&of_causal, "forward bf16 d64 nq4096 causal window@0,0");
  const struct ft_request half = known_request("d64 nq4096 window=top-left@512,-1");
  const struct ft_request open = known_request("d64 nq4096 window=top-left");
  ck_assert(ft_request_distance(&request, &half) == 1);
  ck_assert(ft_request_distance(&request, &open) == 2); /* as wide as there are keys */
}
END_TEST

/* A text without the hint, as older caches hold it, means a mask whose rows are alike. */
START_TEST(uneven_masks_have_buckets_of_their_own) {
  const struct ft_request even = known_request("d64 nq4096 mask=64x64@0.25");
  const struct ft_request uneven = known_request("d64 nq4096 mask=64x64@0.25,25");
  const struct ft_request bucket = ft_request_bucket(&uneven); /* log2 25 = 4.64 */
  ck_assert_int_eq(even.mask_longest, 1);
  assert_prints(&bucket, "forward bf16 d64 nq4096 mask=64x64@0.25,32");
  ck_assert(ft_request_distance(&even, &uneven) == 5);
  const struct ft_request class = ft_request_kernel_class(&uneven);
  assert_prints(&class, "forward bf16 d64 mask=64x64");
}
END_TEST

START_TEST(distance_counts_octaves) {
  const struct ft_request a = known_request("d64 hq8 b4 nq1024");
  const struct ft_request b = known_request("d64 hq8 b8 nq512 nk4096");
  const struct ft_request c = known_request("d64 hq8 b4 nq1024 causal");
  const struct ft_request d = known_request("d64 hq8 hkv2 b4 nq1024");
  ck_assert(ft_request_distance(&a, &a) == 0);
  ck_assert(ft_request_distance(&a, &b) == 1 + 1 + 2);
  ck_assert(ft_request_distance(&b, &a) == 1 + 1 + 2);
  ck_assert(ft_request_distance(&a, &c) < 0);
  ck_assert(ft_request_distance(&a, &d) == 2 + 2); /* 32 -> 8 kv heads, group 1 -> 4 */
}
END_TEST

/* Visible pairs one by one, as the header defines them. */
static double count_flops(const struct ft_request *request) {
  const int64_t nq = request->seqlen_q, nk = request->seqlen_k;
  double pairs = 0;
  for (int64_t i = 0; i < nq; ++i)
    for (int64_t j = 0; j < nk; ++j) pairs += rule_lets_see(request, i, j);
  const double one = 2 * pairs * (request->head_dim + request->head_dim_v);
  const double pass = request->pass == FT_BACKWARD ? 2.5 : 1;
  return one * pass * request->mask_density * (double)request->batch * request->heads_q;
}

START_TEST(flops_count_visible_pairs) {
  seed_cases();
  for (int round = 0; round < 300; ++round) {
    struct ft_request request = random_request();
    request.ragged = false;
    request.seqlen_q = random_int(1, 50);
    request.seqlen_k = random_int(1, 50);
    const double expected = count_flops(&request), actual = ft_request_flops(&request);
    ck_assert_msg(fabs(actual - expected) <= 1e-12 * expected, "seed %llu: %g, counted %g",
                  (unsigned long long)cases_seed, actual, expected);
  }
}
END_TEST

Suite *make_request_suite(void) {
  Suite *const suite = suite_create("request");
  TCase *const tests = tcase_create("all");
  tcase_add_test(tests, text_survives_a_round_trip);
  tcase_add_test(tests, canonical_text);
  tcase_add_test(tests, text_ignores_the_locale);
  tcase_add_loop_test(tests, bad_text_is_named, 0, sizeof bad_texts / sizeof bad_texts[0]);
  tcase_add_test(tests, a_message_has_no_more_of_a_word_than_tells_it);
  tcase_add_test(tests, bad_field_is_named);
  tcase_add_test(tests, bucket_is_valid_near_and_final);
  tcase_add_test(tests, bucket_and_class_by_example);
  tcase_add_test(tests, hints_of_a_window_are_rounded);
  tcase_add_test(tests, uneven_masks_have_buckets_of_their_own);
  tcase_add_test(tests, distance_counts_octaves);
  tcase_add_test(tests, flops_count_visible_pairs);
  suite_add_tcase(suite, tests);
  return suite;
}
