/* test_golden.c: emitted kernels and their budgets against the files of tests/golden.
 * in -> out: list.txt (name | target | request | config) -> digests.txt, <name>.budget.txt, and
 * <name>.cu of the kernels that are kept in full.
 * A digest is that of the code without comments: a changed comment shows in the full kernels alone.
 * Half of the kernels, others in each run, are compiled for one of the targets that their family
 * serves, and with FATUNE_TEST_SLOW=1 all of them for all targets; a spill fails, always.
 * `make golden` sets FATUNE_GOLDEN_UPDATE and writes the files instead of comparing them. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/emit.h"
#include "generator/family.h"
#include "generator/status.h"
#include "runtime/compiler.h"
#include "tests/fresh_seed.h"
#include "tests/golden_list.h"
#include "tests/slow_tests.h"
#include "tests/suites.h"

#define FOLDER GOLDEN_FOLDER

enum { LINE_SIZE = 512 };

static const char *const targets[] = {"sm_75",  "sm_80",  "sm_86",  "sm_89", "sm_90",
                                      "sm_100", "sm_103", "sm_120", "sm_121"};
enum { TARGET_COUNT = (int)(sizeof targets / sizeof targets[0]) };

static void must(int status, const char *what) {
  ck_assert_msg(status == FT_OK, "%s: %s (%s)", what, ft_status_text(status), ft_detail());
}

/* ---- files -------------------------------------------------------------------------------------
 */

static bool updating(void) {
  return getenv("FATUNE_GOLDEN_UPDATE") != NULL;
}

static void read_file(const char *path, struct ft_text *text) {
  FILE *file = fopen(path, "rb");
  ck_assert_msg(file != NULL, "%s: %s; `make golden` writes it", path, strerror(errno));
  char block[4096];
  size_t count;
  while ((count = fread(block, 1, sizeof block, file)) > 0) ft_text_append(text, block, count);
  ck_assert_int_eq(ferror(file), 0);
  ck_assert_int_eq(fclose(file), 0);
  must(ft_text_status(text), path);
}

static void write_file(const char *path, const char *bytes, size_t length) {
  FILE *file = fopen(path, "wb");
  ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
  ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
  ck_assert_int_eq(fclose(file), 0);
}

static int first_different_line(const char *a, const char *b) {
  int line = 1;
  for (; *a != '\0' && *a == *b; a++, b++)
    if (*a == '\n') line++;
  return line;
}

/* What the line begins with, for a message. */
static const char *line_at(const char *text, int line, char buffer[LINE_SIZE]) {
  for (; line > 1 && *text != '\0'; text++)
    if (*text == '\n') line--;
  snprintf(buffer, LINE_SIZE, "%.*s", (int)strcspn(text, "\n"), text);
  return buffer;
}

static void compare_or_write(const char *name, const char *suffix, const struct ft_text *now) {
  ck_assert_ptr_nonnull(now->data);
  char path[sizeof FOLDER + GOLDEN_NAME_SIZE + 16];
  snprintf(path, sizeof path, "%s%s%s", FOLDER, name, suffix);
  if (updating()) {
    write_file(path, now->data, now->length);
    return;
  }
  struct ft_text golden = FT_TEXT_INIT;
  read_file(path, &golden);
  const char *before = golden.data ? golden.data : "";
  char old[LINE_SIZE], new[LINE_SIZE];
  const int line = first_different_line(before, now->data);
  ck_assert_msg(strcmp(before, now->data) == 0,
                "%s:%d differs; where that is meant, `make golden` and review the diff\n- %s\n+ %s",
                path, line, line_at(before, line, old), line_at(now->data, line, new));
  ft_text_free(&golden);
}

/* ---- the tests ---------------------------------------------------------------------------------
 */

static void arch_of(struct ft_lua *lua, const char *target, struct ft_arch *arch) {
  must(ft_lua_gpu(lua, target, arch), target);
}

static void emit_entry(struct ft_source *source, struct ft_lua *lua,
                       const struct golden_entry *entry) {
  struct ft_arch arch;
  arch_of(lua, entry->target, &arch);
  must(ft_emit(source, lua, &entry->request, &arch, &entry->config), entry->name);
}

