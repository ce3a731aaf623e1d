/* tiles_in_order.c: when the last of a backward's blocks ends.
 * in -> out: request + GPU + tiles -> steps.
 *
 * A multiprocessor that is done with a key tile takes the next one. Where adds to dQ have an order,
 * a key tile adds to a query tile at least a turn after the key tile before it in the same head.
 * A key tile that has caught up with the one before it stays a turn behind it. So one number per
 * head is kept: when its last key tile passed the place where the next one may have to wait. A
 * key tile waits at most a turn for each key tile that sees the same queries. With a window these
 * are few. Times are in steps: configs with the same tiles have the same number of steps. */
#include "generator/model/tiles_in_order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generator/families/plan.h"
#include "generator/schedule.h"
#include "generator/visibility.h"
#include "generator/walk_parts.h"

enum {
  SLOTS_MOST = 512,
  BLOCKS_MOST = 4096, /* 30 for each multiprocessor; of more the rest goes on as these do */
  REMEMBERED = 16
};

/* In steps. Set by 6,000 times of backwards on an H200, with one free factor a kernel for the time
 * of its step. For START_AND_END 2 and 5 had larger errors. The turn is TURN and HANDING_ON over
 * the queries of a step. Of 1.0, 1.2 and 1.5 steps the error was least at 1.2 with 64 queries a
 * step, and at 1.0 with 128. */
static const double START_AND_END = 3.3; /* K and V are loaded; dK and dV are stored */
static const double TURN = 1;            /* a key tile may add when the next step of the one before
                                            it begins */
static const double HANDING_ON = 12.8;   /* the sums come through L2 */

/* 64-bit throughout: compared as bytes. */
struct problem {
  struct ft_visibility visibility; /* of the mean sequence */
  struct ft_alignments alignments;
  int64_t sequences; /* that share the launch's list of tiles; else 1 */
  int64_t heads, group, section, slots;
  int64_t block_m, block_n;
  int64_t sums; /* of dQ, where adds have an order; else 0 */
  int64_t mask_rows, mask_cols, part_steps, varies;
  double longest, others; /* kept shares of a mask's first column and of the others */
};

/* ---- multiprocessors, by the time at which they are free ---- */

struct slots {
  double free[SLOTS_MOST]; /* the earliest first: free[i] <= free[2 i + 1], free[2 i + 2] */
  int count;
};

static void take_first(struct slots *slots, double until) {
  int i = 0;
  for (int next = 1; next < slots->count; next = 2 * i + 1) {
    if (next + 1 < slots->count && slots->free[next + 1] < slots->free[next]) next++;
    if (slots->free[next] >= until) break;
    slots->free[i] = slots->free[next];
    i = next;
  }
  slots->free[i] = until;
}

/* ---- what is to be done for a head ---- */

/* A block's walk, if nobody holds it up: it comes to the place where it may have to wait at last
 * after `before` steps, and takes `after` more. */
struct walk_of_block {
  float before, after;
  int32_t sequence;
  int32_t rank;     /* the largest start first */
  int32_t see_them; /* key tiles of its head that see the same queries, at most */
};

struct list {
  struct walk_of_block walks[BLOCKS_MOST];
  int64_t count;
};

/* The lengths of the sequences of a ragged request are not known. They are taken to be evenly
 * spread from half of the mean length to one and a half of it. */
static struct ft_visibility visibility_of(const struct problem *it, int64_t sequence) {
  if (it->sequences == 1) return it->visibility;
  const double share = 0.5 + ((double)sequence + 0.5) / (double)it->sequences;
  const struct ft_visibility all = it->visibility;
  const int64_t nq = (int64_t)fmax(1, share * (double)all.nq);
  const int64_t nk = (int64_t)fmax(1, share * (double)all.nk);
  return ft_visibility_in(&it->alignments, nq, nk);
}

/* The last place where all walks of a head come by: where walks begin spread over the query tiles,
 * the last one; else a place beyond the first query tile, to which all walk down. */
static struct walk_of_block walk_of(const struct problem *it,
                                    const struct ft_visibility *visibility, int64_t tile,
                                    int64_t tiles) {
  const int64_t first = tile * it->block_n, beyond = first + it->block_n;
  const int64_t end = beyond < visibility->nk ? beyond : visibility->nk;
  const struct ft_steps steps =
      ft_steps_of_keys(visibility, (struct ft_interval){first, end}, (int)it->block_m);
  const float length = (float)(steps.end - steps.begin), others = (float)(it->group - 1);
  if (it->sums == 2) {
    const int64_t begin = (tiles - 1 - tile) * steps.end / tiles;
    return (struct walk_of_block){.before = (float)(steps.end - begin),
                                  .after = (float)begin + others * length};
  }
  return (struct walk_of_block){.before = others * length + (float)steps.end,
                                .after = -(float)steps.begin};
}

static int by_rank(const void *a, const void *b) {
  const struct walk_of_block *const x = a, *const y = b;
  if (x->rank != y->rank) return x->rank > y->rank ? -1 : 1;
  return x < y ? -1 : 1;
}

