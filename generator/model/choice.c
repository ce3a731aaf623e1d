/* choice.c: whether the model knows a config that is faster than the default.
 * in -> out: request + arch -> a config.
 *
 * The default is from tables of what was fastest for requests that were measured, a few of each
 * kind. The fit is made of many timings of nearly all kinds. It errs by some percent for any
 * config, and the best of many predictions is one that errs in its favour. So a config is taken
 * instead of the default that is predicted to be faster by a margin, which comes with the fit.
 *
 * Asked are the configs that differ in a knob or two from a family's default, or from one that was
 * the fastest for another request. The prediction by hand is cheap and puts the most promising in
 * front, and the fit ranks these. */
#include "generator/model/choice.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "generator/model/fit.h"
#include "generator/space.h"
#include "generator/status.h"

enum { PROMISING = 128 }; /* of the configs that are asked, so many are ranked by the fit */

enum { KNOWN_BITS = 12, KNOWN = 1 << KNOWN_BITS };

/* What is known of a config since the choice began: rounds ask many of them again. */
struct known {
  uint64_t key;      /* a hash of the config, 0: free. Two of a choice share one once in 10^12
                        choices */
  double by_hand_us; /* below 0: the config cannot be taken */
  double us;         /* by the fit; below 0: not asked yet */
};

/* A config that was asked in this round. */
struct asked {
  double by_hand_us;
  int at; /* in the search's list */
};

/* What was found of a config's neighbours. */
struct round {
  uint64_t key; /* of the config that they are neighbours of */
  struct ft_config best;
  double us;
};

enum { ROUNDS_KNOWN = 32 };

struct search {
  struct ft_ranker *ranker;
  const struct ft_request *request;
  const struct ft_arch *arch;
  double registers_of_default; /* share of those allowed, by the estimate */
  /* Of the configs asked in this round, those with the least time by hand, in that order. */
  struct asked asked[PROMISING];
  struct ft_ranked list[PROMISING];
  /* Of each in the list: what is known, NULL where there was no room for it. */
  struct known *of[PROMISING];
  int count;
  struct known known[KNOWN];
  int known_count;
  /* The rounds since the choice began: descents meet. */
  struct round rounds[ROUNDS_KNOWN];
  int round_count;
};

/* What a knob's value adds to the key of a config. */
static uint64_t key_of_knob(int knob, int value) {
  uint64_t key = ((uint64_t)(unsigned)value << 8 | (uint64_t)knob) + 0x9E3779B97F4A7C15u;
  key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9u;
  key = (key ^ key >> 27) * 0x94D049BB133111EBu;
  return key ^ key >> 31;
}

/* The key is a sum over the knobs. A neighbour's key is computed from the knobs that differ. */
static uint64_t key_of(const struct ft_config *config) {
  uint64_t key = (uint64_t)(uintptr_t)config->family * 0x9E3779B97F4A7C15u;
  for (int n = 0; n < config->family->knob_count; n++) key += key_of_knob(n, config->knobs[n]);
  return key;
}

/* The entry with this key, or the free entry for it. NULL: there is none, and the table is full. */
static struct known *place_of(struct search *search, uint64_t key) {
  int at = (int)(key >> (64 - KNOWN_BITS));
  while (search->known[at].key != 0 && search->known[at].key != key) at = (at + 1) % KNOWN;
  struct known *const place = &search->known[at];
  return place->key == 0 && search->known_count == KNOWN / 4 * 3 ? NULL : place;
}

/* Times by the fit of what was asked. */
static void rank(struct search *search, double *us) {
  struct ft_ranked fresh[PROMISING];
  double fresh_us[PROMISING];
  int of[PROMISING], count = 0;
  for (int n = 0; n < search->count; n++) {
    const int at = search->asked[n].at;
    us[n] = search->of[at] ? search->of[at]->us : -1;
    if (us[n] >= 0) continue;
    fresh[count] = search->list[at];
    of[count++] = n;
  }
  if (count == 0) return;
  ft_ranker_us_of(search->ranker, fresh, count, fresh_us);
  for (int n = 0; n < count; n++) {
    struct known *const known = search->of[search->asked[of[n]].at];
    us[of[n]] = fresh_us[n];
    if (known) known->us = fresh_us[n];
  }
}

