/* test_nvrtc_file.c: what the file of NVRTC tells of its build, and the line that is remembered of
 * it. in -> out: libraries made here, whole and broken; lines -> versions -> Check suite. */
#include "tests/suites.h"

#include <elf.h>
#include <limits.h>

#include "runtime/nvrtc_identity.h"
#include "runtime/nvrtc_known.h"
#include "tests/store_fixture.h"

static char folder[64], library[96], kernels[96], remembered[96];

static void set_up(void) {
  strcpy(folder, "/tmp/fatune_nvrtc_XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(library, sizeof library, "%s/libnvrtc.so.13", folder);
  snprintf(kernels, sizeof kernels, "%s/kernels.db", folder);
  snprintf(remembered, sizeof remembered, "%s/nvrtc", folder);
}

static void tear_down(void) {
  nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- the build ---- */

static int says_13_0(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return 0;
}

static int says_nothing(int *major, int *minor) {
  *major = *minor = 0;
  return 7;
}

static const char *say_error(int result) {
  return result == 7 ? "out of order" : "?";
}

static void assert_version(const char *expected) {
  char version[64];
  const struct ft_nvrtc nvrtc = {.path = library, .version = says_13_0, .error_text = say_error};
  const int status = ft_nvrtc_identify(&nvrtc, version);
  ck_assert_msg(status == FT_OK && strcmp(version, expected) == 0, "%d %s, not %s: %s", status,
                version, expected, ft_detail());
}

/* A library of constants, of notes, and of code that no words are looked for in. */
struct image {
  Elf64_Ehdr header;
  Elf64_Phdr parts[4];
  char constants[96], code[96];
  struct {
    Elf64_Nhdr head;
    char name[4];
    unsigned char text[8];
  } notes[2];
};

enum { CODE, CONSTANTS, NOTES, FOREIGN };

#define RELEASE "Cuda compilation tools, release 13.0"

static Elf64_Phdr part_of(unsigned type, unsigned flags, size_t offset, size_t size) {
  return (Elf64_Phdr){.p_type = type, .p_flags = flags, .p_offset = offset, .p_filesz = size};
}

static struct image whole_image(void) {
  struct image image = {.header = {.e_phoff = offsetof(struct image, parts),
                                   .e_phentsize = sizeof(Elf64_Phdr),
                                   .e_phnum = 4}};
  memcpy(image.header.e_ident, ELFMAG, SELFMAG);
  image.parts[CODE] =
      part_of(PT_LOAD, PF_R | PF_X, offsetof(struct image, code), sizeof image.code);
  image.parts[CONSTANTS] =
      part_of(PT_LOAD, PF_R, offsetof(struct image, constants), sizeof image.constants);
  image.parts[NOTES] = part_of(PT_NOTE, PF_R, offsetof(struct image, notes), sizeof image.notes);
  image.parts[FOREIGN] = part_of(PT_LOAD, PF_R, 0, sizeof image.header);
  strcpy(image.code, RELEASE ", V13.0.1");
  strcpy(image.constants + 5, RELEASE ", V13.0.88");
  for (int i = 0; i < 2; i++) {
    image.notes[i].head = (Elf64_Nhdr){4, 8, i == 0 ? 1 : NT_GNU_BUILD_ID};
    memcpy(image.notes[i].name, "GNU", 4);
    memcpy(image.notes[i].text, "\x65\xbe\x0d\xb3\x42\xad\x11\x12", 8);
  }
  return image;
}

static void write_image(const struct image *image) {
  write_bytes(library, image, sizeof *image);
}

START_TEST(a_build_is_told_by_release_and_note) {
  const struct image image = whole_image();
  write_image(&image);
  assert_version("13.0.88+65be0db342ad");
}
END_TEST

/* Without a release that agrees with nvrtcVersion that is taken, and without a note the size. */
START_TEST(what_a_file_lacks_is_made_up_for) {
  char by_size[32], both[40];
  snprintf(by_size, sizeof by_size, "13.0.88+%zub", sizeof(struct image));
  snprintf(both, sizeof both, "13.0+%zub", sizeof(struct image));
  static const char *const releases[] = {"Cuda compilation tools", RELEASE, RELEASE ", V",
                                         RELEASE ", V12.9.1",
                                         RELEASE ", V13.0.88888888888888888888888888888"};
  struct image image;
  for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
    image = whole_image();
    memset(image.constants, 0, sizeof image.constants);
    strcpy(image.constants, releases[i]);
    write_image(&image);
    assert_version("13.0+65be0db342ad");
  }
  image = whole_image(); /* a text without an end */
  memset(image.constants, 'x', sizeof image.constants);
  memcpy(image.constants, RELEASE, sizeof RELEASE - 1);
  write_image(&image);
  assert_version("13.0+65be0db342ad");
  for (int i = 0; i < 3; i++) {
    image = whole_image();
    if (i == 0) image.notes[1].head.n_type = 1;
    if (i == 1) image.notes[1].head.n_descsz = 5;
    if (i == 2) image.notes[0].head.n_descsz = 4096; /* beyond the notes */
    write_image(&image);
    assert_version(by_size);
  }
  image = whole_image();
  image.parts[CONSTANTS].p_filesz = image.parts[NOTES].p_offset = 1 << 20; /* beyond the file */
  write_image(&image);
  assert_version(both);
}
END_TEST

START_TEST(a_file_that_is_no_library_has_its_size_alone) {
  struct image image;
  char expected[40];
  for (int i = 0; i < 4; i++) {
    image = whole_image();
    if (i == 0) image.header.e_ident[1] = 'e';
    if (i == 1) image.header.e_phentsize = 32;
    if (i == 2) image.header.e_phoff = sizeof image + 1;
    if (i == 3) image.header.e_phnum = 4000;
    write_image(&image);
    snprintf(expected, sizeof expected, "13.0+%zub", sizeof image);
    assert_version(expected);
  }
  write_bytes(library, &image, 20);
  assert_version("13.0+20b");
}
END_TEST

/* Two builds without a name would have the same keys. */
START_TEST(a_file_that_cannot_be_read_is_no_nvrtc) {
  char version[64];
  struct ft_nvrtc nvrtc = {.path = library, .version = says_13_0, .error_text = say_error};
  assert_status(ft_nvrtc_identify(&nvrtc, version), FT_E_NO_NVRTC);
  ck_assert_msg(strstr(ft_detail(), library) && strstr(ft_detail(), "No such file"), "%s",
                ft_detail());
  write_bytes(library, "", 0);
  assert_status(ft_nvrtc_identify(&nvrtc, version), FT_E_NO_NVRTC);
  ck_assert_msg(strstr(ft_detail(), "it is empty") != NULL, "%s", ft_detail());
  nvrtc.version = says_nothing;
  assert_status(ft_nvrtc_identify(&nvrtc, version), FT_E_NO_NVRTC);
  ck_assert_msg(strstr(ft_detail(), "out of order") != NULL, "%s", ft_detail());
}
END_TEST

/* ---- what is remembered ---- */

static struct ft_compiler *open_fake(void) {
  struct ft_compiler *compiler;
  setenv("FATUNE_LIBNVRTC", FATUNE_FAKE_DIR "/libfake_nvrtc.so", 1);
  assert_ok(ft_compiler_open(&compiler));
  return compiler;
}

/* As it was remembered, but for that text in place of another; NULL: as it was. */
static struct ft_nvrtc_known recall_with(const struct bytes *line, const char *from,
                                         const char *to) {
  char text[PATH_MAX + 256];
  snprintf(text, sizeof text, "%.*s", (int)line->size, (const char *)line->data);
  char *const at = from ? strstr(text, from) : NULL;
  ck_assert(!from || at);
  char rest[PATH_MAX];
  if (at) {
    snprintf(rest, sizeof rest, "%s", at + strlen(from));
    snprintf(at, sizeof text - (size_t)(at - text), "%s%s", to, rest);
  }
  write_bytes(remembered, text, strlen(text));
  ck_assert_int_eq(chmod(remembered, 0600), 0);
  return ft_nvrtc_recall(kernels);
}

START_TEST(the_library_that_compiled_is_known_while_it_lies_there) {
  struct ft_compiler *const compiler = open_fake();
  const char *const version = ft_compiler_version(compiler);
  ck_assert_str_eq(ft_nvrtc_recall(kernels).version, "");
  ft_nvrtc_remember(kernels, compiler);
  struct ft_nvrtc_known known = ft_nvrtc_recall(kernels);
  ck_assert(known.present);
  ck_assert_str_eq(known.version, version);
  setenv("FATUNE_LIBNVRTC", "", 1); /* any may be found */
  ck_assert(ft_nvrtc_recall(kernels).present);
  setenv("FATUNE_LIBNVRTC", "/nowhere/libnvrtc.so", 1);
  known = ft_nvrtc_recall(kernels);
  ck_assert(!known.present);
  ck_assert_str_eq(known.version, version);
  setenv("FATUNE_LIBNVRTC", "/bin/sh", 1);
  ck_assert(!ft_nvrtc_recall(kernels).present);
  unsetenv("FATUNE_LIBNVRTC");

  const struct bytes line = read_bytes(remembered);
  const char *const path = ft_compiler_path(compiler);
  ck_assert(recall_with(&line, NULL, NULL).present);
  known = recall_with(&line, path, "/nowhere/libnvrtc.so");
  ck_assert(!known.present && strcmp(known.version, version) == 0);
  ck_assert(!recall_with(&line, path, folder).present);
  struct stat state;
  ck_assert_int_eq(stat(path, &state), 0);
  const long long numbers[] = {(long long)state.st_size, (long long)state.st_ino,
                               (long long)state.st_mtim.tv_sec, (long long)state.st_mtim.tv_nsec};
  for (int i = 0; i < 4; i++) {
    char is[32], other[32];
    snprintf(is, sizeof is, " %lld ", numbers[i]);
    snprintf(other, sizeof other, " %lld ", numbers[i] + 1);
    known = recall_with(&line, is, other);
    ck_assert_msg(!known.present && strcmp(known.version, version) == 0, "number %d", i);
  }
  free(line.data);
  ft_compiler_close(compiler);
}
END_TEST

START_TEST(a_line_that_is_none_is_forgotten) {
  static const char *const lines[] = {"\n",
                                      "13.0.88+x\n",
                                      "13.0.88+x 1 2 3\n",
                                      "13.0.88+x 1 2 3 four /lib\n",
                                      "13.0.88+x 1 2 3 4 lib\n",
                                      "13.0.88+x 1 2 3 4 /lib",
                                      " 1 2 3 4 /lib\n"};
  char longer[128];
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    write_bytes(remembered, lines[i], strlen(lines[i]));
    chmod(remembered, 0600);
    ck_assert_msg(!ft_nvrtc_recall(kernels).version[0], "%s", lines[i]);
  }
  memset(longer, '1', sizeof longer);
  snprintf(longer + 64, sizeof longer - 64, " 1 2 3 4 /lib\n");
  write_bytes(remembered, longer, strlen(longer));
  ck_assert(!ft_nvrtc_recall(kernels).version[0]);
  write_bytes(remembered, "13.0\0 1 2 3 4 /lib\n", 19);
  ck_assert(!ft_nvrtc_recall(kernels).version[0]);
  write_bytes(remembered, "", 0);
  ck_assert(!ft_nvrtc_recall(kernels).version[0]);
}
END_TEST

