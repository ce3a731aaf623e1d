/* nvrtc_search.c: where NVRTC is looked for, and the opening of it.
 * in -> out: FATUNE_LIBNVRTC, loader path, toolkit folders, NVIDIA's wheels -> struct ft_nvrtc. */
#include "runtime/nvrtc_search.h"

#include "generator/status.h"
#include "generator/text.h"
#include "runtime/nvrtc.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int load_symbols(struct ft_nvrtc *nvrtc, struct ft_text *tried, const char *file) {
  static const struct {
    const char *name;
    size_t offset;
  } symbols[] = {{"nvrtcGetErrorString", offsetof(struct ft_nvrtc, error_text)},
#define RT(member, symbol, arguments) {symbol, offsetof(struct ft_nvrtc, member)},
                 FT_NVRTC_FUNCTIONS(RT)
#undef RT
  };
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *const address = dlsym(nvrtc->library, symbols[i].name);
    if (!address) {
      ft_text_add(tried, " %s (lacks %s: NVRTC 11.2 or later is needed);", file, symbols[i].name);
      return FT_E_NO_NVRTC;
    }
    memcpy((char *)nvrtc + symbols[i].offset, &address, sizeof address);
  }
  return FT_OK;
}

/* The real file behind a name the loader resolved, so that people can see which one is in use. */
static char *path_of(void *library, const char *file) {
  struct link_map *map = NULL;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name) {
    char *const real = realpath(map->l_name, NULL);
    return real ? real : strdup(map->l_name);
  }
  return strdup(file);
}

/* NVRTC opens its libnvrtc-builtins by name alone, and not every build of it has a run path. One
 * that is loaded already is found by that name, so the one beside the library is loaded first; it
 * must be of the same release. A failure shows at the first compile, in NVRTC's words. */
static void load_builtins(const char *library) {
  char pattern[PATH_MAX];
  const char *const slash = strrchr(library, '/');
  const size_t length = slash ? (size_t)(slash - library) : 0;
  static const char name[] = "/libnvrtc-builtins.so.[0-9]*";
  if (!slash || length + sizeof name > sizeof pattern) return;
  memcpy(pattern, library, length);
  memcpy(pattern + length, name, sizeof name);
  glob_t found;
  if (glob(pattern, 0, NULL, &found) != 0) return;
  for (size_t i = 0; i < found.gl_pathc; i++)
    (void)dlopen(found.gl_pathv[i], RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  globfree(&found);
}

/* FT_E_NO_NVRTC: not this one, go on. */
static int try_file(struct ft_nvrtc *nvrtc, struct ft_text *tried, const char *file) {
  nvrtc->library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!nvrtc->library) {
    const char *const reason = dlerror();
    ft_text_add(tried, " %s;", strchr(file, '/') && reason ? reason : file);
    return FT_E_NO_NVRTC;
  }
  int status = load_symbols(nvrtc, tried, file);
  if (status == FT_OK) {
    nvrtc->path = path_of(nvrtc->library, file);
    if (nvrtc->path)
      load_builtins(nvrtc->path);
    else
      status = ft_fail(FT_E_MEMORY, "no memory for the path of NVRTC");
  }
  if (status != FT_OK) ft_nvrtc_close(nvrtc);
  return status;
}

/* Tries every match of a pattern, the last in alphabet first: that is the newest version. */
static int try_pattern(struct ft_nvrtc *nvrtc, struct ft_text *tried, const char *folder,
                       const char *pattern) {
  char full[PATH_MAX];
  const size_t a = strlen(folder), b = strlen(pattern);
  if (a + b + 1 > sizeof full) return FT_E_NO_NVRTC;
  memcpy(full, folder, a);
  memcpy(full + a, pattern, b + 1);

  glob_t found;
  int status = FT_E_NO_NVRTC;
  if (glob(full, 0, NULL, &found) != 0) return status;
  for (size_t i = found.gl_pathc; i-- > 0 && status == FT_E_NO_NVRTC;)
    status = try_file(nvrtc, tried, found.gl_pathv[i]);
  globfree(&found);
  return status;
}

/* Wheels lie in <folder>/nvidia: nvidia-cuda-nvrtc (13 and later) and nvidia-cuda-nvrtc-cu12. */
static int try_wheels(struct ft_nvrtc *nvrtc, struct ft_text *tried, const char *folder) {
  static const char *const patterns[] = {
      "/nvidia/cu1[3-9]/lib/libnvrtc.so.1[3-9]",
      "/nvidia/cuda_nvrtc/lib/libnvrtc.so.1[2-9]",
  };
  int status = FT_E_NO_NVRTC;
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns && status == FT_E_NO_NVRTC; i++)
    status = try_pattern(nvrtc, tried, folder, patterns[i]);
  return status;
}

/* The package folders of a Python whose executable lies in `bin`; the pyenv shims' are a level
 * apart. */
static int try_python(struct ft_nvrtc *nvrtc, struct ft_text *tried, const char *bin) {
  static const char *const packages[] = {
      "/../lib/python3*/site-packages", "/../lib/python3*/dist-packages",
      "/../lib/python3/dist-packages", "/../local/lib/python3*/dist-packages",
      "/../versions/*/lib/python3*/site-packages"};
  int status = FT_E_NO_NVRTC;
  for (size_t i = 0; i < sizeof packages / sizeof *packages && status == FT_E_NO_NVRTC; i++) {
    char folder[PATH_MAX];
    if (strlen(bin) + strlen(packages[i]) + 1 > sizeof folder) return status;
    stpcpy(stpcpy(folder, bin), packages[i]);
    status = try_wheels(nvrtc, tried, folder);
  }
  return status;
}

