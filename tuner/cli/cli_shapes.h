/* cli_shapes.h: a file of requests: written by hand, or recorded by FATUNE_RECORD
 * (runtime/record.h). in -> out: lines "REQUEST" and "runs=N us=T REQUEST", '#' begins a comment ->
 * texts of requests, those that took most time first. Lines of one recorded request add up. */
#ifndef TUNER_CLI_SHAPES_H
#define TUNER_CLI_SHAPES_H

#include "generator/text.h"

/* Hands each text to `take`; recorded requests go before those by hand, whose order is kept. A line
 * that cannot be read, or that take refuses with FT_E_ARGUMENT, is passed over: a line of *damaged
 * says which and why. FT_E_ARGUMENT where no line is left. "-" is stdin. */
int cli_shapes_read(const char *path, int (*take)(void *payload, const char *text), void *payload,
                    struct ft_text *damaged);

#endif
