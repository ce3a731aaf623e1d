# embed.cmake: makes the templates part of the library.
# in -> out: FOLDER/**/*.{lua,cu.in} -> OUTPUT, a C file with ft_templates[] of generator/templates.h.
# Bytes, not string literals: C11 promises no more than 4095 characters of a literal.
file(GLOB_RECURSE names RELATIVE ${FOLDER} ${FOLDER}/*.lua ${FOLDER}/*.cu.in)
list(SORT names) # the templates' digest must not depend on the file system's order

set(arrays "")
set(rows "")
set(index 0)
foreach(name ${names})
  file(READ ${FOLDER}/${name} hex HEX)
  file(SIZE ${FOLDER}/${name} size)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "static const unsigned char text_${index}[] = {\n${bytes}0x00};\n\n")
  string(APPEND rows "  {\"${name}\", (const char *)text_${index}, ${size}},\n")
  math(EXPR index "${index} + 1")
endforeach()

file(WRITE ${OUTPUT} "/* templates.c: made by templates/embed.cmake; do not edit. */
#include <stddef.h>

#include \"generator/templates.h\"

${arrays}const struct ft_template ft_templates[] = {
${rows}  {NULL, NULL, 0}};
")