static bool find_on_path(const char *program, char found[PATH_MAX]) {
  const char *path = secure_getenv("PATH");
  while (path && *path) {
    const size_t length = strcspn(path, ":");
    if (length > 0 && length + strlen(program) + 2 < PATH_MAX) {
      memcpy(found, path, length);
      stpcpy(stpcpy(found + length, "/"), program);
      if (access(found, X_OK) == 0) return true;
    }
    path += length + (path[length] == ':');
  }
  return false;
}

/* python3 on PATH, as named (a virtual environment's link) and as resolved (the Python behind it).
 * The folders are only looked at; no Python is run. */
static int try_python_on_path(struct ft_nvrtc *nvrtc, struct ft_text *tried) {
  char named[PATH_MAX], real[PATH_MAX];
  if (!find_on_path("python3", named)) return FT_E_NO_NVRTC;
  const bool resolved = realpath(named, real) != NULL;
  *strrchr(named, '/') = '\0';
  int status = try_python(nvrtc, tried, named);
  if (status == FT_E_NO_NVRTC && resolved) {
    *strrchr(real, '/') = '\0';
    if (strcmp(named, real) != 0) status = try_python(nvrtc, tried, real);
  }
  return status;
}

/* The folder of the file this code is in: a library, or the program that is running. Of a program
 * the loader knows only the word it was called by. */
static bool find_own_folder(char folder[PATH_MAX], struct stat *file) {
  Dl_info self;
  if (!dladdr((void *)(uintptr_t)&ft_nvrtc_open, &self) || !self.dli_fname) return false;
  const char *const path = strchr(self.dli_fname, '/') ? self.dli_fname : "/proc/self/exe";
  if (!realpath(path, folder) || stat(folder, file) != 0) return false;
  *strrchr(folder, '/') = '\0';
  return true;
}

/* What set-up puts into a checkout, seen from its build folder. Its owner must be that of this
 * file: who may write the folder above a build need not be who made the build. */
static int try_checkout(struct ft_nvrtc *nvrtc, struct ft_text *tried, const char *own,
                        const struct stat *file) {
  static const char *const above[] = {"/../.deps/python", "/../../.deps/python"};
  int status = FT_E_NO_NVRTC;
  for (size_t i = 0; i < sizeof above / sizeof *above && status == FT_E_NO_NVRTC; i++) {
    char folder[PATH_MAX];
    struct stat found;
    if (strlen(own) + strlen(above[i]) + 1 > sizeof folder) return status;
    stpcpy(stpcpy(folder, own), above[i]);
    if (stat(folder, &found) == 0 && found.st_uid == file->st_uid)
      status = try_wheels(nvrtc, tried, folder);
  }
  return status;
}

/* Around this file: a checkout, the packages beside a Python package, the Python of a program in
 * its bin. */
static int try_around(struct ft_nvrtc *nvrtc, struct ft_text *tried) {
  char own[PATH_MAX], beside[PATH_MAX];
  struct stat file;
  if (!find_own_folder(own, &file) || strlen(own) + 4 > sizeof beside) return FT_E_NO_NVRTC;
  int status = try_checkout(nvrtc, tried, own, &file);
  stpcpy(stpcpy(beside, own), "/..");
  if (status == FT_E_NO_NVRTC) status = try_wheels(nvrtc, tried, beside);
  if (status == FT_E_NO_NVRTC) status = try_python(nvrtc, tried, own);
  return status;
}

static int search(struct ft_nvrtc *nvrtc, struct ft_text *tried) {
  static const char *const loader[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  static const char *const toolkits[] = {"/usr/local/cuda/lib64/libnvrtc.so.1[2-9]",
                                         "/usr/local/cuda*/lib64/libnvrtc.so.1[2-9]",
                                         "/usr/local/cuda*/targets/*/lib/libnvrtc.so.1[2-9]"};
  int status = FT_E_NO_NVRTC;
  for (size_t i = 0; i < sizeof loader / sizeof *loader && status == FT_E_NO_NVRTC; i++)
    status = try_file(nvrtc, tried, loader[i]);
  for (size_t i = 0; i < sizeof toolkits / sizeof *toolkits && status == FT_E_NO_NVRTC; i++)
    status = try_pattern(nvrtc, tried, "", toolkits[i]);
  if (status == FT_E_NO_NVRTC) status = try_around(nvrtc, tried);
  if (status == FT_E_NO_NVRTC) status = try_python_on_path(nvrtc, tried);
  return status;
}

int ft_nvrtc_open(struct ft_nvrtc *nvrtc) {
  memset(nvrtc, 0, sizeof *nvrtc);
  struct ft_text tried = FT_TEXT_INIT;
  int status;

  /* Whoever names a library means that one: no other is taken in its place. */
  const char *const chosen = secure_getenv("FATUNE_LIBNVRTC");
  if (chosen && *chosen)
    status = try_file(nvrtc, &tried, chosen);
  else
    status = search(nvrtc, &tried);
  if (status == FT_E_NO_NVRTC && chosen && *chosen)
    status = ft_fail(status, "FATUNE_LIBNVRTC is \"%s\":%s", chosen, tried.data ? tried.data : "");
  else if (status == FT_E_NO_NVRTC)
    status = ft_fail(status,
                     "no NVRTC; tried%s the CUDA toolkits in /usr/local and NVIDIA's wheels of the "
                     "python3 on PATH; FATUNE_LIBNVRTC may name it",
                     tried.data ? tried.data : "");
  ft_text_free(&tried);
  return status;
}

void ft_nvrtc_close(struct ft_nvrtc *nvrtc) {
  if (nvrtc->library) dlclose(nvrtc->library);
  free(nvrtc->path);
  memset(nvrtc, 0, sizeof *nvrtc);
}
