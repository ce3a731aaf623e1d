/* weights_text.c: wrong weights of a row, in words.
 * in -> out: weights used and expected -> the kind of mistake, the keys that it concerns. */
#include "tuner/verify/weights_text.h"

#include <math.h>
#include <stdlib.h>

#include "tuner/verify/problem_parts.h"
#include "tuner/verify/reference.h"
#include "tuner/verify/weights.h"

/* ---- runs of numbers ------------------------------------------------------------------------- */

struct stretch {
  int64_t first, last, marked;
};

/* The first stretch that begins at or after n; if there is none, its `first` is count. */
static struct stretch next_stretch(const bool *marked, const bool *unknown, int64_t n,
                                   int64_t count) {
  while (n < count && !marked[n]) n += 1;
  struct stretch stretch = {n, n, 0};
  for (; n < count && (marked[n] || (unknown && unknown[n])); n++) {
    if (!marked[n]) continue;
    stretch.last = n;
    stretch.marked += 1;
  }
  return stretch;
}

void ft_tell_runs(struct ft_text *text, const char *one, const bool *marked, const bool *unknown,
                  int64_t count) {
  enum { TOLD = 4 };
  int64_t rest = 0;
  for (int64_t n = 0; n < count; n++) rest += marked[n];
  ft_text_add(text, "%s%s ", one, rest == 1 ? "" : "s");
  struct stretch stretch = next_stretch(marked, unknown, 0, count);
  for (int told = 0; stretch.first < count && told < TOLD; told++) {
    rest -= stretch.marked;
    if (told > 0) ft_text_add(text, rest == 0 ? " and " : ", ");
    ft_text_add(text, "%lld", (long long)stretch.first);
    if (stretch.last > stretch.first) ft_text_add(text, " to %lld", (long long)stretch.last);
    stretch = next_stretch(marked, unknown, stretch.last + 1, count);
  }
  if (rest > 0) ft_text_add(text, " and %lld more", (long long)rest);
}

/* ---- kinds of mistakes ----------------------------------------------------------------------- */

enum fault { RIGHT, NO_NUMBER, UNSEEN, UNDROPPED, LOST, OFF, FAULTS };

static enum fault fault_of(const struct ft_weights *weights, int64_t j) {
  if (!ft_weights_wrong(weights, j)) return RIGHT;
  if (!isfinite(weights->used[j])) return NO_NUMBER;
  switch ((enum ft_key)weights->keys[j]) {
  case FT_KEY_HIDDEN:
  case FT_KEY_BLOCK: return UNSEEN;
  case FT_KEY_DROPPED: return UNDROPPED;
  case FT_KEY_KEPT: break;
  }
  return weights->used[j] == 0 ? LOST : OFF;
}

int64_t ft_weights_worst(const struct ft_weights *weights) {
  int64_t worst = -1;
  for (int64_t j = 0; j < weights->count; j++) {
    const enum fault fault = fault_of(weights, j);
    if (fault == RIGHT) continue;
    if (fault != OFF) return j; /* the first such key, most often at the edge of what is seen */
    if (worst < 0 || fabs(weights->used[j] - weights->expected[j]) >
                         fabs(weights->used[worst] - weights->expected[worst])) {
      worst = j;
    }
  }
  return worst;
}

/* One line on a row's weights. */
struct story {
  const struct ft_weights *weights;
  const struct ft_problem *problem;
  struct ft_text *text;
  bool *marked, *unknown; /* [key], for the lists of keys */
  double *ratios;
  int parts;
};

static int64_t mark(struct story *story, enum fault fault) {
  const struct ft_weights *weights = story->weights;
  int64_t count = 0;
  for (int64_t j = 0; j < weights->count; j++) {
    story->marked[j] = fault_of(weights, j) == fault;
    /* A key that should have no weight and has none says nothing. */
    const bool seen = weights->keys[j] == FT_KEY_KEPT;
    const bool nothing = weights->used[j] == 0 && weights->expected[j] <= weights->allowed[j];
    story->unknown[j] = fault == LOST ? nothing : fault == OFF && !seen && nothing;
    count += story->marked[j];
  }
  return count;
}

