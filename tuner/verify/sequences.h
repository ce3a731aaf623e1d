/* sequences.h: the lengths of a ragged problem, and of one whose K and V are in pages.
 * in -> out: request + seed -> where each sequence lies and how many of its rows it uses. */
#ifndef TUNER_SEQUENCES_H
#define TUNER_SEQUENCES_H

#include "generator/request.h"
#include "tuner/verify/shape.h"

struct ft_sequences {
  int64_t count;
  struct ft_packed_rows q, k;
  bool some_unused; /* a sequence may use fewer rows than it has; else all have what they use */
};

/* Whether the sequences of a request have lengths of their own. */
bool ft_request_has_sequences(const struct ft_request *request);

/* Random lengths, with empty ones and those that end beside the ends of tiles. The sequences of
 * some seeds have as many keys as queries.
 * alike: the lengths are those of a usual batch, for timing. A ragged sequence is from half to one
 * and a half times as long as the mean, and uses all its rows. If the request has as many keys as
 * queries, so has each sequence. Without `ragged`, each batch entry has all keys of the request.
 * No two sequences share a page. */
int ft_sequences_make(struct ft_sequences *sequences, const struct ft_request *request, bool alike,
                      uint64_t seed);
void ft_sequences_free(struct ft_sequences *sequences);

/* The request with the lengths of one sequence; sequences NULL: as it is. */
struct ft_request ft_request_of_sequence(const struct ft_request *request,
                                         const struct ft_sequences *sequences, int64_t number);

#endif