/* How many key tiles see the same queries, at most. In a causal head the last queries see the most
 * keys. Where a window reaches to later keys, queries in the middle of the head do. */
static int32_t most_that_see(const struct problem *it, const struct ft_visibility *visibility) {
  const int64_t rows = visibility->nq < it->block_m ? visibility->nq : it->block_m;
  const int64_t begins[] = {visibility->nq - rows, (visibility->nq - rows) / 2};
  int64_t most = 0;
  for (int n = 0; n < FT_COUNT(begins); n++) {
    const struct ft_interval queries = {begins[n], begins[n] + rows};
    const struct ft_steps seen = ft_steps_of_queries(visibility, queries, (int)it->block_n);
    if (seen.end - seen.begin > most) most = seen.end - seen.begin;
  }
  return (int32_t)most;
}

/* false: they are too many. */
static bool list_walks(const struct problem *it, struct list *list) {
  list->count = 0;
  for (int64_t sequence = 0; sequence < it->sequences; sequence++) {
    const struct ft_visibility visibility = visibility_of(it, sequence);
    const int32_t see_them = most_that_see(it, &visibility);
    const int64_t tiles = ft_schedule_tiles(visibility.nk, 0, (int)it->block_n);
    if (tiles > BLOCKS_MOST - list->count) return false;
    for (int64_t tile = 0; tile < tiles; tile++) {
      struct walk_of_block *const walk = &list->walks[list->count++];
      *walk = walk_of(it, &visibility, tile, tiles);
      walk->sequence = (int32_t)sequence;
      walk->see_them = see_them;
      walk->rank = it->sums > 0 ? (int32_t)(tiles - tile) : (int32_t)(walk->before + walk->after);
    }
  }
  /* As templates/parts/work_list.cu.in does. */
  if (it->sequences > 1) qsort(list->walks, (size_t)list->count, sizeof *list->walks, by_rank);
  return true;
}

/* ---- block masks ---- */

