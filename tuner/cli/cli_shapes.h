/* cli_shapes.h: the file that --shapes names. Its requests are written by hand, or recorded by an
 * application that ran with FATUNE_RECORD (runtime/record.h).
 * in -> out: lines "REQUEST" and "runs=N us=T REQUEST" -> texts of requests, recorded ones first,
 * in the order of the time they took. A '#' begins a comment. */
#ifndef TUNER_CLI_SHAPES_H
#define TUNER_CLI_SHAPES_H

#include "generator/text.h"

/* Hands each text to `take`. The lines of a recorded request are added up. Requests written by hand
 * come after the recorded ones and keep their order. A line that cannot be read, or that `take`
 * refuses with FT_E_ARGUMENT, is passed over; a line of *damaged says which one and why. If none is
 * left, the status is FT_E_ARGUMENT. The path "-" is stdin. */
int cli_shapes_read(const char *path, int (*take)(void *payload, const char *text), void *payload,
                    struct ft_text *damaged);

#endif
