/* cuda_value.h: one value of an expression as CUDA C.
 * in -> out: node -> text of its value where it is computed; what the functions of each level keep.
 */
#ifndef GENERATOR_SCORE_CUDA_VALUE_H
#define GENERATOR_SCORE_CUDA_VALUE_H

#include "generator/score/lower.h"
#include "generator/score/score.h"

struct ft_cuda {
  const struct ft_score *score;
  struct ft_text *text;
  int nodes;
  enum ft_level level;       /* of the function that is being written */
  int uses[FT_SCORE_NODES];  /* by other nodes of the same level; 0: not computed there */
  bool kept[FT_SCORE_NODES]; /* in the struct of its level */
  bool dense; /* the text that is being written is for steps whose dense reads are all inside */
  bool can_be_dense[FT_SCORE_NODES]; /* this read may be dense in some steps (ft_cuda_key_index) */
  int growth[FT_SCORE_NODES];        /* of an integer from one key to the next; see cuda_value.c */
  int by_rows;                       /* the read whose indices all are kept; 0: none */
  int inverse, of_tile; /* these nodes the function takes as place.inverse, .of_tile; 0: none */
  bool local[FT_SCORE_NODES]; /* of the function that is being written: there is a variable */
  /* Levels, as bits, that keep a part of the address of a read: what its indices of that level
   * make of it. That of a query contains that of the head, that of a key is an offset. */
  unsigned char has_part[FT_SCORE_NODES];
};

/* The C type of a captured tensor's elements. */
const char *ft_cuda_element(enum ft_captured_dtype dtype);

/* Fills in growth. */
void ft_cuda_find_growth(struct ft_cuda *cuda);
/* Whether growth says by how much the value grows from each key to the next. */
bool ft_cuda_grows_evenly(const struct ft_cuda *cuda, int node);

/* Fills in uses, kept and has_part for all levels but that of an element. Of each read that can be
 * dense, the index that grows with the key is kept, too. */
void ft_cuda_plan(struct ft_cuda *cuda, const int *roots, int count);

/* Begin a function. That of an element computes one root. */
void ft_cuda_enter(struct ft_cuda *cuda, enum ft_level level);
void ft_cuda_enter_element(struct ft_cuda *cuda, int root);

/* A variable of the function for a node that is used more than once there. */
void ft_cuda_write_local(struct ft_cuda *cuda, int node);
void ft_cuda_write_value(struct ft_cuda *cuda, int node);
void ft_cuda_write_part(struct ft_cuda *cuda, int read, enum ft_level level);
/* Of the element that a read reads. */
void ft_cuda_write_address(struct ft_cuda *cuda, int read);

/* A read is dense in a step if consecutive keys read consecutive elements. This returns the number
 * of the one index that depends on the key, if it goes up or down by 1 from key to key. It returns
 * -1 if there is no such index, or if another index depends on the key, too. */
int ft_cuda_key_index(const struct ft_cuda *cuda, int read);

/* Whether a row of queries reads 16-bit floats from an address of its own on, as many as there are
 * keys: that index goes up and is the same for all queries. */
bool ft_cuda_is_of_tile(const struct ft_cuda *cuda, int read);

#endif
