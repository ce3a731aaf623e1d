/* schedule.c: which form of the tile scheduler a kernel has, and the numbers that its launch gives.
 * in -> out: request + config -> enum ft_schedule, by the family's descriptor; the work tiles of a
 * launch -> section, remainder, blocks.
 *
 * Balanced pairs, the longest tile with the shortest, are equal shares but for the last round, in
 * which some blocks get none. The tiles of the remainder, dealt one by one after that, make up for
 * it, if there are as many as they need: too few leave blocks without, a few too many give some
 * blocks one more. */
#include "generator/schedule.h"

#include <stdbool.h>
#include <string.h>

#include "generator/family.h"

/* ---- the form ---- */

enum ft_schedule ft_schedule_of(const struct ft_request *request, const struct ft_config *config) {
  return config->family->schedule(request, config);
}

const char *ft_schedule_name(enum ft_schedule schedule) {
  switch (schedule) {
  case FT_SCHEDULE_STATIC: return "static";
  case FT_SCHEDULE_BALANCED: return "balanced";
  case FT_SCHEDULE_LPT: return "lpt";
  case FT_SCHEDULE_SPLIT: return "split";
  case FT_SCHEDULE_LONGEST: return "longest";
  case FT_SCHEDULE_CLUSTER: return "cluster";
  case FT_SCHEDULE_STREAM: return "stream";
  case FT_SCHEDULE_RAGGED: return "ragged";
  }
  return "unknown";
}

/* ---- tiles, sections, blocks ---- */

int64_t ft_schedule_tiles(int64_t length, int64_t mask_block, int tile) {
  if (mask_block == 0) return (length + tile - 1) / tile;
  return (length + mask_block - 1) / mask_block * (mask_block / tile);
}

int64_t ft_schedule_section(const struct ft_request *request, const struct ft_arch *arch,
                            int64_t bytes, int64_t step, int64_t heads) {
  if (!ft_request_tiles_differ(request)) return 1;
  int64_t section = arch->l2_bytes / 2 / bytes * step;
  if (section < step) section = step;
  return section < heads ? section : heads;
}

int64_t ft_schedule_even_section(int64_t most, int64_t heads) {
  if (most >= heads) return heads;
  for (int64_t section = most; 2 * section > most; section--)
    if (heads % section == 0) return section;
  const int64_t sections = (heads + most - 1) / most;
  return (heads + sections - 1) / sections;
}

int64_t ft_schedule_key_section(const struct ft_request *request, const struct ft_arch *arch,
                                const struct ft_key_tiles *of) {
  enum { TOGETHER = 4, LIST_HEADS = 2, ORDERED_LIST_HEADS = 4 };
  const int64_t section = ft_schedule_section(request, arch, of->bytes, 1, of->heads);
  if (!ft_request_tiles_differ(request)) return section;
  int64_t least = of->slots / (of->ordered ? TOGETHER : of->tiles);
  if (request->ragged)
    least = of->ordered ? ORDERED_LIST_HEADS : least < LIST_HEADS ? LIST_HEADS : least;
  return ft_schedule_even_section(section > least ? section : least, of->heads);
}

int64_t ft_schedule_blocks(enum ft_schedule schedule, int64_t tiles, int64_t heads,
                           int64_t remainder, int64_t cluster, int64_t resident) {
  const int64_t paired = schedule == FT_SCHEDULE_BALANCED ? heads - remainder : 0;
  const int64_t shares =
      (tiles + 1) / 2 * paired + (tiles + cluster - 1) / cluster * (heads - paired);
  return cluster * (shares < resident / cluster ? shares : resident / cluster);
}

/* ---- balanced pairs and their remainder ---- */

enum { BLOCKS_MOST = 1024, TILES_ENOUGH = 16384, TRIES = 24, REMEMBERED = 4 };

/* Steps of a tile, at least one, and one for its beginning and end; rank 0 is the longest. */
static double length_of(const struct ft_shares *shares, int64_t rank) {
  const int64_t end = (shares->tiles - rank) * shares->rows,
                packed = (int64_t)1 << shares->pack_bits;
  const struct ft_interval queries = {(end - shares->rows) / packed, (end + packed - 1) / packed};
  const struct ft_steps steps =
      ft_steps_of_queries(&shares->visibility, queries, (int)shares->keys);
  return steps.end > steps.begin ? 1 + (double)(steps.end - steps.begin) : 2;
}

static double length_of_head(const struct ft_shares *shares) {
  double length = 0;
  for (int64_t rank = 0; rank < shares->tiles; rank++) length += length_of(shares, rank);
  return length;
}

/* The blocks that get no balanced pair in the last round of pairs get the longest tiles of the
 * remainder, in the order of the blocks. Rounds of all blocks follow, whose order alternates: the
 * first is from the last block to the first. */
double ft_shares_unevenness(const struct ft_shares *shares, int64_t remainder) {
  if (shares->blocks < 1 || shares->blocks > BLOCKS_MOST) return 1;
  const int64_t pairs_of_head = (shares->tiles + 1) / 2;
  const int64_t pairs = pairs_of_head * (shares->heads - remainder);
  const int64_t pairs_of_block = pairs / shares->blocks, with_one_more = pairs % shares->blocks;
  const double head = length_of_head(shares), pair = head / (double)pairs_of_head;
  double steps[BLOCKS_MOST] = {0}, longest = 0;
  for (int64_t i = 0; i < shares->blocks; i++)
    steps[i] = (double)(pairs_of_block + (i < with_one_more)) * pair;

  int64_t place = with_one_more; /* in a round; the first is the one that pairs left unfinished */
  bool reversed = with_one_more == 0;
  for (int64_t rank = 0; rank < shares->tiles; rank++) {
    const double length = length_of(shares, rank);
    for (int64_t i = 0; i < remainder; i++) {
      steps[reversed ? shares->blocks - 1 - place : place] += length;
      if (++place < shares->blocks) continue;
      place = 0;
      reversed = !reversed;
    }
  }
  for (int64_t i = 0; i < shares->blocks; i++)
    if (steps[i] > longest) longest = steps[i];
  return longest * (double)shares->blocks / (head * (double)shares->heads);
}

static int64_t find_remainder(const struct ft_shares *shares) {
  const int64_t enough = TILES_ENOUGH / shares->tiles; /* each block gets many of them */
  const int64_t most = shares->most < enough ? shares->most : enough;
  const int64_t step = (most > shares->least ? most - shares->least : 0) / TRIES + 1;
  int64_t best = shares->least;
  double least = ft_shares_unevenness(shares, best);
  for (int64_t remainder = shares->least + step; remainder <= most; remainder += step) {
    const double unevenness = ft_shares_unevenness(shares, remainder);
    if (unevenness >= least) continue;
    least = unevenness;
    best = remainder;
  }
  return best;
}

int64_t ft_shares_remainder(const struct ft_shares *shares) {
  static _Thread_local struct {
    struct ft_shares shares;
    int64_t remainder;
  } last[REMEMBERED];
  static _Thread_local unsigned next;
  for (int i = 0; i < REMEMBERED; i++)
    if (memcmp(&last[i].shares, shares, sizeof *shares) == 0) return last[i].remainder;
  const unsigned i = next++ % REMEMBERED;
  last[i].remainder = find_remainder(shares);
  last[i].shares = *shares;
  return last[i].remainder;
}
