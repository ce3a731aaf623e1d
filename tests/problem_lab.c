/* problem_lab.c: problems on the fake GPU.
 * in -> out: options -> problem -> verdict. */
#include "tests/problem_lab.h"

#include <stdio.h>

#include "generator/status.h"
#include "tests/fresh_seed.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_verify.h"

struct ft_problem_options problem_options(const char *text, enum ft_layout layout) {
  struct ft_problem_options options = {
      .layout = layout, .seed = fresh_seed(), .keep_host = true, .want_lse = true};
  ck_assert_msg(ft_request_parse(&options.request, text) == FT_OK, "%s", ft_detail());
  return options;
}

struct ft_problem *problem_make(const struct fake_lab *lab,
                                const struct ft_problem_options *options) {
  struct ft_problem *problem;
  ck_assert_status(ft_problem_make(&problem, lab->session, options), FT_OK);
  return problem;
}

struct ft_comparison verdict(struct ft_problem *problem, int rows) {
  struct ft_comparison comparison;
  ck_assert_status(ft_problem_verify(problem, rows, 2, &comparison), FT_OK);
  return comparison;
}

/* Nothing can be done about the failure of a call that gives something back. */
static bool gives_back(const char *symbol) {
  return strstr(symbol, "Pop") || strstr(symbol, "Free") || strstr(symbol, "Destroy");
}

int problem_fail_each_call(const struct fake_lab *lab, const struct ft_problem_options *options,
                           int (*use)(struct ft_problem *problem)) {
  const struct fake_controls *const cuda = &lab->cuda;
  const int depth = cuda->depth();
  bool failed = true;
  int calls = 0;
  for (; failed; calls++) {
    char failure[32];
    snprintf(failure, sizeof failure, "*:%d:2", calls + 1);
    struct ft_problem *problem = NULL;
    cuda->reset(failure);
    int status = ft_problem_make(&problem, lab->session, options);
    if (status == FT_OK) status = use(problem);
    const bool in_use = cuda->failed()[0] != '\0';
    ft_problem_free(problem);
    failed = cuda->failed()[0] != '\0';
    ck_assert_msg(status != FT_OK || !in_use || gives_back(cuda->failed()), "call %d, %s", calls,
                  cuda->failed());
    ck_assert_msg(cuda->live() == 0, "call %d, %s: %d left", calls, cuda->failed(), cuda->live());
    ck_assert_int_eq(cuda->depth(), depth);
  }
  return calls;
}
