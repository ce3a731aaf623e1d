/* test_program_quantise.c: `fatune quantise` on an emulated GPU.
 * in -> out: files of fresh random numbers -> bytes and descales beside float64; command lines that
 * are wrong -> the words that say so, and no file. */
#include <errno.h>

#include "tests/emulator_lab.h"
#include "tests/quantise_lab.h"
#include "tests/run_program.h"
#include "tests/suites.h"

enum { HEADS = 3, BATCH = 2, ROWS_MOST = 301, DIM_MOST = 128, BLOCKS_MOST = 5 };
enum { COUNT_MOST = BATCH * ROWS_MOST * HEADS * DIM_MOST };

static char before[4096]; /* the working folder */
static uint16_t numbers[COUNT_MOST];
static uint8_t bytes[COUNT_MOST + 1];
static float descales[BATCH * HEADS * BLOCKS_MOST + 1];

/* In the test's folder, so that the names of files in messages are short. */
static void begin(void) {
  begin_program_test();
  char *const whole = realpath(program, NULL);
  ck_assert_ptr_nonnull(whole);
  snprintf(program, sizeof program, "%s", whole);
  free(whole);
  ck_assert_ptr_nonnull(getcwd(before, sizeof before));
  ck_assert_int_eq(chdir(folder), 0);
  random_seed = emulator_seed();
}

static void end(void) {
  ck_assert_int_eq(chdir(before), 0);
  end_program_test();
}

