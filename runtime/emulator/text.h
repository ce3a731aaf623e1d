/* text.h: the C++ text of an emitted kernel.
 * in -> out: struct ft_source -> text. */
#ifndef RUNTIME_EMULATOR_TEXT_H
#define RUNTIME_EMULATOR_TEXT_H

#include "generator/emit.h"
#include "generator/text.h"

/* The C++ text that is compiled: the emitted lines as they are, but those of templates/parts/ptx_*,
 * in whose place the part of the same name from runtime/emulator/device stands. FT_E_UNSUPPORTED
 * where there is none of that name. */
int ft_emulator_text(const struct ft_source *source, struct ft_text *text);

#endif