static double share_of_registers(const struct search *search, const struct ft_config *config) {
  const struct ft_budget budget = ft_budget_of(search->request, config, search->arch);
  return (double)budget.regs_estimate / budget.regs_limit;
}

/* Whether ptxas is likely to find registers for it. Of the mma families it spilled 40 % of the fp32
 * kernels above 0.75 of the registers by the estimate, and few below. Of tf32, whose operands are
 * of one part, it spilled 4 of 98 between 0.75 and 0.9 and 41 of 98 beyond; with elements of 16
 * bits 1 % of all. Where the default itself asks for more, others may ask for as much. */
static bool has_registers(const struct search *search, const struct ft_config *config) {
  static const double FP32_SHARE = 0.75, TF32_SHARE = 0.9;
  const struct ft_family *const family = config->family;
  const enum ft_dtype dtype = search->request->dtype;
  const bool by_mma = family == &ft_mma_forward_family || family == &ft_mma_backward_family;
  if (!by_mma || ft_dtype_bytes(dtype) < 4) return true;
  const double most = dtype == FT_TF32 ? TF32_SHARE : FP32_SHARE;
  return share_of_registers(search, config) <= fmax(most, search->registers_of_default);
}

/* Puts a config in its place in the round's order, if it is one of the most promising. */
static void enlist(struct search *search, const struct ft_config *config,
                   const struct ft_prediction *by_hand, struct known *known) {
  int place = search->count;
  while (place > 0 && by_hand->us < search->asked[place - 1].by_hand_us) place--;
  if (place == PROMISING) return;
  const bool full = search->count == PROMISING;
  const int at = full ? search->asked[PROMISING - 1].at : search->count++;
  const int moved = search->count - 1 - place;
  memmove(&search->asked[place + 1], &search->asked[place],
          (size_t)moved * sizeof search->asked[0]);
  search->asked[place] = (struct asked){by_hand->us, at};
  search->list[at] = (struct ft_ranked){*config, *by_hand};
  search->of[at] = known;
}

/* knobs: as ft_rules_hold has it. */
static void ask(struct search *search, const struct ft_config *config, uint64_t key,
                unsigned knobs) {
  struct ft_prediction by_hand = {.us = -1};
  key |= 1; /* never that of a free place */
  struct known *const known = place_of(search, key);
  const bool is_known = known && known->key == key;
  if (is_known && known->by_hand_us < 0) return;
  if (is_known && known->us >= 0)
    by_hand.us = known->by_hand_us; /* the rest is for the fit, which is not asked again */
  else if (is_known || (ft_rules_hold(search->request, search->arch, config, knobs) &&
                        has_registers(search, config)))
    by_hand = ft_ranker_by_hand(search->ranker, config);
  if (known && !is_known) {
    *known = (struct known){key, by_hand.us, -1};
    search->known_count += 1;
  }
  if (by_hand.us >= 0) enlist(search, config, &by_hand, known);
}

/* The values that the search tries for a knob, from one on; the config's own is passed over. */
static bool next_value(const struct ft_knob *knob, int *place, int now, int *value) {
  while (++*place < knob->searched_count) {
    *value = knob->searched[*place];
    if (*value != now) return true;
  }
  return false;
}

enum { VALUES_MOST = 32 }; /* that are searched, of a knob: struct ft_space has a bit for each */

/* Of the neighbours that differ from a config in one knob: what ft_rules_may_mend says of each. */
struct mending {
  unsigned of[FT_KNOBS_MOST][VALUES_MOST];
};

static void find_mending(const struct search *search, const struct ft_config *from,
                         struct mending *mending) {
  const struct ft_family *const family = from->family;
  for (int a = 0; a < family->knob_count; a++) {
    struct ft_config one = *from;
    for (int x = -1; next_value(&family->knobs[a], &x, from->knobs[a], &one.knobs[a]);)
      mending->of[a][x] = ft_rules_may_mend(search->request, search->arch, &one);
  }
}

/* Asks the configs that differ from `one` in a second knob, behind number `a`. Knob `a` has its
 * value number `x` in `one`. If one of the two changes breaks a knob rule that does not read the
 * other knob, the other change cannot mend it, and the config is passed over. Of the remaining
 * configs only the knob rules that read both knobs are still unknown. */
