/* cxx_search.c: the C++ compiler for emulated kernels.
 * in -> out: $FATUNE_CXX, or g++, clang++, c++ on PATH -> file, family and version, asked of the
 * compiler itself. */
#include "runtime/emulator/cxx_search.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator/status.h"
#include "generator/text.h"
#include "runtime/emulator/child.h"

/* Both know -ftrivial-auto-var-init=pattern and to leave single functions out of instrumentation.
 */
enum { GCC_NEEDED = 12, CLANG_NEEDED = 14 };

/* Code under AddressSanitizer needs the runtime that is in the process, so the same family. */
#if defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
enum { NEEDS_GCC = true, NEEDS_CLANG = false };
#elif defined(__clang__)
#if __has_feature(address_sanitizer)
enum { NEEDS_GCC = false, NEEDS_CLANG = true };
#else
enum { NEEDS_GCC = false, NEEDS_CLANG = false };
#endif
#else
enum { NEEDS_GCC = false, NEEDS_CLANG = false };
#endif

/* ---- the file ---- */

static bool is_program(const char *path) {
  struct stat file;
  return stat(path, &file) == 0 && S_ISREG(file.st_mode) && access(path, X_OK) == 0;
}

/* folder/name as an absolute path; it must hold when the compiler runs in another folder. */
static bool join(char path[512], const char *folder, int length, const char *name) {
  char here[256] = "";
  if ((length == 0 || *folder != '/') && (length > 0 || *name != '/') && !getcwd(here, sizeof here))
    return false;
  const int printed = snprintf(path, 512, "%s%s%.*s%s%s", here, *here ? "/" : "", length, folder,
                               length ? "/" : "", name);
  return printed > 0 && printed < 512 && is_program(path);
}

static bool find_file(char path[512], const char *name) {
  if (strchr(name, '/')) return join(path, "", 0, name);
  const char *folders = secure_getenv("PATH");
  if (!folders) folders = "/usr/local/bin:/usr/bin:/bin";
  for (;;) {
    const size_t length = strcspn(folders, ":");
    if (length < 512 && join(path, length ? folders : ".", length ? (int)length : 1, name))
      return true;
    if (!folders[length]) return false;
    folders += length + 1;
  }
}

/* ---- what it is ---- */

/* The number in "#define name number"; 0: not defined. */
static int macro(const char *macros, const char *name) {
  char line[64];
  (void)snprintf(line, sizeof line, "#define %s ", name);
  const char *const found = strstr(macros, line);
  return found ? (int)strtol(found + strlen(line), NULL, 10) : 0;
}

/* Fills all but the path, or says into `fault` why not. */
static bool identify(struct ft_cxx *cxx, char fault[160]) {
  const char *const arguments[] = {cxx->path, "-dM", "-E", "-x", "c++", "/dev/null", NULL};
  struct ft_text macros = FT_TEXT_INIT;
  int code = 0;
  const bool ran = ft_child_run(arguments, NULL, &macros, &code) == FT_OK && code == 0;
  const char *const text = ran && macros.data ? macros.data : "";
  cxx->clang = macro(text, "__clang_major__") > 0;
  const char *const prefix = cxx->clang ? "__clang_major__" : "__GNUC__";
  const int major = macro(text, prefix);
  (void)snprintf(cxx->name, sizeof cxx->name, "%s %d.%d.%d", cxx->clang ? "clang++" : "g++", major,
                 macro(text, cxx->clang ? "__clang_minor__" : "__GNUC_MINOR__"),
                 macro(text, cxx->clang ? "__clang_patchlevel__" : "__GNUC_PATCHLEVEL__"));
  ft_text_free(&macros);

  *fault = '\0';
  if (major == 0)
    (void)snprintf(fault, 160, "is no GCC and no Clang");
  else if (major < (cxx->clang ? CLANG_NEEDED : GCC_NEEDED))
    (void)snprintf(fault, 160, "is %s", cxx->name);
  else if (cxx->clang ? NEEDS_GCC : NEEDS_CLANG)
    (void)snprintf(fault, 160, "is %s, but this library was built under AddressSanitizer by %s",
                   cxx->name, cxx->clang ? "GCC" : "Clang");
  return !*fault;
}

/* ---- asked once: the same file is the same compiler ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  struct ft_cxx cxx;
  struct stat file;
} known;

static bool same_file(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
         a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static bool identify_once(struct ft_cxx *cxx, char fault[160]) {
  struct stat file;
  if (stat(cxx->path, &file) != 0) memset(&file, 0, sizeof file);
  pthread_mutex_lock(&lock);
  const bool is_known = strcmp(known.cxx.path, cxx->path) == 0 && same_file(&known.file, &file);
  if (is_known) *cxx = known.cxx;
  pthread_mutex_unlock(&lock);
  if (is_known) return true;
  if (!identify(cxx, fault)) return false;
  pthread_mutex_lock(&lock);
  known.cxx = *cxx;
  known.file = file;
  pthread_mutex_unlock(&lock);
  return true;
}

/* ---- the choice ---- */

static bool try_one(struct ft_cxx *cxx, const char *name, struct ft_text *tried) {
  char fault[160];
  memset(cxx, 0, sizeof *cxx);
  const char *const separator = tried->length ? "; " : "";
  if (!find_file(cxx->path, name)) {
    ft_text_add(tried, "%s%s %s", separator, name,
                strchr(name, '/') ? "is no program" : "is not on PATH");
    return false;
  }
  if (identify_once(cxx, fault)) return true;
  ft_text_add(tried, "%s%s %s", separator, cxx->path, fault);
  return false;
}

static int nothing_found(const struct ft_text *tried, bool chosen) {
  return ft_fail(
      FT_E_NO_CXX,
      "the emulator needs a C++ compiler, GCC %d or Clang %d or later: %s%s. Install one "
      "(\"apt install g++\") or name it in FATUNE_CXX. Without one these still work: "
      "emit, compile, tune (which predicts), explain, cache, gpus, doctor, and "
      "everything on a real GPU",
      GCC_NEEDED, CLANG_NEEDED, tried->data ? tried->data : "", chosen ? " (from FATUNE_CXX)" : "");
}

int ft_cxx_find(struct ft_cxx *cxx) {
  static const char *const usual[] = {"g++", "clang++", "c++"};
  const char *const chosen = secure_getenv("FATUNE_CXX");
  struct ft_text tried = FT_TEXT_INIT;
  bool found = false;
  if (chosen && *chosen)
    found = try_one(cxx, chosen, &tried);
  else
    for (int i = 0; i < 3 && !found; i++) found = try_one(cxx, usual[i], &tried);
  const int status = found ? FT_OK : nothing_found(&tried, chosen && *chosen);
  ft_text_free(&tried);
  return status;
}

int ft_emulator_compiler(char name[64], char path[512]) {
  struct ft_cxx cxx;
  FT_TRY(ft_cxx_find(&cxx));
  memcpy(name, cxx.name, sizeof cxx.name);
  memcpy(path, cxx.path, sizeof cxx.path);
  return FT_OK;
}
