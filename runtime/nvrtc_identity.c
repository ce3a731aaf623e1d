/* nvrtc_identity.c: which build of NVRTC is open.
 * in -> out: the library file's constants and notes -> "13.0.88+65be0db342ad". */
#include "runtime/nvrtc_identity.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator/status.h"
#include "runtime/nvrtc.h"

struct identity {
  char release[32]; /* "13.0.88", or "" */
  char build[24];   /* "65be0db342ad", or "" */
};

/* "... release 13.0, V13.0.88": the same words `nvcc --version` prints. */
static void find_release(struct identity *identity, const char *from, size_t length) {
  static const char mark[] = "Cuda compilation tools, release ";
  const char *const found = memmem(from, length, mark, sizeof mark - 1);
  if (!found) return;
  const char *const end = memchr(found, '\0', length - (size_t)(found - from));
  const char *const version = end ? memmem(found, (size_t)(end - found), ", V", 3) : NULL;
  if (!version) return;
  const size_t size = strspn(version + 3, "0123456789.");
  if (size > 0 && size < sizeof identity->release) {
    memcpy(identity->release, version + 3, size);
    identity->release[size] = '\0';
  }
}

static void find_build(struct identity *identity, const char *from, size_t length) {
  while (length >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    memcpy(&note, from, sizeof note);
    const size_t name = ((size_t)note.n_namesz + 3) & ~(size_t)3;
    const size_t text = ((size_t)note.n_descsz + 3) & ~(size_t)3;
    const size_t total = sizeof note + name + text;
    if (total > length) return;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz >= 6) {
      const unsigned char *const id = (const unsigned char *)from + sizeof note + name;
      snprintf(identity->build, sizeof identity->build, "%02x%02x%02x%02x%02x%02x", id[0], id[1],
               id[2], id[3], id[4], id[5]);
      return;
    }
    from += total;
    length -= total;
  }
}

static void read_parts(struct identity *identity, const char *file, size_t size) {
  Elf64_Ehdr header;
  if (size < sizeof header) return;
  memcpy(&header, file, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(Elf64_Phdr))
    return;
  if (header.e_phoff > size || size - header.e_phoff < header.e_phnum * sizeof(Elf64_Phdr)) return;
  for (unsigned i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr part;
    memcpy(&part, file + header.e_phoff + i * sizeof part, sizeof part);
    if (part.p_offset > size || part.p_filesz > size - part.p_offset) continue;
    const char *const from = file + part.p_offset;
    if (part.p_type == PT_NOTE && !*identity->build) find_build(identity, from, part.p_filesz);
    /* Constants only: neither code nor data, which is most of the 100 MB. */
    if (part.p_type == PT_LOAD && part.p_flags == PF_R && !*identity->release)
      find_release(identity, from, part.p_filesz);
  }
}

/* The file's size; 0 when it cannot be read. */
static size_t read_file(struct identity *identity, const char *path) {
  struct stat status;
  size_t size = 0;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  if (fstat(file, &status) == 0 && status.st_size > 0) {
    void *const bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (bytes != MAP_FAILED) {
      size = (size_t)status.st_size;
      read_parts(identity, bytes, size);
      munmap(bytes, size);
    }
  }
  close(file);
  return size;
}

int ft_nvrtc_identify(const struct ft_nvrtc *nvrtc, char version[64]) {
  int major = 0, minor = 0;
  const int result = nvrtc->version(&major, &minor);
  if (result)
    return ft_fail(FT_E_NO_NVRTC, "nvrtcVersion of %s: %s", nvrtc->path, nvrtc->error_text(result));

  struct identity identity = {"", ""};
  errno = 0;
  const size_t size = read_file(&identity, nvrtc->path);
  /* Two builds without a name would have the same keys. */
  if (size == 0)
    return ft_fail(FT_E_NO_NVRTC, "%s cannot be read to learn its build: %s", nvrtc->path,
                   errno ? strerror(errno) : "it is empty");
  char expected[16];
  snprintf(expected, sizeof expected, "%d.%d.", major, minor);
  /* A release that contradicts nvrtcVersion is some other text that happened to match. */
  if (strncmp(identity.release, expected, strlen(expected)) != 0)
    snprintf(identity.release, sizeof identity.release, "%d.%d", major, minor);
  if (!*identity.build) snprintf(identity.build, sizeof identity.build, "%zub", size);
  snprintf(version, 64, "%s+%s", identity.release, identity.build);
  return FT_OK;
}
