/* config.h: the free knobs of one candidate, and only those (noun 2 of 5).
 * in -> out: text <-> struct. What follows from the knobs is in budget.h.
 * Text form: "mma block_m=128 block_n=64 warps=4 stages=2 ...": family, then its knobs in the order
 * of knobs.def. */
#ifndef GENERATOR_CONFIG_H
#define GENERATOR_CONFIG_H

#include <stdbool.h>

#include "generator/text.h"

enum ft_family {
  FT_FAMILY_MMA,         /* mma.sync, ldmatrix, cp.async: sm_75 and later */
  FT_FAMILY_WGMMA,       /* wgmma, TMA, mbarrier, setmaxnreg: sm_90a */
  FT_FAMILY_MMA_BACKWARD /* the gradients by mma.sync, with knobs of their own */
};
enum { FT_FAMILY_COUNT = FT_FAMILY_MMA_BACKWARD + 1 };

struct ft_config {
  enum ft_family family;
#define KNOB(name, mma, wgmma, mma_backward, meaning) int name; /* 0: the family has it not */
#include "generator/knobs.def"
#undef KNOB
};

enum {
#define KNOB(name, mma, wgmma, mma_backward, meaning) FT_KNOB_##name,
#include "generator/knobs.def"
#undef KNOB
  FT_KNOB_COUNT
};

/* What the search space tries of a knob; 0 alone where the family has it not. */
struct ft_values {
  const int *list;
  int count;
};

struct ft_knob {
  const char *name;
  const char *meaning;
  struct ft_values values[FT_FAMILY_COUNT];
};

const struct ft_knob *ft_knob(int index);
bool ft_family_has(enum ft_family family, int knob);
int ft_config_get(const struct ft_config *config, int knob);
void ft_config_set(struct ft_config *config, int knob, int value);

void ft_config_print(const struct ft_config *config, struct ft_text *text);

/* Each knob of the family once; switches (knobs whose values begin with 0) may be left out and are
 * then 0, so that a text from before a switch was added still means the same. Errors name the word.
 * Legality is not checked here. */
int ft_config_parse(struct ft_config *config, const char *text);

/* Total order by text fields: <0, 0, >0. Used to break ties the same way everywhere. */
int ft_config_compare(const struct ft_config *a, const struct ft_config *b);

const char *ft_family_name(enum ft_family family);

#endif
