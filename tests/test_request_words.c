/* test_request_words.c: each row of request.def is everywhere that the recipe of README.md says.
 * in -> out: generator/request_fields.h, README.md, fatune.h -> Check suite. */
#include <check.h>
#include <string.h>

#include "generator/emit.h"
#include "runtime/public.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"
#include "tests/template_folder.h"
#include "tuner/cli/cli_request.h"

static const char base[] = "backward bf16 d64 hq4 hkv1 nq128";

/* The base with another value of every field of the word that begins with this one. */
static struct ft_request with_word(int first) {
  struct ft_request request = known_request(base);
  for (int i = first; i < ft_request_word_end(first); ++i) {
    const struct ft_request_field *const field = ft_request_field(i);
    const int64_t value = ft_request_get(&request, i);
    int choices = 0;
    while (field->choices[choices] != NULL) ++choices;
    ck_assert(field->kind != FT_KIND_CHOICE || choices > 0);
    if (field->kind == FT_KIND_CHOICE) ft_request_set(&request, i, (value + 1) % choices);
    if (i == FT_REQUEST_dtype) ft_request_set(&request, i, FT_FP16); /* e4m3 has no backward */
    if (i == FT_REQUEST_dtype_o) request.dtype_o = FT_O_FP32;
    if (i == FT_REQUEST_dtype_kv) request.pass = FT_FORWARD;
    if (field->kind == FT_KIND_FLAG) ft_request_set(&request, i, 1);
    if (field->kind == FT_KIND_COUNT)
      ft_request_set(&request, i,
                     field->multiple > 0 ? value + field->multiple
                     : value > 0         ? 2 * value
                                         : 6);
    if (i == FT_REQUEST_pages) { /* a power of two, and no backward has them */
      ft_request_set(&request, i, 16);
      request.pass = FT_FORWARD;
    }
    if (i == FT_REQUEST_descale_rows || i == FT_REQUEST_fast_exp) { /* of e4m3 alone */
      request.pass = FT_FORWARD;
      request.dtype = FT_E4M3;
    }
    if (field->kind == FT_KIND_DIGEST) ft_request_set(&request, i, 0x0123456789ab);
    if (field->kind == FT_KIND_SHARE) ft_request_set_real(&request, i, 0.5);
  }
  return request;
}

static int first_of(int field) {
  while (ft_request_field(field)->after != NULL) --field;
  return field;
}

static char *text_of(const char *file) {
  char path[256];
  (void)snprintf(path, sizeof path, FATUNE_SOURCE_DIR "/%s", file);
  FILE *const stream = fopen(path, "rb");
  ck_assert_msg(stream != NULL, "%s", path);
  char *const text = calloc(1, 1 << 20);
  ck_assert_uint_gt(fread(text, 1, (1 << 20) - 1, stream), 0);
  ck_assert_int_eq(fclose(stream), 0);
  return text;
}

START_TEST(is_printed_and_read) {
  const struct ft_request request = with_word(first_of(_i));
  struct ft_text text = FT_TEXT_INIT;
  ck_assert_msg(ft_request_validate(&request) == FT_OK, "%s", ft_detail());
  ft_request_print(&request, &text);
  ck_assert_str_ne(text.data, base);
  const struct ft_request again = known_request(text.data);
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i)
    ck_assert_msg(ft_request_same(&request, &again, i), "%s of '%s'", ft_request_field(i)->name,
                  text.data);
  ft_text_free(&text);
}
END_TEST

START_TEST(decides_on_the_kernel_or_only_on_the_config) {
  const struct ft_request_field *const field = ft_request_field(_i);
  const struct ft_request one = known_request(base), other = with_word(first_of(_i));
  const struct ft_request class = ft_request_kernel_class(&other);
  const bool of_kernel = ft_request_field(first_of(_i))->part == FT_PART_KERNEL;
  ck_assert_msg((ft_request_distance(&one, &other) < 0) == of_kernel, "%s", field->name);
  if (field->part == FT_PART_KERNEL) ck_assert(ft_request_same(&class, &other, _i));
  if (field->part == FT_PART_SIZE) ck_assert_int_eq(ft_request_get(&class, _i), 0);
  if (field->part == FT_PART_HINT) ck_assert(!ft_request_same(&class, &other, _i));
}
END_TEST

/* Of what does not decide on the kernel templates know nothing. */
START_TEST(is_in_the_templates_table) {
  const struct ft_request_field *const field = ft_request_field(_i);
  char line[64];
  (void)snprintf(line, sizeof line, "//@ local x = request.%s\ntext\n", field->name);
  const struct template_folder folder = make_folder(line);
  const struct ft_request request = known_request("d64 nq128");
  const struct ft_arch arch = known_gpu("h200");
  const struct ft_config config = known_config("mma_forward block_m=64 block_n=32 warps=4 stages=2 "
                                               "ctas_per_sm=1");
  struct ft_lua *lua;
  struct ft_source source;
  ck_assert_int_eq(ft_lua_open(&lua, folder.path), FT_OK);
  const int status = ft_emit(&source, lua, &request, &arch, &config);
  ck_assert_msg((status == FT_OK) == (field->part == FT_PART_KERNEL), "%s: %s", field->name,
                status == FT_OK ? "known" : ft_detail());
  if (status == FT_OK) ft_source_free(&source);
  if (status != FT_OK) ck_assert_ptr_nonnull(strstr(ft_detail(), field->name));
  ft_lua_close(lua);
  remove_folder(&folder);
}
END_TEST