static int64_t first_marked(const struct story *story) {
  int64_t j = 0;
  while (!story->marked[j]) j += 1;
  return j;
}

static void begin_part(struct story *story) {
  ft_text_add(story->text, story->parts++ ? "; it gives " : " gives ");
}

static void tell_keys(struct story *story, const char *before, const char *after) {
  ft_text_add(story->text, "%s", before);
  ft_tell_runs(story->text, "key", story->marked, story->unknown, story->weights->count);
  ft_text_add(story->text, "%s", after);
}

static void tell_why_unseen(struct story *story, int64_t j) {
  const struct ft_request *request = &story->problem->options.request;
  const struct ft_row row = story->weights->row;
  const uint8_t *const line = ft_mask_line(&story->problem->host, row);
  const bool is_off = line != NULL && !line[j / request->mask_cols];
  if (story->weights->keys[j] == FT_KEY_BLOCK && !is_off) {
    ft_text_add(story->text, ", but the score function hides it");
    return;
  }
  if (story->weights->keys[j] == FT_KEY_BLOCK) {
    ft_text_add(story->text,
                ", but does not see it (block row %lld, column %lld of the mask is off)",
                (long long)(row.i / request->mask_rows), (long long)(j / request->mask_cols));
    return;
  }
  const struct ft_interval keys = ft_row_keys(&story->problem->host, row);
  if (keys.end > keys.begin) {
    ft_text_add(story->text, ", but does not see it (it sees keys %lld to %lld)",
                (long long)keys.begin, (long long)keys.end - 1);
  } else {
    ft_text_add(story->text, ", but the row sees no key");
  }
}

static void tell_extra(struct story *story, enum fault fault) {
  const struct ft_weights *weights = story->weights;
  const int64_t count = mark(story, fault);
  if (count == 0) return;
  const int64_t j = first_marked(story);
  begin_part(story);
  ft_text_add(story->text, "key %lld a weight of %.4g", (long long)j, weights->used[j]);
  if (fault == UNSEEN) tell_why_unseen(story, j);
  if (fault == UNDROPPED) ft_text_add(story->text, ", but dropout drops it");
  if (fault == NO_NUMBER) ft_text_add(story->text, ", expected %.4g", weights->expected[j]);
  if (count > 1) tell_keys(story, ", and so to ", "");
}

static void tell_lost(struct story *story) {
  const struct ft_weights *weights = story->weights;
  const int64_t count = mark(story, LOST);
  if (count == 0) return;
  const int64_t j = first_marked(story);
  begin_part(story);
  ft_text_add(story->text, "key %lld no weight, expected %.4g%s", (long long)j,
              weights->expected[j],
              story->problem->options.request.dropout ? " (dropout keeps it)" : "");
  if (count > 1) tell_keys(story, ": ", " are missing");
}

/* ---- weights that are merely off ------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The median of used / expected over keys that have a weight; 1 when there are none. */
static double common_factor(struct story *story, const bool *among) {
  const struct ft_weights *weights = story->weights;
  size_t count = 0;
  for (int64_t j = 0; j < weights->count; j++) {
    const enum fault fault = fault_of(weights, j);
    if ((fault != RIGHT && fault != OFF) || (among && !among[j])) continue;
    if (!weights->looked[j] || weights->expected[j] <= 4 * weights->allowed[j]) continue;
    story->ratios[count++] = weights->used[j] / weights->expected[j];
  }
  if (count == 0) return 1;
  qsort(story->ratios, count, sizeof(double), by_size);
  return story->ratios[count / 2];
}

static bool off_by_other(const struct ft_weights *weights, int64_t j, double factor) {
  const double error = fabs(weights->used[j] - factor * weights->expected[j]);
  return error > fmax(1, factor) * weights->allowed[j];
}

/* Marks the keys that are still wrong if all weights are `factor` times the right ones. */
static int64_t mark_off(struct story *story, double factor) {
  const struct ft_weights *weights = story->weights;
  int64_t count = 0;
  mark(story, OFF);
  for (int64_t j = 0; j < weights->count; j++) {
    const enum fault fault = fault_of(weights, j);
    const bool kept = weights->keys[j] == FT_KEY_KEPT && weights->looked[j];
    story->marked[j] = kept && (fault == RIGHT || fault == OFF) && off_by_other(weights, j, factor);
    count += story->marked[j];
  }
  return count;
}

