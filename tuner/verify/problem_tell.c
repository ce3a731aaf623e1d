/* problem_tell.c: where the gradients of a backward are wrong.
 * in -> out: problem with a verdict -> lines of text. They say of each gradient how many of the
 * rows checked are wrong, between which, in which columns, and which element is worst. */
#include "tuner/verify/problem_tell.h"

#include <string.h>

#include "tuner/verify/comparison.h"
#include "tuner/verify/gradient_answers.h"
#include "tuner/verify/gradients.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/weights_text.h"

/* What is wrong in one gradient. */
struct findings {
  int checked, wrong;
  struct ft_row first, last; /* least and largest place of wrong rows, field by field */
  bool columns[FT_REFERENCE_DIM];
  struct ft_row worst;
  int column;
  double ratio, is, should;
};

static void add_row(struct findings *it, struct ft_row row) {
  if (it->wrong++ == 0) it->first = it->last = row;
  if (row.batch < it->first.batch) it->first.batch = row.batch;
  if (row.batch > it->last.batch) it->last.batch = row.batch;
  if (row.head < it->first.head) it->first.head = row.head;
  if (row.head > it->last.head) it->last.head = row.head;
  if (row.i < it->first.i) it->first.i = row.i;
  if (row.i > it->last.i) it->last.i = row.i;
}

static void look(const struct ft_problem *problem, enum ft_gradient gradient, struct findings *it) {
  const struct ft_gradient_answers *answers = problem->gradient_answers;
  const struct ft_request *request = &problem->options.request;
  const int dim = ft_gradient_dim(request, gradient);
  const struct ft_row *rows;
  memset(it, 0, sizeof *it);
  it->checked = ft_gradient_answers_rows(answers, gradient, &rows);
  for (int n = 0; n < it->checked; n++) {
    const void *values =
        ft_element(ft_output_dtype(request), problem->gradient_rows[gradient], (int64_t)n * dim);
    int column = 0;
    double should = 0;
    const double ratio = ft_gradient_answers_row(answers, gradient, n, values, &column, &should);
    if (ratio <= 1) continue;
    add_row(it, rows[n]);
    ft_gradient_answers_columns(answers, gradient, n, values, it->columns);
    if (!(ratio > it->ratio)) continue;
    it->ratio = ratio;
    it->worst = rows[n];
    it->column = column;
    it->is = ft_number(ft_output_dtype(request), values, column);
    it->should = should;
  }
}

static void tell_range(struct ft_text *text, const char *name, int64_t first, int64_t last) {
  if (first == last)
    ft_text_add(text, ", %s %lld", name, (long long)first);
  else
    ft_text_add(text, ", %s %lld to %lld", name, (long long)first, (long long)last);
}

static void tell(const struct findings *it, enum ft_gradient gradient, int dim,
                 struct ft_text *text) {
  const char *const name = ft_gradient_name(gradient), *const row = ft_gradient_unit(gradient);
  if (it->wrong == 0) {
    ft_text_add(text, "%s: none of %d rows checked is wrong by itself\n", name, it->checked);
    return;
  }
  ft_text_add(text, "%s: %d of %d rows checked %s wrong", name, it->wrong, it->checked,
              it->wrong == 1 ? "is" : "are");
  tell_range(text, "batch", it->first.batch, it->last.batch);
  tell_range(text, "head", it->first.head, it->last.head);
  tell_range(text, row, it->first.i, it->last.i);
  ft_text_add(text, ", in ");
  ft_tell_runs(text, "column", it->columns, NULL, dim);
  ft_text_add(text, "\n  the worst: batch %lld, head %d, %s %lld, column %d is %.7g, not %.7g\n",
              (long long)it->worst.batch, it->worst.head, row, (long long)it->worst.i, it->column,
              it->is, it->should);
}

int ft_problem_tell_gradients(struct ft_problem *problem, struct ft_text *text) {
  const struct ft_comparison *verdict = &problem->verdict;
  if (verdict->damaged) { /* nothing was compared */
    ft_text_add(text, verdict->column == FT_COLUMN_NONE ? "The kernel %s.\n" : "%s.\n",
                verdict->worst);
    return ft_text_status(text);
  }
  ft_text_add(text, "%s\n", verdict->worst);
  for (int gradient = 0; gradient < FT_GRADIENTS; gradient++) {
    struct findings it;
    look(problem, (enum ft_gradient)gradient, &it);
    tell(&it, (enum ft_gradient)gradient,
         ft_gradient_dim(&problem->options.request, (enum ft_gradient)gradient), text);
  }
  return ft_text_status(text);
}
