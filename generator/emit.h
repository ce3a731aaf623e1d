/* emit.h: request + config -> CUDA C text (noun 3 of 5: source).
 * in -> out: request, arch (its sm alone), config -> struct ft_source with its line map. */
#ifndef GENERATOR_EMIT_H
#define GENERATOR_EMIT_H

#include "generator/lua_host.h"
#include "generator/rules.h"

/* The entry of every emitted kernel; fixed, so that equal code gives equal images. */
#define FT_ENTRY "fatune_kernel"
/* That of a forward whose work tiles have parts besides, launched after it. */
#define FT_ENTRY_MERGE "fatune_merge_parts"
/* That of a ragged kernel besides, launched before all others. */
#define FT_ENTRY_WORK_LIST "fatune_work_list"
/* That of a forward that takes V by columns besides, launched before it. */
#define FT_ENTRY_TURN "fatune_turn_values"
/* Those of a backward besides, launched before and after it. */
#define FT_ENTRY_PREPARE "fatune_prepare"
#define FT_ENTRY_CONVERT "fatune_convert"
/* Those of a block mask made from a mask function, launched before and after it. */
#define FT_ENTRY_RANGES "fatune_ranges"
#define FT_ENTRY_LISTS  "fatune_lists"
#define FT_ENTRY_ORDER  "fatune_order"
/* The kernel of fatune_quantise in which a cluster of blocks quantises one head after the other. */
#define FT_ENTRY_HEADS "fatune_heads"
/* All of them, as an initialiser. No text has all. */
#define FT_ENTRIES                                                                                 \
  {                                                                                                \
    FT_ENTRY_WORK_LIST, FT_ENTRY_PREPARE, FT_ENTRY_RANGES, FT_ENTRY, FT_ENTRY_CONVERT,             \
        FT_ENTRY_MERGE, FT_ENTRY_LISTS, FT_ENTRY_ORDER, FT_ENTRY_HEADS, FT_ENTRY_TURN              \
  }

struct ft_origin {
  const char *file; /* template file name; owned by the source */
  int line;
};

struct ft_source {
  char *text; /* NUL-terminated CUDA C; owned */
  size_t length;
  struct ft_origin *origins; /* origins[i]: where line i + 1 of text comes from; owned */
  int line_count;
  char *names;             /* storage of the file names; owned */
  char target[16];         /* "sm_90", "sm_90a": ft_config_target */
  struct ft_digest digest; /* of text, target and compile options (see compile_options) */
  enum ft_pass pass;       /* a backward has two more entries */
  enum ft_dtype dtype;     /* of O */
  struct ft_config config;
  struct ft_budget budget;
};

/* Fails with FT_E_ARGUMENT when the config breaks a rule (named), FT_E_UNSUPPORTED when the target
 * cannot serve the request, FT_E_TEMPLATE with template file and line when a template is broken.
 * The text depends on the request's kernel class, the config and arch->sm alone. */
int ft_emit(struct ft_source *source, struct ft_lua *lua, const struct ft_request *request,
            const struct ft_arch *arch, const struct ft_config *config);
void ft_source_free(struct ft_source *source);

/* What ft_emit begins with: the source without text, the kernel class, its score (NULL: none).
 * A new input of emission has to be added to the recipe, too (recipe.c). */
int ft_emit_outline(struct ft_source *source, struct ft_lua *lua, const struct ft_request *request,
                    const struct ft_arch *arch, const struct ft_config *config,
                    struct ft_request *class, const struct ft_known_score **score);

/* The NVRTC options the source is to be compiled with, NULL-terminated, static but for the target.
 * They are part of the digest. buffer (at least 64 bytes) holds the architecture option. */
const char **ft_source_options(const struct ft_source *source, char *buffer,
                               const char *options[8]);

/* Rewrites "name(12): error" of an NVRTC log into "templates/file(34): error", line by line. */
void ft_source_map_log(const struct ft_source *source, const char *log, struct ft_text *mapped);

#endif