/* The heading names each template file with a digest of it, which every comment changes. */
static void add_without_digests(struct ft_text *text, const char *line, size_t length) {
  static const char ending[] = ".in ";
  enum { DIGITS = 8 };
  const char *const end = line + length;
  while (line < end) {
    const char *const name_end = memmem(line, (size_t)(end - line), ending, strlen(ending));
    const size_t kept = (size_t)((name_end ? name_end + strlen(ending) - 1 : end) - line);
    ft_text_append(text, line, kept);
    line += kept + (name_end ? 1 + DIGITS : 0);
  }
}

/* The emitted text as it is kept: the heading without digests. */
static void add_kept_text(struct ft_text *text, const struct ft_source *source, const char *name) {
  const char *const parts = strstr(source->text, "\n// parts ");
  ck_assert_msg(parts != NULL, "%s: the heading names no parts", name);
  const char *const after = strchr(parts + 1, '\n');
  ft_text_append(text, source->text, (size_t)(parts + 1 - source->text));
  add_without_digests(text, parts + 1, (size_t)(after - parts - 1));
  ft_text_append(text, after, source->length - (size_t)(after - source->text));
  must(ft_text_status(text), name);
}

START_TEST(texts_kept_in_full_are_golden) {
  struct golden_entry entries[GOLDEN_ENTRIES_MOST];
  const int count = golden_entries(entries);
  struct ft_lua *lua = NULL;
  int in_full = 0;
  must(ft_lua_open(&lua, NULL), "templates");
  for (int i = 0; i < count; i++) {
    if (!entries[i].in_full) continue;
    struct ft_source source;
    struct ft_text text = FT_TEXT_INIT;
    emit_entry(&source, lua, &entries[i]);
    add_kept_text(&text, &source, entries[i].name);
    compare_or_write(entries[i].name, ".cu", &text);
    ft_text_free(&text);
    ft_source_free(&source);
    in_full++;
  }
  ck_assert_int_gt(in_full, 0);
  ft_lua_close(lua);
}
END_TEST

/* The text without comments, blank lines and blanks at the ends of lines. */
static void add_code(struct ft_text *code, const char *text) {
  for (const char *line = text; *line != '\0'; line += line[0] == '\n') {
    const size_t length = strcspn(line, "\n");
    const char *const comment = memmem(line, length, "//", 2);
    size_t kept = comment ? (size_t)(comment - line) : length;
    while (kept > 0 && line[kept - 1] == ' ') kept--;
    if (kept > 0) {
      ft_text_append(code, line, kept);
      ft_text_append(code, "\n", 1);
    }
    line += length;
  }
}

START_TEST(emitted_code_has_golden_digests) {
  enum { DIGITS = 16 };
  struct golden_entry entries[GOLDEN_ENTRIES_MOST];
  const int count = golden_entries(entries);
  struct ft_lua *lua = NULL;
  struct ft_text digests = FT_TEXT_INIT;
  must(ft_lua_open(&lua, NULL), "templates");
  for (int i = 0; i < count; i++) {
    struct ft_source source;
    struct ft_text code = FT_TEXT_INIT;
    char hex[FT_DIGEST_HEX];
    emit_entry(&source, lua, &entries[i]);
    add_code(&code, source.text);
    must(ft_text_status(&code), entries[i].name);
    const struct ft_digest digest = ft_digest_of(code.data, code.length);
    ft_digest_hex(&digest, hex);
    ft_text_add(&digests, "%.*s %s\n", DIGITS, hex, entries[i].name);
    ft_text_free(&code);
    ft_source_free(&source);
  }
  must(ft_text_status(&digests), "digests");
  compare_or_write("digests", ".txt", &digests);
  ft_text_free(&digests);
  ft_lua_close(lua);
}
END_TEST

