/* rectangles.c: rectangles of queries and keys that see each other, as ranges of keys.
 * in -> out: rectangles -> for each query at most four ranges, which the built-in score function
 * `rectangles` captures. */
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/public.h"

enum { RANGES = 4 };

struct range {
  int64_t begin, end;
};

/* ---- what is allowed ---- */

static int check_range(int number, const char *what, int64_t begin, int64_t end, int64_t length) {
  if (begin >= 0 && begin < end && end <= length) return FT_OK;
  return ft_fail(FT_E_ARGUMENT,
                 "rectangles[%d] has %s from %lld to %lld; allowed: 0 <= begin < end <= %lld",
                 number, what, (long long)begin, (long long)end, (long long)length);
}

static int check(const fatune_rectangle *rectangles, int count, int64_t nq, int64_t nk) {
  for (int n = 0; n < count; ++n) {
    const fatune_rectangle *const r = &rectangles[n];
    FT_TRY(check_range(n, "queries", r->query_begin, r->query_end, nq));
    FT_TRY(check_range(n, "keys", r->key_begin, r->key_end, nk));
    if (r->causal != 0 && r->causal != 1)
      return ft_fail(FT_E_ARGUMENT, "rectangles[%d].causal is %d; allowed: 0, 1", n, r->causal);
  }
  return FT_OK;
}

/* ---- the ranges of a query ---- */

static int by_first_query(const void *a, const void *b) {
  const fatune_rectangle *const *const of_a = a, *const *const of_b = b;
  const int64_t x = (*of_a)->query_begin, y = (*of_b)->query_begin;
  return (x > y) - (x < y);
}

static int by_begin(const void *a, const void *b) {
  const struct range *const of_a = a, *const of_b = b;
  return (of_a->begin > of_b->begin) - (of_a->begin < of_b->begin);
}

/* The keys that query i sees by a rectangle that contains it; the range may be empty. */
static struct range seen(const fatune_rectangle *rectangle, int64_t i) {
  const int64_t fewer = rectangle->causal ? rectangle->query_end - 1 - i : 0;
  return (struct range){rectangle->key_begin, rectangle->key_end - fewer};
}

/* Joins ranges that touch or overlap, and drops empty ones. Returns how many are left. */
static int join(struct range *ranges, int count) {
  int joined = 0;
  qsort(ranges, (size_t)count, sizeof *ranges, by_begin);
  for (int n = 0; n < count; ++n) {
    if (ranges[n].begin >= ranges[n].end) continue;
    struct range *const last = joined > 0 ? &ranges[joined - 1] : NULL;
    if (last && ranges[n].begin <= last->end) {
      if (ranges[n].end > last->end) last->end = ranges[n].end;
    } else {
      ranges[joined++] = ranges[n];
    }
  }
  return joined;
}

static int write_row(int32_t *bounds, int64_t i, const struct range *ranges, int count) {
  if (count > RANGES)
    return ft_fail(FT_E_ARGUMENT,
                   "rectangles: query %lld sees %d ranges of keys apart from each other; allowed: "
                   "at most %d",
                   (long long)i, count, RANGES);
  memset(bounds, 0, 2 * RANGES * sizeof *bounds);
  for (int n = 0; n < count; ++n) {
    bounds[2 * n] = (int32_t)ranges[n].begin;
    bounds[2 * n + 1] = (int32_t)ranges[n].end;
  }
  return FT_OK;
}

/* Goes through the queries. `sorted` has the rectangles in the order of their first queries. The
 * first `active` entries of `begun` are the rectangles that contain the query at hand. */
static int sweep(int32_t *bounds, int64_t nq, const fatune_rectangle **sorted, int count,
                 const fatune_rectangle **begun, struct range *ranges) {
  int next = 0, active = 0;
  for (int64_t i = 0; i < nq; ++i) {
    int kept = 0;
    while (next < count && sorted[next]->query_begin <= i) begun[active++] = sorted[next++];
    for (int n = 0; n < active; ++n) {
      if (begun[n]->query_end <= i) continue;
      ranges[kept] = seen(begun[n], i);
      begun[kept++] = begun[n];
    }
    active = kept;
    FT_TRY(write_row(bounds + i * 2 * RANGES, i, ranges, join(ranges, active)));
  }
  return FT_OK;
}

int fatune_rectangle_bounds(int32_t *bounds, int64_t seqlen_q, int64_t seqlen_k,
                            const fatune_rectangle *rectangles, int count) {
  enum { LENGTH_MOST = 1 << 23 };
  if (!bounds) return ft_fail(FT_E_ARGUMENT, "bounds is NULL; it takes 8 numbers for each query");
  if (seqlen_q < 1 || seqlen_q > LENGTH_MOST)
    return ft_fail(FT_E_ARGUMENT, "seqlen_q is %lld; allowed: 1 .. 2^23", (long long)seqlen_q);
  if (seqlen_k < 1 || seqlen_k > LENGTH_MOST)
    return ft_fail(FT_E_ARGUMENT, "seqlen_k is %lld; allowed: 1 .. 2^23", (long long)seqlen_k);
  if (count < 0 || (count > 0 && !rectangles))
    return ft_fail(FT_E_ARGUMENT, "count is %d; allowed: how many rectangles there are", count);
  FT_TRY(check(rectangles, count, seqlen_q, seqlen_k));
  const size_t room = (size_t)count + 1;
  const fatune_rectangle **const sorted = malloc(2 * room * sizeof *sorted);
  struct range *const ranges = malloc(room * sizeof *ranges);
  int status = FT_OK;
  if (!sorted || !ranges) status = ft_fail(FT_E_MEMORY, "no memory for %d rectangles", count);
  if (status == FT_OK) {
    for (int n = 0; n < count; ++n) sorted[n] = &rectangles[n];
    qsort(sorted, (size_t)count, sizeof(const fatune_rectangle *), by_first_query);
    status = sweep(bounds, seqlen_q, sorted, count, sorted + room, ranges);
  }
  free(sorted);
  free(ranges);
  return status;
}
