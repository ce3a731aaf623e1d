/* ties.h: comparisons and floors whose outcome may be another one in fp32 than in float64.
 * in -> out: an interpreter that has its values, what s errs by -> these ties; the values of the
 * expression with some of the ties decided the other way.
 *
 * A decision is a comparison of floats or a floor of one; the slope of min, max and abs is chosen
 * by comparisons, too (derive.h). One is a tie where its operands are no further apart than twice
 * what they may err by in fp32, by rounding.h, and what s errs by. Twice: kernels sum in another
 * order, and constants are folded otherwise (lower.h, exponent.h). Where operands are exact in
 * fp32, as integers and elements of tensors are, there is no tie, be they equal or not. Numbers
 * that are not finite make none. */
#ifndef GENERATOR_SCORE_TIES_H
#define GENERATOR_SCORE_TIES_H

#include "generator/score/interpret.h"

/* Of one element. Further ones are not followed. */
enum { FT_TIES_MOST = 4 };

struct ft_ties {
  int *decisions; /* nodes; owned */
  int decision_count;
  double *errors;                       /* of each node of the expression; owned */
  struct ft_forced found[FT_TIES_MOST]; /* as they are decided; in the order of the nodes */
  double others[FT_TIES_MOST];          /* the other way */
  int count;
};

/* Of the nodes that the interpreter computes, which has to stay open. */
int ft_ties_open(struct ft_ties *ties, const struct ft_interpreter *interpreter);
void ft_ties_close(struct ft_ties *ties);

/* After ft_interpret: finds the ties. Returns in how many other ways they may be decided. */
int ft_ties_find(struct ft_ties *ties, const struct ft_interpreter *interpreter, double of_s);
/* Computes all with the ties decided in the n-th way: 1 to what ft_ties_find has returned; 0: as
 * they were where they were found. */
void ft_ties_interpret(const struct ft_ties *ties, struct ft_interpreter *interpreter,
                       const struct ft_score_inputs *inputs, int way);

#endif
