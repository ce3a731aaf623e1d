/* config.h: the free knobs of one candidate, and only those (noun 2 of 5).
 * in -> out: text <-> struct. What follows from the knobs is in budget.h.
 * Text form: "wgmma_forward block_m=128 block_n=64 stages=2 ...": the family, then its knobs in the
 * order of its list (generator/families/NAME.h). Switches that are 0 are left out. */
#ifndef GENERATOR_CONFIG_H
#define GENERATOR_CONFIG_H

#include <stdbool.h>

#include "generator/text.h"

struct ft_family; /* generator/family.h */

/* One knob of one family. */
struct ft_knob {
  const char *name;
  const char *meaning;
  const int *searched; /* the values that the search space draws from */
  int searched_count;
  int least, most; /* what a config may hold at all. least 0: the knob is a switch */
};

enum { FT_KNOBS_MOST = 32 };

/* The first two knobs of every family. */
enum { FT_KNOB_BLOCK_M, FT_KNOB_BLOCK_N };

struct ft_config {
  const struct ft_family *family;
  int knobs[FT_KNOBS_MOST]; /* in the order of the family's list; 0 behind its last */
};

/* A config of typed knobs: `knobs` is the family's struct of them, such as struct
 * ft_wgmma_forward_knobs. FT_CONFIG(wgmma_forward, .block_m = 128, ...) writes both in one. */
struct ft_config ft_config_make(const struct ft_family *family, const void *knobs);
#define FT_CONFIG(family, ...)                                                                     \
  ft_config_make(&ft_##family##_family, &(const struct ft_##family##_knobs){__VA_ARGS__})

/* Of each knob the first value: the one config of a family that is not searched. */
struct ft_config ft_config_first(const struct ft_family *family);

static inline int ft_config_block_m(const struct ft_config *config) {
  return config->knobs[FT_KNOB_BLOCK_M];
}

static inline int ft_config_block_n(const struct ft_config *config) {
  return config->knobs[FT_KNOB_BLOCK_N];
}

/* The first knob that is outside its range, or NULL. */
const struct ft_knob *ft_config_out_of_range(const struct ft_config *config);

void ft_config_print(const struct ft_config *config, struct ft_text *text);

/* Each knob of the family once; a switch may be left out and is then 0, so that a text from before
 * a switch was added still means the same. Errors name the word and what is allowed. Ranges and
 * rules are not checked here. */
int ft_config_parse(struct ft_config *config, const char *text);

/* Total order by family and knobs: <0, 0, >0. Used to break ties the same way everywhere. */
int ft_config_compare(const struct ft_config *a, const struct ft_config *b);

#endif
