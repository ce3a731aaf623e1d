/* features.h: what a fit may correct a prediction by.
 * in -> out: request + arch + config + prediction by hand -> numbers with names.
 * A feature is a quality of the config times a quality of the request. The fit and its use compute
 * both here, so that they cannot differ. */
#ifndef TUNER_FEATURES_H
#define TUNER_FEATURES_H

#include "generator/family.h"
#include "tuner/model/prediction.h"

/* Qualities of a request on a GPU. ORDER SETTING */
enum ft_setting {
  FT_SETTING_ANY,    /* 1 */
  FT_SETTING_WIDE,   /* head dims, in octaves from 128 */
  FT_SETTING_MASKED, /* 1 where queries see different keys */
  FT_SETTING_SMALL,  /* octaves by which the work is short of all multiprocessors */
  FT_SETTING_LONG,   /* keys, in octaves from 4096 */
  FT_SETTING_DECODE, /* 1 where a tile has few queries */
  FT_SETTING_MARKED, /* 1 with dropout, ragged lengths or pages */
  FT_SETTING_BYTES,  /* of an element, in octaves from 2 */
  FT_SETTINGS
};

/* Qualities of a config besides the values of its knobs. ORDER TERM
 * None follows from registers: to a fit of few trials, more of them could look faster. */
enum ft_term {
  FT_TERM_OFFSET, /* 1 */
  FT_TERM_IDLE,   /* share of multiprocessors that are idle in the last wave */
  FT_TERM_WAVES,  /* octaves of the waves */
  FT_TERM_UNEVEN, /* share of the last tile of a head that lies beyond its rows */
  FT_TERM_WARPS,  /* octaves of a multiprocessor's warps, from 8 */
  FT_TERM_MMA,    /* share of the time predicted that the matrix unit is busy */
  FT_TERM_EXP,    /* likewise the special-function unit */
  FT_TERM_ISSUE,  /* instruction issue */
  FT_TERM_SMEM,   /* shared memory */
  FT_TERM_L2,     /* and L2 */
  FT_TERMS
};

const char *ft_setting_name(int setting);
const char *ft_term_name(int term);

struct ft_features {
  double settings[FT_SETTINGS];
  double terms[FT_TERMS];
};

struct ft_features ft_features_of(const struct ft_modelled *of,
                                  const struct ft_prediction *prediction);

/* The place of a knob's value among those searched; -1: it is none of them. */
int ft_searched_place(const struct ft_knob *knob, int value);

#endif
