/* problem_options.h: what problem is wanted. */
#ifndef TUNER_PROBLEM_OPTIONS_H
#define TUNER_PROBLEM_OPTIONS_H

#include "generator/request.h"
#include "tuner/verify/shape.h"

struct ft_problem_options {
  struct ft_request request; /* all fields filled in; mask_density decides how many blocks are kept;
                                where it is 1 and the score hides keys, the score does */
  enum ft_layout layout;
  uint64_t seed;  /* of inputs, mask, dropout */
  double dropout; /* probability when the request has dropout; 0: 0.1 */
  double scale;   /* 0: 1 / sqrt(head_dim) */
  bool coarse; /* Q and K hold multiples of 1/64, so that Q K^T is exact in fp32; with a scale that
                  is a power of two every program takes the same branches of a score */
  bool keep_host; /* host copies are kept, so that ft_problem_verify can be called */
  bool want_lse;
  bool want_dlse;      /* a backward gets a gradient of LSE, too */
  bool broadcast_mask; /* one mask for all batches and heads */
  bool alike;          /* sequences and pages as of a batch in use, for timing: sequences.h */
  bool made_up; /* for timing alone: inputs repeat a short piece, and of a backward O is zero and
                   LSE 8, so that it needs no forward */
};

#endif
