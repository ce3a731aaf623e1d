/* template_files.h: all template files by name, in memory.
 * in -> out: the embedded array, or a folder of files -> sorted rows, their common digest. */
#ifndef GENERATOR_TEMPLATE_FILES_H
#define GENERATOR_TEMPLATE_FILES_H

#include "generator/digest.h"
#include "generator/templates.h"

struct ft_template_files {
  struct ft_template *rows; /* sorted by name; owned */
  size_t count;
  char **owned; /* names and texts read from a folder, NULL when embedded; owned */
  size_t owned_count;
};

/* folder: read *.lua and *.cu.in below it once, now, so that text and digest always agree; NULL:
 * the embedded ones. Only names found here exist: no template can name a file outside of it. */
int ft_template_files_open(struct ft_template_files *files, const char *folder);
void ft_template_files_close(struct ft_template_files *files);

/* NULL: there is none of that name. */
const struct ft_template *ft_template_files_find(const struct ft_template_files *files,
                                                 const char *name);

struct ft_digest ft_template_files_digest(const struct ft_template_files *files);

#endif
