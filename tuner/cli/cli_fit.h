/* cli_fit.h: how well the model ranks configs, as its fit records it.
 * in -> out: family + GPU -> a sentence, JSON. */
#ifndef TUNER_CLI_FIT_H
#define TUNER_CLI_FIT_H

#include <jansson.h>

#include "generator/arch.h"
#include "generator/text.h"

/* Appends a sentence. */
void cli_fit_tell(const struct ft_family *family, const struct ft_arch *arch, struct ft_text *text);

/* null where nothing is known. */
json_t *cli_fit_json(const struct ft_family *family, const struct ft_arch *arch);

#endif