static void write_bytes(const char *name, const void *content, size_t size) {
  FILE *const file = fopen(name, "wb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fwrite(content, 1, size, file), size);
  ck_assert_int_eq(fclose(file), 0);
}

/* The file has that many bytes. */
static void read_bytes_of(const char *name, void *content, size_t size) {
  FILE *const file = fopen(name, "rb");
  ck_assert_msg(file != NULL, "%s: %s", name, strerror(errno));
  ck_assert_uint_eq(fread(content, 1, size + 1, file), size);
  fclose(file);
}

static const char *name_of(enum ft_dtype dtype) {
  return dtype == FT_FP16 ? "fp16" : "bf16";
}

/* ---- what is made ---- */

static const struct run_case {
  const char *gpu;
  enum ft_dtype dtype;
  int dim, rows, of_block;
  uint64_t seed; /* 0: not rotated */
} cases[] = {{"h200", FT_BF16, 128, 150, 0, 0},    {"h200", FT_FP16, 80, 150, 64, 11},
             {"h200", FT_BF16, 64, 33, 0, 5},      {"rtx4090", FT_FP16, 16, 301, 128, 0},
             {"rtx4090", FT_BF16, 96, 129, 64, 0}, {"b200", FT_FP16, 128, 1, 0, 9},
             {"rtx4090", FT_FP16, 48, 257, 0, 3},  {"h200", FT_BF16, 32, 127, 128, 2}};

static int blocks_of(const struct run_case *one) {
  return one->of_block > 0 ? (one->rows + one->of_block - 1) / one->of_block : 1;
}

static size_t make_numbers(const struct run_case *one) {
  const size_t count = (size_t)BATCH * (size_t)one->rows * HEADS * (size_t)one->dim;
  for (size_t i = 0; i < count; i++)
    numbers[i] = ft_to_dtype(one->dtype, (below(2001) - 1000) / 500.0);
  numbers[below((int)count)] = ft_to_dtype(one->dtype, -90);
  write_bytes("x", numbers, count * sizeof *numbers);
  return count;
}

static void words_of(const struct run_case *one, char words[256]) {
  char rotate[64] = "", rows[64] = "";
  if (one->seed > 0) snprintf(rotate, sizeof rotate, "--rotate %d", (int)one->seed);
  if (one->of_block > 0) snprintf(rows, sizeof rows, "--descale-rows %d", one->of_block);
  snprintf(words, 256, "quantise %s d%d hq%d b%d nq%d --gpu emulator:%s %s %s", name_of(one->dtype),
           one->dim, HEADS, BATCH, one->rows, one->gpu, rotate, rows);
}

/* One head's rows of one descale. */
static void expect_block(const struct run_case *one, int batch, int head, int block) {
  static double y[ROWS_MOST][DIM_MOST];
  const int of_block = one->of_block > 0 ? one->of_block : one->rows;
  const int first = block * of_block,
            last = first + of_block < one->rows ? first + of_block : one->rows;
  const double descale = (double)descales[(batch * HEADS + head) * blocks_of(one) + block];
  double largest = 0;
  for (int row = first; row < last; row++) {
    const int at = ((batch * one->rows + row) * HEADS + head) * one->dim;
    const bool rotate = one->seed > 0;
    const double weight = rotate && one->of_block == 0 ? quantise_weight(row, one->rows) : 1;
    quantise_row(y[row], one->dtype, &numbers[at], one->dim, rotate, one->seed);
    largest = fmax(largest, weight * quantise_size(one->dtype, &numbers[at], one->dim, rotate));
  }
  ck_assert_double_eq_tol(descale, quantise_descale(largest, one->dim, one->seed > 0),
                          1e-5 * descale);
  for (int row = first; row < last; row++)
    for (int c = 0; c < one->dim; c++) {
      const uint8_t byte = bytes[((batch * one->rows + row) * HEADS + head) * one->dim + c];
      const double is = (double)ft_from_e4m3(byte) * descale;
      ck_assert_msg(quantise_is_near(is, y[row][c], descale),
                    "seed %llu: batch %d head %d row %d column %d: %g, not %g",
                    (unsigned long long)random_seed, batch, head, row, c, is, y[row][c]);
    }
}

START_TEST(bytes_times_descales_are_the_tensor) {
  const struct run_case *const one = &cases[_i];
  char words[256], line[512];
  const size_t count = make_numbers(one), of_descales = BATCH * HEADS * (size_t)blocks_of(one);
  words_of(one, words);
  snprintf(line, sizeof line, "%s --from x -o o --descales d", words);
  expect(line, 0);
  ck_assert_str_eq(messages, "");
  snprintf(line, sizeof line, "%s [2, %d, 3, %d]: batch, rows, heads, head dim",
           name_of(one->dtype), one->rows, one->dim);
  expect_output(line);
  read_bytes_of("o", bytes, count);
  read_bytes_of("d", descales, of_descales * sizeof *descales);
  for (int batch = 0; batch < BATCH; batch++)
    for (int head = 0; head < HEADS; head++)
      for (int block = 0; block < blocks_of(one); block++) expect_block(one, batch, head, block);
}
END_TEST

/* By pipes, too, and into a file that is there. */
START_TEST(pipes_give_the_same_bytes) {
  char words[256], line[sizeof program + 512];
  make_numbers(&cases[1]);
  words_of(&cases[1], words);
  write_bytes("o", "old", 3);
  snprintf(line, sizeof line, "%s --from x -o o --descales d", words);
  expect(line, 0);
  snprintf(line, sizeof line, "cat x | '%s' %s --from - -o - --descales d2 | cmp - o && cmp d d2",
           program, words);
  ck_assert_int_eq(system(line), 0);
  snprintf(line, sizeof line, "'%s' %s --from - -o o2 --descales - <x | cmp - d && cmp o o2",
           program, words);
  ck_assert_int_eq(system(line), 0);
}
END_TEST

START_TEST(the_document_tells_of_the_descales) {
  const struct run_case one = {"h200", FT_FP16, 64, 150, 64, 0};
  char words[256], line[512];
  const size_t count = make_numbers(&one);
  for (int i = 0; i < 7; i++) numbers[i] = i % 2 ? 0x7C01 : 0xFFFF; /* NaN */
  numbers[count - 1] = 0xFC00;                                      /* -infinity */
  write_bytes("x", numbers, count * sizeof *numbers);
  words_of(&one, words);
  snprintf(line, sizeof line, "%s --from x -o o --descales d --json", words);
  expect(line, 0);
  json_t *const root = document("quantise"), *const shape = json_object_get(root, "shape");
  const int lengths[] = {BATCH, one.rows, HEADS, one.dim};
  for (size_t i = 0; i < 4; i++)
    ck_assert_int_eq(json_integer_value(json_array_get(shape, i)), lengths[i]);
  read_bytes_of("d", descales, BATCH * HEADS * 3 * sizeof *descales);
  double least = INFINITY, largest = 0;
  for (int i = 0; i < BATCH * HEADS * 3 - 1; i++) {
    least = fmin(least, (double)descales[i]);
    largest = fmax(largest, (double)descales[i]);
  }
  ck_assert(isinf(descales[BATCH * HEADS * 3 - 1]));
  ck_assert_double_eq(json_real_value(json_object_get(root, "least_descale")), least);
  ck_assert_double_eq(json_real_value(json_object_get(root, "largest_descale")), largest);
  ck_assert_int_eq(json_integer_value(json_object_get(root, "infinite_descales")), 1);
  ck_assert_int_eq(json_integer_value(json_object_get(root, "nans")), 7);
  ck_assert_int_eq(json_integer_value(json_object_get(root, "bytes")), (int)count);
  ck_assert_int_eq(json_integer_value(json_object_get(root, "descales")), BATCH * HEADS * 3);
  ck_assert_int_eq(json_integer_value(json_object_get(root, "descale_rows")), 64);
  ck_assert(json_is_null(json_object_get(root, "rotate")));
  ck_assert(json_is_true(json_object_get(root, "emulated")));
  ck_assert_str_eq(text_at(json_object_get(root, "gpu"), "name"), "h200");
  ck_assert_str_eq(text_at(root, "dtype"), "fp16");
  json_decref(root);
}
END_TEST

/* As options, or as text. */
START_TEST(a_tensor_is_told_by_options) {
  make_numbers(&cases[2]);
  expect("quantise --dtype bf16 --head-dim 64 --heads 3 --batch 2 --seqlen 33 --rotate 5 --from x "
         "-o o --descales d --gpu emulator:h200",
         0);
  expect("quantise 'hkv3 forward d64 b2 nq33 nk33' --rotate 5 --from x -o o2 --descales d2 --gpu "
         "emulator:h200",
         0);
  ck_assert_int_eq(system("cmp o o2 && cmp d d2"), 0);
}
END_TEST

/* ---- what is refused ---- */

#define SHAPE   "fp16 d32 hq3 b2 nq5"
#define SIZE    1920
#define H200    " --gpu emulator:h200"
#define FILES   " --from x -o o --descales d"
#define NOT(it) "'" it "' is nothing that a tensor has; allowed: fp16, bf16, dN, hqN, bN, nqN"
#define OF      "; allowed: 1920, of fp16 [2, 5, 3, 32]"
#define TRY     "\nTry `fatune quantise --help' for more information."

static const struct {
  const char *arguments;
  int code;
  const char *message;
} failures[] = {
    {SHAPE " causal" FILES H200, 2, NOT("causal")},
    {SHAPE " dropout" FILES H200, 2, NOT("dropout")},
    {SHAPE " pages=16" FILES H200, 2, NOT("pages")},
    {SHAPE " mask=16x16@0.5" FILES H200, 2, NOT("mask")},
    {SHAPE " ragged" FILES H200, 2, NOT("ragged")},
    {SHAPE " sinks" FILES H200, 2, NOT("sinks")},
    {SHAPE " window@3,4" FILES H200, 2, NOT("window")},
    {SHAPE " score=123456789abc" FILES H200, 2, NOT("score")},
    {SHAPE " o=fp32" FILES H200, 2, NOT("o")},
    {SHAPE " kv=e4m3" FILES H200, 2, NOT("kv")},
    {SHAPE " hkv1" FILES H200, 2, NOT("hkv")},
    {SHAPE " nk7" FILES H200, 2, NOT("nk")},
    {SHAPE " dv16" FILES H200, 2, NOT("dv")},
    {"backward " SHAPE FILES H200, 2, NOT("backward")},
    {"backward " SHAPE " deterministic" FILES H200, 2, NOT("backward")},
    {"e4m3 d32 nq5" FILES H200, 2, "dtype is e4m3; allowed: fp16, bf16"},
    {"e4m3 d32 nq5 descales=64" FILES H200, 2, NOT("descales")},
    {"fp32 d32 nq5" FILES H200, 2, "dtype is fp32; allowed: fp16, bf16"},
    {"--head-dim 32:16 --seqlen 5" FILES H200, 2, NOT("dv")},
    {"both " SHAPE FILES H200, 2, "--output 'o' with both passes; allowed: one of them" TRY},
    {SHAPE " -o o --descales d" H200, 2, "--from FILE is missing"},
    {SHAPE " --from x --descales d" H200, 2, "--output FILE is missing"},
    {SHAPE " --from x -o o" H200, 2, "--descales FILE is missing"},
    {SHAPE " --from x -o - --descales -" H200, 2,
     "--output '-' and --descales '-' are one file; allowed: two"},
    {SHAPE " --from x -o o --descales o" H200, 2,
     "--output 'o' and --descales 'o' are one file; allowed: two"},
    {SHAPE " --from x -o d --descales ./d" H200, 2,
     "--output 'd' and --descales './d' are one file; allowed: two"},
    {SHAPE " --from o -o o --descales d" H200, 2,
     "--from 'o' and --output 'o' are one file; allowed: two"},
    {SHAPE " --from x -o o --descales ./x" H200, 2,
     "--descales './x' and --from 'x' are one file; allowed: two"},
    {SHAPE FILES H200 " --descale-rows 32", 2, "--descale-rows is '32'; allowed: 64, 128" TRY},
    {SHAPE FILES H200 " --rotate 1.5", 2,
     "--rotate is '1.5'; allowed: an integer from 0 to 9223372036854775807" TRY},
    {SHAPE FILES H200 " --from ''", 2, "--from is ''; a value is needed" TRY},
    {SHAPE " --from y -o o --descales d" H200, 1, "--from 'y': No such file or directory"},
    {SHAPE " --from . -o o --descales d" H200, 1, "--from '.': Is a directory"},
    {SHAPE " --from empty -o o --descales d" H200, 2, "--from 'empty' has 0 bytes" OF},
    {SHAPE " --from short -o o --descales d" H200, 2, "--from 'short' has 1919 bytes" OF},
    {SHAPE " --from long -o o --descales d" H200, 2, "--from 'long' has 1921 bytes" OF},
    {SHAPE " --from - -o o --descales d" H200, 2, "--from '-' has 0 bytes" OF},
    {SHAPE " --from /dev/zero -o o --descales d" H200, 2,
     "--from '/dev/zero' has more than 1920 bytes" OF},
    {"d64 nq2147483647 hq2147483647 b2147483647" FILES H200, 2,
     "the tensor has 2^63 bytes or more"},
    {"d24 nq40" FILES H200, 2, "arguments.head_dim is 24; allowed: multiples of 16 from 16 to 256"},
    {SHAPE FILES " --gpu emulator", 3, "e4m3 needs sm_89 or later, and a100-80gb is sm_80"},
};

/* What was in the output stays, and what was not there is not made. */
START_TEST(failures_have_a_code_and_their_words) {
  static const char zeros[SIZE + 1];
  char line[512], kept[4], expected[512];
  write_bytes("x", zeros, SIZE);
  write_bytes("empty", zeros, 0);
  write_bytes("short", zeros, SIZE - 1);
  write_bytes("long", zeros, SIZE + 1);
  write_bytes("o", "old", 3);
  snprintf(line, sizeof line, "quantise %s", failures[_i].arguments);
  snprintf(expected, sizeof expected, "fatune quantise: %s\n", failures[_i].message);
  expect(line, failures[_i].code);
  ck_assert_str_eq(messages, expected);
  ck_assert_str_eq(output, "");
  read_bytes_of("o", kept, 3);
  ck_assert_int_eq(memcmp(kept, "old", 3), 0);
  ck_assert_int_ne(access("d", F_OK), 0);
}
END_TEST

/* Said by others, so not word by word. */
static const struct {
  const char *arguments;
  int code;
  const char *message;
} others[] = {
    {SHAPE FILES, 3, "quantise with --gpu emulator:h200"},
    {SHAPE FILES " --gpu h200", 3, "'quantise' has to run on it"},
    {SHAPE FILES " --gpu emulator:h20", 2, "did you mean 'emulator:h200'?"},
    {SHAPE FILES H200 " --causal", 2, "unrecognized option '--causal'"},
    {SHAPE FILES H200 " --shapes x", 2, "unrecognized option '--shapes'"},
    {FILES H200, 2, "no request; give one as \"forward bf16 d128 hq32 nq4096\" or by"},
    {SHAPE " -o nowhere/o --from x --descales d" H200, 1, "cannot write 'nowhere/o'"},
    {SHAPE " -o . --from x --descales d" H200, 1, "--output"},
    {SHAPE " -o o --from x --descales nowhere/d" H200, 1, "--descales: cannot write 'nowhere/d'"},
    {SHAPE " -o /dev/full --from x --descales d" H200, 1, "--output '/dev/full': No space left"},
};

START_TEST(other_failures_have_a_code_and_a_message) {
  static const char zeros[SIZE];
  char line[512];
  write_bytes("x", zeros, SIZE);
  snprintf(line, sizeof line, "quantise %s", others[_i].arguments);
  expect(line, others[_i].code);
  expect_message(others[_i].message);
  ck_assert_str_eq(output, "");
  ck_assert_int_ne(access("o", F_OK), 0);
  ck_assert_int_ne(access("d", F_OK), 0); /* of two results none, also where one could be written */
  ck_assert_int_ne(system("ls | grep unfinished"), 0);
}
END_TEST

START_TEST(a_document_leaves_stdout_to_itself) {
  static const char zeros[SIZE];
  static const char *const lines[][2] = {
      {"quantise " SHAPE " --json --from x -o - --descales d" H200,
       "--output is '-' with --json; allowed: a file"},
      {"quantise " SHAPE " --json --from x -o o --descales -" H200,
       "--descales is '-' with --json; allowed: a file"}};
  write_bytes("x", zeros, SIZE);
  for (int i = 0; i < 2; i++) {
    expect(lines[i][0], 2);
    json_t *const root = document("quantise");
    ck_assert_str_eq(text_at(json_object_get(root, "error"), "message"), lines[i][1]);
    json_decref(root);
  }
}
END_TEST

START_TEST(without_a_compiler_nothing_is_read) {
  setenv("FATUNE_CXX", "/nowhere/g++", 1);
  expect("quantise " SHAPE " --from nothing -o o --descales d" H200, 4);
  expect_message("/nowhere/g++");
  unsetenv("FATUNE_CXX");
}
END_TEST

#define COUNT(array) (int)(sizeof array / sizeof *array)

Suite *make_program_quantise_suite(void) {
  Suite *const suite = suite_create("program_quantise");
  TCase *const tests = tcase_create("program_quantise");
  tcase_add_checked_fixture(tests, begin, end);
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, bytes_times_descales_are_the_tensor, 0, COUNT(cases));
  tcase_add_test(tests, pipes_give_the_same_bytes);
  tcase_add_test(tests, the_document_tells_of_the_descales);
  tcase_add_test(tests, a_tensor_is_told_by_options);
  tcase_add_loop_test(tests, failures_have_a_code_and_their_words, 0, COUNT(failures));
  tcase_add_loop_test(tests, other_failures_have_a_code_and_a_message, 0, COUNT(others));
  tcase_add_test(tests, a_document_leaves_stdout_to_itself);
  tcase_add_test(tests, without_a_compiler_nothing_is_read);
  suite_add_tcase(suite, tests);
  return suite;
}
