/* problem_verify.h: whether a kernel wrote what it should.
 * in -> out: problem + a run -> struct ft_comparison. */
#ifndef TUNER_PROBLEM_VERIFY_H
#define TUNER_PROBLEM_VERIFY_H

#include "tuner/verify/comparison.h"
#include "tuner/verify/problem.h"

/* After a run: checks that the canaries are whole, every element is written and `rows` random rows
 * (all if there are fewer) are right. Returns FT_OK for a wrong result, too: the verdict is in
 * *comparison. */
int ft_problem_verify(struct ft_problem *problem, int rows, int threads,
                      struct ft_comparison *comparison);

/* Poisons, runs and verifies. A deterministic backward, and with `twice` a forward, is run again
 * and must give the same bits. run returns FT_OK when all is done, not only begun; its failure is
 * this function's. */
struct ft_problem_run {
  int (*run)(void *payload, const fatune_arguments *arguments);
  void *payload;
  cu_stream stream; /* the stream it runs on */
  bool twice;
};
int ft_problem_check(struct ft_problem *problem, const struct ft_problem_run *run, int rows,
                     int threads, struct ft_comparison *comparison);

#endif
