/* kind.h: what of a score a config is chosen by.
 * in -> out: the number of a score, which requests have -> its kind. */
#ifndef GENERATOR_SCORE_KIND_H
#define GENERATOR_SCORE_KIND_H

#include <stdbool.h>
#include <stdint.h>

/* What a score gives the softmax to do besides; of several the first. */
enum ft_score_kind {
  FT_SCORE_OTHER,    /* nothing: it only hides keys */
  FT_SCORE_TILE,     /* reads 16-bit floats of each query and key, side by side along the keys */
  FT_SCORE_SIGMOID,  /* one sigmoid or tanh of s */
  FT_SCORE_SIDES,    /* a factor of |query - key| */
  FT_SCORE_DISTANCE, /* reads at an index of query and key that goes up or down by 1 with the key */
  FT_SCORE_KEYS,     /* reads of each key */
  FT_SCORE_LONG,     /* something else, of many instructions for each query and key */
  FT_SCORE_EACH      /* something else */
};

/* A number is the kind, and behind it 48 bits of the digest. */
enum { FT_SCORE_DIGEST_BITS = 48, FT_SCORE_NUMBER_BITS = 52 };

static inline enum ft_score_kind ft_score_kind_of(int64_t number) {
  return (enum ft_score_kind)(number >> FT_SCORE_DIGEST_BITS);
}

/* Whether no kind of its own says what it does for each query and key, which it may hide. */
static inline bool ft_score_is_any(int64_t number) {
  const enum ft_score_kind kind = ft_score_kind_of(number);
  return kind == FT_SCORE_OTHER || kind == FT_SCORE_LONG || kind == FT_SCORE_EACH;
}

#endif
