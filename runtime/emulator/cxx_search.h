/* cxx_search.h: the C++ compiler for emulated kernels.
 * in -> out: $FATUNE_CXX, PATH -> file, family, version. */
#ifndef RUNTIME_EMULATOR_CXX_SEARCH_H
#define RUNTIME_EMULATOR_CXX_SEARCH_H

#include <stdbool.h>

struct ft_cxx {
  char path[512]; /* absolute */
  char name[64];  /* "g++ 12.2.0" */
  bool clang;
};
/* The compiler to use. FT_E_NO_CXX says what was tried. */
int ft_cxx_find(struct ft_cxx *cxx);

/* The compiler that would be used: "g++ 12.2.0" and its file, or FT_E_NO_CXX saying what was tried.
 */
int ft_emulator_compiler(char name[64], char path[512]);

#endif
