/* test_emulator_build.c: from emitted text to code for the CPU.
 * in -> out: sources -> C++ text, line by line; compilers that are missing, old, foreign, failing,
 * killed -> what is said of them; the real one -> an image. */
#include <check.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator/emit.h"
#include "generator/family.h"
#include "generator/space.h"
#include "runtime/emulator/cxx.h"
#include "runtime/emulator/cxx_search.h"
#include "runtime/emulator/object.h"
#include "runtime/emulator/text.h"
#include "tests/generator_cases.h"
#include "tests/suites.h"

static char folder[64]; /* of this test: TMPDIR, and compilers made up */

static void set_up(void) {
  strcpy(folder, "/tmp/fatune-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  setenv("TMPDIR", folder, 1);
  unsetenv("FATUNE_CXX");
}

static void tear_down(void) {
  DIR *const files = opendir(folder);
  for (struct dirent *file; (file = readdir(files));) unlinkat(dirfd(files), file->d_name, 0);
  closedir(files);
  ck_assert_int_eq(rmdir(folder), 0); /* so no folder of a compile is left */
}

#define ck_assert_ok(expression)                                                                   \
  do {                                                                                             \
    const int ck_status = (expression);                                                            \
    ck_assert_msg(ck_status == FT_OK, "%s: %s", #expression, ft_detail());                         \
  } while (0)

#define ck_assert_told(part)                                                                       \
  ck_assert_msg(strstr(ft_detail(), part) != NULL, "\"%s\" lacks \"%s\"", ft_detail(), part)

static struct ft_source emitted(const char *words, const char *gpu) {
  const struct ft_arch arch = known_gpu(gpu);
  struct ft_request request;
  struct ft_config config;
  struct ft_lua *lua;
  struct ft_source source;
  ck_assert_ok(ft_request_parse(&request, words));
  ck_assert_ok(ft_default_config(&request, &arch, &config));
  ck_assert_ok(ft_lua_open(&lua, NULL));
  ck_assert_ok(ft_emit(&source, lua, &request, &arch, &config));
  ft_lua_close(lua);
  return source;
}

/* ---- the text ---- */

static bool is_ptx(const struct ft_origin *origin) {
  return strncmp(origin->file, "parts/ptx_", 10) == 0;
}

/* Follows the #line directives; found[i] counts how often line i + 1 of the kernel was met, equal.
 */
static void read_back(const struct ft_source *source, char *text, int *found) {
  const char *lines[4096] = {source->text};
  int line = 0, count = 1;
  bool in_kernel = false;
  for (const char *c = source->text; (c = strchr(c, '\n')); c++) lines[count++] = c + 1;
  char *rest = text;
  for (char *now; (now = strsep(&rest, "\n"));) {
    if (strncmp(now, "#line ", 6) == 0) {
      char *file;
      line = (int)strtol(now + 6, &file, 10);
      in_kernel = strcmp(file, " \"kernel.cu\"") == 0;
      continue;
    }
    if (strncmp(now, "#include \"", 10) == 0) {
      in_kernel = false; /* what follows has to say where it is */
      continue;
    }
    if (!in_kernel || line > source->line_count) continue;
    const size_t length = strlen(now);
    ck_assert_msg(strncmp(lines[line - 1], now, length) == 0 && lines[line - 1][length] == '\n',
                  "line %d: \"%s\"", line, now);
    found[line - 1]++;
    line++;
  }
}

START_TEST(every_line_keeps_its_number_and_ptx_goes) {
  static const char *const cases[][2] = {{"forward fp16 d64 nq1 causal", "t4"},
                                         {"forward bf16 d128 nq1 dropout mask=128x128", "a100"},
                                         {"forward bf16 d96 dv40 nq1 causal=top-left", "h200"}};
  for (int i = 0; i < 3; i++) {
    struct ft_source source = emitted(cases[i][0], cases[i][1]);
    struct ft_text text = FT_TEXT_INIT;
    ck_assert_ok(ft_emulator_text(&source, &text));
    char heading[256];
    snprintf(heading, sizeof heading, "#define FE_SM %ld\n#define FE_BF16 %d\n",
             strtol(source.target + 3, NULL, 10), source.dtype == FT_BF16);
    ck_assert_int_eq(strncmp(text.data, heading, strlen(heading)), 0);
    ck_assert_ptr_null(strstr(text.data, "asm"));
    const char *const include = strcmp(source.config.family->instructions, "mma") == 0
                                    ? "#include \"ptx_mma.h\"\n"
                                    : "#include \"ptx_wgmma.h\"\n";
    const char *const header = strstr(text.data, include);
    ck_assert_ptr_nonnull(header);
    ck_assert_ptr_null(strstr(header + 1, include));

    int found[4096] = {0};
    read_back(&source, text.data, found);
    for (int line = 0; line < source.line_count; line++)
      ck_assert_msg(found[line] == !is_ptx(&source.origins[line]), "line %d is there %d times",
                    line + 1, found[line]);
    ft_text_free(&text);
    ft_source_free(&source);
  }
}
END_TEST

/* Owns nothing. */
static struct ft_source made_up(const char *text, struct ft_origin *origins, int count) {
  return (struct ft_source){.text = (char *)(uintptr_t)text,
                            .length = strlen(text),
                            .origins = origins,
                            .line_count = count,
                            .target = "sm_90"};
}

START_TEST(a_ptx_part_that_is_not_emulated_is_named) {
  struct ft_origin origins[] = {{"main.cu.in", 1}, {"parts/ptx_elbow.cu.in", 1}};
  const struct ft_source source = made_up("int a;\nasm\n", origins, 2);
  struct ft_text text = FT_TEXT_INIT;
  struct ft_kernel kernel;
  ck_assert_int_eq(ft_emulator_text(&source, &text), FT_E_UNSUPPORTED);
  ck_assert_told("parts/ptx_elbow.cu.in");
  ck_assert_int_eq(ft_emulator_compile(&source, &kernel), FT_E_UNSUPPORTED);
  ck_assert_ptr_null(kernel.image);
  ft_text_free(&text);
}
END_TEST

START_TEST(only_ptx_parts_are_replaced) {
  struct ft_origin origins[] = {
      {"parts/ptx_mma.cu.in", 1}, {"parts/ptx_mma.cu.in.cu.in", 1}, {"ptx_mma.cu.in", 2},
      {"parts/ptx_mma.cu.in", 2}, {"a \"quoted\" \\ part", 3},
  };
  struct ft_source source = made_up("gone\nb\nc\ngone\nd", origins, 5);
  struct ft_text text = FT_TEXT_INIT;
  origins[1].file = "parts/ptx_mma.lua";
  ck_assert_ok(ft_emulator_text(&source, &text));
  ck_assert_ptr_null(strstr(text.data, "gone"));
  ck_assert_ptr_nonnull(strstr(text.data, "#include \"ptx_mma.h\"\n#line 2 \"kernel.cu\"\nb\nc\n"
                                          "#include \"ptx_mma.h\"\n#line 5 \"kernel.cu\"\nd\n"));
  ck_assert_ptr_nonnull(strstr(text.data, "\"ptx_mma.cu.in\"\":2\",\n"));
  ck_assert_ptr_nonnull(strstr(text.data, "\"a \\\"quoted\\\" \\\\ part\"\":3\",\n"));
  ck_assert_ptr_nonnull(strstr(text.data, "FE_LINES = 5 "));
  ft_text_free(&text);
}
END_TEST

/* ---- the compiler ---- */

/* Of the family this program was built by: the only one that serves under AddressSanitizer. */
#ifdef __clang__
static const char family[] = "clang++";
static const char version_macros[] = "#define __clang_major__ %d\\n#define __clang_minor__ 4\\n"
                                     "#define __clang_patchlevel__ 2\\n";
enum { OLD = 13, NEW = 14 };
#else
static const char family[] = "g++";
static const char version_macros[] = "#define __GNUC__ %d\\n#define __GNUC_MINOR__ 4\\n"
                                     "#define __GNUC_PATCHLEVEL__ 2\\n";
enum { OLD = 11, NEW = 12 };
#endif

/* A script that tells a version when asked for macros, and else does what `work` says. */
static const char *make_compiler(const char *name, int version, const char *work) {
  static char path[128];
  char macros[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  snprintf(macros, sizeof macros, version_macros, version);
  FILE *const file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fprintf(file, "#!/bin/sh\nif [ \"$1\" = -dM ]; then printf '%s'; exit 0; fi\n%s\n", macros, work);
  ck_assert_int_eq(fclose(file), 0);
  ck_assert_int_eq(chmod(path, 0700), 0);
  return path;
}

static void expect_compiler(int version) {
  char name[64], path[512], expected[64];
  ck_assert_ok(ft_emulator_compiler(name, path));
  snprintf(expected, sizeof expected, "%s %d.4.2", family, version);
  ck_assert_str_eq(name, expected);
  ck_assert_int_eq(path[0], '/');
}

START_TEST(a_chosen_compiler_is_the_only_one_tried) {
  char name[64], path[512];
  setenv("FATUNE_CXX", "/nowhere/c++", 1);
  ck_assert_int_eq(ft_emulator_compiler(name, path), FT_E_NO_CXX);
  ck_assert_told("/nowhere/c++ is no program (from FATUNE_CXX)");
  ck_assert_told("apt install g++");
  ck_assert_told("emit, compile");
  ck_assert_ptr_null(strstr(ft_detail(), "PATH"));
  setenv("FATUNE_CXX", folder, 1); /* a folder is no program */
  ck_assert_int_eq(ft_emulator_compiler(name, path), FT_E_NO_CXX);
  setenv("FATUNE_CXX", "no-such-c++", 1);
  ck_assert_int_eq(ft_emulator_compiler(name, path), FT_E_NO_CXX);
  ck_assert_told("no-such-c++ is not on PATH");

  setenv("FATUNE_CXX", make_compiler("mine", OLD, "exit 1"), 1);
  ck_assert_int_eq(ft_emulator_compiler(name, path), FT_E_NO_CXX);
  ck_assert_told(family);
  ck_assert_told(" 1");
  ck_assert_told(".4.2");
  setenv("FATUNE_CXX", make_compiler("mine", NEW, "exit 1"), 1);
  expect_compiler(NEW);
  make_compiler("mine", NEW + 1, "exit 1"); /* once more: what was known of it is out of date */
  expect_compiler(NEW + 1);
  setenv("FATUNE_CXX", "/bin/true", 1);
  ck_assert_int_eq(ft_emulator_compiler(name, path), FT_E_NO_CXX);
  ck_assert_told("/bin/true is no GCC and no Clang");
}
END_TEST

START_TEST(the_first_on_path_that_serves_is_taken) {
  char name[64], path[512], search[160];
  setenv("PATH", folder, 1);
  ck_assert_int_eq(ft_emulator_compiler(name, path), FT_E_NO_CXX);
  ck_assert_told("g++ is not on PATH; clang++ is not on PATH; c++ is not on PATH");
  make_compiler("c++", NEW + 2, "exit 1");
  snprintf(search, sizeof search, "/nowhere::%s:/nothing", folder);
  setenv("PATH", search, 1);
  expect_compiler(NEW + 2);
  make_compiler("clang++", NEW + 1, "exit 1");
  expect_compiler(NEW + 1);
  make_compiler("g++", OLD, "exit 1"); /* too old: goes on */
  expect_compiler(NEW + 1);
  make_compiler("g++", NEW, "exit 1");
  expect_compiler(NEW);
  ck_assert_int_eq(chdir(folder), 0); /* the empty entry of PATH is this folder */
  setenv("PATH", "", 1);
  expect_compiler(NEW);
  ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

/* Compiles with a made-up compiler that must fail. */
static void expect_failure(const struct ft_source *source, const char *work, int status) {
  struct ft_kernel kernel;
  setenv("FATUNE_CXX", make_compiler("failing", NEW, work), 1);
  const int got = ft_emulator_compile(source, &kernel);
  ck_assert_msg(got == status, "%s: %d, not %d: %s", work, got, status, ft_detail());
  ck_assert_ptr_null(kernel.image);
}

START_TEST(failures_of_the_compiler_are_told) {
  struct ft_source source = emitted("forward bf16 d64 nq1", "a100");
  int line = 0;
  while (strcmp(source.origins[line].file, "parts/softmax.cu.in") != 0) line++;
  char work[128], mapped[128];
  snprintf(work, sizeof work,
           "echo kernel.cu:%d:3: error: wrong \\(kernel.cu:99999:\\) >&2; exit 7", line + 1);
  expect_failure(&source, work, FT_E_COMPILE);
  snprintf(mapped, sizeof mapped,
           "templates/parts/softmax.cu.in:%d:3: error: wrong (kernel.cu:99999",
           source.origins[line].line);
  ck_assert_told(mapped);
  ck_assert_told("exit 7");
  ck_assert_told("/failing");

  expect_failure(&source, "exit 3", FT_E_COMPILE);
  ck_assert_told("no message");
  expect_failure(&source, "exit 0", FT_E_COMPILE);
  ck_assert_told("left no compiled kernel");
  expect_failure(&source, ": >kernel.so", FT_E_COMPILE);
  expect_failure(&source, "kill -9 $$", FT_E_COMPILE);
  ck_assert_told("signal 9");
  expect_failure(&source, "kill -2 $$", FT_E_INTERRUPTED);
  expect_failure(&source, "mkdir deep deep/er; touch deep/er/file; yes | head -c 3000000; exit 1",
                 FT_E_COMPILE); /* more than a pipe holds; and all is removed */
  expect_failure(&source,
                 "[ -s kernel.cc ] && [ -s cuda.h ] && ! [ -t 0 ] && cat && exit 5; exit 6",
                 FT_E_COMPILE);
  ck_assert_told("exit 5");
  setenv("TMPDIR", "/nowhere/at/all", 1);
  expect_failure(&source, "exit 0", FT_E_IO);
  ck_assert_told("/nowhere/at/all");
  ck_assert_told("TMPDIR");
  char longer[5000];
  memset(longer, 'x', sizeof longer);
  longer[0] = '/';
  longer[sizeof longer - 1] = '\0';
  setenv("TMPDIR", longer, 1);
  expect_failure(&source, "exit 0", FT_E_IO);
  ck_assert_told("File name too long");
  setenv("TMPDIR", "", 1); /* as if it were not set */
  expect_failure(&source, "exit 3", FT_E_COMPILE);
  ck_assert_told("exit 3");
  setenv("TMPDIR", folder, 1);
  ft_source_free(&source);
}
END_TEST

/* ---- compiled ---- */

START_TEST(an_image_says_what_it_is) {
  struct ft_source source = emitted("forward fp16 d64 nq1 causal", "t4");
  struct ft_kernel kernel, again;
  char name[64], path[512];
  ck_assert_ok(ft_emulator_compiler(name, path));
  ck_assert_ok(ft_emulator_compile(&source, &kernel));
  struct ft_emulator_image image;
  ck_assert_uint_gt(kernel.image_size, sizeof image);
  memcpy(&image, kernel.image, sizeof image);
  ck_assert_mem_eq(image.magic, FT_EMULATOR_MAGIC, sizeof image.magic);
  ck_assert_uint_eq(image.bytes, kernel.image_size - sizeof image);
  ck_assert_mem_eq((char *)kernel.image + sizeof image, "\177ELF", 4);
  ck_assert_str_eq(kernel.nvrtc, name);
  ck_assert_str_eq(kernel.target, "sm_75");
  ck_assert_int_eq(kernel.threads, source.budget.threads);
  ck_assert_int_eq(kernel.smem_bytes, source.budget.smem_bytes);
  ck_assert(ft_digest_equal(&kernel.source, &source.digest));
  ck_assert(!ft_digest_equal(&kernel.key, &source.digest));
  const struct ft_digest digest = ft_digest_of(kernel.image, kernel.image_size);
  ck_assert(ft_digest_equal(&kernel.image_digest, &digest));

  signal(SIGCHLD, SIG_IGN); /* the exit code is lost then, not the kernel */
  ck_assert_ok(ft_emulator_compile(&source, &again));
  ck_assert(ft_digest_equal(&again.key, &kernel.key));
  ft_kernel_free(&kernel);
  ft_kernel_free(&again);
  ft_source_free(&source);
}
END_TEST

START_TEST(an_error_names_the_template_line) {
  struct ft_origin origins[] = {{"main.cu.in", 7}, {"parts/wrong.cu.in", 30}, {"main.cu.in", 8}};
  const struct ft_source source = made_up("int a;\nint b = undeclared_name;\nint c;\n", origins, 3);
  struct ft_kernel kernel;
  ck_assert_int_eq(ft_emulator_compile(&source, &kernel), FT_E_COMPILE);
  ck_assert_told("templates/parts/wrong.cu.in:30");
  ck_assert_told("undeclared_name");
}
END_TEST

static void *compile_one(void *source) {
  struct ft_kernel kernel;
  const int status = ft_emulator_compile(source, &kernel);
  ft_kernel_free(&kernel);
  return status == FT_OK ? NULL : strdup(ft_detail());
}

START_TEST(threads_compile_side_by_side) {
  static const char *const words[] = {"forward bf16 d16 nq1", "forward bf16 d32 nq1",
                                      "forward fp16 d48 nq1", "forward fp16 d64 nq1"};
  struct ft_source sources[4];
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) sources[i] = emitted(words[i], "h200");
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, compile_one, &sources[i]), 0);
  for (int i = 0; i < 4; i++) {
    void *failure;
    ck_assert_int_eq(pthread_join(threads[i], &failure), 0);
    ck_assert_msg(failure == NULL, "%s: %s", words[i], (char *)failure);
    ft_source_free(&sources[i]);
  }
}
END_TEST

Suite *make_emulator_build_suite(void) {
  Suite *const suite = suite_create("emulator_build");
  TCase *const tests = tcase_create("all");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, every_line_keeps_its_number_and_ptx_goes);
  tcase_add_test(tests, a_ptx_part_that_is_not_emulated_is_named);
  tcase_add_test(tests, only_ptx_parts_are_replaced);
  tcase_add_test(tests, a_chosen_compiler_is_the_only_one_tried);
  tcase_add_test(tests, the_first_on_path_that_serves_is_taken);
  tcase_add_test(tests, failures_of_the_compiler_are_told);
  tcase_add_test(tests, an_image_says_what_it_is);
  tcase_add_test(tests, an_error_names_the_template_line);
  tcase_add_test(tests, threads_compile_side_by_side);
  suite_add_tcase(suite, tests);
  return suite;
}
