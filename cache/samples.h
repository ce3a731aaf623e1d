/* samples.h: what a set of timings says.
 * in -> out: samples -> percentiles; median and spread. */
#ifndef CACHE_SAMPLES_H
#define CACHE_SAMPLES_H

#include <stddef.h>

/* The value below which `share` of the sorted samples lie, between neighbours by interpolation. */
double ft_percentile(const double *sorted, size_t count, double share);

/* The spread is half the distance between the 20th and the 80th percentile. */
struct ft_summary_of_samples {
  double median, spread, least;
};

/* Sorts the samples. Of none: zeros. */
struct ft_summary_of_samples ft_samples_summarise(double *samples, size_t count);

#endif
