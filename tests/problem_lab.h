/* problem_lab.h: problems and their verdicts on the fake GPU, whose memory this process can write.
 * in -> out: text of a request -> options, problem; what a test has written -> verdict; each driver
 * call failing in turn -> nothing left behind. */
#ifndef TESTS_PROBLEM_LAB_H
#define TESTS_PROBLEM_LAB_H

#include "tests/fake_lab.h"
#include "tuner/verify/comparison.h"
#include "tuner/verify/problem_options.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/shape.h"

/* With host copies, LSE and a fresh seed. */
struct ft_problem_options problem_options(const char *text, enum ft_layout layout);
struct ft_problem *problem_make(const struct fake_lab *lab,
                                const struct ft_problem_options *options);

/* Of so many rows, or of all there are. */
struct ft_comparison verdict(struct ft_problem *problem, int rows);

/* Wrong, and the worst of it is told in words that hold the part. */
#define ck_assert_wrong(problem, part)                                                             \
  do {                                                                                             \
    const struct ft_comparison ck_found = verdict(problem, 50);                                    \
    ck_assert_msg(!(ck_found.error_ratio <= 1), "not noticed");                                    \
    ck_assert_msg(strstr(ck_found.worst, part), "\"%s\" lacks \"%s\"", ck_found.worst, part);      \
  } while (0)

/* Makes the problem and uses it; whichever driver call fails, there is a status and nothing is left
 * behind. Returns how often it tried: one time more than there are calls. */
int problem_fail_each_call(const struct fake_lab *lab, const struct ft_problem_options *options,
                           int (*use)(struct ft_problem *problem));

#endif
