/* deal.c: which share of a launch's steps the busiest block gets, for each way to deal them out.
 * in -> out: the tiles of a launch -> the number of pairs that go out tile by tile.
 *
 * Pairs in twos, the longest tile with the shortest, are equal shares but for the last round, in
 * which some blocks get none. The tiles dealt one by one after that make up for it, if there are
 * as many as they need: too few leave blocks without, a few too many give some blocks one more. */
#include "runtime/deal.h"

#include <stdbool.h>
#include <string.h>

enum { BLOCKS_MOST = 1024, TILES_ENOUGH = 16384, TRIES = 24, REMEMBERED = 4 };

/* Steps of a tile, at least one, and one for its beginning and end; turn 0 is the longest. */
static double length_of(const struct ft_deal *deal, int64_t turn) {
  const int64_t end = (deal->tiles - turn) * deal->rows, packed = (int64_t)1 << deal->pack_bits;
  const struct ft_interval queries = {(end - deal->rows) / packed, (end + packed - 1) / packed};
  const struct ft_steps steps = ft_steps_of_queries(&deal->visibility, queries, (int)deal->keys);
  return steps.end > steps.begin ? 1 + (double)(steps.end - steps.begin) : 2;
}

static double length_of_pair(const struct ft_deal *deal) {
  double length = 0;
  for (int64_t turn = 0; turn < deal->tiles; turn++) length += length_of(deal, turn);
  return length;
}

/* As many blocks as the last round of twos leaves out get the longest tiles, the first of them in
 * the order of their numbers; then rounds of all blocks turn around, the first from the end. */
double ft_deal_unevenness(const struct ft_deal *deal, int64_t pairs) {
  if (deal->blocks < 1 || deal->blocks > BLOCKS_MOST) return 1;
  const int64_t twos_of_pair = (deal->tiles + 1) / 2, twos = twos_of_pair * (deal->pairs - pairs);
  const int64_t twos_of_block = twos / deal->blocks, with_one_more = twos % deal->blocks;
  const double pair = length_of_pair(deal), two = pair / (double)twos_of_pair;
  double shares[BLOCKS_MOST], longest = 0;
  for (int64_t i = 0; i < deal->blocks; i++)
    shares[i] = (double)(twos_of_block + (i < with_one_more)) * two;

  int64_t place = with_one_more; /* in a round, the one that twos left unfinished is the first */
  bool turned = with_one_more == 0;
  for (int64_t turn = 0; turn < deal->tiles; turn++) {
    const double length = length_of(deal, turn);
    for (int64_t i = 0; i < pairs; i++) {
      shares[turned ? deal->blocks - 1 - place : place] += length;
      if (++place < deal->blocks) continue;
      place = 0;
      turned = !turned;
    }
  }
  for (int64_t i = 0; i < deal->blocks; i++)
    if (shares[i] > longest) longest = shares[i];
  return longest * (double)deal->blocks / (pair * (double)deal->pairs);
}

static int64_t find_pairs(const struct ft_deal *deal) {
  const int64_t enough = TILES_ENOUGH / deal->tiles; /* each block gets many of them */
  const int64_t most = deal->most < enough ? deal->most : enough;
  const int64_t step = (most > deal->least ? most - deal->least : 0) / TRIES + 1;
  int64_t best = deal->least;
  double least = ft_deal_unevenness(deal, best);
  for (int64_t pairs = deal->least + step; pairs <= most; pairs += step) {
    const double unevenness = ft_deal_unevenness(deal, pairs);
    if (unevenness >= least) continue;
    least = unevenness;
    best = pairs;
  }
  return best;
}

int64_t ft_deal_pairs(const struct ft_deal *deal) {
  static _Thread_local struct {
    struct ft_deal deal;
    int64_t pairs;
  } last[REMEMBERED];
  static _Thread_local unsigned next;
  for (int i = 0; i < REMEMBERED; i++)
    if (memcmp(&last[i].deal, deal, sizeof *deal) == 0) return last[i].pairs;
  const unsigned i = next++ % REMEMBERED;
  last[i].pairs = find_pairs(deal);
  last[i].deal = *deal;
  return last[i].pairs;
}
