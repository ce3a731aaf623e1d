# embed.cmake: makes text files part of the library.
# in -> out: the files below FOLDER whose names end as ENDINGS (".lua,.cu.in") says -> OUTPUT, a C file with
# ARRAY, of struct ft_template (generator/templates.h), which HEADER declares.
# Bytes, not string literals: C11 promises no more than 4095 characters of a literal.
string(REPLACE "," ";" patterns "${ENDINGS}")
list(TRANSFORM patterns PREPEND "${FOLDER}/*")
file(GLOB_RECURSE names RELATIVE ${FOLDER} ${patterns})
list(SORT names) # a digest over them must not depend on the file system's order

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

file(WRITE ${OUTPUT} "/* Made by templates/embed.cmake; do not edit. */
#include <stddef.h>

#include \"${HEADER}\"

${arrays}const struct ft_template ${ARRAY}[] = {
${rows}  {NULL, NULL, 0}};
")