/* Why the entry is not compiled for that target, as its line says it; NULL: it is. */
static const char *not_compiled(struct ft_compiler *compiler, const struct golden_entry *entry,
                                const struct ft_arch *arch, const char *target) {
  static _Thread_local char why[96];
  if (ft_rules_serves(&entry->request, arch) != FT_OK) return "not served";
  const struct ft_rule *broken =
      ft_rules_broken(&entry->request, arch, &entry->config, FT_EVERY_RULE);
  if (broken) {
    const bool has_no_clusters = arch->sm < 90 && strcmp(broken->name, "cluster-parts") == 0;
    ck_assert_msg(arch->sm < 80 || has_no_clusters || strcmp(broken->name, "family") == 0,
                  "%s is rejected on %s by %s; choose a config for all targets", entry->name,
                  target, broken->name);
    snprintf(why, sizeof why, "rejected by %s", broken->name);
    return why;
  }
  /* CUDA 12.0 knows no sm_100. */
  return ft_compiler_supports(compiler, target) == FT_OK ? NULL : "unknown to this NVRTC";
}

/* Appends the line of one target, "sm_80  threads=128 smem=49152 registers=168 spills=0". */
static void add_budget(struct ft_text *text, struct ft_compiler *compiler, struct ft_lua *lua,
                       const struct golden_entry *entry, const char *target) {
  struct ft_arch arch;
  struct ft_source source;
  struct ft_kernel kernel;
  arch_of(lua, target, &arch);
  must(ft_emit(&source, lua, &entry->request, &arch, &entry->config), entry->name);
  must(ft_compiler_compile(compiler, &source, &kernel), entry->name);
  ck_assert_msg(kernel.spill_bytes == 0, "%s on %s: %d bytes per thread spill (%d registers)",
                entry->name, target, kernel.spill_bytes, kernel.registers);
  ck_assert_int_eq(kernel.threads, source.budget.threads);
  ck_assert_int_eq(kernel.smem_bytes, source.budget.smem_bytes);
  ck_assert_int_le(kernel.registers, source.budget.regs_limit);
  ft_text_add(text, "%-7s threads=%d smem=%d registers=%d spills=%d\n", target, kernel.threads,
              kernel.smem_bytes, kernel.registers, kernel.spill_bytes);
  ft_kernel_free(&kernel);
  ft_source_free(&source);
}

/* "nvrtc 13.0.88": the version without the digest of its file. */
static void add_version(struct ft_text *text, const struct ft_compiler *compiler) {
  const char *version = ft_compiler_version(compiler);
  ft_text_add(text, "nvrtc %.*s\n", (int)strcspn(version, "+"), version);
}

/* Copies the golden line of a target that is left out of this run. */
static void add_golden_line(struct ft_text *text, const struct ft_text *golden, const char *name,
                            const char *target) {
  char begin[16];
  snprintf(begin, sizeof begin, "\n%-7s ", target);
  const char *const line = golden->data ? strstr(golden->data, begin) : NULL;
  ck_assert_msg(line != NULL, "%s.budget.txt has no line of %s; `make golden`", name, target);
  ft_text_add(text, "%.*s\n", (int)strcspn(line + 1, "\n"), line + 1);
}

/* Which of the targets that the entry is compiled for is this run's; -1: all of them are. Every
 * second entry has none, a number beyond them: what NVRTC made of the same code is golden. */
static int target_of_this_run(int compiled) {
  return updating() || tests_are_slow() ? -1
                                        : (int)(fresh_seed() / 1000 % (2 * (uint64_t)compiled));
}

