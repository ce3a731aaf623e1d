/* samples.c: what a set of timings says.
 * in -> out: samples -> percentiles; median and spread. */
#include "cache/samples.h"

#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b) {
  double left = 0, right = 0;
  memcpy(&left, a, sizeof left);
  memcpy(&right, b, sizeof right);
  return (left > right) - (left < right);
}

double ft_percentile(const double *sorted, size_t count, double share) {
  if (count == 0) return 0;
  const double place = share * (double)(count - 1);
  const size_t below = (size_t)place;
  if (below + 1 >= count) return sorted[count - 1];
  return sorted[below] + (place - (double)below) * (sorted[below + 1] - sorted[below]);
}

struct ft_summary_of_samples ft_samples_summarise(double *samples, size_t count) {
  if (count == 0) return (struct ft_summary_of_samples){0};
  qsort(samples, count, sizeof *samples, ascending);
  return (struct ft_summary_of_samples){
      .median = ft_percentile(samples, count, 0.5),
      .spread = (ft_percentile(samples, count, 0.8) - ft_percentile(samples, count, 0.2)) / 2,
      .least = samples[0]};
}