/* How many keys from `j` on have the weights of those from `other` on, up to the last marked key. A
 * few of them may be right by chance. */
static int64_t matching(const struct story *story, int64_t j, int64_t other) {
  const struct ft_weights *weights = story->weights;
  int64_t length = 0;
  for (int64_t n = 0; j + n < weights->count && other + n < weights->count; n++) {
    const double error = fabs(weights->used[j + n] - weights->expected[other + n]);
    const bool kept = weights->keys[other + n] == FT_KEY_KEPT && weights->looked[j + n];
    if (!kept || error > weights->allowed[other + n]) break;
    if (story->marked[j + n]) length = n + 1;
  }
  return length;
}

static void tell_exchanged(struct story *story) {
  enum { CONVINCING = 4 };
  const int64_t first = first_marked(story), count = story->weights->count;
  int64_t best = 0, from = 0;
  for (int64_t other = 0; other < count; other++) {
    const int64_t length = other == first ? 0 : matching(story, first, other);
    if (length <= best) continue;
    best = length;
    from = other;
  }
  if (best < CONVINCING) return;
  ft_text_add(story->text, "; keys %lld to %lld have the weights of keys %lld to %lld",
              (long long)first, (long long)(first + best - 1), (long long)from,
              (long long)(from + best - 1));
}

/* After mark_off: names one of the marked keys, then all of them, then what they have in common. */
static void tell_marked_off(struct story *story, int64_t count) {
  const struct ft_weights *weights = story->weights;
  int64_t worst = first_marked(story);
  for (int64_t j = worst; j < weights->count; j++) {
    if (story->marked[j] && fabs(weights->used[j] - weights->expected[j]) >
                                fabs(weights->used[worst] - weights->expected[worst])) {
      worst = j;
    }
  }
  begin_part(story);
  ft_text_add(story->text, "key %lld the weight %.4g, expected %.4g", (long long)worst,
              weights->used[worst], weights->expected[worst]);
  if (count == 1) return;
  tell_keys(story, "; ", " are wrong");
  const double factor = common_factor(story, story->marked);
  bool same = count > 3;
  for (int64_t j = 0; same && j < weights->count; j++) {
    same = !story->marked[j] || !off_by_other(weights, j, factor);
  }
  if (same) {
    ft_text_add(story->text, ", all by the factor %.4g", factor);
  } else {
    tell_exchanged(story);
  }
}

/* A key too many or too few changes the sum, and by it all other weights in one ratio. That is told
 * only when nothing else is. */
static void tell_off(struct story *story) {
  const double factor = common_factor(story, NULL);
  const int64_t plain = mark_off(story, 1);
  int64_t count = mark_off(story, factor);
  if (plain == 0) return;
  if (plain <= count) count = mark_off(story, 1);
  if (count > 0) {
    tell_marked_off(story, count);
  } else if (story->parts == 0) {
    begin_part(story);
    ft_text_add(story->text,
                "all keys %.4g times the weights expected: it divides by %.4g times the right sum",
                factor, 1 / factor);
  }
}

void ft_weights_tell(const struct ft_weights *weights, const struct ft_problem *problem,
                     struct ft_text *text) {
  const size_t count = (size_t)weights->count;
  struct story story = {.weights = weights,
                        .problem = problem,
                        .text = text,
                        .marked = calloc(count, sizeof(bool)),
                        .unknown = calloc(count, sizeof(bool)),
                        .ratios = malloc(count * sizeof(double))};
  if (story.marked && story.unknown && story.ratios) {
    ft_text_add(text, "Weights: row %lld of batch %lld, head %d", (long long)weights->row.i,
                (long long)weights->row.batch, weights->row.head);
    tell_extra(&story, NO_NUMBER);
    tell_extra(&story, UNSEEN);
    tell_extra(&story, UNDROPPED);
    tell_lost(&story);
    tell_off(&story);
    ft_text_add(text, ".\n");
  } else {
    text->failed = true;
  }
  free(story.marked);
  free(story.unknown);
  free(story.ratios);
}