/* From 0 to 1, as if drawn. */
static double drawn(uint64_t number) {
  uint64_t x = (number + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

/* Of `blocks` of which each is kept with probability `share`, how many are kept in all but a part
 * `u` of the cases at most. */
static double kept_of(double blocks, double share, double u) {
  enum { FEW = 24 };
  if (share >= 1) return blocks;
  if (blocks > FEW) {
    const double of_normal = 4.91 * (pow(u, 0.14) - pow(1 - u, 0.14));
    const double kept = share * blocks + of_normal * sqrt(blocks * share * (1 - share));
    return fmin(blocks, fmax(0, kept));
  }
  double kept = 0, of_kept = pow(1 - share, blocks), below = of_kept;
  for (; below < u && kept < blocks; below += of_kept, kept++)
    of_kept *= (blocks - kept) / (kept + 1) * share / (1 - share);
  return kept;
}

/* What a mask keeps of the walk of a head's tile number `tile`. Where the mask alone hides, the
 * columns with most come first. */
static double kept_steps(const struct problem *it, double steps, int64_t head, int64_t tile) {
  const int64_t columns = (it->visibility.nk + it->mask_cols - 1) / it->mask_cols;
  const int64_t column = tile * it->block_n / it->mask_cols;
  const bool sorted = !it->varies;
  const double blocks = ceil(steps * (double)it->block_m / (double)it->mask_rows);
  const double of_column = drawn((uint64_t)(head * columns + column));
  const double u = sorted ? 1 - ((double)column + of_column) / (double)columns : of_column;
  const double share = column == 0 ? it->longest : it->others;
  return blocks > 0 ? steps * kept_of(blocks, share, u) / blocks : 0;
}

/* Blocks that share a walk of so many steps (generator/walk_parts.h). */
static int64_t parts_of(const struct problem *it, double steps) {
  int64_t parts = 1;
  if (it->part_steps == 0) return 1;
  for (double most = (double)it->part_steps; steps > most && parts < FT_WALK_PARTS_MOST; most *= 2)
    parts *= 2;
  return parts;
}

/* ---- the whole ---- */

/* The end of a tile's last block; of one that waits for no other. */
static double end_of_masked(const struct problem *it, struct slots *slots, double steps) {
  const int64_t parts = parts_of(it, steps);
  double last = 0;
  for (int64_t part = 0; part < parts; part++) {
    const double end = slots->free[0] + steps / (double)parts + START_AND_END;
    take_first(slots, end);
    last = fmax(last, end);
  }
  return last;
}

/* When the last block of the first `heads` heads ends. Blocks are in this order: by sections of
 * heads, in a section by key tiles, and of a key tile by heads. */
static double end_of(const struct problem *it, int64_t heads, const struct list *list) {
  struct slots slots = {.count = (int)it->slots};
  const double turn = TURN + HANDING_ON / (double)it->block_m;
  double behind[BLOCKS_MOST], last = 0;
  for (int64_t first = 0; first < heads; first += it->section) {
    const int64_t in_section = heads - first < it->section ? heads - first : it->section;
    for (int64_t n = 0; n < in_section * it->sequences; n++) behind[n] = -INFINITY;
    for (int64_t n = 0; n < list->count; n++) {
      const struct walk_of_block walk = list->walks[n];
      const bool waits = it->sums > 0 && walk.before + walk.after > 0;
      double *const others = behind + walk.sequence * in_section;
      for (int64_t head = 0; head < in_section; head++) {
        if (it->mask_rows > 0) {
          const double kept = kept_steps(it, walk.before + walk.after, first + head, n);
          last = fmax(last, end_of_masked(it, &slots, kept));
          continue;
        }
        const double place = slots.free[0] + walk.before;
        const double latest = place + walk.see_them * turn;
        const double passed = waits ? fmax(place, fmin(latest, others[head] + turn)) : place;
        if (waits) others[head] = passed;
        const double end = passed + walk.after + START_AND_END;
        take_first(&slots, end);
        last = fmax(last, end);
      }
    }
  }
  return last;
}

/* Below 0: there are too many tiles to look at each. */
static double steps_of(const struct problem *it) {
  struct list list;
  if (!list_walks(it, &list)) return -1;
  if (list.count == 0) return START_AND_END;
  const int64_t sections = (it->heads + it->section - 1) / it->section;
  const int64_t affordable = BLOCKS_MOST / (list.count * it->section);
  const int64_t enough = sections < affordable ? sections : affordable < 2 ? 2 : affordable;
  const int64_t heads = enough * it->section < it->heads ? enough * it->section : it->heads;
  const double all = end_of(it, heads, &list);
  if (heads == it->heads) return all;
  const int64_t half = enough / 2 * it->section;
  return all +
         (all - end_of(it, half, &list)) * (double)(it->heads - heads) / (double)(heads - half);
}

/* Of a head, of all sequences. */
static int64_t tiles_of(const struct problem *it) {
  const int64_t tiles = it->sequences * ft_schedule_tiles(it->visibility.nk, 0, (int)it->block_n);
  return tiles < 1 ? 1 : tiles;
}

static int64_t section_of(const struct ft_request *request, const struct ft_arch *arch,
                          const struct problem *it) {
  const int64_t queries = it->group * it->sequences * it->visibility.nq;
  const int64_t dims = request->head_dim + request->head_dim_v;
  const struct ft_key_tiles of = {.bytes = queries * dims * ft_dtype_bytes(request->dtype),
                                  .heads = it->heads,
                                  .tiles = tiles_of(it),
                                  .slots = it->slots,
                                  .ordered = it->sums > 0};
  return ft_schedule_key_section(request, arch, &of);
}

static double steps_of_many(const struct ft_request *request, const struct ft_blocks *blocks,
                            const struct problem *it) {
  const double rounds = ceil((double)(it->heads * tiles_of(it)) / (double)it->slots);
  return rounds * (ft_walk_of_keys(request, blocks->tiling).mean + START_AND_END);
}

static struct problem problem_of(const struct ft_request *request, const struct ft_arch *arch,
                                 const struct ft_blocks *blocks) {
  struct problem it;
  memset(&it, 0, sizeof it);
  it.visibility = ft_visibility_of(request);
  it.alignments = ft_alignments_of(request);
  it.sequences = request->ragged ? request->batch : 1;
  it.heads = (request->ragged ? 1 : (int64_t)request->batch) * request->heads_kv;
  it.group = request->heads_q / request->heads_kv;
  it.block_m = blocks->tiling.block_m;
  it.block_n = blocks->tiling.block_n;
  it.sums = request->deterministic ? ft_dq_sums(request, true) : 0;
  it.varies = ft_visibility_varies(request);
  it.mask_rows = request->mask_rows;
  it.mask_cols = request->mask_cols;
  it.part_steps = it.varies || it.mask_rows == 0 ? 0 : blocks->part_steps;
  if (it.mask_rows > 0) {
    const int64_t columns = (request->seqlen_k + it.mask_cols - 1) / it.mask_cols;
    const struct ft_line_shares shares = ft_line_shares_of(request, columns);
    it.longest = columns < 2 ? request->mask_density : shares.longest;
    it.others = shares.others;
  }
  const int64_t slots = arch->sm_count / blocks->cluster;
  it.slots = slots < 1 ? 1 : slots < SLOTS_MOST ? slots : SLOTS_MOST;
  const int64_t section = section_of(request, arch, &it);
  const int64_t most = BLOCKS_MOST / tiles_of(&it);
  it.section = section < most ? section : most < 1 ? 1 : most;
  return it;
}

double ft_steps_in_order(const struct ft_request *request, const struct ft_arch *arch,
                         const struct ft_blocks *blocks) {
  static _Thread_local struct {
    struct problem problem;
    double steps;
  } known[REMEMBERED];
  static _Thread_local unsigned next;
  const struct problem it = problem_of(request, arch, blocks);
  for (int i = 0; i < REMEMBERED; i++)
    if (memcmp(&known[i].problem, &it, sizeof it) == 0) return known[i].steps;
  const unsigned i = next++ % REMEMBERED;
  known[i].steps = steps_of(&it);
  if (known[i].steps < 0) known[i].steps = steps_of_many(request, blocks, &it);
  known[i].problem = it;
  return known[i].steps;
}
