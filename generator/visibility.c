/* visibility.c: which keys a query sees by their positions.
 * in -> out: request with the lengths of a run -> intervals of keys and of queries, tiles, pairs.
 * No other C file knows what `causal` and `window` hide. */
#include "generator/visibility.h"

#include <stddef.h>

static int64_t clamp(int64_t value, int64_t least, int64_t most) {
  if (value < least) return least;
  return value < most ? value : most;
}

static int64_t lesser(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t greater(int64_t a, int64_t b) {
  return a > b ? a : b;
}

struct ft_alignments ft_alignments_of(const struct ft_request *request) {
  const struct ft_diagonals all = {-FT_NO_END, FT_NO_END};
  struct ft_alignments seen = {all, all};
  struct ft_diagonals *const of_window =
      request->window == FT_WINDOW_TOP_LEFT ? &seen.top_left : &seen.bottom_right;
  if (request->causal == FT_CAUSAL_TOP_LEFT) seen.top_left.last = 0;
  if (request->causal == FT_CAUSAL_BOTTOM_RIGHT) seen.bottom_right.last = 0;
  if (request->window == FT_WINDOW_NONE) return seen;
  if (request->window_left >= 0) of_window->first = -request->window_left;
  if (request->window_right >= 0) of_window->last = lesser(of_window->last, request->window_right);
  return seen;
}

/* Where no diagonal is left, no query sees a key. */
struct ft_visibility ft_visibility_in(const struct ft_alignments *seen, int64_t nq, int64_t nk) {
  const int64_t shift = nk - nq;
  const int64_t first = greater(seen->top_left.first, seen->bottom_right.first + shift);
  const int64_t last = lesser(seen->top_left.last, seen->bottom_right.last + shift);
  struct ft_visibility visibility = {.nq = nq,
                                     .nk = nk,
                                     .first_diagonal = clamp(first, -nq, nk),
                                     .last_diagonal = clamp(last, -nq, nk)};
  if (visibility.first_diagonal > visibility.last_diagonal)
    visibility.first_diagonal = visibility.last_diagonal = nk;
  return visibility;
}

struct ft_visibility ft_visibility_of(const struct ft_request *request) {
  const struct ft_alignments seen = ft_alignments_of(request);
  return ft_visibility_in(&seen, request->seqlen_q, request->seqlen_k);
}

bool ft_hides_first_keys(const struct ft_request *request) {
  return request->window != FT_WINDOW_NONE;
}

bool ft_hides_last_keys(const struct ft_request *request) {
  return request->causal != FT_CAUSAL_NONE || request->window != FT_WINDOW_NONE;
}

bool ft_visibility_varies(const struct ft_request *request) {
  return ft_hides_first_keys(request) || ft_hides_last_keys(request);
}

const struct ft_visibility_value *ft_visibility_value_at(int index) {
  static const struct ft_visibility_value values[] = {
      {"hides_first", ft_hides_first_keys},
      {"hides_last", ft_hides_last_keys},
  };
  enum { VALUES = sizeof values / sizeof *values };
  return index >= 0 && index < VALUES ? &values[index] : NULL;
}

int ft_key_block_of(const struct ft_request *request) {
  return request->mask_cols;
}

void ft_visibility_tidy_hints(struct ft_request *request) {
  if (request->window == FT_WINDOW_NONE)
    request->window_left = request->window_right = -1;
  else if ((int)request->window == (int)request->causal)
    request->window_right = 0;
}

bool ft_sees(const struct ft_visibility *visibility, int64_t i, int64_t j) {
  return visibility->first_diagonal <= j - i && j - i <= visibility->last_diagonal;
}

struct ft_interval ft_keys_of(const struct ft_visibility *visibility, int64_t i) {
  const int64_t nk = visibility->nk;
  return (struct ft_interval){clamp(i + visibility->first_diagonal, 0, nk),
                              clamp(i + visibility->last_diagonal + 1, 0, nk)};
}

struct ft_interval ft_queries_of(const struct ft_visibility *visibility, int64_t j) {
  const int64_t nq = visibility->nq;
  return (struct ft_interval){clamp(j - visibility->last_diagonal, 0, nq),
                              clamp(j - visibility->first_diagonal + 1, 0, nq)};
}

/* The pairs on the diagonals before this one. Query i has i + diagonal keys there, none at first,
 * and in the end all. */
static double pairs_before(const struct ft_visibility *visibility, int64_t diagonal) {
  const int64_t nq = visibility->nq, nk = visibility->nk;
  const int64_t some = clamp(1 - diagonal, 0, nq), all = clamp(nk - diagonal, some, nq);
  const double least = (double)(some + diagonal), most = (double)(all - 1 + diagonal);
  return (double)(all - some) * (least + most) / 2 + (double)(nq - all) * (double)nk;
}

double ft_visible_pairs(const struct ft_visibility *visibility) {
  return pairs_before(visibility, visibility->last_diagonal + 1) -
         pairs_before(visibility, visibility->first_diagonal);
}

/* The tiles of `block` that hold something of `any`, and those that lie in `every`; the last of all
 * `length` may be shorter than a tile. */
static struct ft_steps steps_between(struct ft_interval any, struct ft_interval every, int block) {
  struct ft_steps steps = {any.begin / block, (any.end + block - 1) / block,
                           (every.begin + block - 1) / block, every.end / block};
  if (any.begin >= any.end) steps.end = steps.begin;
  if (steps.full_begin >= steps.full_end || steps.end == steps.begin)
    steps.full_begin = steps.full_end = steps.begin;
  return steps;
}

struct ft_steps ft_steps_of_queries(const struct ft_visibility *visibility,
                                    struct ft_interval queries, int block_n) {
  const int64_t last = clamp(queries.end, 0, visibility->nq) - 1;
  const struct ft_interval of_first = ft_keys_of(visibility, queries.begin);
  const struct ft_interval of_last = ft_keys_of(visibility, last);
  const struct ft_interval any = {of_first.begin, of_last.end};
  const struct ft_interval every = {of_last.begin, of_first.end};
  return steps_between(any, every, block_n);
}

struct ft_steps ft_steps_of_keys(const struct ft_visibility *visibility, struct ft_interval keys,
                                 int block_m) {
  const int64_t last = clamp(keys.end, 0, visibility->nk) - 1;
  const struct ft_interval of_first = ft_queries_of(visibility, keys.begin);
  const struct ft_interval of_last = ft_queries_of(visibility, last);
  const struct ft_interval any = {of_first.begin, of_last.end};
  const struct ft_interval every = {of_last.begin, of_first.end};
  return steps_between(any, every, block_m);
}
