/* made_digests.h: digests that the build computes, of what a library cannot change any more.
 * in -> out: embedded templates, sources of this folder (at build time) -> a digest of each. */
#ifndef GENERATOR_MADE_DIGESTS_H
#define GENERATOR_MADE_DIGESTS_H

#include "generator/digest.h"

/* ft_template_files_digest of the embedded templates. */
extern const struct ft_digest ft_made_templates;

/* Of all sources of generator/ but its model/, names and contents: equal in two libraries only if
 * they emit alike. */
extern const struct ft_digest ft_made_generator;

#endif