/* Where nothing can be remembered, or a file of others stands, nothing is written, and a line that
 * is there already stays as it is. */
START_TEST(remembering_writes_only_what_is_new_and_where_it_may) {
  struct ft_compiler *const compiler = open_fake();
  struct stat first, second;
  char long_name[PATH_MAX + 16];
  ft_nvrtc_remember(NULL, compiler);
  ft_nvrtc_remember("kernels.db", compiler);
  snprintf(long_name, sizeof long_name, "%s%0*d/kernels.db", folder,
           (int)(PATH_MAX - strlen(folder)), 0);
  ft_nvrtc_remember(long_name, compiler);
  ck_assert_int_ne(access(remembered, F_OK), 0);
  ft_nvrtc_remember(kernels, compiler);
  ck_assert_int_eq(stat(remembered, &first), 0);
  ck_assert_int_eq(first.st_mode & 0777, 0600);
  const struct timespec past[2] = {{1000000000, 0}, {1000000000, 0}};
  ck_assert_int_eq(utimensat(AT_FDCWD, remembered, past, 0), 0);
  ft_nvrtc_remember(kernels, compiler);
  ck_assert_int_eq(stat(remembered, &second), 0);
  ck_assert_int_eq(second.st_mtim.tv_sec, 1000000000);
  write_bytes(remembered, "13.0+other 1 2 3 4 /lib/libnvrtc.so\n", 36);
  chmod(remembered, 0600);
  ck_assert_str_eq(ft_nvrtc_recall(kernels).version, "13.0+other");
  ft_nvrtc_remember(kernels, compiler);
  ck_assert_str_eq(ft_nvrtc_recall(kernels).version, ft_compiler_version(compiler));
  ck_assert_int_eq(unlink(remembered), 0);
  ck_assert_int_eq(symlink(library, remembered), 0);
  ft_nvrtc_remember(kernels, compiler);
  ck_assert_int_ne(access(library, F_OK), 0);
  ck_assert_int_eq(unlink(remembered), 0);
  ck_assert_int_eq(chmod(folder, 0777), 0); /* anybody may write there */
  ft_nvrtc_remember(kernels, compiler);
  ck_assert_int_ne(access(remembered, F_OK), 0);
  ck_assert_int_eq(chmod(folder, 0700), 0);
  unsetenv("FATUNE_LIBNVRTC");
  ft_compiler_close(compiler);
}
END_TEST

Suite *make_nvrtc_file_suite(void) {
  Suite *const suite = suite_create("nvrtc_file");
  TCase *const tests = tcase_create("file");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, a_build_is_told_by_release_and_note);
  tcase_add_test(tests, what_a_file_lacks_is_made_up_for);
  tcase_add_test(tests, a_file_that_is_no_library_has_its_size_alone);
  tcase_add_test(tests, a_file_that_cannot_be_read_is_no_nvrtc);
  tcase_add_test(tests, the_library_that_compiled_is_known_while_it_lies_there);
  tcase_add_test(tests, a_line_that_is_none_is_forgotten);
  tcase_add_test(tests, remembering_writes_only_what_is_new_and_where_it_may);
  suite_add_tcase(suite, tests);
  return suite;
}
