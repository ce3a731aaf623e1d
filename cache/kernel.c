/* kernel.c: a compiled image: ownership and text form.
 * in -> out: struct ft_kernel <-> "kernel sm_90 nvrtc=13.0.88 registers=168 ...". */
#include "cache/kernel.h"

#include <stdlib.h>
#include <string.h>

#include "cache/fields.h"
#include "generator/status.h"

#define FIELD(name, type, member)                                                                  \
  {                                                                                                \
    name, &ft_field_##type, offsetof(struct ft_kernel, member),                                    \
        sizeof(((struct ft_kernel *)0)->member), true                                              \
  }

static const struct ft_field kernel_fields[] = {
    FIELD("nvrtc", string, nvrtc),       FIELD("registers", int, registers),
    FIELD("spills", int, spill_bytes),   FIELD("smem", int, smem_bytes),
    FIELD("threads", int, threads),      FIELD("size", size, image_size),
    FIELD("key", digest, key),           FIELD("source", digest, source),
    FIELD("image", digest, image_digest)};

enum { KERNEL_FIELDS = sizeof kernel_fields / sizeof kernel_fields[0] };

struct ft_digest ft_kernel_key(const struct ft_digest *source, const char *nvrtc) {
  struct ft_hasher hasher;
  ft_hasher_init(&hasher);
  ft_hasher_section(&hasher, "kernel key", "1", 1);
  ft_hasher_section(&hasher, "source", source->bytes, sizeof source->bytes);
  ft_hasher_section(&hasher, "nvrtc", nvrtc, strlen(nvrtc));
  return ft_hasher_final(&hasher);
}

void ft_kernel_free(struct ft_kernel *kernel) {
  if (!kernel) return;
  free(kernel->image);
  free(kernel->log);
  memset(kernel, 0, sizeof *kernel);
}

int ft_kernel_copy(struct ft_kernel *to, const struct ft_kernel *from) {
  *to = *from;
  to->image = from->image ? malloc(from->image_size + 1) : NULL;
  to->log = from->log ? strdup(from->log) : NULL;
  if ((from->image && !to->image) || (from->log && !to->log)) {
    ft_kernel_free(to);
    return ft_fail(FT_E_MEMORY, "no memory for a copy of a kernel of %zu bytes", from->image_size);
  }
  if (from->image) memcpy(to->image, from->image, from->image_size);
  return FT_OK;
}

void ft_kernel_print(const struct ft_kernel *kernel, struct ft_text *text) {
  ft_text_add(text, "kernel %s ", kernel->target);
  ft_fields_print(kernel_fields, KERNEL_FIELDS, kernel, text);
}

int ft_kernel_parse(struct ft_kernel *kernel, const char *text) {
  static const char head[] = "kernel ";
  memset(kernel, 0, sizeof *kernel);
  if (strncmp(text, head, sizeof head - 1) != 0)
    return ft_fail(FT_E_ARGUMENT, "kernel text '%.40s' does not begin with 'kernel'", text);
  text += sizeof head - 1;

  const size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
  if (length == 0 || length >= sizeof kernel->target || text[length] != ' ')
    return ft_fail(FT_E_ARGUMENT, "kernel target '%.*s': allowed are names like sm_90",
                   (int)strcspn(text, " "), text);
  memcpy(kernel->target, text, length);

  const int status = ft_fields_parse(kernel_fields, KERNEL_FIELDS, kernel, text + length);
  return status == FT_OK ? FT_OK : ft_fail_within(status, "kernel text");
}