START_TEST(stands_in_the_documents) {
  char *const readme = text_of("README.md"), *const header = text_of("runtime/fatune.h");
  const struct ft_request_field *const field = ft_request_field(_i);
  struct ft_text form = FT_TEXT_INIT;
  ft_request_word_form(first_of(_i), &form);
  ck_assert_msg(strstr(readme, form.data) != NULL, "README.md lacks '%s'", form.data);
  ck_assert_msg(strstr(header, form.data) != NULL, "fatune.h lacks '%s'", form.data);
  ft_text_clear(&form);
  if (field->option != NULL) ft_text_add(&form, " --%s ", field->option);
  ck_assert_msg(field->option == NULL || strstr(readme, form.data) != NULL, "README.md lacks '%s'",
                form.data);
  ft_text_free(&form);
  free(readme);
  free(header);
}
END_TEST

/* By an option of its own, or behind the colon of another's. */
START_TEST(is_an_option_of_the_program) {
  const int first = first_of(_i);
  bool found = false;
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i) {
    const struct ft_request_field *const field = ft_request_field(i);
    if (field->option == NULL || (i != first && field->second != first)) continue;
    const struct argp_option *option = cli_request_options();
    while (option->doc != NULL && (!option->name || strcmp(option->name, field->option) != 0))
      ++option;
    found |= option->doc != NULL;
  }
  ck_assert_msg(found, "%s", ft_request_field(_i)->name);
}
END_TEST

START_TEST(goes_to_the_public_struct_and_back) {
  const struct ft_request request = with_word(first_of(_i));
  struct ft_text text = FT_TEXT_INIT;
  fatune_request public = FATUNE_REQUEST_INIT;
  struct ft_request again;
  ft_request_print(&request, &text);
  ck_assert_msg(fatune_request_parse(&public, text.data) == FT_OK, "%s", ft_detail());
  ck_assert_msg(ft_request_from_public(&again, &public) == FT_OK, "%s", ft_detail());
  for (int i = 0; i < FT_REQUEST_FIELDS; ++i)
    ck_assert_msg(ft_request_same(&request, &again, i), "%s of '%s'", ft_request_field(i)->name,
                  text.data);
  ft_text_free(&text);
}
END_TEST

START_TEST(buckets_are_bytes_to_compare) {
  fatune_request one = FATUNE_REQUEST_INIT, other = FATUNE_REQUEST_INIT;
  fatune_request buckets[2] = {FATUNE_REQUEST_INIT, FATUNE_REQUEST_INIT};
  ck_assert_int_eq(fatune_request_parse(&one, "d64 hq8 hkv2 b3 nq1000 nk5000 causal"), FT_OK);
  ck_assert_int_eq(fatune_request_parse(&other, "d64 hq16 hkv4 b2 nq1024 nk4096 causal"), FT_OK);
  ck_assert_int_eq(fatune_request_bucket(&buckets[0], &one), FT_OK);
  ck_assert_int_eq(fatune_request_bucket(&buckets[1], &other), FT_OK);
  ck_assert_int_eq(buckets[0].batch, 8);
  ck_assert_mem_eq(&buckets[0], &buckets[1], sizeof buckets[0]);
  other.causal = FATUNE_CAUSAL_NONE;
  ck_assert_int_eq(fatune_request_bucket(&buckets[1], &other), FT_OK);
  ck_assert_mem_ne(&buckets[0], &buckets[1], sizeof buckets[0]);
  other.head_dim = 7;
  ck_assert_int_eq(fatune_request_bucket(&buckets[1], &other), FT_E_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(ft_detail(), "head_dim is 7"));
  ck_assert_int_eq(fatune_request_bucket(NULL, &other), FT_E_ARGUMENT);
}
END_TEST

Suite *make_request_words_suite(void) {
  Suite *const suite = suite_create("request_words");
  TCase *const tests = tcase_create("all");
  tcase_add_loop_test(tests, is_printed_and_read, 0, FT_REQUEST_FIELDS);
  tcase_add_loop_test(tests, decides_on_the_kernel_or_only_on_the_config, 0, FT_REQUEST_FIELDS);
  tcase_add_loop_test(tests, is_in_the_templates_table, 0, FT_REQUEST_FIELDS);
  tcase_add_loop_test(tests, stands_in_the_documents, 0, FT_REQUEST_FIELDS);
  tcase_add_loop_test(tests, is_an_option_of_the_program, 0, FT_REQUEST_FIELDS);
  tcase_add_loop_test(tests, goes_to_the_public_struct_and_back, 0, FT_REQUEST_FIELDS);
  tcase_add_test(tests, buckets_are_bytes_to_compare);
  suite_add_tcase(suite, tests);
  return suite;
}