static void ask_second(struct search *search, const struct ft_config *one, uint64_t key,
                       const struct mending *mending, int a, int x) {
  const struct ft_family *const family = one->family;
  for (int b = a + 1; b < family->knob_count; b++) {
    struct ft_config two = *one;
    const int now = one->knobs[b];
    const uint64_t others = key - key_of_knob(b, now);
    if (!(mending->of[a][x] >> b & 1)) continue;
    for (int y = -1; next_value(&family->knobs[b], &y, now, &two.knobs[b]);)
      if (mending->of[b][y] >> a & 1)
        ask(search, &two, others + key_of_knob(b, two.knobs[b]), 1u << a | 1u << b);
  }
}

/* All that differ from `from` in one knob or in two. */
static void ask_neighbours(struct search *search, const struct ft_config *from, uint64_t key) {
  const struct ft_family *const family = from->family;
  struct mending mending;
  find_mending(search, from, &mending);
  ask(search, from, key, FT_EVERY_KNOB_RULE);
  for (int a = 0; a < family->knob_count; a++) {
    struct ft_config one = *from;
    const uint64_t others = key - key_of_knob(a, from->knobs[a]);
    for (int x = -1; next_value(&family->knobs[a], &x, from->knobs[a], &one.knobs[a]);) {
      const uint64_t own = others + key_of_knob(a, one.knobs[a]);
      if (mending.of[a][x] == FT_NO_RULE_BROKEN) ask(search, &one, own, FT_NO_KNOB_RULE);
      ask_second(search, &one, own, &mending, a, x);
    }
  }
}

/* Of the configs that were asked, the one with the least time by the fit, and that time. Infinity,
 * and *config as it was, if none was asked. */
static double fastest_asked(struct search *search, struct ft_config *config) {
  double least = INFINITY, us[PROMISING];
  rank(search, us);
  for (int n = 0; n < search->count; n++) {
    if (us[n] >= least) continue;
    least = us[n];
    *config = search->list[search->asked[n].at].config;
  }
  return least;
}

/* The neighbour of `from` with the least time by the fit, and that time; `from` and infinity if no
 * neighbour can be asked. */
static double best_neighbour(struct search *search, const struct ft_config *from,
                             struct ft_config *config) {
  const uint64_t key = key_of(from);
  for (int n = 0; n < search->round_count; n++) {
    const struct round *const known = &search->rounds[n];
    if (known->key != key) continue;
    *config = known->best;
    return known->us;
  }
  search->count = 0;
  *config = *from;
  ask_neighbours(search, from, key);
  const double us = fastest_asked(search, config);
  if (search->round_count < ROUNDS_KNOWN)
    search->rounds[search->round_count++] = (struct round){key, *config, us};
  return us;
}

/* The same after a descent: the best neighbour's neighbours are asked in turn, as long as one of
 * them is faster. The fastest config mostly differs from the default in its tile, which is two
 * knobs, and in a switch or two beside it. */
static double best_of(struct search *search, const struct ft_config *from,
                      struct ft_config *config) {
  enum { ROUNDS = 6 };
  double least = best_neighbour(search, from, config);
  for (int n = 1; n < ROUNDS; n++) {
    struct ft_config next;
    const double us = best_neighbour(search, config, &next);
    if (us >= least) break;
    least = us;
    *config = next;
  }
  return least;
}

enum { STARTS = 4 };

/* A descent changes a knob or two at a time. It does not reach a config with another tile, other
 * warps and another division of the keys if the configs in between are slower. So descents start,
 * too, from configs that were the fastest for other requests: those of the family that take the
 * least time by the fit, in order. Returns how many there are, STARTS at most. */
static int best_starts(struct search *search, const struct ft_family *family,
                       struct ft_config *starts) {
  struct ft_config start;
  double us[PROMISING] = {0};
  const char *text;
  int count = 0, place = 0;
  search->count = 0;
  while ((text = ft_fit_start(family, search->arch, &place)) != NULL)
    if (ft_config_parse(&start, text) == FT_OK)
      ask(search, &start, key_of(&start), FT_EVERY_KNOB_RULE);
  rank(search, us);
  for (; count < STARTS && count < search->count; count++) {
    int least = 0;
    for (int n = 1; n < search->count; n++) least = us[n] < us[least] ? n : least;
    starts[count] = search->list[search->asked[least].at].config;
    us[least] = INFINITY;
  }
  return count;
}

