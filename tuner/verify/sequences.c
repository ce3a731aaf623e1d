/* sequences.c: the lengths of a ragged problem, and of one whose K and V are in pages.
 * in -> out: request + seed -> where each sequence lies and how many of its rows it uses. */
#include "tuner/verify/sequences.h"

#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tuner/verify/page_table.h"
#include "tuner/verify/random_inputs.h"

static int64_t least_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Beside the ends of tiles, or about the mean of what is left; the last one gets some of it all. */
static int64_t random_length(uint64_t *state, int64_t left, int64_t sequences) {
  static const int edges[] = {0, 0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 191, 193, 257};
  enum { EDGES = sizeof edges / sizeof *edges };
  const uint64_t drawn = ft_random_next(state);
  const int64_t mean = left / sequences;
  if (drawn % 3 == 0) return least_of(edges[(drawn >> 8) % EDGES], left);
  if (sequences == 1) return left - (int64_t)((drawn >> 8) % 2) * least_of(left, 3);
  return least_of((int64_t)((drawn >> 8) % (uint64_t)(2 * mean + 1)), left);
}

static int allocate(struct ft_packed_rows *rows, int64_t count) {
  rows->starts = calloc((size_t)count + 1, sizeof *rows->starts);
  rows->used = calloc((size_t)count + 1, sizeof *rows->used);
  if (rows->starts && rows->used) return FT_OK;
  return ft_fail(FT_E_MEMORY, "no memory for the lengths of %lld sequences", (long long)count);
}

static int lay_out(struct ft_packed_rows *rows, int64_t count, int64_t total, uint64_t *state) {
  FT_TRY(allocate(rows, count));
  rows->total = total;
  int64_t start = 0;
  for (int64_t n = 0; n < count; n++) {
    rows->starts[n] = (int32_t)start;
    start += random_length(state, total - start, count - n);
  }
  rows->starts[count] = (int32_t)start;
  return FT_OK;
}

/* From half to one and a half of the mean: what one of a pair has more the other one has less. */
static int lay_out_alike(struct ft_packed_rows *rows, int64_t count, int64_t total,
                         uint64_t *state) {
  const int64_t mean = total / count, half = mean / 2, rest = total % count;
  FT_TRY(allocate(rows, count));
  rows->total = total;
  int64_t start = 0, more = 0;
  for (int64_t n = 0; n < count; n++) {
    rows->starts[n] = (int32_t)start;
    more = n % 2 ? -more : (int64_t)(ft_random_next(state) % (uint64_t)(2 * half + 1)) - half;
    start += mean + (n + 1 < count || n % 2 ? more : 0) + (n < rest);
  }
  rows->starts[count] = (int32_t)start;
  return FT_OK;
}

static void use(struct ft_packed_rows *rows, int64_t count, bool some_unused, uint64_t *state) {
  rows->longest = 1;
  rows->in_use = 0;
  for (int64_t n = 0; n < count; n++) {
    const uint64_t drawn = ft_random_next(state);
    const int32_t all = rows->starts[n + 1] - rows->starts[n];
    const bool fewer = some_unused && drawn % 2 == 0;
    rows->used[n] = fewer ? (int32_t)((drawn >> 8) % ((uint64_t)all + 1)) : all;
    if (rows->used[n] > rows->longest) rows->longest = rows->used[n];
    rows->in_use += rows->used[n];
  }
  if (rows->in_use > 0) return;
  if (rows->starts[count] == 0) rows->starts[count] = (int32_t)rows->total; /* of the last one */
  use(rows, count, false, state);
}

bool ft_request_has_sequences(const struct ft_request *request) {
  return request->ragged || request->pages > 0;
}

static int make_pages(struct ft_packed_rows *rows, const struct ft_request *request, bool alike,
                      uint64_t *state) {
  const int64_t most = request->ragged ? rows->longest : request->seqlen_k;
  return ft_page_table_make(&rows->table, request->pages, rows->used, request->batch, most, !alike,
                            state);
}

/* As many queries each; keys of their own number, of the longest one all. */
static int make_dense(struct ft_sequences *sequences, const struct ft_request *request, bool alike,
                      uint64_t *state) {
  const int64_t count = request->batch, nq = request->seqlen_q, nk = request->seqlen_k;
  struct ft_packed_rows *const q = &sequences->q, *const k = &sequences->k;
  FT_TRY(allocate(q, count));
  FT_TRY(allocate(k, count));
  q->longest = nq;
  q->in_use = q->total = count * nq;
  k->longest = k->total = nk;
  const int64_t longest = (int64_t)(ft_random_next(state) % (uint64_t)count);
  for (int64_t n = 0; n < count; n++) {
    q->used[n] = (int32_t)nq;
    k->used[n] = (int32_t)(alike || n == longest ? nk : random_length(state, nk, 2));
    k->in_use += k->used[n];
  }
  return FT_OK;
}

int ft_sequences_make(struct ft_sequences *sequences, const struct ft_request *request, bool alike,
                      uint64_t seed) {
  uint64_t state = seed ^ 0xA0761D6478BD642Fu;
  const uint64_t drawn = ft_random_next(&state);
  const bool of_itself = (alike || drawn % 2 == 0) && request->seqlen_q == request->seqlen_k;
  *sequences =
      (struct ft_sequences){.count = request->batch, .some_unused = !alike && drawn / 2 % 2 == 0};
  if (!request->ragged) {
    FT_TRY(make_dense(sequences, request, alike, &state));
    return make_pages(&sequences->k, request, alike, &state);
  }
  int (*const lay)(struct ft_packed_rows *, int64_t, int64_t, uint64_t *) =
      alike ? lay_out_alike : lay_out;
  FT_TRY(lay(&sequences->q, request->batch, request->seqlen_q, &state));
  FT_TRY(lay(&sequences->k, request->batch, request->seqlen_k, &state));
  if (of_itself)
    memcpy(sequences->k.starts, sequences->q.starts,
           ((size_t)request->batch + 1) * sizeof *sequences->q.starts);
  use(&sequences->q, request->batch, sequences->some_unused, &state);
  use(&sequences->k, request->batch, sequences->some_unused, &state);
  return request->pages > 0 ? make_pages(&sequences->k, request, alike, &state) : FT_OK;
}

void ft_sequences_free(struct ft_sequences *sequences) {
  free(sequences->q.starts);
  free(sequences->q.used);
  free(sequences->k.starts);
  free(sequences->k.used);
  ft_page_table_free(&sequences->k.table);
  *sequences = (struct ft_sequences){0};
}

struct ft_request ft_request_of_sequence(const struct ft_request *request,
                                         const struct ft_sequences *sequences, int64_t number) {
  struct ft_request own = *request;
  if (!sequences) return own;
  own.seqlen_q = sequences->q.used[number];
  own.seqlen_k = sequences->k.used[number];
  return own;
}