START_TEST(kernels_compile_within_the_golden_budget) {
  struct golden_entry entry;
  if (!golden_entry_at(_i, &entry)) return;
  struct ft_lua *lua = NULL;
  struct ft_compiler *compiler = NULL;
  must(ft_lua_open(&lua, NULL), "templates");
  must(ft_compiler_open(&compiler), "NVRTC");

  struct ft_text budget = FT_TEXT_INIT, version = FT_TEXT_INIT, golden = FT_TEXT_INIT;
  char path[sizeof FOLDER + GOLDEN_NAME_SIZE + 16];
  const char *why[TARGET_COUNT];
  char reasons[TARGET_COUNT][96];
  int compiled = 0;
  snprintf(path, sizeof path, "%s%s.budget.txt", FOLDER, entry.name);
  if (!updating()) read_file(path, &golden);
  for (int i = 0; i < TARGET_COUNT; i++) {
    struct ft_arch arch;
    arch_of(lua, targets[i], &arch);
    why[i] = not_compiled(compiler, &entry, &arch, targets[i]);
    if (why[i]) why[i] = strcpy(reasons[i], why[i]);
    compiled += why[i] == NULL;
  }
  ck_assert_int_gt(compiled, 0);
  int turn = target_of_this_run(compiled);
  add_version(&version, compiler);
  add_version(&budget, compiler);
  for (int i = 0; i < TARGET_COUNT; i++) {
    if (why[i])
      ft_text_add(&budget, "%-7s %s\n", targets[i], why[i]);
    else if (turn < 0 || --compiled == turn)
      add_budget(&budget, compiler, lua, &entry, targets[i]);
    else
      add_golden_line(&budget, &golden, entry.name, targets[i]);
  }
  must(ft_text_status(&budget), entry.name);
  must(ft_text_status(&version), entry.name);
  /* Registers are NVRTC's choice, so they are golden for one version of it only. */
  if (updating() || (golden.data && strncmp(golden.data, version.data, version.length) == 0))
    compare_or_write(entry.name, ".budget.txt", &budget);
  ft_text_free(&golden);
  ft_text_free(&version);
  ft_text_free(&budget);
  ft_compiler_close(compiler);
  ft_lua_close(lua);
}
END_TEST

/* The guard above is worth something only if a real spill reaches it: aimed at four blocks per
 * multiprocessor, a kernel that wants 200 registers gets 128. */
START_TEST(a_spill_is_seen) {
  static const char constant[] = "CTAS_PER_SM = 1";
  struct ft_request request;
  struct ft_config config;
  struct ft_arch arch;
  struct ft_source source;
  struct ft_kernel kernel;
  struct ft_lua *lua = NULL;
  struct ft_compiler *compiler = NULL;
  must(ft_lua_open(&lua, NULL), "templates");
  must(ft_compiler_open(&compiler), "NVRTC");
  arch_of(lua, "sm_80", &arch);
  must(ft_request_parse(&request, "forward bf16 d256 nq4096"), "request");
  must(ft_config_parse(
           &config, "mma_forward block_m=64 block_n=32 warps=4 stages=2 q_in_regs=0 overlap_qk=0 "
                    "ctas_per_sm=1"),
       "config");
  must(ft_emit(&source, lua, &request, &arch, &config), "emit");
  char *blocks = strstr(source.text, constant);
  ck_assert_msg(blocks != NULL, "the emitted text has no \"%s\"", constant);
  blocks[sizeof constant - 2] = '4';
  must(ft_compiler_compile(compiler, &source, &kernel), "compile");
  ck_assert_int_le(kernel.registers, 128);
  ck_assert_int_gt(kernel.spill_bytes, 0);
  ft_kernel_free(&kernel);
  ft_source_free(&source);
  ft_compiler_close(compiler);
  ft_lua_close(lua);
}
END_TEST

/* A golden kernel must compile for its own target, and sm_75 must be covered by one at least. */
START_TEST(every_golden_config_is_legal_on_its_target) {
  struct golden_entry entries[GOLDEN_ENTRIES_MOST];
  const int count = golden_entries(entries);
  struct ft_lua *lua = NULL;
  bool covered[TARGET_COUNT] = {false};
  must(ft_lua_open(&lua, NULL), "templates");
  for (int i = 0; i < count; i++) {
    for (int t = 0; t < TARGET_COUNT; t++) {
      struct ft_arch arch;
      arch_of(lua, targets[t], &arch);
      const struct ft_rule *broken =
          ft_rules_broken(&entries[i].request, &arch, &entries[i].config, FT_EVERY_RULE);
      const bool legal = ft_rules_serves(&entries[i].request, &arch) == FT_OK && !broken;
      covered[t] = covered[t] || legal;
      ck_assert_msg(legal || strcmp(targets[t], entries[i].target) != 0, "%s breaks %s on %s",
                    entries[i].name, broken ? broken->name : "the target", targets[t]);
    }
  }
  for (int t = 0; t < TARGET_COUNT; t++)
    ck_assert_msg(covered[t], "no golden kernel is compiled for %s", targets[t]);
  ft_lua_close(lua);
}
END_TEST

