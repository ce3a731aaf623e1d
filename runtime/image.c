/* image.c: reads a cubin's resource notes.
 * in -> out: section .nv.info of an ELF64 file -> registers, stack of one entry.
 * The section is a row of attributes; those used here are what cuobjdump -elf prints as
 * EIATTR_REGCOUNT, EIATTR_FRAME_SIZE and EIATTR_MIN_STACK_SIZE: (symbol index, value). The compile
 * log has the same figures, but NVRTC leaves it empty when its own cache answers. The table of
 * symbols says which entries there are. */
#include "runtime/image.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

enum {
  FORMAT_SIZED = 4, /* EIFMT_SVAL: a 16-bit length and that many bytes follow */
  ATTRIBUTE_FRAME = 0x11,
  ATTRIBUTE_STACK = 0x12,
  ATTRIBUTE_REGISTERS = 0x2f
};

struct view {
  const unsigned char *bytes;
  size_t size;
};

static bool slice(const struct view *of, uint64_t offset, uint64_t size, struct view *part) {
  if (offset > of->size || size > of->size - offset) return false;
  *part = (struct view){of->bytes + offset, (size_t)size};
  return true;
}

static bool section_at(const struct view *image, const Elf64_Ehdr *header, unsigned index,
                       Elf64_Shdr *section) {
  struct view bytes;
  if (index >= header->e_shnum || header->e_shentsize != sizeof *section) return false;
  if (!slice(image, header->e_shoff, (uint64_t)header->e_shnum * sizeof *section, &bytes))
    return false;
  memcpy(section, bytes.bytes + index * sizeof *section, sizeof *section);
  return true;
}

static bool text_is(const struct view *strings, uint64_t offset, const char *expected) {
  struct view text;
  return slice(strings, offset, strlen(expected) + 1, &text) &&
         memcmp(text.bytes, expected, text.size) == 0;
}

static bool find_section(const struct view *image, const Elf64_Ehdr *header, const char *name,
                         Elf64_Shdr *section) {
  Elf64_Shdr names;
  struct view strings;
  if (!section_at(image, header, header->e_shstrndx, &names)) return false;
  if (!slice(image, names.sh_offset, names.sh_size, &strings)) return false;
  for (unsigned i = 0; i < header->e_shnum; i++)
    if (section_at(image, header, i, section) && text_is(&strings, section->sh_name, name))
      return true;
  return false;
}

struct symbols {
  struct view table, names;
};

static bool find_symbols(const struct view *image, const Elf64_Ehdr *header,
                         struct symbols *symbols) {
  Elf64_Shdr table, names;
  return find_section(image, header, ".symtab", &table) &&
         section_at(image, header, table.sh_link, &names) &&
         slice(image, table.sh_offset, table.sh_size, &symbols->table) &&
         slice(image, names.sh_offset, names.sh_size, &symbols->names);
}

static bool find_symbol(const struct symbols *symbols, const char *entry, uint32_t *index) {
  for (uint32_t i = 0; i < symbols->table.size / sizeof(Elf64_Sym); i++) {
    Elf64_Sym symbol;
    memcpy(&symbol, symbols->table.bytes + i * sizeof symbol, sizeof symbol);
    if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
        text_is(&symbols->names, symbol.st_name, entry)) {
      *index = i;
      return true;
    }
  }
  return false;
}

static void read_attributes(const struct view *info, uint32_t symbol,
                            struct ft_image_resources *resources) {
  for (size_t at = 0; at + 4 <= info->size;) {
    const unsigned char *const head = info->bytes + at;
    uint16_t length = 0;
    if (head[0] == FORMAT_SIZED) memcpy(&length, head + 2, sizeof length);
    at += 4;
    uint32_t pair[2];
    if (length > info->size - at) return;
    if (length >= sizeof pair) {
      memcpy(pair, info->bytes + at, sizeof pair);
      if (pair[0] == symbol && pair[1] <= INT32_MAX) {
        const int value = (int)pair[1];
        if (head[1] == ATTRIBUTE_REGISTERS) resources->registers = value;
        /* The frame is the local memory of the entry itself. The stack includes that of the
         * functions it calls. The larger of the two counts. */
        if ((head[1] == ATTRIBUTE_FRAME || head[1] == ATTRIBUTE_STACK) &&
            value > resources->local_bytes)
          resources->local_bytes = value;
      }
    }
    at += length;
  }
}

static bool read_header(const struct view *image, Elf64_Ehdr *header) {
  if (image->size < sizeof *header) return false;
  memcpy(header, image->bytes, sizeof *header);
  return memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64;
}

bool ft_image_read(const void *image, size_t size, const char *entry,
                   struct ft_image_resources *resources) {
  *resources = (struct ft_image_resources){0, 0};
  const struct view whole = {image, size};
  Elf64_Ehdr header;
  if (!read_header(&whole, &header)) return false;

  Elf64_Shdr section;
  struct view info;
  struct symbols symbols;
  uint32_t symbol;
  if (!find_symbols(&whole, &header, &symbols) || !find_symbol(&symbols, entry, &symbol))
    return false;
  if (!find_section(&whole, &header, ".nv.info", &section)) return false;
  if (!slice(&whole, section.sh_offset, section.sh_size, &info)) return false;
  read_attributes(&info, symbol, resources);
  return resources->registers > 0;
}

bool ft_image_lacks(const void *image, size_t size, const char *entry) {
  const struct view whole = {image, size};
  Elf64_Ehdr header;
  struct symbols symbols;
  uint32_t symbol;
  return read_header(&whole, &header) && header.e_machine == EM_CUDA &&
         find_symbols(&whole, &header, &symbols) && !find_symbol(&symbols, entry, &symbol);
}
