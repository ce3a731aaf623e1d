/* made_digests.c: a program of the build: what stands fast once the library is built.
 * in -> out: the embedded templates, the sources of generator/ as arguments -> C text with the
 * digest of each, for generator/made_digests.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/template_files.h"

static void print(const char *name, struct ft_digest digest) {
  printf("const struct ft_digest %s = {{", name);
  for (int i = 0; i < FT_DIGEST_BYTES; i++) printf("%s%d", i ? "," : "", digest.bytes[i]);
  puts("}};");
}

/* Paths begin differently on every machine; names do not. */
static void add_file(struct ft_hasher *hasher, const char *path, size_t folder) {
  static char text[1 << 20];
  FILE *const file = fopen(path, "rb");
  const size_t length = file ? fread(text, 1, sizeof text, file) : sizeof text;
  if (length == sizeof text || ferror(file)) {
    perror(path);
    exit(1);
  }
  fclose(file);
  ft_hasher_section(hasher, path + folder, text, length);
}

int main(int count, char **words) {
  struct ft_template_files files;
  struct ft_hasher hasher;
  if (count < 3 || ft_template_files_open(&files, NULL) != 0) return 1;
  ft_hasher_init(&hasher);
  for (int i = 2; i < count; i++) add_file(&hasher, words[i], strlen(words[1]));
  puts("/* Made by templates/made_digests.c; do not edit. */\n#include "
       "\"generator/made_digests.h\"\n");
  print("ft_made_templates", ft_template_files_digest(&files));
  print("ft_made_generator", ft_hasher_final(&hasher));
  ft_template_files_close(&files);
  return 0;
}