static bool is_sized(const struct ft_request *request) {
  return request->batch > 0 && request->heads_kv > 0 && request->seqlen_q > 0 &&
         request->seqlen_k > 0;
}

double ft_choice_margin(const struct ft_ranker *ranker, const struct ft_config *config) {
  const struct ft_config *const standard = &ranker->standard.config;
  const struct ft_fit_choice *const fit = ft_fit_choice_of(config->family->pass, ranker->of.arch);
  if (!fit || ft_config_compare(config, standard) == 0) return 1;
  return fit->margin;
}

/* What is taken so far. */
struct taken {
  struct ft_config config;
  double us;    /* by the fit */
  double least; /* what another must be below: that time with the margin that it was taken by */
};

/* Where descents in a family begin. */
struct beginnings {
  bool has_default;
  struct ft_config standard, starts[STARTS];
  int count; /* of starts */
};

/* Takes the best config that a descent from the family's default or from its best start finds. */
static void look_near(struct search *search, const struct beginnings *from, struct taken *taken) {
  struct ft_config best, other;
  double us = best_of(search, &from->standard, &best);
  if (from->count > 0) {
    const double other_us = best_of(search, &from->starts[0], &other);
    if (other_us < us) {
      us = other_us;
      best = other;
    }
  }
  const double least = us * ft_choice_margin(search->ranker, &best);
  if (us < INFINITY && least < taken->least) *taken = (struct taken){best, us, least};
}

/* Descents from the other starts. A family without a default for the request was not found good for
 * such requests, so all of its starts are far. What they find is taken if it is faster by far than
 * what is near: the more configs are asked, the more of them are predicted to be faster than they
 * are. */
static void look_far(struct search *search, const struct beginnings *from, struct taken *taken) {
  static const double FAR = 1.05;
  struct ft_config best;
  for (int n = from->has_default ? 1 : 0; n < from->count; n++) {
    const double us = best_of(search, &from->starts[n], &best);
    if (us * FAR < taken->least) *taken = (struct taken){best, us, us * FAR};
  }
}

enum { FAMILIES_MOST = 8 };

/* The beginnings in each family that serves the request. Returns how many families these are. */
static int find_beginnings(struct search *search, struct beginnings *all) {
  const struct ft_request *const request = search->request;
  const struct ft_config *const standard = &search->ranker->standard.config;
  int count = 0;
  for (int n = 0; ft_family_at(n) != NULL && count < FAMILIES_MOST; n++) {
    const struct ft_family *const family = ft_family_at(n);
    if (family->pass != request->pass || !ft_family_serves(family, request, search->arch)) continue;
    struct beginnings *const own = &all[count++];
    own->standard = *standard;
    own->has_default =
        family == standard->family || family->default_config(request, search->arch, &own->standard);
    own->count = best_starts(search, family, own->starts);
  }
  return count;
}

/* Looks near in all families, then far in all. */
static void look(struct search *search, struct taken *taken) {
  struct beginnings all[FAMILIES_MOST];
  const int count = find_beginnings(search, all);
  for (int n = 0; n < count; n++)
    if (all[n].has_default) look_near(search, &all[n], taken);
  taken->least = taken->us;
  for (int n = 0; n < count; n++) look_far(search, &all[n], taken);
}

int ft_model_choose(const struct ft_request *request, const struct ft_arch *arch,
                    const struct ft_score_costs *score, struct ft_config *config, double *gain) {
  struct ft_ranker ranker;
  *gain = 1;
  if (!ft_fit_choice_of(request->pass, arch) || !is_sized(request))
    return ft_default_config(request, arch, config);
  FT_TRY(ft_ranker_open(&ranker, request, arch, score));
  struct search search = {.ranker = &ranker, .request = request, .arch = arch};
  search.registers_of_default = share_of_registers(&search, &ranker.standard.config);
  const double us = ft_ranker_us(&ranker, &ranker.standard.config, &ranker.standard.prediction);
  struct taken taken = {ranker.standard.config, us, us};
  look(&search, &taken);
  *config = taken.config;
  *gain = us / taken.us;
  return FT_OK;
}
