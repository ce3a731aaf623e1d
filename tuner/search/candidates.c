/* candidates.c: the space, ordered by the model, cut to effort and shard.
 * in -> out: request + arch + options -> struct ft_candidates. */
#include "tuner/search/candidates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/model/ranker.h"
#include "generator/space.h"
#include "generator/status.h"

enum { QUICK_COUNT = 12 }; /* besides the default */

/* The default, then by predicted time. Equal times are ordered by the configs, so that every
 * machine has the same order. */
static int by_promise(const void *a, const void *b) {
  const struct ft_candidate *x = a, *y = b;
  if (x->is_default != y->is_default) return x->is_default ? -1 : 1;
  if (x->predicted_us != y->predicted_us) return x->predicted_us < y->predicted_us ? -1 : 1;
  return ft_config_compare(&x->config, &y->config);
}

static int append(struct ft_candidates *candidates, int *capacity, struct ft_candidate candidate) {
  if (candidates->count == *capacity) {
    *capacity = *capacity ? 2 * *capacity : 256;
    struct ft_candidate *grown = realloc(candidates->list, (size_t)*capacity * sizeof *grown);
    if (!grown) return ft_fail(FT_E_MEMORY, "no memory for %d candidates", *capacity);
    candidates->list = grown;
  }
  candidates->list[candidates->count++] = candidate;
  return FT_OK;
}

static void predict(struct ft_candidates *candidates, struct ft_ranker *ranker) {
  for (int first = 0; first < candidates->count; first += FT_TREE_LANES) {
    struct ft_candidate *const lot = &candidates->list[first];
    const int left = candidates->count - first, count = left < FT_TREE_LANES ? left : FT_TREE_LANES;
    struct ft_ranked ranked[FT_TREE_LANES];
    double us[FT_TREE_LANES];
    for (int n = 0; n < count; n++)
      ranked[n] = (struct ft_ranked){lot[n].config, ft_ranker_by_hand(ranker, &lot[n].config)};
    ft_ranker_promises(ranker, ranked, count, us);
    for (int n = 0; n < count; n++) lot[n].predicted_us = us[n];
  }
}

static bool same_tile(const struct ft_config *a, const struct ft_config *b) {
  return a->family == b->family && ft_config_block_m(a) == ft_config_block_m(b) &&
         ft_config_block_n(a) == ft_config_block_n(b);
}

/* Configs with the same tile differ by little; the model errs by more from one tile to another. So
 * among the first of the list each config that is taken makes the next one with its tile less
 * promising. */
static void vary_first(struct ft_candidates *candidates) {
  enum { FIRST = 64 };
  static const double LESS = 0.013; /* share of its time that each such config adds */
  struct ft_candidate *const list = candidates->list;
  for (int taken = 1; taken < FIRST && taken < candidates->count; taken++) {
    int best = taken;
    double least = INFINITY;
    for (int n = taken; n < candidates->count && list[n].predicted_us < least; n++) {
      int like_it = 0;
      for (int i = 0; i < taken; i++) like_it += same_tile(&list[i].config, &list[n].config);
      const double us = list[n].predicted_us * (1 + LESS * like_it);
      if (us < least) {
        least = us;
        best = n;
      }
    }
    const struct ft_candidate next = list[best];
    memmove(&list[taken + 1], &list[taken], (size_t)(best - taken) * sizeof next);
    list[taken] = next;
  }
}

/* Every shard has the default, which its other candidates are compared with. */
static void take_shard(struct ft_candidates *candidates, int shard, int shards) {
  if (shards < 2) return;
  int kept = 0;
  for (int n = 0; n < candidates->count; n++) {
    const struct ft_candidate candidate = candidates->list[n];
    if (candidate.is_default || n % shards == shard) candidates->list[kept++] = candidate;
  }
  candidates->count = kept;
}

int ft_candidates_make(struct ft_candidates *candidates, const struct ft_request *request,
                       const struct ft_arch *arch, const struct ft_score_costs *score,
                       const struct ft_tune_options *options) {
  *candidates = (struct ft_candidates){0};
  if (options->shards > 1 && (options->shard < 0 || options->shard >= options->shards)) {
    return ft_fail(FT_E_ARGUMENT, "shard is %d of %d; allowed: 0 .. %d", options->shard,
                   options->shards, options->shards - 1);
  }
  struct ft_space space;
  struct ft_ranker ranker;
  FT_TRY(ft_space_open(&space, request, arch));
  FT_TRY(ft_ranker_open(&ranker, request, arch, score));
  int status = FT_OK, capacity = 0;
  struct ft_config config;
  while (ft_space_next(&space, &config)) {
    const struct ft_candidate candidate = {
        .config = config, .is_default = ft_config_compare(&config, &space.first) == 0};
    FT_CHECK(append(candidates, &capacity, candidate));
  }
  predict(candidates, &ranker);
  candidates->product = space.product;
  candidates->legal = space.legal;
  if (candidates->count == 0) {
    FT_GIVE_UP(ft_fail(FT_E_UNSUPPORTED, "no config is legal for this request on %s", arch->name));
  }
  qsort(candidates->list, (size_t)candidates->count, sizeof candidates->list[0], by_promise);
  vary_first(candidates);
  if (options->effort == FT_EFFORT_QUICK && candidates->count > 1 + QUICK_COUNT) {
    candidates->count = 1 + QUICK_COUNT;
  }
  take_shard(candidates, options->shard, options->shards);
done:
  if (status != FT_OK) ft_candidates_free(candidates);
  return status;
}

int ft_candidates_lead(struct ft_candidates *candidates, const struct ft_config *config,
                       double predicted_us) {
  struct ft_candidate leader = {.config = *config, .predicted_us = predicted_us};
  int at = 0;
  while (at < candidates->count && ft_config_compare(&candidates->list[at].config, config) != 0)
    at++;
  if (at == candidates->count) {
    int capacity = candidates->count; /* of what make left, no more is known */
    FT_TRY(append(candidates, &capacity, leader));
  }
  leader = candidates->list[at];
  if (at == 0) return FT_OK; /* it is the default */
  memmove(&candidates->list[2], &candidates->list[1], (size_t)(at - 1) * sizeof leader);
  candidates->list[1] = leader;
  return FT_OK;
}

void ft_candidates_cut(struct ft_candidates *candidates, double share, int most) {
  if (candidates->count > most) candidates->count = most;
  if (candidates->count < 2) return;
  const double limit = share * candidates->list[1].predicted_us;
  while (candidates->count > 2 && candidates->list[candidates->count - 1].predicted_us > limit)
    candidates->count -= 1;
}

void ft_candidates_free(struct ft_candidates *candidates) {
  free(candidates->list);
  *candidates = (struct ft_candidates){0};
}
