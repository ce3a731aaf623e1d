/* file_bytes.c: a plain file as a whole.
 * in -> out: path -> its bytes. */
#include "cache/file_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generator/status.h"

static int refuse(const char *path, int why) {
  return ft_fail(why == ENOENT ? FT_E_NOT_FOUND : FT_E_CACHE, "cannot read '%s': %s", path,
                 strerror(why));
}

/* Less than size bytes: the file shrinks while it is read. */
static int read_all(int file, const char *path, char *bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    errno = EIO; /* the end comes too early */
    const ssize_t got = read(file, bytes + done, size - done);
    if (got <= 0) return refuse(path, errno);
    done += (size_t)got;
  }
  bytes[size] = '\0';
  return FT_OK;
}

static int read_file(int file, const char *path, size_t most, void **bytes, size_t *size) {
  struct stat state;
  if (fstat(file, &state) != 0) return refuse(path, errno);
  if (!S_ISREG(state.st_mode))
    return ft_fail(FT_E_CACHE, "cannot read '%s': it is not a plain file", path);
  *size = (size_t)state.st_size;
  if (*size > most)
    return ft_fail(FT_E_CACHE, "cannot read '%s': it has %zu bytes; allowed are %zu", path, *size,
                   most);
  *bytes = sqlite3_malloc64(*size + 1);
  if (!*bytes) return ft_fail(FT_E_MEMORY, "no memory for the %zu bytes of '%s'", *size, path);
  return read_all(file, path, *bytes, *size);
}

/* O_NONBLOCK: the opening of a pipe does not wait. */
int ft_file_bytes(const char *path, size_t most, void **bytes, size_t *size) {
  *bytes = NULL;
  *size = 0;
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return refuse(path, errno);
  const int status = read_file(file, path, most, bytes, size);
  close(file);
  if (status == FT_OK) return FT_OK;
  sqlite3_free(*bytes);
  *bytes = NULL;
  return status;
}

void ft_file_bytes_free(void *bytes) {
  sqlite3_free(bytes);
}
