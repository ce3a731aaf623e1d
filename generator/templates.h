/* templates.h: the templates built into the library.
 * in -> out: files of templates/ (at build time) -> an array of name and text.
 * The array itself is in a C file that CMake generates; lua_host.c is its only reader. */
#ifndef GENERATOR_TEMPLATES_H
#define GENERATOR_TEMPLATES_H

#include <stddef.h>

struct ft_template {
  const char *name; /* relative to templates/: "parts/ptx.cu.in" */
  const char *text; /* not necessarily NUL-terminated */
  size_t length;
};

/* Ends with a row whose name is NULL. */
extern const struct ft_template ft_templates[];

#endif
