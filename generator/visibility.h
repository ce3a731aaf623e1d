/* visibility.h: which keys a query sees by their positions; the C twin of the templates' part
 * `visibility`.
 * in -> out: request with the lengths of a run -> intervals of keys and of queries, tiles, pairs.
 *
 * Query i lies on diagonal 0 with key i, key j on diagonal j - i of it. A query sees the keys on
 * the diagonals first_diagonal to last_diagonal. So its keys are an interval, the queries that see
 * a key are one, too, and both ends of either never decrease from one query or key to the next.
 * Rows of packed heads are not queries: the caller turns rows into queries. Blocks of a mask hide
 * keys in addition; they are lists (runtime/mask.c). */
#ifndef GENERATOR_VISIBILITY_H
#define GENERATOR_VISIBILITY_H

#include "generator/request.h"

struct ft_visibility {
  int64_t nq, nk;
  int64_t first_diagonal, last_diagonal; /* -nq to nk; first <= last */
};

/* begin to end - 1; empty: begin == end. */
struct ft_interval {
  int64_t begin, end;
};

/* Diagonals that are seen: first to last. */
struct ft_diagonals {
  int64_t first, last;
};

/* What a query sees, whatever the lengths. Diagonals of top_left are counted from the first queries
 * and keys; those of bottom_right from the last ones, which are nk - nq further on. A query sees
 * what lies on diagonals of both. A first diagonal of -FT_NO_END hides nothing; nor does a last
 * diagonal of FT_NO_END. */
enum { FT_NO_END = INT32_MAX };
struct ft_alignments {
  struct ft_diagonals top_left, bottom_right;
};
struct ft_alignments ft_alignments_of(const struct ft_request *request);
struct ft_visibility ft_visibility_in(const struct ft_alignments *seen, int64_t nq, int64_t nk);

/* The request has the lengths of the run. */
struct ft_visibility ft_visibility_of(const struct ft_request *request);

/* Whether keys before or after those that a query sees may be hidden by their positions, and
 * whether some queries see other keys than others do. The lengths are not looked at. */
bool ft_hides_first_keys(const struct ft_request *request);
bool ft_hides_last_keys(const struct ft_request *request);
bool ft_visibility_varies(const struct ft_request *request);

/* What the templates' part `visibility` is given of a request: index 0.. until NULL. */
struct ft_visibility_value {
  const char *name;
  bool (*of)(const struct ft_request *request);
};
const struct ft_visibility_value *ft_visibility_value_at(int index);

/* Within the intervals keys may be hidden in blocks of so many; a tile of keys must lie in one
 * block. 0: there are no such blocks. */
int ft_key_block_of(const struct ft_request *request);

/* Hints that mean the same get the same value. Without a window both sides are -1. With causal of
 * the same alignment the right one is 0: no key after the query's own is seen. */
void ft_visibility_tidy_hints(struct ft_request *request);

bool ft_sees(const struct ft_visibility *visibility, int64_t i, int64_t j);
struct ft_interval ft_keys_of(const struct ft_visibility *visibility, int64_t i);
struct ft_interval ft_queries_of(const struct ft_visibility *visibility, int64_t j);

/* How many pairs (query, key) there are of which the query sees the key. */
double ft_visible_pairs(const struct ft_visibility *visibility);

/* What one tile walks over: the key tiles of a query tile, or the query tiles of a key tile. The
 * steps are begin to end - 1. In full_begin to full_end - 1 of them, and in no other, every query
 * sees every key, and the step's tile is whole. */
struct ft_steps {
  int64_t begin, end;
  int64_t full_begin, full_end;
};

/* Of a tile of queries, which is not empty, in steps of block_n keys. What lies beyond the last
 * query is left out. */
struct ft_steps ft_steps_of_queries(const struct ft_visibility *visibility,
                                    struct ft_interval queries, int block_n);
/* Of a tile of keys in steps of block_m queries, likewise. */
struct ft_steps ft_steps_of_keys(const struct ft_visibility *visibility, struct ft_interval keys,
                                 int block_m);

#endif
