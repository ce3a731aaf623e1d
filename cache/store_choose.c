/* store_choose.c: the config for a request on a device: exact, near, by model, or none.
 * in -> out: query -> the winner and how it was hit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/fields.h"
#include "cache/rows.h"
#include "cache/store_parts.h"
#include "generator/status.h"

/* The query as texts, as the rows have it. */
struct wanted {
  const struct ft_query *query;
  struct ft_request bucket_request;
  char *bucket, *class; /* owned */
  char target[16];
};

/* Those that ship come without kernels. */
static bool is_left_out(const struct ft_store *store, const struct wanted *wanted, int layer) {
  return wanted->query->from_anywhere && ft_store_is_shipped(store, layer);
}

static const char *layer_name(const struct ft_store *store, int layer) {
  return layer == 0 ? "user file" : store->layers[layer - 1].path;
}

/* Without memory there is a miss, and one warning a look-up. */
static bool miss(struct ft_store *store, struct ft_choice *choice) {
  if (!choice->note[0]) ft_store_fault(store, ft_detail());
  snprintf(choice->note, sizeof choice->note, "%s", ft_detail());
  return false;
}

/* The winner of what passes the filter; false when nothing does. */
static bool take(struct ft_store *store, const struct ft_filter *filter, enum ft_hit hit,
                 struct ft_choice *choice) {
  struct ft_entries entries;
  if (ft_store_gather(store, filter, &entries) != FT_OK) return miss(store, choice);
  const bool any = entries.standing_count > 0;
  if (any) {
    const struct ft_standing *const best = &entries.standings[0];
    choice->hit = ft_store_is_shipped(store, filter->layer) ? FT_HIT_SHIPPED : hit;
    choice->config = best->trial->config;
    choice->kernel = best->trial->kernel;
    choice->default_won = best->is_default && choice->hit != FT_HIT_EXACT && hit != FT_HIT_MODEL;
    choice->median_us = best->median_us;
    choice->at = best->trial->at;
    snprintf(choice->device, sizeof choice->device, "%s", best->trial->device);
    snprintf(choice->driver, sizeof choice->driver, "%s", best->trial->driver);
    snprintf(choice->nvrtc, sizeof choice->nvrtc, "%s", best->trial->nvrtc);
    const bool ran = ft_outcome_ran(best->trial->outcome);
    snprintf(choice->note, sizeof choice->note, "'%s' %s %s%s%s; %s", filter->bucket,
             ran ? "on" : "predicted for", filter->device, ran ? " by " : "",
             ran ? best->trial->policy : "", layer_name(store, filter->layer));
  }
  ft_entries_free(&entries);
  return any;
}

static void add_note(struct ft_choice *choice, const char *remark) {
  const size_t length = strlen(choice->note);
  snprintf(choice->note + length, sizeof choice->note - length, "; %s", remark);
}

static bool choose_exact(struct ft_store *store, const struct wanted *wanted,
                         struct ft_choice *choice) {
  struct ft_filter filter = {.bucket = wanted->bucket,
                             .device = wanted->query->device,
                             .policy = wanted->query->policy,
                             .templates = wanted->query->templates};
  /* SCREENED: of a search that was cut short. */
  for (int outcome = FT_OUTCOME_OK; outcome <= FT_OUTCOME_SCREENED; outcome++) {
    filter.outcome = ft_outcome_name((enum ft_outcome)outcome);
    for (filter.layer = 0; filter.layer <= store->layer_count; filter.layer++)
      if (!is_left_out(store, wanted, filter.layer) && take(store, &filter, FT_HIT_EXACT, choice))
        return true;
  }
  return false;
}

/* Predictions have a policy of their own (the model's), so the query's does not filter them. */
static bool choose_predicted(struct ft_store *store, const struct wanted *wanted,
                             struct ft_choice *choice) {
  struct ft_filter filter = {
      .bucket = wanted->bucket, .device = wanted->query->device, .outcome = "predicted"};
  const struct ft_digest *const templates[2] = {wanted->query->templates, NULL};
  for (int pass = templates[0] ? 0 : 1; pass < 2; pass++) {
    filter.templates = templates[pass];
    for (filter.layer = 0; filter.layer <= store->layer_count; filter.layer++)
      if (take(store, &filter, FT_HIT_MODEL, choice)) return true;
  }
  return false;
}

/* -- near ----------------------------------------------------------------------------------- */

struct near_spot {
  const struct ft_spot *spot;
  bool elsewhere; /* on another device class */
  double octaves; /* from the bucket wanted */
  double unlike;  /* ratio of multiprocessors, in octaves */
};

/* Nearest first; the rest only makes the order total, whatever order the rows were written in. */
static int order_near(const void *a, const void *b) {
  const struct near_spot *const left = a, *const right = b;
  if (left->elsewhere != right->elsewhere) return left->elsewhere ? 1 : -1;
  if (left->octaves != right->octaves) return left->octaves < right->octaves ? -1 : 1;
  if (left->unlike != right->unlike) return left->unlike < right->unlike ? -1 : 1;
  if (left->spot->layer != right->spot->layer)
    return left->spot->layer < right->spot->layer ? -1 : 1;
  const int order = strcmp(left->spot->device, right->spot->device);
  return order != 0 ? order : strcmp(left->spot->bucket, right->spot->bucket);
}

static double octaves_between(int a, int b) {
  return a > 0 && b > 0 ? fabs(log2((double)a / b)) : 32;
}

/* Errors: FT_E_NOT_FOUND where the bucket belongs to another kernel class, those of
 * ft_request_parse where this version cannot read it. */