/* Whether the entry's kernel has the switch on, and other code without it, if it can do without. */
static bool shows(const struct golden_entry *entry, int knob, struct ft_lua *lua) {
  if (entry->config.knobs[knob] == 0) return false;
  struct golden_entry without = *entry;
  struct ft_arch arch;
  without.config.knobs[knob] = 0;
  arch_of(lua, entry->target, &arch);
  if (ft_rules_broken(&without.request, &arch, &without.config, FT_CANNOT_RUN)) return true;
  struct ft_source source[2];
  struct ft_text code[2] = {FT_TEXT_INIT, FT_TEXT_INIT};
  emit_entry(&source[0], lua, entry);
  emit_entry(&source[1], lua, &without);
  for (int i = 0; i < 2; i++) {
    add_code(&code[i], source[i].text);
    must(ft_text_status(&code[i]), entry->name);
    ck_assert_ptr_nonnull(code[i].data);
    ft_source_free(&source[i]);
  }
  const bool differs = strcmp(code[0].data, code[1].data) != 0;
  ft_text_free(&code[0]);
  ft_text_free(&code[1]);
  return differs;
}

START_TEST(every_switch_shows_in_a_golden_kernel) {
  struct golden_entry entries[GOLDEN_ENTRIES_MOST];
  const int count = golden_entries(entries);
  const struct ft_family *family;
  struct ft_lua *lua = NULL;
  must(ft_lua_open(&lua, NULL), "templates");
  for (int f = 0; (family = ft_family_at(f)) != NULL; f++) {
    for (int knob = 0; knob < family->knob_count; knob++) {
      bool shown = family->knobs[knob].least > 0; /* no switch */
      for (int i = 0; i < count && !shown; i++)
        shown = entries[i].config.family == family && shows(&entries[i], knob, lua);
      ck_assert_msg(shown, "no entry of list.txt shows what %s's %s does", family->name,
                    family->knobs[knob].name);
    }
  }
  ft_lua_close(lua);
}
END_TEST

START_TEST(no_golden_file_is_left_over) {
  struct golden_entry entries[GOLDEN_ENTRIES_MOST];
  const int count = golden_entries(entries);
  DIR *folder = opendir(FOLDER);
  ck_assert_ptr_nonnull(folder);
  const struct dirent *file;
  while ((file = readdir(folder)) != NULL) {
    if (file->d_name[0] == '.' || strcmp(file->d_name, "list.txt") == 0 ||
        strcmp(file->d_name, "digests.txt") == 0)
      continue;
    bool listed = false;
    for (int i = 0; i < count; i++) {
      const size_t length = strlen(entries[i].name);
      const char *const ending = file->d_name + length;
      listed = listed || (strncmp(file->d_name, entries[i].name, length) == 0 &&
                          (strcmp(ending, ".budget.txt") == 0 ||
                           (entries[i].in_full && strcmp(ending, ".cu") == 0)));
    }
    ck_assert_msg(listed, "tests/golden/%s belongs to no entry of list.txt", file->d_name);
  }
  closedir(folder);
}
END_TEST

Suite *make_golden_suite(void) {
  Suite *suite = suite_create("golden");
  const int count = golden_count();
  TCase *list = tcase_create("list");
  tcase_add_test(list, every_golden_config_is_legal_on_its_target);
  tcase_add_test(list, every_switch_shows_in_a_golden_kernel);
  tcase_add_test(list, no_golden_file_is_left_over);
  suite_add_tcase(suite, list);

  TCase *text = tcase_create("text");
  tcase_add_test(text, emitted_code_has_golden_digests);
  tcase_add_test(text, texts_kept_in_full_are_golden);
  suite_add_tcase(suite, text);

  TCase *budget = tcase_create("budget");
  tcase_set_timeout(budget, 300); /* seven compiles each, on a busy machine */
  tcase_add_loop_test(budget, kernels_compile_within_the_golden_budget, 0, count);
  tcase_add_test(budget, a_spill_is_seen);
  suite_add_tcase(suite, budget);
  return suite;
}
