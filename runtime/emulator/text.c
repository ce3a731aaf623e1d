/* text.c: the C++ text of an emitted kernel.
 * in -> out: struct ft_source -> its lines under their own numbers, between the emulation's
 * headers; a header of the same name in place of each PTX part. */
#include "runtime/emulator/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "generator/templates.h"
#include "runtime/emulator/object.h"

/* Length of "ptx_mma" in "parts/ptx_mma.cu.in", where *name points; 0: no PTX part. */
static int ptx_part(const struct ft_source *source, int line, const char **name) {
  static const char head[] = "parts/ptx_", tail[] = ".cu.in";
  if (line >= source->line_count) return 0;
  const char *const file = source->origins[line].file;
  const size_t length = strlen(file);
  if (strncmp(file, head, sizeof head - 1) != 0 || length < sizeof head + sizeof tail - 2 ||
      strcmp(file + length - (sizeof tail - 1), tail) != 0)
    return 0;
  *name = file + strlen("parts/");
  return (int)(length - strlen("parts/") - (sizeof tail - 1));
}

static bool is_emulated(const char *part, int length) {
  for (const struct ft_template *file = ft_emulator_files; file->name; file++)
    if (strncmp(file->name, part, (size_t)length) == 0 && strcmp(file->name + length, ".h") == 0)
      return true;
  return false;
}

static int add_lines(const struct ft_source *source, struct ft_text *text) {
  const char *begin = source->text, *previous = NULL;
  for (int line = 0; *begin; line++) {
    const char *const newline = strchr(begin, '\n');
    const size_t length = newline ? (size_t)(newline - begin) + 1 : strlen(begin);
    const char *part = NULL;
    const int part_length = ptx_part(source, line, &part);
    if (part_length > 0 && part != previous) {
      if (!is_emulated(part, part_length))
        return ft_fail(FT_E_UNSUPPORTED,
                       "the emulator lacks the instructions of templates/parts/%.*s.cu.in",
                       part_length, part);
      ft_text_add(text, "#include \"%.*s.h\"\n", part_length, part);
    }
    if (part_length == 0) {
      if (line == 0 || previous) ft_text_add(text, "#line %d \"kernel.cu\"\n", line + 1);
      ft_text_append(text, begin, length);
    }
    previous = part;
    begin += length;
  }
  return FT_OK;
}

/* As a string of C: file names may hold anything. */
static void add_quoted(struct ft_text *text, const char *words) {
  ft_text_append(text, "\"", 1);
  for (; *words; words++) {
    if (*words == '"' || *words == '\\') ft_text_append(text, "\\", 1);
    ft_text_append(text, *words == '\n' ? " " : words, 1);
  }
  ft_text_append(text, "\"", 1);
}

static void add_origins(const struct ft_source *source, struct ft_text *text) {
  ft_text_add(text, "\n#line 1 \"origins\"\nstatic const char *const fe_origins[] = {\n");
  for (int i = 0; i < source->line_count; i++) {
    add_quoted(text, source->origins[i].file);
    ft_text_add(text, "\":%d\",\n", source->origins[i].line);
  }
  ft_text_add(text, "nullptr};\nenum { FE_LINES = %d };\n", source->line_count);
}

/* Whether a kernel, whose definition begins here with its name, has clusters: __cluster_dims__
 * stands between __global__ and the name. */
static bool has_clusters(const char *text, const char *definition) {
  const char *head = text, *found;
  for (const char *at = text; (at = strstr(at, "__global__")) != NULL && at < definition; at++)
    head = at;
  found = strstr(head, "__cluster_dims__");
  return found != NULL && found < definition;
}

/* The kernels that the text has, each with the size of its clusters, for entry.h. */
static void add_entries(const struct ft_source *source, struct ft_text *text) {
  static const char *const names[] = FT_ENTRIES;
  ft_text_add(text, "#define FE_KERNELS(ENTRY)");
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    char name[64];
    (void)snprintf(name, sizeof name, "%s(", names[n]);
    const char *const definition = strstr(source->text, name);
    if (definition)
      ft_text_add(text, " ENTRY(%s, %s)", names[n],
                  has_clusters(source->text, definition) ? "fe_cluster_size(0)" : "1");
  }
  ft_text_add(text, "\n");
}

int ft_emulator_text(const struct ft_source *source, struct ft_text *text) {
  ft_text_add(text,
              "#define FE_SM %d\n#define FE_BF16 %d\n#define FE_FP32 %d\n#include \"cuda.h\"\n",
              (int)strtol(source->target + strlen("sm_"), NULL, 10), source->dtype == FT_BF16,
              ft_dtype_is_fp32(source->dtype));
  FT_TRY(add_lines(source, text));
  add_origins(source, text);
  add_entries(source, text);
  ft_text_add(text, "#include \"entry.h\"\n");
  return ft_text_status(text);
}