static int place_spot(const struct ft_spot *spot, const struct wanted *wanted,
                      struct near_spot *near) {
  struct ft_request bucket;
  FT_TRY(ft_request_parse(&bucket, spot->bucket));
  const double octaves = ft_request_distance(&wanted->bucket_request, &bucket);
  if (!(octaves >= 0)) return FT_E_NOT_FOUND;
  const char *const here = wanted->query->device;
  *near = (struct near_spot){
      .spot = spot,
      .elsewhere = strcmp(spot->device, here) != 0,
      .octaves = octaves,
      .unlike =
          octaves_between(ft_device_multiprocessors(spot->device), ft_device_multiprocessors(here)),
  };
  return FT_OK;
}

/* Whether keys are divided among blocks follows from how many query tiles there are, and decides
 * the time. */
static bool has_few_queries(const struct ft_request *bucket) {
  enum { FEW = 16 };
  return ft_request_alike(bucket).seqlen_q <= FEW;
}

/* What was measured for another problem, by whomever, soon says less than the default's rules and
 * the model do (bench/ledger.md, "Winners that ship: how near"). */
static bool is_too_far(const struct wanted *wanted, const struct near_spot *near) {
  static const double OCTAVES = 1;
  if (wanted->query->from_anywhere) return false;
  return near->octaves > (has_few_queries(&wanted->bucket_request) ? 0 : OCTAVES);
}

static bool take_near(struct ft_store *store, const struct wanted *wanted,
                      const struct near_spot *near, struct ft_choice *choice) {
  struct ft_filter filter = {.bucket = near->spot->bucket,
                             .device = near->spot->device,
                             .outcome = "ok",
                             .policy = wanted->query->policy,
                             .templates = wanted->query->templates,
                             .layer = near->spot->layer};
  const bool current = filter.templates && take(store, &filter, FT_HIT_NEAR, choice);
  filter.templates = NULL;
  if (!current && !take(store, &filter, FT_HIT_NEAR, choice)) return false;
  choice->octaves = near->octaves;
  if (near->elsewhere) add_note(choice, "another device");
  if (near->octaves > 0) {
    char distance[64];
    snprintf(distance, sizeof distance, "nearest bucket, %.3g octave%s away", near->octaves,
             near->octaves == 1 ? "" : "s");
    add_note(choice, distance);
  }
  if (!current && wanted->query->templates) add_note(choice, "other templates");
  return true;
}

static bool choose_near(struct ft_store *store, const struct wanted *wanted,
                        struct ft_choice *choice) {
  /* Of many trials of a bucket one is looked at: each SELECT jumps behind the spot before it. */
#define OF_CLASS                                                                                   \
  "SELECT bucket, device FROM trials WHERE class = ?1 AND target = ?2 AND outcome = 'ok' AND "     \
  "(?3 IS NULL OR policy = ?3) AND "
  /* Of many trials of a spot one is looked at: each SELECT jumps behind the spot before it. Of
   * (bucket, device) > (?4, ?5) SQLite would walk over the rest of that spot. */
  static const char sql[] =
      "SELECT * FROM (" OF_CLASS "bucket = ?4 AND device > ?5 ORDER BY device LIMIT 1) UNION ALL "
      "SELECT * FROM (" OF_CLASS "bucket > ?4 ORDER BY bucket, device LIMIT 1) LIMIT 1";
#undef OF_CLASS
  const char *const texts[3] = {wanted->class, wanted->target, wanted->query->policy};
  struct ft_spots spots;
  if (ft_store_spots(store, sql, texts, -1, &spots) != FT_OK) return miss(store, choice);
  struct near_spot *const near = calloc(spots.count + 1, sizeof *near);
  int status = near ? FT_OK : ft_fail(FT_E_MEMORY, "no memory for buckets");
  size_t count = 0;
  double beyond = INFINITY;
  for (size_t i = 0; status != FT_E_MEMORY && i < spots.count; i++) {
    status = place_spot(&spots.at[i], wanted, &near[count]);
    if (status != FT_OK || is_left_out(store, wanted, spots.at[i].layer)) continue;
    if (is_too_far(wanted, &near[count]))
      beyond = fmin(beyond, near[count].octaves);
    else
      count++;
  }
  if (status == FT_E_MEMORY) miss(store, choice);
  if (count > 1) qsort(near, count, sizeof *near, order_near);

  bool taken = false;
  for (size_t i = 0; !taken && i < count; i++) taken = take_near(store, wanted, &near[i], choice);
  if (!taken && isfinite(beyond)) choice->octaves = beyond;
  free(near);
  ft_spots_free(&spots);
  return taken;
}

/* -- public --------------------------------------------------------------------------------- */

int ft_store_choose(struct ft_store *store, const struct ft_query *query,
                    struct ft_choice *choice) {
  struct wanted wanted = {.query = query, .bucket_request = ft_request_bucket(query->request)};
  *choice = (struct ft_choice){.hit = FT_HIT_DEFAULT};
  snprintf(wanted.target, sizeof wanted.target, "%s", query->target ? query->target : "");
  if (!query->target) ft_device_target(query->device, wanted.target);

  ft_store_enter(store);
  struct ft_locale locale = ft_locale_plain(); /* buckets are parsed along the way */
  if (ft_row_request_text(&wanted.bucket_request, &wanted.bucket) == FT_OK &&
      ft_row_class_text(&wanted.bucket_request, &wanted.class) == FT_OK) {
    if (!choose_exact(store, &wanted, choice) && !choose_near(store, &wanted, choice) &&
        !choose_predicted(store, &wanted, choice))
      snprintf(choice->note, sizeof choice->note, "nothing is known of '%s' on %s", wanted.bucket,
               query->device);
  } else {
    miss(store, choice);
  }
  ft_locale_restore(&locale);
  ft_store_tell_skipped(store);
  ft_store_leave(store);
  free(wanted.bucket);
  free(wanted.class);
  return FT_OK;
}
